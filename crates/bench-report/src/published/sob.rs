//! Tryggve's sob: three nodes at once, and what their timings say of the times in which they worked together.
//!
//! Rates are MiB/s (sob's MB is 2^20). The times were printed in whole seconds, so a phase is timed here by its bytes over its
//! rate, which has five digits.

use serde::Deserialize;

use crate::model::{Cell, Table, TableRow};
use crate::overlap::{PhaseSpans, Refusal, Span};

const MIB: f64 = 1048576.0;
/// MiB of one node in test 1.
const TEST_1_MIB: f64 = 10240.0;

/// Seconds as printed, and MiB/s.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct SobTiming {
    pub seconds: f64,
    pub rate: f64,
}

/// The four tests on one node. Test 3's random reads were never printed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SobNode {
    pub name: String,
    pub write_1: SobTiming,
    pub read_1: SobTiming,
    pub write_2: SobTiming,
    pub write_3: SobTiming,
    pub write_4: SobTiming,
    pub read_4: SobTiming,
}

/// Three nodes at once, in the order they were started.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SobRun {
    pub name: String,
    pub nodes: [SobNode; 3],
}

impl SobRun {
    /// Test 1's writes: all began together.
    pub fn writes(&self) -> Result<PhaseSpans, Refusal> {
        PhaseSpans::new(self.nodes.iter().map(|n| span(&n.name, 0.0, n.write_1.rate)).collect())
    }

    /// Test 1's reads: each began when its own write had ended.
    pub fn reads(&self) -> Result<PhaseSpans, Refusal> {
        let read = |n: &SobNode| span(&n.name, TEST_1_MIB / n.write_1.rate, n.read_1.rate);
        PhaseSpans::new(self.nodes.iter().map(read).collect())
    }

    pub fn table(&self) -> Table {
        let names = self.nodes.iter().map(|n| n.name.as_str());
        let write = |w: SobTiming| format!("Write: {}s ({:.3} MB/s)", w.seconds, w.rate);
        let both =
            |w: SobTiming, r: SobTiming| format!("{}\nRead: {}s ({:.3} MB/s)", write(w), r.seconds, r.rate);
        let row = |test: u64, of: &dyn Fn(&SobNode) -> String| {
            let cells = self.nodes.iter().map(|n| Cell::text(of(n)));
            TableRow::new(std::iter::once(Cell::Count(test)).chain(cells).collect())
        };
        let rows = vec![
            row(1, &|n| both(n.write_1, n.read_1)),
            row(2, &|n| write(n.write_2)),
            row(3, &|n| write(n.write_3)),
            row(4, &|n| both(n.write_4, n.read_4)),
        ];
        Table {
            notes: vec!["MB = MiB. The random reads of test 3 were never printed.".to_owned()],
            published: true,
            ..Table::new(format!("Tryggve sob: {}", self.name), std::iter::once("Test").chain(names), rows)
        }
    }
}

fn span(name: &str, start: f64, rate: f64) -> Span {
    Span::new(name, start, start + TEST_1_MIB / rate, (TEST_1_MIB * MIB) as u64)
}
