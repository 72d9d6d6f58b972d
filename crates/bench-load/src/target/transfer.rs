//! How large the calls to a service of files are, and how many are under way.

use std::ops::RangeInclusive;

use types::{Error, ErrorKind, Result};

use super::{parse_size, without_options};

/// The calls by which files of a service are read and written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    /// Bytes of a read; the server may allow less.
    pub read_size: u32,
    /// Reads under way or done ahead of a sequential reader, beyond what it has asked for.
    pub read_ahead: u32,
    /// Bytes of a write; the server may allow less.
    pub write_size: u32,
    /// Writes of a file under way before the next one waits.
    pub write_behind: u32,
}

impl Transfer {
    /// With the URL's `rsize`, `wsize` (bytes of a call, `k` and `m` allowed), `readahead` and `writebehind` (calls); and the URL
    /// without these.
    pub(super) fn with_options_of(
        mut self,
        url: &str,
        sizes: RangeInclusive<u64>,
    ) -> Result<(Transfer, String)> {
        let rest = without_options(url, |pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (option, range) = match key {
                "rsize" => (&mut self.read_size, sizes.clone()),
                "wsize" => (&mut self.write_size, sizes.clone()),
                "readahead" => (&mut self.read_ahead, 0..=1024),
                "writebehind" => (&mut self.write_behind, 1..=1024),
                _ => return Ok(false),
            };
            let number = parse_size(value).filter(|number| range.contains(number));
            *option = number.and_then(|number| u32::try_from(number).ok()).ok_or_else(|| {
                let (least, most) = range.into_inner();
                let why = format!("{url}: {key} '{value}' should be from {least} to {most}");
                Error::new(ErrorKind::Config, "target", why)
            })?;
            Ok(true)
        })?;
        Ok((self, rest))
    }
}
