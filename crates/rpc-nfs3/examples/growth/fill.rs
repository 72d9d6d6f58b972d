//! Clients that make empty files in all directories of a tree, as many in each.

use std::net::SocketAddr;
use std::time::Instant;

use crate::client::Client;

/// Makes `count` files by `clients` connections; prints the seconds.
pub async fn run(address: SocketAddr, count: usize, clients: usize) -> Result<(), String> {
    let mut first = Client::connect(address).await?;
    let root = first.mount("/").await?;
    let (_, directories) = first.list(&root).await?;
    if directories.is_empty() || clients == 0 {
        return Err("there is no directory, or no client, to make files".into());
    }
    let begin = Instant::now();
    let mut makers = Vec::new();
    for maker in 0..clients {
        let mut client = Client::connect(address).await?;
        let directories = directories.clone();
        makers.push(tokio::spawn(async move {
            for number in (maker..count).step_by(clients) {
                let dir = &directories[number % directories.len()];
                client.create(dir, format!("made.{number:09}.exr").into()).await?;
            }
            Ok::<_, String>(client.delayed)
        }));
    }
    let mut delayed = 0;
    for maker in makers {
        delayed += maker.await.map_err(|e| e.to_string())??;
    }
    println!("{{\"seconds\": {}, \"delayed\": {delayed}}}", begin.elapsed().as_secs_f64());
    Ok(())
}
