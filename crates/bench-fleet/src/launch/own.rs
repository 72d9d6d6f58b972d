//! The variables that our own launchers set, and that a script may set where no launcher is known.

use types::{Error, ErrorKind, Result};

use super::{Launch, Meeting, check_size};
use crate::options::Environment;

pub const RANK: &str = "FOREBAY_BENCH_RANK";
pub const SIZE: &str = "FOREBAY_BENCH_SIZE";
/// `HOST:PORT[,HOST:PORT...]`
pub const COORDINATOR: &str = "FOREBAY_BENCH_COORDINATOR";
pub const TOKEN: &str = "FOREBAY_BENCH_TOKEN";
/// The value of [`TOKEN`] that says that the token is the first line of the standard input.
pub const TOKEN_ON_STDIN: &str = "-";

/// What they say, with the value of [`RANK`].
pub(super) fn told(environment: &Environment, rank: &str) -> Result<Option<Launch>> {
    let wrong = |what: &str| Error::new(ErrorKind::Config, "the environment", what);
    let (Ok(rank), Some(size)) = (rank.parse::<u32>(), environment.number(SIZE)) else {
        return Err(wrong(&format!("{RANK} and {SIZE} must both be numbers")));
    };
    if rank >= size {
        return Err(wrong(&format!("{RANK}={rank} must be less than {SIZE}={size}")));
    }
    check_size(SIZE, size)?;
    if size == 1 {
        return Ok(None);
    }
    let Some(coordinator) = environment.get(COORDINATOR) else {
        return Err(wrong(&format!("{RANK} is set, so {COORDINATOR}=HOST:PORT must say where rank 0 is")));
    };
    let addresses = coordinator.split(',').map(|a| a.trim().to_owned()).collect();
    Ok(Some(Launch { rank, size, meeting: Meeting::At(addresses) }))
}
