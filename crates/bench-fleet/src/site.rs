//! Which site a rank is on: a label that the user gives, as no machine knows it.
//!
//! Every rank of a run has the same command line under most launchers, so that one specification must do for all.

use types::{Error, ErrorKind, Result};

/// The longest label: longer ones make no table.
const LENGTH_MAX: usize = 64;

/// The label of `rank` on `host`: `specification` itself, or the first `KEY=LABEL` of it whose key is the host's
/// name, a prefix of it with a `*`, the rank, or a range of ranks. The host's name if nothing fits.
pub fn site_of(specification: Option<&str>, host: &str, rank: u32) -> Result<String> {
    let Some(specification) = specification.map(str::trim).filter(|s| !s.is_empty()) else {
        return Ok(host.to_owned());
    };
    if !specification.contains(['=', ',']) {
        return checked(specification);
    }
    for item in specification.split(',') {
        let Some((key, label)) = item.split_once('=') else {
            let what = format!("{item:?} has no '=': name a label, or HOST=LABEL,FIRST-LAST=LABEL,...");
            return Err(Error::new(ErrorKind::Config, "--site", what));
        };
        if fits(key.trim(), host, rank) {
            return checked(label.trim());
        }
    }
    Ok(host.to_owned())
}

fn fits(key: &str, host: &str, rank: u32) -> bool {
    let of_rank = |text: &str| text.parse::<u32>().ok();
    match (key.strip_suffix('*'), key.split_once('-'), of_rank(key)) {
        _ if key == host => true,
        (Some(prefix), _, _) => host.starts_with(prefix),
        (_, _, Some(one)) => one == rank,
        (_, Some((first, last)), _) => match (of_rank(first), of_rank(last)) {
            (Some(first), Some(last)) => (first..=last).contains(&rank),
            _ => false,
        },
        _ => false,
    }
}

fn checked(label: &str) -> Result<String> {
    if label.is_empty() || label.len() > LENGTH_MAX || label.contains(char::is_control) {
        let what = format!("{label:?} is no label of 1 to {LENGTH_MAX} plain characters");
        return Err(Error::new(ErrorKind::Config, "--site", what));
    }
    Ok(label.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(specification: &str, host: &str, rank: u32) -> String {
        site_of(Some(specification), host, rank).unwrap()
    }

    #[test]
    fn one_specification_does_for_all_ranks() {
        assert_eq!(site_of(None, "c1-2", 0).unwrap(), "c1-2");
        assert_eq!(site("north", "c1-2", 0), "north");
        assert_eq!(site("c1-*=north,c2-*=south", "c2-7", 0), "south");
        assert_eq!(site("c2-7=here,c2-*=south", "c2-7", 0), "here");
        assert_eq!(site("0-1=north,2-3=south", "x", 2), "south");
        assert_eq!(site("0=north,1=south", "x", 1), "south");
        assert_eq!(site("0=north", "x", 1), "x");
        assert_eq!(site("*=all", "x", 1), "all");
    }

    #[test]
    fn a_label_that_is_none_is_refused() {
        for wrong in ["a=b,c", "x=", "new\nline", &"l".repeat(65)] {
            assert!(site_of(Some(wrong), "x", 1).is_err(), "{wrong:?}");
        }
    }
}
