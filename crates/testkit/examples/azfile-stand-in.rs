//! The stand-in for Azure Files, for scripts: serves one share in memory until standard input ends.
//!
//! `azfile-stand-in [ADDRESS [SHARE]]` prints one line of JSON: the endpoint, the account, its key, the share.

use std::net::SocketAddr;

use testkit::azfile::{ACCOUNT, KEY, StandIn};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut typed = std::env::args().skip(1);
    let address: SocketAddr = typed.next().unwrap_or_else(|| "127.0.0.1:0".into()).parse()?;
    let share = typed.next().unwrap_or_else(|| "share".into());
    let stand_in = StandIn::start_at(address, &[&share], None).await?;
    let endpoint = stand_in.endpoint();
    println!(r#"{{"endpoint":"{endpoint}","account":"{ACCOUNT}","key":"{KEY}","share":"{share}"}}"#);
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await??;
    Ok(())
}
