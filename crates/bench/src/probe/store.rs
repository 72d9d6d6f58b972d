//! The measurement of a bucket, or of a share of Azure Files: requests of the bench's own, one after the other on
//! connections that are kept. Requests are signed for their host, so that no relay can be put in front of it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use bench_load::target::{self, Client, EntryKind, from_url};
use bytes::Bytes;
use types::{Error, ErrorKind, Result};

use super::calls::{Seconds, answered_handshakes};
use super::posix::LocalProbe;
use super::samples::Sampling;
use super::{Config, wrong};
use crate::mounts::server_of;

/// Names and directories that are looked at in search of objects.
const NAMES_MAX: usize = 4096;
const DIRECTORIES_MAX: usize = 64;
/// Objects that are used in turn.
const OBJECTS_MAX: usize = 64;
/// Bytes of a small read and of a large one.
const SMALL: u64 = 64 << 10;
const LARGE: u64 = 4 << 20;
const ADVICE: &str = "Requests are signed for their host, so that no distance can be added in front of it: `forebay bench \
                      loader --origin URL` measures what a tier buys.";

pub async fn measure(config: &Config) -> Result<LocalProbe> {
    if config.near.is_some() {
        return Err(wrong("--near compares two NFS servers; give the target as nfs://HOST/EXPORT, too"));
    }
    let target = from_url(&config.target)?;
    let client = target::clients(&target, 0, 1).await?.pop();
    let client = client.ok_or_else(|| Error::new(ErrorKind::Io, "probe", "no client was made"))?;
    let server = handshakes(&config.target).await;
    let objects = find(&*client, config).await?;
    let mut operations = vec![("list the first directory", listings(&*client, config).await?)];
    if !objects.is_empty() {
        operations.push(("GET of 64 KiB at most", gets(&*client, config, &objects, SMALL).await?));
        let large: Vec<_> = objects.iter().filter(|(_, size)| *size > SMALL).cloned().collect();
        if !large.is_empty() {
            operations.push(("GET of 4 MiB at most", gets(&*client, config, &large, LARGE).await?));
        }
    }
    if config.write {
        operations.push(("PUT of 4 KiB", puts(&*client, config).await?));
    }
    let (kind, small) = (format!("the store {}", target.about().await?.url), "objects");
    Ok(LocalProbe { kind, small, server, advice: ADVICE, operations, files: objects.len() })
}

/// Handshakes with the endpoint, where the URL names it.
async fn handshakes(url: &str) -> Option<(SocketAddr, Seconds)> {
    answered_handshakes(tokio::net::lookup_host(server_of(url)?).await.ok()?.next()?).await
}

/// Objects with their sizes: the one that is named, or the first that are found.
async fn find(client: &dyn Client, config: &Config) -> Result<Vec<(String, u64)>> {
    if let Some(named) = config.small_file.as_deref().or(config.big_file.as_deref()) {
        return Ok(vec![(named.to_owned(), client.stat(named).await?.size)]);
    }
    let (mut found, mut seen) = (Vec::new(), 0);
    let mut left = VecDeque::from([String::new()]);
    for _ in 0..DIRECTORIES_MAX {
        let Some(dir) = left.pop_front() else { break };
        for entry in client.list(&dir).await? {
            seen += 1;
            if seen > NAMES_MAX || found.len() >= OBJECTS_MAX {
                return Ok(found);
            }
            let path = if dir.is_empty() { entry.name } else { format!("{dir}/{}", entry.name) };
            match entry.kind {
                Some(EntryKind::Directory) => left.push_back(path),
                _ => found.extend(client.stat(&path).await.ok().map(|status| (path, status.size))),
            }
        }
    }
    found.retain(|(_, size)| *size > 0);
    Ok(found)
}

/// The seconds of an operation by itself, sample after sample.
async fn sampled(config: &Config, mut operation: impl AsyncFnMut(usize) -> Result<f64>) -> Result<Seconds> {
    let mut sampling = Sampling::start(config);
    while sampling.goes_on() {
        sampling.times.push(operation(sampling.times.len()).await?);
    }
    Ok(sampling.times)
}

async fn listings(client: &dyn Client, config: &Config) -> Result<Seconds> {
    sampled(config, async |_| {
        client.forget();
        let begin = Instant::now();
        client.list("").await?;
        Ok(begin.elapsed().as_secs_f64())
    })
    .await
}

async fn gets(
    client: &dyn Client,
    config: &Config,
    objects: &[(String, u64)],
    bytes: u64,
) -> Result<Seconds> {
    sampled(config, async |n| {
        let (path, size) = &objects[n % objects.len()];
        // What it is and how large is known by then: this is the request for its bytes.
        let file = client.open(path).await?;
        let length = usize::try_from(bytes.min(*size)).unwrap_or(0);
        let begin = Instant::now();
        file.read(0, length).await?;
        let took = begin.elapsed().as_secs_f64();
        file.close().await?;
        Ok(took)
    })
    .await
}

async fn puts(client: &dyn Client, config: &Config) -> Result<Seconds> {
    let name = format!(".forebay-probe-{}", std::process::id());
    let times = sampled(config, async |_| {
        let begin = Instant::now();
        let file = client.create(&name).await?;
        file.write(0, Bytes::from_static(&[0x5a; 4096])).await?;
        file.close().await?;
        Ok(begin.elapsed().as_secs_f64())
    });
    let (times, removed) = (times.await, client.remove(&name).await);
    times.and_then(|times| removed.map(|()| times))
}
