//! What a store is like: facts that hold for every call, and that the layers above decide by.

/// Facts about a store. Each origin states them once; layers pass them on as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginTraits {
    /// Most bytes that one [`read`](crate::Origin::read) should ask for.
    pub read_max: u32,
    /// Most bytes that one [`write`](crate::Origin::write) should carry.
    pub write_max: u32,
    /// A directory's times change when a name in it comes or goes. Where they do not, a directory has to be listed again
    /// to learn what is in it.
    pub directories_show_changes: bool,
    /// An object's identity is nothing but its place, the reference. An object that is renamed then has another identity
    /// afterwards, and whatever comes to the old place gets the old one.
    pub identity_is_place: bool,
    /// A file's contents change only as a whole, when what was written is committed. Until then readers see the former
    /// contents, and the origin itself keeps what it took of [`Unstable`](types::Stability::Unstable) writes; the write
    /// verifier of a file changes if that is lost. A commit may cost as much as the file is long.
    pub commits_whole_files: bool,
    /// Answers to reads that are in flight together share the line, each the slower for the others, instead of coming one
    /// after the other.
    pub answers_side_by_side: bool,
    /// Objects can have extended attributes.
    pub has_xattrs: bool,
}

impl OriginTraits {
    /// A file system as POSIX has it, without extended attributes.
    pub const POSIX: OriginTraits = OriginTraits {
        read_max: 1 << 20,
        write_max: 1 << 20,
        directories_show_changes: true,
        identity_is_place: false,
        commits_whole_files: false,
        answers_side_by_side: false,
        has_xattrs: false,
    };
}
