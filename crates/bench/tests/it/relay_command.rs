//! `forebay bench relay`, from the command line to its end.

use std::net::SocketAddr;
use std::time::Duration;

use bench::relay_command::{RelayArgs, serve};
use quantity::ByteRate;
use relay::{Config, Profile, Relay};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::{any, ms};

/// Echoes until the end of each connection.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind(any()).await.expect("bound");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    address
}

async fn ask(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(&[1]).await?;
    stream.read_exact(&mut [0]).await.map(drop)
}

async fn within<T>(time: Duration, what: impl Future<Output = T>) -> T {
    tokio::time::timeout(time, what).await.expect("in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_relays_until_it_is_terminated() {
    let free = {
        let listener = TcpListener::bind(any()).await.expect("bound");
        listener.local_addr().expect("bound")
    };
    let args = RelayArgs {
        to: echo().await.to_string(),
        listen: free,
        profile: Some("metro".parse::<Profile>().expect("it exists")),
        rtt: Some(ms(3)),
        rate: None,
        window: None,
    };
    assert_eq!(args.config().rtt, ms(3), "what is said goes before the profile");
    assert_eq!(args.config().rate, Some(ByteRate::from_bits(10_000_000_000)));
    let serving = tokio::spawn(serve(args.clone()));
    let connected = async {
        loop {
            if let Ok(mut stream) = TcpStream::connect(free).await {
                return ask(&mut stream).await;
            }
            tokio::time::sleep(ms(10)).await;
        }
    };
    within(ms(10_000), connected).await.expect("it relays");
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).expect("sent");
    within(ms(20_000), serving).await.expect("no panic").expect("an orderly end");
    Relay::bind(free, free, Config::default()).expect("the port is free again");

    let nowhere = RelayArgs { to: "no-port".to_owned(), ..args };
    let error = within(ms(20_000), serve(nowhere)).await.expect_err("a wrong address").to_string();
    assert!(error.contains("HOST:PORT") && !error.contains('\n'), "{error}");
}
