//! What calls that change something answer.

use types::{Attr, Stability, WeakAttr, WriteVerifier};

use crate::Node;

/// An object just before and just after a change, as far as both are known: a client that knew it as it was before
/// may take over what it is now, and need not forget what else it knows of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttrsAround {
    pub before: Option<WeakAttr>,
    pub after: Option<Attr>,
}

/// What was made or named, and the directory it was made in.
#[derive(Clone, Debug)]
pub struct Made {
    pub node: Node,
    pub dir: AttrsAround,
}

/// An object whose attributes were set.
#[derive(Clone, Debug)]
pub struct Altered {
    pub node: Node,
    pub before: Option<WeakAttr>,
}

/// All bytes that were given were taken.
#[derive(Clone, Debug)]
pub struct WriteOut {
    /// At least what was asked for.
    pub stability: Stability,
    /// Another one than before: what was written `Unstable` under the old one may be lost, and is to be written again.
    pub verifier: WriteVerifier,
    pub node: Node,
    pub before: Option<WeakAttr>,
}

#[derive(Clone, Debug)]
pub struct CommitOut {
    pub verifier: WriteVerifier,
    pub node: Node,
    pub before: Option<WeakAttr>,
}
