//! What a load does, in words: as it is typed, and as dry runs and results repeat it.

use bench_load::{AccessOrder, LoadOperation, LoadPace, Sizes};
use serde::de::DeserializeOwned;

type Parsed<T> = std::result::Result<T, String>;

fn named<T: DeserializeOwned>(name: &str) -> Option<T> {
    serde_json::from_value(name.into()).ok()
}

pub fn parse_operation(text: &str) -> Parsed<LoadOperation> {
    if let Some(operation) = named(text) {
        return Ok(operation);
    }
    let wrong = || {
        format!(
            "\"{text}\" is no operation; write read, write, stat, walk or a mixture such as read=70,write=30"
        )
    };
    let mut weights = serde_json::Map::new();
    for part in text.split(',') {
        let (name, weight) = part.split_once('=').ok_or_else(wrong)?;
        let weight: u32 = weight.parse().map_err(|_| wrong())?;
        weights.insert(name.to_owned(), weight.into());
    }
    serde_json::from_value(weights.into()).map(LoadOperation::Mixed).map_err(|_| wrong())
}

pub fn parse_order(text: &str) -> Parsed<AccessOrder> {
    let wrong = || {
        format!(
            "\"{text}\" is no order; write sequential, random, strided:8, uniform, zipf:0.99 or hotspot:10/90"
        )
    };
    let number = |text: &str| text.parse::<f64>().map_err(|_| wrong());
    match text.split_once(':') {
        None => named(text).ok_or_else(wrong),
        Some(("strided", blocks)) => blocks.parse().map(AccessOrder::Strided).map_err(|_| wrong()),
        Some(("zipf", theta)) => Ok(AccessOrder::Zipf { theta: number(theta)? }),
        Some(("hotspot", shares)) => {
            let (hot, access) = shares.split_once('/').ok_or_else(wrong)?;
            Ok(AccessOrder::Hotspot { hot_percent: number(hot)?, access_percent: number(access)? })
        }
        _ => Err(wrong()),
    }
}

pub fn parse_sizes(text: &str) -> Parsed<Sizes> {
    match text.split_once('-') {
        Some((min, max)) if !min.is_empty() => {
            Ok(Sizes::Spread { min: quantity::size(min)?, max: quantity::size(max)? })
        }
        _ => quantity::size(text).map(Sizes::Equal),
    }
}

pub fn pace(pace: LoadPace) -> String {
    match pace {
        LoadPace::Closed { think_s, stagger } => {
            let stagger = stagger.map(|s| format!(", stagger {}/{}s", s.group, s.every_s));
            format!("closed, think {think_s}s{}", stagger.unwrap_or_default())
        }
        LoadPace::Open { per_second, arrivals } => format!("open, {per_second}/s, {arrivals}"),
    }
}

#[cfg(test)]
mod tests {
    use bench_load::shape::Mix;

    use super::*;

    #[test]
    fn what_can_be_typed_is_understood_and_what_cannot_says_what_can() {
        assert_eq!(parse_order("zipf:0.99"), Ok(AccessOrder::Zipf { theta: 0.99 }));
        assert_eq!(parse_order("strided:8"), Ok(AccessOrder::Strided(8)));
        assert_eq!(
            parse_order("hotspot:10/90"),
            Ok(AccessOrder::Hotspot { hot_percent: 10.0, access_percent: 90.0 })
        );
        assert_eq!(parse_sizes("4KiB-1MiB"), Ok(Sizes::Spread { min: 4096, max: 1 << 20 }));
        assert_eq!(parse_sizes("1MiB"), Ok(Sizes::Equal(1 << 20)));
        let mix = Mix { read: 70, write: 20, stat: 10, ..Mix::default() };
        assert_eq!(parse_operation("read=70,write=20,stat=10"), Ok(LoadOperation::Mixed(mix)));
        for wrong in ["backwards", "zipf:x", "hotspot:10", "strided:"] {
            assert!(parse_order(wrong).is_err_and(|e| e.contains("zipf:0.99")), "{wrong}");
        }
        let mix = Mix { delete: 3, range: 5, ..Mix::default() };
        assert_eq!(parse_operation("range=5,delete=3"), Ok(LoadOperation::Mixed(mix)));
        for wrong in ["delete", "read=x", "read70", "truncate=5"] {
            assert!(parse_operation(wrong).is_err_and(|e| e.contains("read=70")), "{wrong}");
        }
        assert!(parse_sizes("-1").is_err());
    }

    #[test]
    fn a_result_says_what_was_typed_as_it_is_typed() {
        for typed in ["sequential", "random", "uniform", "strided:8", "zipf:0.99", "hotspot:10/90"] {
            assert_eq!(parse_order(typed).map(|order| order.to_string()).as_deref(), Ok(typed));
        }
        for typed in ["read", "write", "stat", "walk", "read=60,range=10,write=15,stat=8,list=2,delete=5"] {
            assert_eq!(parse_operation(typed).map(|operation| operation.to_string()).as_deref(), Ok(typed));
        }
        for typed in ["4096", "4096-1048576"] {
            assert_eq!(parse_sizes(typed).map(|sizes| sizes.to_string()).as_deref(), Ok(typed));
        }
    }
}
