//! A relay between a client and a node, which alters what goes through, or is not there.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub struct TestRelay {
    pub address: SocketAddr,
    /// The byte of each stream from the node, counted from 1, that is altered; 0: none.
    pub alter_at: Arc<AtomicU64>,
    running: tokio::task::JoinHandle<()>,
}

impl TestRelay {
    pub async fn start(listen: &str, to: SocketAddr) -> TestRelay {
        let listener = TcpListener::bind(listen).await.expect("bound");
        let address = listener.local_addr().expect("bound");
        let alter_at = Arc::new(AtomicU64::new(0));
        let altered = alter_at.clone();
        let running = tokio::spawn(async move {
            let mut carrying = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                carrying.spawn(carry(client, to, altered.clone()));
            }
        });
        TestRelay { address, alter_at, running }
    }

    /// Ends all connections, and takes no more.
    pub async fn stop(self) {
        self.running.abort();
        let _ = self.running.await;
    }
}

async fn carry(client: TcpStream, to: SocketAddr, alter_at: Arc<AtomicU64>) {
    let Ok(node) = TcpStream::connect(to).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_node, mut to_node) = node.into_split();
    let there = async { tokio::io::copy(&mut from_client, &mut to_node).await.map(drop) };
    let back = async {
        let (mut buffer, mut passed) = (vec![0; 64 << 10], 0);
        loop {
            let bytes = from_node.read(&mut buffer).await?;
            if bytes == 0 {
                return Ok(());
            }
            let at = alter_at.load(Ordering::Relaxed);
            if (passed + 1..=passed + bytes as u64).contains(&at) {
                buffer[(at - passed - 1) as usize] ^= 0x10;
            }
            passed += bytes as u64;
            to_client.write_all(&buffer[..bytes]).await?;
        }
    };
    tokio::select! {
        _ = there => {}
        result = back => { let _: std::io::Result<()> = result; }
    }
}
