//! What placement does to clusters of 3 to 1,000 nodes: how even the load is, how much a node more and a node less move,
//! and how long a lost node's copies take to be made again. Every number is counted over stripes that the placement of
//! the product has placed; nothing is read or sent.
//!
//! `cargo run -p cluster --example scale` prints the table in a minute or two, most of it for the 1,000 nodes;
//! `-- nodes=10,100 copies=3` and so on change it.

use std::ops::{AddAssign, Range};
use std::sync::Arc;

use cluster::{ClusterMap, MapNode, NodeLabel, NodeState, Placement, Stripe};
use types::{FileId, NodeId};

const TIB: f64 = (1u64 << 40) as f64;

struct Shape {
    nodes: Vec<u64>,
    copies: usize,
    /// The nodes stand in them by turns.
    racks: u64,
    /// What a node keeps.
    node_tib: f64,
    /// A node's link, of which the share is there for repair.
    link_gbits: f64,
    share_percent: f64,
    /// How many copies of stripes each node has on average where the load is counted, and how many each of the others
    /// makes anew where a repair is.
    stripes: u64,
    repaired: u64,
}

impl Shape {
    fn from_args() -> Result<Shape, String> {
        let mut shape = Shape {
            nodes: vec![3, 4, 10, 30, 100, 300, 1000],
            copies: 2,
            racks: 10,
            node_tib: 50.0,
            link_gbits: 25.0,
            share_percent: 10.0,
            stripes: 500,
            repaired: 50,
        };
        for arg in std::env::args().skip(1) {
            let wrong = || {
                format!(
                    "{arg}: nodes=3,10 copies=2 racks=10 tib=50 gbits=25 share=10 stripes=500 repaired=50 are known"
                )
            };
            let (key, value) = arg.split_once('=').ok_or_else(wrong)?;
            let real = || value.parse::<f64>().ok().filter(|value| *value > 0.0).ok_or_else(wrong);
            let count = || value.parse::<u64>().ok().filter(|value| *value > 0).ok_or_else(wrong);
            match key {
                "nodes" => {
                    let nodes: Result<_, _> = value.split(',').map(str::parse).collect();
                    shape.nodes = nodes.map_err(|_| wrong())?;
                }
                "copies" => shape.copies = count()? as usize,
                "racks" => shape.racks = count()?,
                "tib" => shape.node_tib = real()?,
                "gbits" => shape.link_gbits = real()?,
                "share" => shape.share_percent = real()?,
                "stripes" => shape.stripes = count()?,
                "repaired" => shape.repaired = count()?,
                _ => return Err(wrong()),
            }
        }
        match shape.nodes.iter().find(|nodes| **nodes <= shape.copies as u64) {
            Some(nodes) => {
                Err(format!("{} copies have no place left when one of {nodes} nodes is lost", shape.copies))
            }
            None => Ok(shape),
        }
    }

    /// What a node reads, and at the same time writes, for repair in a second.
    fn repair_rate(&self) -> f64 {
        self.link_gbits * 1e9 / 8.0 * self.share_percent / 100.0
    }

    fn placement(&self, nodes: impl Iterator<Item = u64>) -> types::Result<Placement> {
        let node = |number: u64| {
            Ok(MapNode {
                id: node_id(number),
                name: format!("n{number}"),
                weight: (self.node_tib * TIB) as u64,
                label: format!("/rack{}", number % self.racks).parse()?,
                state: NodeState::Up,
                addresses: vec![([10, 0, (number >> 8) as u8, number as u8], 7423).into()],
            })
        };
        let map = ClusterMap::new(1, nodes.map(node).collect::<types::Result<_>>()?)?;
        Ok(Placement::new(Arc::new(map), &NodeLabel::root()))
    }
}

fn node_id(number: u64) -> NodeId {
    NodeId(number + 1)
}

fn number_of(node: NodeId) -> usize {
    node.0 as usize - 1
}

/// Stripes of files of 16 GiB.
fn stripe(at: u64) -> Stripe {
    Stripe { file: FileId(u128::from(at / 256).to_le_bytes()), index: at % 256 }
}

/// One count for each node.
#[derive(Clone)]
struct Tally(Vec<u64>);

impl Tally {
    fn of(nodes: u64) -> Tally {
        Tally(vec![0; nodes as usize + 1])
    }

    fn most(&self) -> u64 {
        self.0.iter().copied().max().unwrap_or(0)
    }

    fn sum(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own += other);
    }
}

/// `count` is called for each of the stripes, on all cores, and adds to tallies that begin as `empty`.
fn over_stripes<const N: usize>(
    stripes: u64,
    empty: &Tally,
    count: impl Fn(Stripe, &mut [Tally; N]) + Sync,
) -> [Tally; N] {
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let part = |range: Range<u64>| {
        let mut tallies = std::array::from_fn(|_| empty.clone());
        range.for_each(|at| count(stripe(at), &mut tallies));
        tallies
    };
    let part = &part;
    std::thread::scope(|scope| {
        let ranges = (0..threads).map(|at| stripes * at / threads..stripes * (at + 1) / threads);
        let parts: Vec<_> = ranges.map(|range| scope.spawn(move || part(range))).collect();
        let mut sums = std::array::from_fn(|_| empty.clone());
        for part in parts {
            let part: [Tally; N] = part.join().expect("counting does not panic");
            sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
        sums
    })
}

/// The nodes that keep a stripe after a change and did not before, and those that no longer do.
fn difference(before: &[NodeId], after: &[NodeId]) -> (Vec<NodeId>, Vec<NodeId>) {
    let without =
        |of: &[NodeId], others: &[NodeId]| of.iter().copied().filter(|node| !others.contains(node)).collect();
    (without(after, before), without(before, after))
}

fn time(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 7200.0 => format!("{:.1} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

fn row(shape: &Shape, nodes: u64) -> types::Result<String> {
    let copies = shape.copies;
    let (lost, newcomer) = (node_id(nodes / 2), node_id(nodes));
    let cluster = shape.placement(0..nodes)?;
    let one_more = shape.placement(0..=nodes)?;
    let one_less = shape.placement((0..nodes).filter(|number| node_id(*number) != lost))?;
    let empty = Tally::of(nodes);

    let stripes = (shape.stripes * nodes).div_ceil(copies as u64);
    let [primaries, kept] = over_stripes(stripes, &empty, |stripe, [primaries, kept]| {
        let ranks = cluster.ranks(stripe);
        let keepers = ranks.keepers(copies);
        keepers.iter().take(1).for_each(|node| primaries.0[number_of(*node)] += 1);
        keepers.iter().for_each(|node| kept.0[number_of(*node)] += 1);
    });
    let balance = |tally: &Tally| tally.most() as f64 * nodes as f64 / tally.sum() as f64;

    // A tenth of them is enough for shares; of few nodes all are.
    let stripes = (stripes / 10).max(stripes.min(20_000));
    let [came, left, needless] = over_stripes(stripes, &empty, |stripe, [came, left, needless]| {
        let before = cluster.ranks(stripe);
        for (after, tally) in [(&one_more, came), (&one_less, left)] {
            let after = after.ranks(stripe);
            let (come, gone) = difference(before.keepers(copies), after.keepers(copies));
            for (come, gone) in come.iter().zip(&gone) {
                let is_needed = *come == newcomer || *gone == lost;
                let counted = if is_needed { &mut *tally } else { &mut *needless };
                counted.0[number_of(*come)] += 1;
            }
        }
    });
    let moved = |tally: &Tally| tally.sum() as f64 / (stripes * copies as u64) as f64;

    let wanted = (shape.repaired * nodes).max(20_000);
    let [read, written] = over_stripes(wanted * nodes / copies as u64, &empty, |stripe, [read, written]| {
        if !cluster.keeps(stripe, lost, copies) {
            return;
        }
        let (before, after) = (cluster.ranks(stripe), one_less.ranks(stripe));
        let (come, _) = difference(before.keepers(copies), after.keepers(copies));
        let from = before.keepers(copies).iter().find(|node| **node != lost);
        for (from, to) in from.iter().zip(come) {
            read.0[number_of(**from)] += 1;
            written.0[number_of(to)] += 1;
        }
    });
    let seconds = |stripes: f64| {
        let bytes = stripes / written.sum().max(1) as f64 * shape.node_tib * TIB;
        time(bytes / shape.repair_rate())
    };
    let mean = written.sum() as f64 / (nodes - 1) as f64;
    let busiest = written.most().max(read.most()) as f64;
    let repaired = if written.sum() == 0 {
        "from the origin | ".to_string()
    } else {
        format!("{} | {} ({:.2})", seconds(mean), seconds(busiest), busiest / mean)
    };

    Ok(format!(
        "| {nodes} | {:.3} | {:.3} | {:.4} ({:.4}) | {:.4} ({:.4}) | {} | {repaired} |",
        balance(&primaries),
        balance(&kept),
        moved(&came),
        1.0 / (nodes + 1) as f64,
        moved(&left),
        1.0 / nodes as f64,
        needless.sum(),
    ))
}

fn run() -> Result<(), String> {
    let shape = Shape::from_args()?;
    println!(
        "{} copies, {} racks, {} TiB on each node; repair takes {} % of a link of {} Gbit/s.",
        shape.copies, shape.racks, shape.node_tib, shape.share_percent, shape.link_gbits
    );
    println!(
        "Load is the most loaded node against the mean, at {} copies of stripes a node. Moved are copies, against the \
         ideal in brackets; needless ones are of neither the node that came nor the one that left. Repair is the time \
         of the mean and of the busiest of the other nodes, which makes or sends most, at {} copies a node or more. \
         Nodes in the rack of the one that is lost make up to twice as many as others: they were passed over for the \
         stripes that it kept. And with fewer stripes than nodes really have chance makes the largest figures larger.",
        shape.stripes, shape.repaired
    );
    println!();
    println!(
        "| Nodes | Load, primaries | Load, copies | Moved, one more | Moved, one less | Needless | Repair, mean | Repair, busiest |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for nodes in &shape.nodes {
        println!("{}", row(&shape, *nodes).map_err(|error| error.to_string())?);
    }
    Ok(())
}

fn main() -> std::process::ExitCode {
    match run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}
