//! What an origin can never take, as far as it is known before it is tried.

/// Absent: not known, or there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginLimits {
    /// Bytes of the largest file.
    pub file_size_max: Option<u64>,
    /// Bytes of the longest name.
    pub name_max: Option<u32>,
    /// Names that one file can have; 1 where there are no hard links.
    pub links_max: Option<u32>,
    /// Devices, sockets and pipes cannot be made.
    pub no_special_files: bool,
    /// Nothing can be changed at all, by anybody.
    pub read_only: bool,
}
