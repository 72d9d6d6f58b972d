//! How many copies of a file are wanted, as one node tells another one that does not know the file's path.

use serde::{Deserialize, Serialize};

use super::fields;

/// What the rules of a junction say of a file. It means something to a node that goes by rules of the same revision alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldCopies {
    /// At which the rules were put into etcd.
    pub revision: u64,
    /// `None`: no rule is about the file, and it has as many copies as its junction says.
    pub copies: Option<u8>,
}

impl ToldCopies {
    /// `<copies>/<revision>`, with 0 for no rule.
    pub(super) fn write(&self) -> String {
        format!("{}/{}", self.copies.unwrap_or(0), self.revision)
    }

    pub(super) fn read(text: &str) -> Option<ToldCopies> {
        let (copies, revision) = text.split_once('/')?;
        let copies = u8::try_from(fields::digits(copies)?).ok()?;
        Some(ToldCopies { revision: fields::digits(revision)?, copies: (copies > 0).then_some(copies) })
    }

    /// No rule asks for no copies.
    pub(super) fn is_legal(&self) -> bool {
        self.copies != Some(0)
    }
}
