//! Tryggve: nodes in Sweden (Knox) and in Finland (ePouta) sharing one NFS server; workflows, sob, and the link.
//!
//! Rates are MiB/s (sob's MB is 2^20). The times of sob were printed in whole seconds, so a phase is timed here by
//! its bytes over its rate, which has five digits.

use super::table;
use crate::model::{Cell, Table};
use crate::overlap::{Phase, Refusal, Span};

const MIB: f64 = 1048576.0;

/// Seconds as printed, and MiB/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    pub seconds: f64,
    pub rate: f64,
}

/// The four tests on one node. Test 3's random reads were never printed.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    pub name: &'static str,
    pub write_1: Timing,
    pub read_1: Timing,
    pub write_2: Timing,
    pub write_3: Timing,
    pub write_4: Timing,
    pub read_4: Timing,
}

/// Three nodes at once, in the order they were started.
pub struct Run {
    pub name: &'static str,
    pub nodes: [Node; 3],
}

/// What sob was asked to do, as the study numbers it.
pub const TESTS: [(u32, &str); 4] = [
    (1, "sob -rw -b 8m -s 10g"),
    (2, "sob -w -b 64k -s 1m -n 500 -o 50"),
    (3, "sob -w -R 5000 -n 50 -s 128m -b 64k"),
    (4, "sob -rw -b 128k -s 1g"),
];
pub const TESTS_COLUMNS: [&str; 2] = ["#", "Test"];

/// MiB of one node in test 1.
const TEST_1_MIB: f64 = 10240.0;

const fn t(seconds: f64, rate: f64) -> Timing {
    Timing { seconds, rate }
}

/// Test 1 write, read; 2; 3; 4 write, read.
const fn node(name: &'static str, timings: [Timing; 6]) -> Node {
    let [write_1, read_1, write_2, write_3, write_4, read_4] = timings;
    Node { name, write_1, read_1, write_2, write_3, write_4, read_4 }
}

#[rustfmt::skip]
pub const SOB: [Run; 5] = [
    Run { name: "Knox x3", nodes: [
        node("compute1", [t(212., 48.368), t(166., 61.830), t(55., 9.020), t(204., 31.305), t(26., 38.689), t(0.307, 3330.527)]),
        node("compute2", [t(487., 21.040), t(219., 46.657), t(60., 8.369), t(237., 26.964), t(39., 26.332), t(0.3, 3379.480)]),
        node("compute3", [t(492., 20.803), t(208., 49.290), t(60., 8.305), t(243., 26.385), t(37., 27.764), t(0.3, 3703.682)]),
    ] },
    Run { name: "ePouta x3", nodes: [
        node("epouta3", [t(527., 19.429), t(217., 47.104), t(79., 6.296), t(267., 23.973), t(31., 33.389), t(0.4, 2583.793)]),
        node("epouta2", [t(399., 25.660), t(300., 34.103), t(72., 6.912), t(259., 24.752), t(38., 26.868), t(0.3, 3702.660)]),
        node("epouta1", [t(363., 28.231), t(287., 35.631), t(75., 6.661), t(267., 23.963), t(34., 29.761), t(0.3, 4053.569)]),
    ] },
    Run { name: "1 Knox + 2 ePouta", nodes: [
        node("compute1", [t(315., 32.545), t(268., 38.155), t(50., 9.920), t(193., 33.153), t(18., 57.380), t(0.3, 3357.815)]),
        node("epouta1", [t(529., 19.348), t(226., 45.351), t(77., 6.519), t(250., 25.591), t(37., 27.616), t(0.3, 3758.074)]),
        node("epouta2", [t(449., 22.808), t(271., 37.824), t(75., 6.706), t(247., 25.883), t(35., 28.889), t(0.2, 4132.128)]),
    ] },
    Run { name: "2 Knox + 1 ePouta", nodes: [
        node("compute3", [t(317., 32.265), t(227., 45.100), t(62., 8.100), t(241., 26.509), t(29., 35.531), t(0.3, 3752.689)]),
        node("compute2", [t(301., 34.073), t(236., 43.432), t(62., 8.095), t(244., 26.174), t(30., 33.863), t(0.3, 3347.075)]),
        node("epouta1", [t(695., 14.726), t(104., 98.009), t(81., 6.165), t(317., 20.208), t(42., 24.417), t(0.3, 3372.855)]),
    ] },
    Run { name: "2 ePouta + 1 Knox", nodes: [
        node("epouta3", [t(529., 19.348), t(211., 48.515), t(75., 6.623), t(296., 21.604), t(39., 26.079), t(0.3, 2936.802)]),
        node("epouta1", [t(520., 19.675), t(220., 46.538), t(75., 6.670), t(303., 21.087), t(39., 26.013), t(0.2, 4486.861)]),
        node("compute2", [t(190., 53.941), t(169., 60.713), t(56., 8.984), t(202., 31.655), t(24., 43.204), t(0.3, 3419.887)]),
    ] },
];

/// Slurm partition, nodes in Knox, nodes in ePouta, note, and the makespans in seconds of the two workflows.
pub struct Partition {
    pub name: &'static str,
    pub knox: u64,
    pub epouta: u64,
    pub notes: &'static str,
    pub caw_seconds: f64,
    pub wgs_seconds: f64,
}

const FIRST: &str = "epouta nodes first in the slurm listing";

#[rustfmt::skip]
pub const PARTITIONS: [Partition; 6] = [
    Partition { name: "mm", knox: 3, epouta: 0, notes: "", caw_seconds: 1438.0, wgs_seconds: 520.0 },
    Partition { name: "mm2-epouta1", knox: 2, epouta: 1, notes: "", caw_seconds: 1407.0, wgs_seconds: 583.0 },
    Partition { name: "mm1-epouta2", knox: 1, epouta: 2, notes: "", caw_seconds: 1375.0, wgs_seconds: 582.0 },
    Partition { name: "epouta", knox: 0, epouta: 3, notes: "", caw_seconds: 932.0, wgs_seconds: 614.0 },
    Partition { name: "epouta1-mm2", knox: 1, epouta: 2, notes: FIRST, caw_seconds: 1048.0, wgs_seconds: 671.0 },
    Partition { name: "epouta2-mm1", knox: 2, epouta: 1, notes: FIRST, caw_seconds: 927.0, wgs_seconds: 673.0 },
];

pub const PARTITIONS_COLUMNS: [&str; 4] = ["Partition", "#nodes in Knox", "#nodes in Epouta", "Notes"];
pub const WORKFLOW_COLUMNS: [&str; 2] = ["Partition", "Elapsed Time"];
pub const LINK_COLUMNS: [&str; 3] = ["Bandwidth", "Sender", "Receiver"];

/// Pair, then Mbit/s of sender and receiver, one stream each, "at once".
pub const LINK: [(&str, f64, f64); 3] = [
    ("epouta1 <-> compute1", 275.0, 272.0),
    ("epouta2 <-> compute2", 281.0, 278.0),
    ("epouta3 <-> compute3", 452.0, 447.0),
];
/// Ten streams of one pair over the link, Mbit/s of sender and receiver; and of a pair that does not use it.
pub const LINK_TEN_STREAMS: (f64, f64) = (941.0, 937.0);
pub const LINK_CONTROL: (f64, f64) = (942.0, 938.0);

impl Run {
    /// Test 1's writes: all began together.
    pub fn writes(&self) -> Result<Phase, Refusal> {
        Phase::new(self.nodes.iter().map(|n| span(n.name, 0.0, n.write_1.rate)).collect())
    }

    /// Test 1's reads: each began when its own write had ended.
    pub fn reads(&self) -> Result<Phase, Refusal> {
        let read = |n: &Node| span(n.name, TEST_1_MIB / n.write_1.rate, n.read_1.rate);
        Phase::new(self.nodes.iter().map(read).collect())
    }

    /// The original's table: one column for each node.
    pub fn table(&self) -> Table {
        let names = self.nodes.each_ref().map(|n| n.name);
        let columns: Vec<&str> = std::iter::once("Test").chain(names).collect();
        let write = |w: Timing| format!("Write: {}s ({:.3} MB/s)", w.seconds, w.rate);
        let both = |w: Timing, r: Timing| format!("{}\nRead: {}s ({:.3} MB/s)", write(w), r.seconds, r.rate);
        let row = |test: u64, of: &dyn Fn(&Node) -> String| {
            let mut cells = vec![Cell::Count(test)];
            cells.extend(self.nodes.iter().map(|n| Cell::text(of(n))));
            cells
        };
        let rows = vec![
            row(1, &|n| both(n.write_1, n.read_1)),
            row(2, &|n| write(n.write_2)),
            row(3, &|n| write(n.write_3)),
            row(4, &|n| both(n.write_4, n.read_4)),
        ];
        let title = format!("Tryggve sob: {}", self.name);
        table(
            &title,
            &columns,
            rows.into_iter(),
            &["MB = MiB. The random reads of test 3 were never printed."],
        )
    }
}

fn span(name: &str, start: f64, rate: f64) -> Span {
    Span::new(name, start, start + TEST_1_MIB / rate, (TEST_1_MIB * MIB) as u64)
}

pub fn tests() -> Table {
    let rows =
        TESTS.iter().map(|(number, command)| vec![Cell::Count(u64::from(*number)), Cell::text(*command)]);
    table(
        "Tryggve sob: the four tests",
        &TESTS_COLUMNS,
        rows,
        &["Test 1 says 24 GB in words, and its command 10 GB."],
    )
}

pub fn partitions() -> Table {
    let rows = PARTITIONS
        .iter()
        .map(|p| vec![Cell::text(p.name), Cell::Count(p.knox), Cell::Count(p.epouta), Cell::text(p.notes)]);
    // The two starred partitions are printed with their numbers of nodes exchanged.
    let note = "By their names the last two have their numbers exchanged.";
    table("Tryggve: slurm partitions", &PARTITIONS_COLUMNS, rows, &[note])
}

/// The cancer analysis workflow.
pub fn caw() -> Table {
    workflow("Tryggve: Cancer Analysis Workflow", |p| p.caw_seconds)
}

/// The whole genome sequencing structural variation pipeline.
pub fn wgs() -> Table {
    workflow("Tryggve: WGS Structural Variation Pipeline", |p| p.wgs_seconds)
}

fn workflow(title: &str, seconds: fn(&Partition) -> f64) -> Table {
    let elapsed = |s: f64| format!("{}m {}s", (s / 60.0).floor(), s % 60.0);
    let rows = PARTITIONS.iter().map(|p| vec![Cell::text(p.name), Cell::text(elapsed(seconds(p)))]);
    let note = "One run each; compute differs between the sites and decides most of it.";
    table(title, &WORKFLOW_COLUMNS, rows, &[note])
}

pub fn link() -> Table {
    let mbit = |v: f64| Cell::text(format!("{v} Mbits/sec"));
    let rows =
        LINK.iter().map(|(pair, sender, receiver)| vec![Cell::text(*pair), mbit(*sender), mbit(*receiver)]);
    let note = "Added they make 1008 Mbit/s, more than the 941 Mbit/s that the link carries: the three did not fully \
                overlap.";
    table("Tryggve: three pairs over the link, one stream each", &LINK_COLUMNS, rows, &[note])
}
