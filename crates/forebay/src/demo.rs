//! `forebay demo`: a NAS 70 ms away, and what the tier makes of it, on one machine and without privileges.
//!
//! The far NAS is a plain NFS server over the sample directory (a tier that keeps nothing), behind a relay that
//! delays by half the round trip each way. The same client, ours, reads the tree three times: from the NAS
//! directly, through an empty tier (cold), and through the tier again (warm).

mod cluster;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use origin::{DirCursor, Origin, Reference};
use origin_nfs::NfsOrigin;
use quantity::{Address, Size, TimeSpan};
use relay::Relay;
use tier::running::RunningTier;
use tier::settings::{Overrides, Settings};
use tier::wire_up;
use types::{ByteRange, Error, FileKind, Result};

use crate::nas::Nas;
use crate::serve;
use crate::signals::Signals;

/// Bytes asked for in one call, and calls at the same time, of the reading client: what a kernel client with its
/// usual read-ahead does for one reader.
const STEP: u64 = 128 << 10;
const AT_ONCE: usize = 2;

#[derive(Args)]
pub struct DemoArgs {
    /// The tree to serve; a sample is made if there is none
    #[arg(long, value_name = "DIR", default_value = "sample")]
    sample: PathBuf,
    /// Cache directory
    #[arg(long, value_name = "DIR", default_value = "forebay-demo-cache")]
    cache: PathBuf,
    /// Round trip to the NAS
    #[arg(long, value_name = "TIME", default_value = "70ms")]
    rtt: TimeSpan,
    /// Address of the tier's NFS server
    #[arg(long, value_name = "ADDR", conflicts_with = "cluster", default_value = "127.0.0.1:12049")]
    nfs: SocketAddr,
    /// Address of the tier's operator interface
    #[arg(long, value_name = "ADDR", conflicts_with = "cluster", default_value = "127.0.0.1:9420")]
    admin: SocketAddr,
    /// Three nodes in place of one tier, which read as one; needs etcd
    #[arg(long)]
    cluster: bool,
    /// Stop after the reads
    #[arg(long)]
    once: bool,
}

pub async fn run(args: DemoArgs) -> Result<()> {
    make_sample(&args.sample, args.cluster)?;
    if args.cluster {
        let _ = std::fs::remove_file(args.sample.join(cluster::LATE)); // of an earlier run
    }
    let sample = args.sample.canonicalize().map_err(|e| Error::io("find", args.sample.display(), e))?;
    let nas = Nas::start(&sample, SocketAddr::from(([127, 0, 0, 1], 0)), None).await?;
    let line = relay::Config { rtt: args.rtt.0, ..Default::default() };
    let relay = Relay::bind(SocketAddr::from(([127, 0, 0, 1], 0)), nas.address, line)?;
    let far = relay.local_addr();
    let url = format!("nfs://127.0.0.1:{}/?mountport={}", far.port(), far.port());

    let direct_client = client(far).await?;
    let measured = round_trip(&direct_client).await?;
    println!(
        "far NAS       {} behind a relay of {:?}; measured round trip {:.1} ms",
        sample.display(),
        args.rtt.0,
        ms(measured)
    );
    if args.cluster {
        empty_cache(&args.cache)?;
        return run_cluster(&args, &url, &sample, nas.address).await;
    }
    let direct = read_tree(&direct_client).await?;

    empty_cache(&args.cache)?;
    let overrides = Overrides {
        origin: vec![url],
        cache: Some(args.cache.clone()),
        nfs: Some(Address(args.nfs)),
        admin: Some(Address(args.admin)),
        write: Some("read-only".to_owned()),
        ..Default::default()
    };
    let settings = Settings::build(Default::default(), &overrides)?;
    let tier = wire_up::build(&settings).await?;
    let served = tier.nfs_address()?.expect("the settings above name one");
    let counters = tier.admin.origin_metrics.clone();
    let seen = || (counters.bytes_of("/"), counters.all_calls_of("/"));
    let running = RunningTier::start(tier);
    let near_client = client(served).await?;
    let start = seen();
    let cold = read_tree(&near_client).await?;
    let after_cold = seen();
    let warm = read_tree(&near_client).await?;
    let after_warm = seen();

    println!(
        "tree          {} files, {} directories, {}",
        direct.files,
        direct.directories,
        Size(direct.bytes)
    );
    println!();
    println!("read            time s      MB/s   bytes from the NAS   calls to the NAS");
    row("direct", &direct, direct.bytes, Some(direct.calls));
    row("cold, by tier", &cold, after_cold.0 - start.0, Some(after_cold.1 - start.1));
    row("warm, by tier", &warm, after_warm.0 - after_cold.0, Some(after_warm.1 - after_cold.1));
    println!();
    if (cold.digest, warm.digest) != (direct.digest, direct.digest) {
        return Err(Error::new(types::ErrorKind::Corrupt, "compare", "the three reads differ"));
    }
    println!("All three reads gave the same bytes (CRC-32C {:08x}).", direct.digest);
    if args.once {
        return running.stop().await;
    }
    println!("\nThe tier goes on serving. Look at it with");
    println!("  nfs-ls 'nfs://127.0.0.1/?nfsport={0}&mountport={0}&version=3'", served.port());
    println!("  forebay status --admin {}", args.admin);
    println!("or mount it, as root:");
    println!(
        "  mount -t nfs -o vers=3,tcp,nolock,port={0},mountport={0},mountproto=tcp 127.0.0.1:/ /mnt",
        served.port()
    );
    println!("Ctrl-C ends it.");
    serve::until_signal(running, Signals::take()?, false, |_| ()).await
}

async fn run_cluster(args: &DemoArgs, url: &str, sample: &Path, near_nas: SocketAddr) -> Result<()> {
    let expected = read_tree(&*client(near_nas).await?).await?;
    let mut cluster = cluster::start(&args.cache, url).await?;
    cluster.read_through_all(&expected).await?;
    cluster.lose_a_node(sample).await?;
    if !args.once {
        cluster.tell_how_to_go_on();
        serve::wait_for_the_end(false).await?;
    }
    cluster.stop().await
}

fn row(name: &str, tree: &Tree, origin_bytes: u64, origin_calls: Option<u64>) {
    let seconds = tree.took.as_secs_f64();
    let rate = tree.bytes as f64 / 1e6 / seconds;
    println!(
        "{name:<14} {seconds:>7.2} {rate:>9.1} {:>20} {:>18}",
        Size(origin_bytes).to_string(),
        origin_calls.map_or_else(String::new, |calls| calls.to_string())
    );
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// A 64 MiB file (256 MiB of a cluster's), 200 small ones in ten directories, and a link. Bytes from a fixed generator.
fn make_sample(dir: &Path, of_cluster: bool) -> Result<()> {
    if dir.exists() {
        return Ok(());
    }
    let failed = |e| Error::io("make the sample tree in", dir.display(), e);
    let bytes = |seed, length| origin::memory::generated(seed, ByteRange::new(0, length));
    let unfinished = dir.with_extension("unfinished");
    let _ = std::fs::remove_dir_all(&unfinished);
    std::fs::create_dir_all(&unfinished).map_err(failed)?;
    let scene: u64 = if of_cluster { 256 << 20 } else { 64 << 20 };
    std::fs::write(unfinished.join("scene.bin"), bytes(1, scene)).map_err(failed)?;
    for shot in 0..10 {
        let shot_dir = unfinished.join(format!("shot{shot:02}"));
        std::fs::create_dir(&shot_dir).map_err(failed)?;
        for texture in 0..20 {
            let seed = 100 + shot * 20 + texture;
            std::fs::write(shot_dir.join(format!("texture{texture:02}.tx")), bytes(seed, 1000 + seed * 300))
                .map_err(failed)?;
        }
    }
    std::os::unix::fs::symlink("scene.bin", unfinished.join("latest")).map_err(failed)?;
    std::fs::rename(&unfinished, dir).map_err(failed)
}

/// Cold means empty. Only a directory that an earlier demo made is removed.
fn empty_cache(dir: &Path) -> Result<()> {
    let marker = dir.join("MADE-BY-FOREBAY-DEMO");
    let failed = |e| Error::io("make the demo's cache in", dir.display(), e);
    if dir.exists() && !marker.exists() {
        let message = format!("{} is not a demo's; name a directory that does not exist", dir.display());
        return Err(Error::new(types::ErrorKind::Config, "cache directory:", message));
    }
    if dir.exists() {
        std::fs::remove_dir_all(dir).map_err(failed)?;
    }
    std::fs::create_dir_all(dir).and_then(|()| std::fs::write(marker, b"")).map_err(failed)
}

async fn client(server: SocketAddr) -> Result<Arc<NfsOrigin>> {
    let url = format!("nfs://{server}/?mountport={}&nconnect=1", server.port());
    NfsOrigin::connect(origin_nfs::Config::from_url(&url)?).await
}

/// The shortest of five calls.
async fn round_trip(client: &NfsOrigin) -> Result<Duration> {
    let root = client.root().await?;
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        client.getattr(&root.reference).await?;
        best = best.min(start.elapsed());
    }
    Ok(best)
}

struct Tree {
    files: u64,
    directories: u64,
    bytes: u64,
    calls: u64,
    /// Over all bytes, in the order of the names.
    digest: u32,
    took: Duration,
}

/// Walk the tree as a job would: list, look, read every file from beginning to end.
async fn read_tree(client: &NfsOrigin) -> Result<Tree> {
    let start = Instant::now();
    let mut tree = Tree { files: 0, directories: 0, bytes: 0, calls: 1, digest: 0, took: Duration::ZERO };
    let mut dirs = vec![client.root().await?.reference];
    while let Some(dir) = dirs.pop() {
        tree.directories += 1;
        let mut entries = list(client, &dir, &mut tree.calls).await?;
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        for (_, object) in entries {
            match object.attr.kind {
                FileKind::Directory => dirs.push(object.reference),
                FileKind::Regular => {
                    tree.files += 1;
                    read_file(client, &object, &mut tree).await?;
                }
                FileKind::Symlink => {
                    tree.calls += 1;
                    tree.digest =
                        crc32c::crc32c_append(tree.digest, &client.readlink(&object.reference).await?);
                }
                _ => {}
            }
        }
    }
    tree.took = start.elapsed();
    Ok(tree)
}

async fn list(
    client: &NfsOrigin,
    dir: &Reference,
    calls: &mut u64,
) -> Result<Vec<(types::Name, origin::Object)>> {
    let mut entries = Vec::new();
    let mut cursor = Some(DirCursor::default());
    while let Some(at) = cursor {
        let page = client.readdir(dir, at).await?;
        *calls += 1;
        for entry in page.entries {
            let object = match entry.object {
                Some(object) => object,
                None => {
                    *calls += 1;
                    client.lookup(dir, &entry.name).await?
                }
            };
            entries.push((entry.name, object));
        }
        cursor = page.next;
    }
    Ok(entries)
}

async fn read_file(client: &NfsOrigin, object: &origin::Object, tree: &mut Tree) -> Result<()> {
    let size = object.attr.size;
    let mut at = 0;
    while at < size {
        let ranges = (0..AT_ONCE as u64).map(|i| ByteRange::new(at + i * STEP, STEP).clamp_to(size));
        let mut reads = ranges
            .filter(|range| !range.is_empty())
            .map(|range| client.read(&object.reference, object.version, range));
        let (first, second) = (reads.next(), reads.next());
        for bytes in both(first, second).await {
            let bytes = bytes?;
            tree.calls += 1;
            tree.bytes += bytes.len() as u64;
            tree.digest = crc32c::crc32c_append(tree.digest, &bytes);
        }
        at += AT_ONCE as u64 * STEP;
    }
    Ok(())
}

async fn both<F: Future>(first: Option<F>, second: Option<F>) -> Vec<F::Output> {
    async fn run<F: Future>(future: Option<F>) -> Option<F::Output> {
        match future {
            Some(future) => Some(future.await),
            None => None,
        }
    }
    let (first, second) = tokio::join!(run(first), run(second));
    first.into_iter().chain(second).collect()
}
