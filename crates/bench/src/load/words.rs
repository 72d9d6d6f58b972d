//! What a load does, for dry runs and results, in the words in which it is typed.

use bench_load::pace::{Arrivals, LoadPace};
use bench_load::shape::{AccessOrder, LoadOperation, Sizes};

pub fn operation(operation: LoadOperation) -> String {
    let mix = match operation {
        LoadOperation::Read => return "read".to_owned(),
        LoadOperation::Write => return "write".to_owned(),
        LoadOperation::Stat => return "stat".to_owned(),
        LoadOperation::Walk => return "walk".to_owned(),
        LoadOperation::Mixed(mix) => mix,
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

pub fn order(order: AccessOrder) -> String {
    match order {
        AccessOrder::Sequential => "sequential".to_owned(),
        AccessOrder::Random => "random".to_owned(),
        AccessOrder::Uniform => "uniform".to_owned(),
        AccessOrder::Strided(blocks) => format!("strided:{blocks}"),
        AccessOrder::Zipf { theta } => format!("zipf:{theta}"),
        AccessOrder::Hotspot { hot_percent, access_percent } => {
            format!("hotspot:{hot_percent}/{access_percent}")
        }
    }
}

/// Bytes.
pub fn sizes(sizes: Sizes) -> String {
    match sizes {
        Sizes::Equal(bytes) => bytes.to_string(),
        Sizes::Spread { min, max } => format!("{min}-{max}"),
    }
}

pub fn pace(pace: LoadPace) -> String {
    match pace {
        LoadPace::Closed { think_s, stagger } => {
            let stagger = stagger.map(|s| format!(", stagger {}/{}s", s.group, s.every_s));
            format!("closed, think {think_s}s{}", stagger.unwrap_or_default())
        }
        LoadPace::Open { per_second, arrivals } => {
            let how = match arrivals {
                Arrivals::Constant => "constant",
                Arrivals::Poisson => "poisson",
            };
            format!("open, {per_second}/s, {how}")
        }
    }
}
