//! What the difference is worth: seconds, bytes and requests that the storage is spared, and money if prices are given.
//! Prices come from a file with its date and region, because they are nowhere else and never stay.

use std::path::{Path, PathBuf};

use chrono::{Datelike, NaiveDate};
use clap::Args;
use serde::Deserialize;
use types::{Error, ErrorKind, Result};

use crate::{GIB, ResultBuilder};

/// A price file is smaller.
const BYTES_MAX: u64 = 1 << 20;
/// The days of a month, as clouds bill it.
const DAYS: f64 = 730.0 / 24.0;

#[derive(Args, Clone, Debug, Default)]
pub struct PriceArgs {
    /// JSON with what storage and tier cost: {"as_of": "2026-11-01", "region": "...", "currency": "USD",
    /// "egress_per_gib": 0.08, "per_10k_requests": 0.005, "tier_per_hour": 1.20, "tier_gib_month": 0.10}
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierPrices {
    pub as_of: String,
    pub region: String,
    pub currency: String,
    /// Of each GiB that leaves the storage.
    pub egress_per_gib: f64,
    pub per_10k_requests: f64,
    /// Of the machine that the tier runs on.
    pub tier_per_hour: f64,
    /// Of each GiB of the tier's disk, a month; 0 if that is in the price of the machine.
    #[serde(default)]
    pub tier_gib_month: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pass {
    pub seconds: f64,
    pub origin_bytes: f64,
    pub origin_calls: f64,
    pub by_tier: bool,
}

impl PriceArgs {
    /// None without a file.
    pub fn read(&self) -> Result<Option<TierPrices>> {
        self.prices.as_deref().map(read).transpose()
    }
}

fn read(path: &Path) -> Result<TierPrices> {
    let refuse = |why: String| {
        Error::new(
            ErrorKind::Config,
            "prices:",
            format!("{}: {why}; see bench render --help", path.display()),
        )
    };
    let length = std::fs::metadata(path).map_err(|e| refuse(e.to_string()))?.len();
    if length > BYTES_MAX {
        return Err(refuse(format!("{length} bytes are no price list")));
    }
    let text = std::fs::read_to_string(path).map_err(|e| refuse(e.to_string()))?;
    let prices: TierPrices = serde_json::from_str(&text).map_err(|e| refuse(e.to_string()))?;
    let amounts =
        [prices.egress_per_gib, prices.per_10k_requests, prices.tier_per_hour, prices.tier_gib_month];
    if amounts.iter().any(|amount| !amount.is_finite() || *amount < 0.0) {
        return Err(refuse("a price is a number from 0 on".to_owned()));
    }
    if !is_date(&prices.as_of) || prices.region.is_empty() || prices.currency.is_empty() {
        return Err(refuse(
            "prices need their date (\"as_of\": \"2026-11-01\"), region and currency".to_owned(),
        ));
    }
    Ok(prices)
}

/// As `2026-11-01`; nobody computes with it.
fn is_date(text: &str) -> bool {
    text.len() == 10 && NaiveDate::parse_from_str(text, "%Y-%m-%d").is_ok_and(|day| day.year() >= 1990)
}

impl TierPrices {
    /// With the tier's machine for as long as the pass lasts.
    pub fn of(&self, pass: Pass) -> f64 {
        let tier = if pass.by_tier { pass.seconds / 3600.0 * self.tier_per_hour } else { 0.0 };
        self.of_storage(pass) + tier
    }

    /// What the storage costs: bytes that leave it, and requests.
    fn of_storage(&self, pass: Pass) -> f64 {
        pass.origin_bytes / GIB * self.egress_per_gib + pass.origin_calls / 10_000.0 * self.per_10k_requests
    }

    /// A tier that is kept, with what it keeps, whether it works or not.
    fn of_tier_day(&self, kept_bytes: f64) -> f64 {
        24.0 * self.tier_per_hour + kept_bytes / GIB * self.tier_gib_month / DAYS
    }

    /// The least number of warm passes in a day with which a tier that is kept all day costs no more than direct ones;
    /// None if there is none.
    fn passes_a_day(&self, direct: Pass, cold: Pass, warm: Pass) -> Option<u64> {
        let saved = self.of_storage(direct) - self.of_storage(warm);
        // What was fetched once is what is kept.
        let passes = (self.of_tier_day(cold.origin_bytes) / saved).ceil();
        (saved > 0.0 && passes.is_finite()).then(|| (passes as u64).max(1))
    }
}

/// The least number of passes of which the first is cold and the others warm that cost no more than so many direct ones;
/// None if there is none.
fn break_even(direct: f64, cold: f64, warm: f64) -> Option<u64> {
    if cold <= direct {
        return Some(1);
    }
    let saved = direct - warm;
    (saved > 0.0).then(|| ((cold - warm) / saved).ceil() as u64)
}

pub fn tell(draft: &mut ResultBuilder, prices: Option<&TierPrices>, direct: Pass, cold: Pass, warm: Pass) {
    let calls = direct.origin_calls - warm.origin_calls;
    draft.verdict(format!(
        "each pass after the first saves {:.2} s, {:.3} GiB and {calls:.0} calls at the storage",
        direct.seconds - warm.seconds,
        (direct.origin_bytes - warm.origin_bytes) / GIB,
    ));
    match break_even(direct.seconds, cold.seconds, warm.seconds) {
        Some(1) => draft.note("in time the tier pays with the first pass"),
        Some(passes) => draft.note(format!("in time the tier pays from pass {passes} on")),
        None => draft.note("in time the tier does not pay: a warm pass is no faster than a direct one"),
    }
    let Some(prices) = prices else { return };
    let [d, c, w] = [direct, cold, warm].map(|pass| prices.of(pass));
    let (currency, as_of, region) = (&prices.currency, &prices.as_of, &prices.region);
    let pays = match break_even(d, c, w) {
        Some(passes) => format!("the tier pays from pass {passes} on"),
        None => "the tier does not pay at these prices".to_owned(),
    };
    match prices.passes_a_day(direct, cold, warm) {
        Some(passes) => draft.note(format!(
            "a tier that is kept all day costs {:.2} {currency} a day with what it keeps, and pays from {passes} passes a day on",
            prices.of_tier_day(cold.origin_bytes)
        )),
        None => draft.note("a tier that is kept all day does not pay by what the storage charges alone"),
    }
    draft.verdict(format!(
        "a pass costs {d:.6} {currency} direct, {c:.6} cold, {w:.6} warm; {pays} (prices of {region}, {as_of})"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_break_even_is_the_first_pass_that_is_not_dearer() {
        assert_eq!(break_even(10.0, 4.0, 1.0), Some(1));
        // 19 + 1 = 20 = 2 x 10.
        assert_eq!(break_even(10.0, 19.0, 1.0), Some(2));
        assert_eq!(break_even(10.0, 30.0, 1.0), Some(4));
        assert_eq!(break_even(10.0, 30.0, 10.0), None);
    }

    fn list(per_10k_requests: f64, tier_per_hour: f64, tier_gib_month: f64) -> TierPrices {
        TierPrices {
            as_of: "2026-11-01".into(),
            region: "test".into(),
            currency: "USD".into(),
            egress_per_gib: 0.1,
            per_10k_requests,
            tier_per_hour,
            tier_gib_month,
        }
    }

    #[test]
    fn a_pass_costs_its_bytes_its_calls_and_its_hours() {
        let prices = list(0.5, 2.0, 0.0);
        let pass = Pass { seconds: 1800.0, origin_bytes: 2.0 * GIB, origin_calls: 20_000.0, by_tier: true };
        assert!((prices.of(pass) - (0.2 + 1.0 + 1.0)).abs() < 1e-9);
        assert!((prices.of(Pass { by_tier: false, ..pass }) - 1.2).abs() < 1e-9);
    }

    #[test]
    fn a_tier_that_is_kept_all_day_pays_from_so_many_passes_a_day_on() {
        let prices = list(0.0, 0.5, DAYS);
        let pass =
            |gib: f64, by_tier| Pass { seconds: 60.0, origin_bytes: gib * GIB, origin_calls: 0.0, by_tier };
        let (direct, cold, warm) = (pass(50.0, false), pass(8.0, true), pass(0.0, true));
        // 12 for the machine and 8 for 8 GiB; each pass saves 5.
        assert!((prices.of_tier_day(cold.origin_bytes) - 20.0).abs() < 1e-9);
        assert_eq!(prices.passes_a_day(direct, cold, warm), Some(4));
        assert_eq!(prices.passes_a_day(warm, cold, warm), None);
        let free = list(0.0, 0.0, 0.0);
        assert_eq!(free.passes_a_day(direct, cold, warm), Some(1));
    }

    #[test]
    fn a_price_list_has_a_date_and_old_ones_need_no_capacity() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("prices.json");
        let list = |as_of: &str, region: &str| {
            let text = format!(
                r#"{{"as_of":"{as_of}","region":"{region}","currency":"USD","egress_per_gib":1,"per_10k_requests":0,"tier_per_hour":0}}"#
            );
            std::fs::write(&path, text).expect("written");
            read(&path)
        };
        assert_eq!(list("2026-11-01", "north").expect("prices").tier_gib_month, 0.0);
        for (as_of, region) in
            [("", "north"), ("2026-13-01", "north"), ("last week", "north"), ("2026-11-01", "")]
        {
            let error = list(as_of, region).expect_err("refused").to_string();
            assert!(error.contains("as_of") && error.lines().count() == 1, "{error}");
        }
    }

    #[test]
    fn a_wrong_price_list_is_told_in_one_line() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("prices.json");
        for text in [
            "{",
            "{}",
            r#"{"as_of":"","region":"","currency":"","egress_per_gib":-1,"per_10k_requests":0,"tier_per_hour":0}"#,
        ] {
            std::fs::write(&path, text).expect("written");
            let error = read(&path).expect_err("refused").to_string();
            assert!(error.contains("prices.json") && error.lines().count() == 1, "{error}");
        }
        assert!(read(&dir.path().join("none")).is_err());
    }
}
