//! `--hosts`: which ranks go where, and how a command line survives a shell on the other side.

use types::{Error, ErrorKind, Result};

use super::RankStart;
use crate::options::RANKS_MAX;

/// The ranks after 0 of `a,b:4,me@c,[fd00::1]:2`, in this order. Rank 0 is this process; a host that is this machine counts it.
pub fn plan(hosts: &str, this_host: &str) -> Result<Vec<RankStart>> {
    let items: Vec<&str> = hosts.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
    if items.is_empty() {
        return Err(Error::new(ErrorKind::Config, "--hosts", "names no host: HOST[:PROCESSES],..."));
    }
    let (mut starts, mut rank_0_counted) = (Vec::new(), false);
    for item in items {
        let (name, procs) = parse_host(item)?;
        let here = is_here(name, this_host);
        let counted = here && !rank_0_counted;
        rank_0_counted |= here;
        for _ in u32::from(counted)..procs {
            let rank = u32::try_from(starts.len()).unwrap_or(u32::MAX).saturating_add(1);
            starts.push(RankStart { rank, host: (!here).then(|| name.to_owned()) });
            if rank > RANKS_MAX {
                return Ok(starts);
            }
        }
    }
    Ok(starts)
}

/// As ssh takes its name (`n1`, `me@n1`), and its processes.
fn parse_host(item: &str) -> Result<(&str, u32)> {
    let wrong = || {
        let what = format!("{item:?} is not HOST[:PROCESSES], an IPv6 address in brackets");
        Error::new(ErrorKind::Config, "--hosts", what)
    };
    let (name, procs) = match item.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, "")) => (address, None),
        Some((address, rest)) => (address, Some(rest.strip_prefix(':').ok_or_else(wrong)?)),
        None => item.split_once(':').map_or((item, None), |(name, procs)| (name, Some(procs))),
    };
    let procs = procs.map_or(Ok(1), |text| text.parse().map_err(|_| wrong()))?;
    // A name that begins with a dash would be an option to ssh.
    let plain = |c: char| c.is_alphanumeric() || "._-@:%".contains(c);
    if name.is_empty()
        || name.starts_with('-')
        || !name.chars().all(plain)
        || !(1..=RANKS_MAX).contains(&procs)
    {
        return Err(wrong());
    }
    Ok((name, procs))
}

fn is_here(name: &str, this_host: &str) -> bool {
    let short = |name: &str| name.split('.').next().unwrap_or(name).to_owned();
    name == "localhost" || name == this_host || (!name.contains('@') && short(name) == short(this_host))
}

/// One word for a POSIX shell, whatever is in it.
pub fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
