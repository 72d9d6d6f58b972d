//! etcd is away: reads go on at their rate, writes `through` go on, and a node joins once etcd is back.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bench_load::target::{Client, from_url};
use bytes::Bytes;
use testkit::lab::cluster::{ClusterLab, JUNCTION, with_cluster_lab};
use testkit::lab::net::LinkSide;
use types::Result;

use super::pattern::Pattern;
use super::reader::{Course, PatternFile, Reader, Way};
use super::{MIB, asked_for, await_nodes, found, nfs_url, plan};

const MEMBERS: [usize; 3] = [0, 1, 2];
const JOINS: usize = 3;
const SIZE: u64 = 24 * MIB;
const WRITTEN: usize = 100_000;
/// Rates are of windows of this length.
const WINDOW: Duration = Duration::from_secs(1);
const WINDOWS_BEFORE: usize = 4;
/// Of the rate before, in a record: on a machine that is left alone.
const LEAST: f64 = 0.9;
/// Beside other tests, which take the processors and the disk at times.
const LEAST_BESIDE_OTHERS: f64 = 0.3;
/// A record is for at least so long.
const RECORD: Duration = Duration::from_secs(60);

/// What is written: the lab's far origin is read only.
const WORK: &str = "/work";

fn written_to(lab: &ClusterLab) -> std::path::PathBuf {
    lab.tree().with_file_name("work")
}

/// What all nodes have sent to clients and to each other.
fn sent(lab: &ClusterLab) -> u64 {
    MEMBERS.iter().map(|node| lab.nodes[*node].host().link(0).bytes(LinkSide::Out)).sum()
}

/// Writes a file by one node, whose bytes are at the origin when that is answered, and reads it through another one.
async fn write_and_read(
    tree: &Path,
    (by, through): (&dyn Client, &dyn Client),
    name: &str,
    bytes: &Bytes,
) -> Result<()> {
    let file = by.create(name).await?;
    file.write(0, bytes.clone()).await?;
    file.close().await?;
    assert!(std::fs::read(tree.join(name)).expect("there") == *bytes, "{name} at the origin");
    let read = through.open(name).await?.read(0, bytes.len()).await?;
    assert!(read == *bytes, "{name} through another node");
    Ok(())
}

/// Writes files until this is over; the rate of each window meanwhile, and the files.
fn write_for(
    lab: &ClusterLab,
    clients: &[Arc<dyn Client>],
    runtime: &tokio::runtime::Runtime,
    (prefix, pattern): (&str, &Pattern),
    is_over: impl Fn(&[f64]) -> bool,
) -> (Vec<f64>, usize) {
    let tree = written_to(lab);
    let (mut rates, mut files) = (Vec::new(), 0);
    let mut last = (Instant::now(), sent(lab));
    while !is_over(&rates) {
        let name = format!("{prefix}-{files}");
        let bytes = pattern.bytes(1000 + files, 0, WRITTEN);
        let (by, through) = (&clients[files % clients.len()], &clients[(files + 1) % clients.len()]);
        let written = runtime.block_on(write_and_read(&tree, (&**by, &**through), &name, &bytes));
        written.unwrap_or_else(|e| panic!("{name}: {e}"));
        files += 1;
        let took = last.0.elapsed();
        if took >= WINDOW {
            let now = sent(lab);
            rates.push((now - last.1) as f64 / took.as_secs_f64());
            last = (Instant::now(), now);
        }
    }
    (rates, files)
}

fn median(rates: &[f64]) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// For 10 s, and for the record 600 s (`FOREBAY_ETCD_AWAY=600`).
#[test]
fn while_etcd_is_away_reads_keep_their_rate_and_writes_go_on_and_a_node_joins_once_it_is_back() {
    let name = "while_etcd_is_away_reads_keep_their_rate_and_writes_go_on_and_a_node_joins_once_it_is_back";
    let away = Duration::from_secs(asked_for("FOREBAY_ETCD_AWAY", 10));
    with_cluster_lab(name, Path::new(env!("CARGO_BIN_EXE_forebay")), &plan(4, 2), |lab| {
        let pattern = Arc::new(Pattern::new());
        let file = PatternFile { number: 0, path: "read".to_owned(), size: SIZE };
        pattern.write(file.number, &lab.tree().join(&file.path), file.size);
        std::fs::create_dir(written_to(lab)).expect("made");
        for node in &lab.nodes {
            node.configure(&format!(
                "[[junction]]\npath = \"{WORK}\"\norigin = \"file://{}\"\n",
                written_to(lab).display()
            ));
        }
        found(lab, MEMBERS.len());
        let course = Arc::<Course>::default();
        let read = |node: &usize| {
            let way = Way::Called(format!("{}&rsize=1m&readahead=2", nfs_url(lab, *node)));
            Reader::start(&lab.clients[0], way, vec![file.clone()], (1 << 20, true), &pattern, &course)
        };
        let readers: Vec<Reader> = MEMBERS.iter().map(read).collect();
        let runtime = lab.clients[0].within(|| {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            runtime.expect("a runtime")
        });
        let connect = |node: &usize| {
            let url = nfs_url(lab, *node).replace(JUNCTION, WORK);
            lab.clients[0].within(|| {
                let connected = runtime.block_on(async { from_url(&url)?.client(0).await });
                connected.unwrap_or_else(|e| panic!("{url}: {e}"))
            })
        };
        let clients: Vec<_> = MEMBERS.iter().map(connect).collect();
        // Once all of it is cached.
        let warm = MEMBERS.len() as u64 * 2 * SIZE;
        testkit::lab::net::eventually("the file is read", super::PATIENCE, || {
            course.read.load(Ordering::Relaxed) >= warm
        });
        let write = |lab: &ClusterLab, prefix: &str, is_over: &dyn Fn(&[f64]) -> bool| {
            write_for(lab, &clients, &runtime, (prefix, &pattern), is_over)
        };
        let (before, _) = write(lab, "before", &|rates| rates.len() >= WINDOWS_BEFORE);
        lab.etcd.kill();
        let gone = Instant::now();
        let (meanwhile, files) = write(lab, "meanwhile", &|_| gone.elapsed() >= away);
        for node in MEMBERS {
            let cluster = &lab.nodes[node].status()["cluster"];
            assert_eq!(cluster["up"], MEMBERS.len(), "{cluster}");
        }
        println!(
            "cluster without etcd for {away:?}: {:.1} MB/s in the median of {} windows, {:.1} at least, before {:.1}; {files} files \
             written through",
            median(&meanwhile) / 1e6,
            meanwhile.len(),
            meanwhile.iter().copied().fold(f64::INFINITY, f64::min) / 1e6,
            median(&before) / 1e6
        );
        assert!(files > 0 && meanwhile.len() as u64 >= away.as_secs() / 2, "{files} files, {meanwhile:?}");
        let least = if away >= RECORD { LEAST } else { LEAST_BESIDE_OTHERS };
        assert!(median(&meanwhile) >= least * median(&before), "{meanwhile:?} against {before:?}");
        lab.start_etcd();
        lab.start_node(JOINS);
        await_nodes(lab, &[0, 1, 2, JOINS]);
        course.ends.store(true, Ordering::Relaxed);
        for reader in readers {
            assert_eq!(reader.told().wrong, Vec::<String>::new());
        }
        let course = Arc::<Course>::default();
        let way = Way::Called(nfs_url(lab, JOINS));
        let reader = Reader::start(&lab.clients[0], way, vec![file], (1 << 20, false), &pattern, &course);
        let told = reader.told();
        assert_eq!((told.wrong, told.bytes), (Vec::new(), SIZE), "through the node that has joined");
    });
}
