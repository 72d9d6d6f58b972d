//! Which node has how much of a file, as the cluster tells it. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

/// One stripe of a file, and the nodes that are to keep it, in the order of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeCopies {
    pub offset: u64,
    pub bytes: u64,
    /// Name, and percent of the stripe's bytes; `None` of a node that does not answer.
    pub copies: Vec<(String, Option<u8>)>,
}

/// The answer of `/v1/placement`.
pub fn read(told: &Value) -> Option<Vec<StripeCopies>> {
    let copy = |told: &Value| {
        let percent = told["percent"].as_u64().and_then(|percent| u8::try_from(percent).ok());
        Some((told["node"].as_str()?.to_owned(), percent))
    };
    let stripe = |told: &Value| {
        Some(StripeCopies {
            offset: told["offset"].as_u64()?,
            bytes: told["bytes"].as_u64()?,
            copies: told["copies"].as_array()?.iter().map(copy).collect::<Option<_>>()?,
        })
    };
    told["stripes"].as_array()?.iter().map(stripe).collect()
}

/// How much there is of `wanted` copies of the whole file, percent. 100 only if nothing is missing.
pub fn complete_percent(stripes: &[StripeCopies], wanted: usize) -> f64 {
    let of = |stripe: &StripeCopies| {
        let there: u64 =
            stripe.copies.iter().take(wanted).map(|(_, percent)| u64::from(percent.unwrap_or(0))).sum();
        there as f64 / wanted.max(1) as f64 * stripe.bytes as f64
    };
    let bytes: u64 = stripes.iter().map(|stripe| stripe.bytes).sum();
    if bytes == 0 { 0.0 } else { stripes.iter().map(of).sum::<f64>() / bytes as f64 }
}

/// Copies that every stripe is to have.
pub fn least_copies(stripes: &[StripeCopies]) -> usize {
    stripes.iter().map(|stripe| stripe.copies.len()).min().unwrap_or(0)
}

/// The nodes that are to keep any of it.
pub fn keepers(stripes: &[StripeCopies]) -> BTreeSet<&str> {
    stripes.iter().flat_map(|stripe| &stripe.copies).map(|(node, _)| node.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn copies_are_complete_only_if_each_stripe_has_all_of_them_whole() {
        let told = json!({"stripes": [
            {"offset": 0, "bytes": 64, "copies": [{"node": "n1", "percent": 100}, {"node": "n2", "percent": 100}]},
            {"offset": 64, "bytes": 64, "copies": [{"node": "n2", "percent": 100}, {"node": "n3", "percent": null}]},
        ]});
        let mut stripes = read(&told).expect("two stripes");
        assert_eq!(keepers(&stripes), BTreeSet::from(["n1", "n2", "n3"]));
        assert_eq!(complete_percent(&stripes, 2), 75.0);
        assert_eq!(complete_percent(&stripes, 1), 100.0);
        // The node is drained, so there are fewer that keep it.
        stripes[1].copies.pop();
        assert_eq!(complete_percent(&stripes, 2), 75.0);
        stripes[1].copies.push(("n3".to_owned(), Some(100)));
        assert_eq!(complete_percent(&stripes, 2), 100.0);
        assert_eq!(complete_percent(&[], 1), 0.0);
        assert_eq!(read(&json!({"stripes": [{"offset": 0}]})), None);
    }
}
