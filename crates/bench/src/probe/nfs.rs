//! The measurement of an NFS server: without a relay, over the injected distances, with several streams, and of the
//! nearer server that it is compared with.

use types::Result;

use super::Config;
use super::calls::{HANDSHAKES, Seconds, handshake};
use super::far::{FarNfs, Ports};
use super::objects::ProbeObjects;
use super::samples::{self, Timed};
use super::streams::{self, StreamRate};

pub struct NfsProbe {
    /// Of the path itself: TCP handshakes, seconds.
    pub handshakes: Seconds,
    pub timed: Vec<Timed>,
    pub streams: Vec<StreamRate>,
    /// The nearer server, without a relay.
    pub near: Vec<Timed>,
    /// Bytes of one READ of a stream.
    pub read_bytes: u64,
    pub found: ProbedFiles,
}

/// What the operations were tried on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbedFiles {
    pub small_bytes: Option<u64>,
    pub big_bytes: Option<u64>,
    pub names: usize,
}

pub async fn measure(config: &Config) -> Result<NfsProbe> {
    let client = origin_nfs::Config::from_url(&config.target)?;
    let near = config.near.as_deref().map(origin_nfs::Config::from_url).transpose()?;
    let ports = Ports::of(&client).await?;
    let direct = FarNfs::direct(&client, ports).await?;
    let mut handshakes = Vec::new();
    for _ in 0..HANDSHAKES {
        handshakes.push(handshake(ports.nfs).await?);
    }
    let (small, big) = (config.small_file.as_deref(), config.big_file.as_deref());
    let objects = ProbeObjects::find(&*direct.client, small, big).await?;
    let mut timed = samples::direct(&direct, &objects, config).await?;

    let mut fars = Vec::new();
    for added in &config.delays {
        fars.push(FarNfs::relayed(&client, ports, *added).await?);
    }
    samples::far(&mut timed, &fars, &objects, config).await?;

    let mut rates = Vec::new();
    let farthest = config.delays.iter().zip(&fars).max_by_key(|(added, _)| **added);
    if let Some(big) = &objects.big {
        rates = streams::measure(&direct, None, big, config).await?;
        if let Some((added, far)) = farthest {
            rates.extend(streams::measure(far, Some(*added), big, config).await?);
        }
    }
    let near = match near {
        Some(near) => measure_near(&near, config).await?,
        None => Vec::new(),
    };
    let read_max = u64::from(origin::Origin::traits(&*direct.client).read_max);
    let size = |object: &origin::Object| object.attr.size;
    let big_bytes = objects.big.as_ref().map(size);
    let found = ProbedFiles {
        small_bytes: objects.small.as_ref().map(|(_, _, file)| size(file)),
        big_bytes,
        names: objects.names,
    };
    let read_bytes = big_bytes.unwrap_or_default().min(read_max);
    Ok(NfsProbe { handshakes, timed, streams: rates, near, read_bytes, found })
}

async fn measure_near(near: &origin_nfs::Config, config: &Config) -> Result<Vec<Timed>> {
    let far = FarNfs::direct(near, Ports::of(near).await?).await?;
    let objects = ProbeObjects::find(&*far.client, None, None).await?;
    samples::direct(&far, &objects, config).await
}
