//! Which procedures change something, and how long their calls are remembered. Pure.

use rpc_nfs3::nfs3::procedure;

/// How long a call is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    WhileRunning,
    WithItsAnswer,
}

pub fn retention(number: u32) -> Option<Retention> {
    match number {
        procedure::SETATTR
        | procedure::CREATE
        | procedure::MKDIR
        | procedure::SYMLINK
        | procedure::MKNOD
        | procedure::REMOVE
        | procedure::RMDIR
        | procedure::RENAME
        | procedure::LINK => Some(Retention::WithItsAnswer),
        procedure::WRITE | procedure::COMMIT => Some(Retention::WhileRunning),
        _ => None,
    }
}

/// Whether this procedure changes something.
pub fn is_change(number: u32) -> bool {
    retention(number).is_some()
}
