//! Clients of all gateways read the same cold files at once, and a node joins, is lost and comes back, or starts again meanwhile: of each
//! byte the origin is read once.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use testkit::lab::cluster::{ClusterLab, with_cluster_lab};
use testkit::lab::net::eventually;

use super::pattern::Pattern;
use super::reader::{Course, PatternFile, Reader, Way};
use super::{MIB, PATIENCE, asked_for, await_nodes, far_bytes, found, nfs_url, origin_bytes, plan};

const GATEWAYS: [usize; 3] = [0, 1, 2];
const READERS_OF_A_GATEWAY: usize = 8;
/// It joins, is lost, comes back and starts again, and has no clients of its own until it has joined.
const FOURTH: usize = 3;
const PIECE: usize = 1 << 20;
/// What may leave the origin for each byte, with frames and names.
const MOST: f64 = 1.01;
/// What a stripe's former primary is reading when the map changes may be read by the new one as well.
const UNDER_WAY: u64 = 4 * MIB;
/// Bytes that a node asked the origin for itself, since it could not ask the stripe's primary, and since its own fetch of them asks a
/// node that may wait for this one: on a machine that does much else a node does not answer for a moment, and there are some.
const AROUND: [&str; 2] =
    ["forebay_cluster_read_bytes_total{from=\"Around\"}", "forebay_cache_unjoined_bytes_total"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Nothing,
    Joins,
    IsLostAndReturns,
    StartsAgain,
}

const CHANGES: [Change; 4] = [Change::Nothing, Change::Joins, Change::IsLostAndReturns, Change::StartsAgain];

/// Several files, so that each node is the primary of some; for the record one of 1 GiB (`FOREBAY_HERD_MIB=1024`).
fn files(change: Change) -> Vec<PatternFile> {
    // A node that was killed takes some seconds until it is back, and the herd is to read meanwhile.
    let count = if change == Change::IsLostAndReturns { 14 } else { 6 };
    let (count, size) = match asked_for("FOREBAY_HERD_MIB", 0) {
        0 => (count, 5 * MIB),
        mib => (1, mib * MIB),
    };
    let file =
        |at: usize| PatternFile { number: change as usize * 64 + at, path: format!("{change:?}/{at}"), size };
    (0..count).map(file).collect()
}

struct Herd {
    readers: Vec<Reader>,
    course: Arc<Course>,
    /// Of all readers.
    bytes: u64,
}

impl Herd {
    fn start(lab: &ClusterLab, gateways: &[usize], files: &[PatternFile], pattern: &Arc<Pattern>) -> Herd {
        let course = Arc::<Course>::default();
        let start = |gateway: &usize| {
            let way = Way::Called(format!("{}&rsize=1m", nfs_url(lab, *gateway)));
            let start = move |course: &Arc<Course>| {
                Reader::start(&lab.clients[0], way.clone(), files.to_vec(), (PIECE, false), pattern, course)
            };
            (0..READERS_OF_A_GATEWAY).map(|_| start(&course)).collect::<Vec<_>>()
        };
        let readers: Vec<Reader> = gateways.iter().flat_map(start).collect();
        let bytes = readers.len() as u64 * files.iter().map(|file| file.size).sum::<u64>();
        Herd { readers, course, bytes }
    }

    /// Until all readers together have read this share of what they read.
    fn reach(&self, share: f64) {
        eventually("the herd reads", 4 * PATIENCE, || {
            self.course.read.load(Ordering::Relaxed) as f64 >= share * self.bytes as f64
                || self.readers.iter().all(Reader::is_done)
        });
    }

    fn end(self) {
        let wrong: Vec<String> = self.readers.into_iter().flat_map(|reader| reader.told().wrong).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

#[test]
fn a_cold_herd_at_all_gateways_is_one_read_of_the_origin_while_a_node_joins_is_lost_returns_and_starts_again()
{
    let name = "a_cold_herd_at_all_gateways_is_one_read_of_the_origin_while_a_node_joins_is_lost_returns_and_starts_again";
    with_cluster_lab(name, Path::new(env!("CARGO_BIN_EXE_forebay")), &plan(4, 2), |lab| {
        let pattern = Arc::new(Pattern::new());
        // What stands beside a file in its directory may be read ahead.
        for change in CHANGES {
            std::fs::create_dir(lab.tree().join(format!("{change:?}"))).expect("made");
        }
        for file in CHANGES.into_iter().flat_map(files) {
            pattern.write(file.number, &lab.tree().join(&file.path), file.size);
        }
        found(lab, GATEWAYS.len());
        for change in CHANGES {
            let files = files(change);
            let (before, around_before) = (far_bytes(lab), around(lab));
            let herd = Herd::start(lab, &GATEWAYS, &files, &pattern);
            herd.reach(0.1);
            match change {
                Change::Nothing => {}
                Change::Joins => lab.start_node(FOURTH),
                Change::IsLostAndReturns => {
                    lab.nodes[FOURTH].service.kill();
                    herd.reach(0.3);
                    lab.start_node(FOURTH);
                }
                Change::StartsAgain => {
                    assert!(lab.nodes[FOURTH].service.end().success());
                    lab.start_node(FOURTH);
                }
            }
            let was_under_way = !herd.readers.iter().all(Reader::is_done);
            herd.end();
            if change != Change::Nothing {
                await_nodes(lab, &[0, 1, 2, FOURTH]);
                Herd::start(lab, &[FOURTH], &files, &pattern).end();
            }
            let unique: u64 = files.iter().map(|file| file.size).sum();
            let (left, around) = (far_bytes(lab) - before, around(lab) - around_before);
            let ratio = left as f64 / unique as f64;
            let asked = GATEWAYS.map(|node| origin_bytes(lab, &[node]));
            println!(
                "cluster herd: {change:?}: {left} bytes of {unique} left the origin, {ratio:.4}; {around} around the primary; all that \
                 the nodes with clients asked it for so far: {asked:?}"
            );
            assert!(was_under_way, "{change:?}: the herd was done before");
            assert!(left >= unique, "{change:?}: {left} bytes of {unique} left the origin");
            assert!(
                around <= unique as f64 / 2.0,
                "{change:?}: {around} bytes were asked for around the nodes that keep them"
            );
            let under_way = if change == Change::Nothing { 0 } else { UNDER_WAY };
            assert!(ratio <= MOST + (around + under_way as f64) / unique as f64, "{change:?}: {ratio}");
        }
        // Nothing of it was read at once by its own clients alone.
        assert!(origin_bytes(lab, &[0, 1, 2]) > 0);
    });
}

/// Of the nodes that have clients all the time.
fn around(lab: &ClusterLab) -> f64 {
    GATEWAYS.iter().flat_map(|node| AROUND.map(|metric| lab.nodes[*node].metric(metric))).sum()
}
