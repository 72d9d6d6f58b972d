//! What a load does, for dry runs and results, in the words in which it is typed.

use bench_load::pace::{Arrivals, Pace};
use bench_load::shape::{Operation, Order, Sizes};

pub fn operation(operation: Operation) -> String {
    let mix = match operation {
        Operation::Read => return "read".to_owned(),
        Operation::Write => return "write".to_owned(),
        Operation::Stat => return "stat".to_owned(),
        Operation::Walk => return "walk".to_owned(),
        Operation::Mixed(mix) => mix,
    };
    let parts = [
        ("read", mix.read),
        ("range", mix.range),
        ("write", mix.write),
        ("stat", mix.stat),
        ("list", mix.list),
        ("delete", mix.delete),
    ];
    let some = parts.iter().filter(|(_, weight)| *weight > 0);
    some.map(|(name, weight)| format!("{name}={weight}")).collect::<Vec<_>>().join(",")
}

pub fn order(order: Order) -> String {
    match order {
        Order::Sequential => "sequential".to_owned(),
        Order::Random => "random".to_owned(),
        Order::Uniform => "uniform".to_owned(),
        Order::Strided(blocks) => format!("strided:{blocks}"),
        Order::Zipf { theta } => format!("zipf:{theta}"),
        Order::Hotspot { hot_percent, access_percent } => format!("hotspot:{hot_percent}/{access_percent}"),
    }
}

/// Bytes.
pub fn sizes(sizes: Sizes) -> String {
    match sizes {
        Sizes::Equal(bytes) => bytes.to_string(),
        Sizes::Spread { min, max } => format!("{min}-{max}"),
    }
}

pub fn pace(pace: Pace) -> String {
    match pace {
        Pace::Closed { think_s, stagger } => {
            let stagger = stagger.map(|s| format!(", stagger {}/{}s", s.group, s.every_s));
            format!("closed, think {think_s}s{}", stagger.unwrap_or_default())
        }
        Pace::Open { per_second, arrivals } => {
            let how = match arrivals {
                Arrivals::Constant => "constant",
                Arrivals::Poisson => "poisson",
            };
            format!("open, {per_second}/s, {how}")
        }
    }
}
