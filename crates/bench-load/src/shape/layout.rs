//! Which files there are: names, sizes, directories.

use serde::{Deserialize, Serialize};
use types::{Error, ErrorKind, Result};

use crate::data::mix_all;

/// 2^40 files of one client: the rest of a file's number tells the client.
const CLIENT_SHIFT: u32 = 40;

#[derive(Clone, Copy, Debug, strum::Display, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sizes {
    /// All files alike, bytes.
    #[strum(to_string = "{0}")]
    Equal(u64),
    /// From `min` to `max` bytes, evenly by magnitude, a function of the file's number.
    #[strum(to_string = "{min}-{max}")]
    Spread { min: u64, max: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Files, of each client if they are private.
    pub files: u64,
    pub sizes: Sizes,
    /// Files in one directory; 0: all in one.
    pub files_per_directory: u64,
    /// Each client has files of its own, in a directory of its own.
    pub private: bool,
}

impl Default for Layout {
    /// One file of 1 MiB.
    fn default() -> Layout {
        Layout { files: 1, sizes: Sizes::Equal(1 << 20), files_per_directory: 0, private: false }
    }
}

impl Layout {
    /// Whether it makes sense; one line that says what would.
    pub fn check(&self) -> Result<()> {
        let wrong = |why: &str| Err(Error::new(ErrorKind::Config, "layout", why));
        if self.files == 0 || self.files > 1 << CLIENT_SHIFT {
            return wrong("the number of files should be from 1 to 2^40");
        }
        let (min, max) = self.size_limits();
        // The limit of a file's offset; anything near it is a slip of the pen.
        if min > max || max > i64::MAX as u64 {
            return wrong(
                "a file's size should be from 0 to 2^63 - 1 bytes, and the smallest at most the largest",
            );
        }
        if u128::from(max) * u128::from(self.files) > u128::from(u64::MAX) {
            return wrong("all files together should have less than 2^64 bytes");
        }
        Ok(())
    }

    pub fn differ_in_size(&self) -> bool {
        matches!(self.sizes, Sizes::Spread { min, max } if min < max)
    }

    pub fn size_limits(&self) -> (u64, u64) {
        match self.sizes {
            Sizes::Equal(size) => (size, size),
            Sizes::Spread { min, max } => (min, max),
        }
    }

    /// Bytes of file `file`, the same for every client.
    pub fn size_of(&self, file: u64) -> u64 {
        match self.sizes {
            Sizes::Equal(size) => size,
            Sizes::Spread { min, max } => {
                let fraction = (mix_all(&[0x517e, file]) >> 11) as f64 / (1_u64 << 53) as f64;
                let (low, high) = ((min.max(1) as f64).ln(), (max.max(1) as f64).ln());
                // A float is exact to 2^53 only: the limits must hold all the same.
                ((low + fraction * (high - low)).exp().round() as u64).clamp(min, max.max(min))
            }
        }
    }

    /// Bytes of all files (of one client, if they are private).
    pub fn total_bytes(&self) -> u64 {
        match self.sizes {
            Sizes::Equal(size) => size.saturating_mul(self.files),
            Sizes::Spread { .. } => {
                (0..self.files).fold(0, |sum, file| sum.saturating_add(self.size_of(file)))
            }
        }
    }

    /// The number by which the contents of this file are generated.
    pub fn content_id(&self, client: u32, file: u64) -> u64 {
        if self.private { (u64::from(client) + 1) << CLIENT_SHIFT | file } else { file }
    }

    pub fn directories(&self) -> u64 {
        self.files.div_ceil(self.per_directory())
    }

    /// The files in a directory.
    pub fn files_of(&self, directory: u64) -> std::ops::Range<u64> {
        let per = self.per_directory();
        let start = directory.saturating_mul(per).min(self.files);
        start..start.saturating_add(per).min(self.files)
    }

    pub fn directory_of(&self, file: u64) -> u64 {
        file / self.per_directory()
    }

    fn per_directory(&self) -> u64 {
        if self.files_per_directory == 0 { self.files.max(1) } else { self.files_per_directory }
    }

    /// The client's directory below `root`: `root` itself unless the files are private.
    pub fn home(&self, root: &str, client: u32) -> String {
        if self.private { below(root, &format!("c{client:05}")) } else { root.to_owned() }
    }

    pub fn directory_path(&self, root: &str, client: u32, directory: u64) -> String {
        let home = self.home(root, client);
        if self.files_per_directory == 0 { home } else { below(&home, &format!("d{directory:05}")) }
    }

    pub fn path(&self, root: &str, client: u32, file: u64) -> String {
        below(&self.directory_path(root, client, self.directory_of(file)), &format!("f{file:08}"))
    }

    /// Of a file in that directory that is none of the layout's: the n-th.
    pub fn path_beside(&self, root: &str, client: u32, directory: u64, n: u64) -> String {
        let name = format!("f{:08}", self.files.saturating_add(n));
        below(&self.directory_path(root, client, directory), &name)
    }

    /// Whether a name in a data directory can be one that a layout makes: `c`, `d` or `f` and digits.
    pub fn makes_name(name: &str) -> bool {
        let digits = |rest: &str| rest.len() >= 5 && rest.bytes().all(|b| b.is_ascii_digit());
        ["c", "d", "f"].iter().any(|letter| name.strip_prefix(letter).is_some_and(digits))
    }
}

/// The path of a name in a directory, which is empty for the target's own.
pub(crate) fn below(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}
