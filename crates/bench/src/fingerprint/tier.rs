//! How a tier is configured, by its own word: what its operator's interface tells of its cache and its junctions.

use std::net::SocketAddr;

use bench_report::format;
use serde_json::Value;
use types::Result;

use crate::fixture::operator;

/// Junctions that are told; a tier may have many.
const JUNCTIONS_MAX: usize = 8;

pub fn of_tier(admin: SocketAddr) -> Result<String> {
    let operation = "read the configuration of";
    let text = operator::page(admin, "/v1/status", operation, None)?;
    let status = serde_json::from_str(&text).map_err(|e| operator::unavailable(admin, operation, e))?;
    of_status(&status).ok_or_else(|| operator::unavailable(admin, operation, "its answer is not understood"))
}

/// Of one whose `/v1/status` is known: `forebay 0.1.0, read-only, cache 20.00 GiB, / = nfs://nas/show?nconnect=4`.
pub fn of_status(status: &Value) -> Option<String> {
    let mut parts = vec![
        format!("forebay {}", status["version"].as_str()?),
        status["write"].as_str()?.to_owned(),
        format!("cache {}", format::bytes(status["cache"]["bytes_max"].as_u64()?)),
    ];
    let junctions = status["junctions"].as_array()?;
    for junction in junctions.iter().take(JUNCTIONS_MAX) {
        parts.push(format!("{} = {}", junction["path"].as_str()?, junction["origin"].as_str()?));
    }
    let more = junctions.len().saturating_sub(JUNCTIONS_MAX);
    if more > 0 {
        parts.push(format!("and {more} junctions more"));
    }
    Some(parts.join(", "))
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
            of_status(&serde_json::from_str(status).expect("JSON")).expect("a status"),
            "forebay 0.1.0, read-only, cache 20.00 GiB, / = nfs://nas/show?nconnect=4"
        );
        assert_eq!(of_status(&serde_json::json!({})), None);
    }
}
