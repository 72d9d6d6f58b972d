//! Clients that list a tree by READDIRPLUS and share its directories.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rpc_nfs3::nfs3::FileHandle;

use crate::client::Client;

#[derive(Default)]
struct Tree {
    directories: Mutex<Vec<FileHandle>>,
}

/// Prints the seconds until the first answer and until all is listed, the number of files, and how often clients were told to
/// ask again.
pub async fn run(address: SocketAddr, path: &str, clients: usize) -> Result<(), String> {
    let begin = Instant::now();
    let mut first = Client::connect(address).await?;
    let root = first.mount(path).await?;
    let (mut files, directories) = first.list(&root).await?;
    let answered = begin.elapsed().as_secs_f64();
    let tree = Arc::new(Tree { directories: Mutex::new(directories.into_iter().rev().collect()) });
    let mut walkers = vec![walker(first, tree.clone())];
    for _ in 1..clients {
        walkers.push(walker(Client::connect(address).await?, tree.clone()));
    }
    let mut delayed = 0;
    for walker in walkers {
        let (met, late) = walker.await.map_err(|e| e.to_string())??;
        files += met;
        delayed += late;
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("{{\"first\": {answered}, \"seconds\": {seconds}, \"files\": {files}, \"delayed\": {delayed}}}");
    Ok(())
}

fn walker(mut client: Client, tree: Arc<Tree>) -> tokio::task::JoinHandle<Result<(u64, u64), String>> {
    tokio::spawn(async move {
        let mut files = 0;
        loop {
            let next = tree.directories.lock().map_err(|e| e.to_string())?.pop();
            let Some(dir) = next else { return Ok((files, client.delayed)) };
            let (met, below) = client.list(&dir).await?;
            files += met;
            tree.directories.lock().map_err(|e| e.to_string())?.extend(below.into_iter().rev());
        }
    })
}
