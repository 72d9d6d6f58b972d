//! How a tier is configured, by its own word: what its operator's interface tells of its cache and its junctions.

use std::net::SocketAddr;

use serde::Deserialize;
use types::Result;

use crate::fixture::operator;

/// Junctions that are told; a tier may have many.
const JUNCTIONS_MAX: usize = 8;

#[derive(Deserialize)]
struct TierStatus {
    version: String,
    write: String,
    cache: TierCache,
    junctions: Vec<TierJunction>,
}

#[derive(Deserialize)]
struct TierCache {
    bytes_max: u64,
}

#[derive(Deserialize)]
struct TierJunction {
    path: String,
    origin: String,
}

/// `forebay 0.1.0, read-only, cache 20.00 GiB, / = nfs://nas/show?nconnect=4`
pub fn of_tier(admin: SocketAddr) -> Result<String> {
    let operation = "read the configuration of";
    let text = operator::page(admin, "/v1/status", operation, None)?;
    of_status(&text).map_err(|e| operator::unavailable(admin, operation, e))
}

/// The same of one whose `/v1/status` is known.
pub fn of_status(status: &str) -> serde_json::Result<String> {
    let status: TierStatus = serde_json::from_str(status)?;
    let mut parts = vec![
        format!("forebay {}", status.version),
        status.write,
        format!("cache {}", bench_report::format::bytes(status.cache.bytes_max)),
    ];
    let junctions = status.junctions.iter().take(JUNCTIONS_MAX);
    parts.extend(junctions.map(|junction| format!("{} = {}", junction.path, junction.origin)));
    let more = status.junctions.len().saturating_sub(JUNCTIONS_MAX);
    if more > 0 {
        parts.push(format!("and {more} junctions more"));
    }
    Ok(parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_and_junctions_with_their_options_are_told() {
        let status = r#"{"version": "0.1.0", "write": "read-only", "uptime_seconds": 3,
            "cache": {"bytes_used": 1, "bytes_max": 21474836480},
            "junctions": [{"path": "/", "origin": "nfs://nas/show?nconnect=4", "state": "ok"}]}"#;
        assert_eq!(
            of_status(status).expect("a status"),
            "forebay 0.1.0, read-only, cache 20.00 GiB, / = nfs://nas/show?nconnect=4"
        );
        assert!(of_status("{}").is_err());
    }
}
