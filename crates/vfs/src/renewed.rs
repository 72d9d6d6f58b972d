//! A file has another version because of what we did to it, and of nothing else.

use namespace::Found;

use crate::Vfs;

impl Vfs {
    /// `old` became `new` by a change of attributes of ours alone: bytes up to the smaller of the two sizes are the
    /// same, those between are zeros. The place where the cache learns which of its blocks belong to `new`.
    pub(crate) async fn renewed(&self, old: &Found, new: &Found) {
        tracing::debug!(id = %new.id(), from = old.attr().size, to = new.attr().size, "attributes were set");
    }
}
