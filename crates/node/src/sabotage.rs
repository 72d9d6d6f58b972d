//! Planted bugs, which the suite of faults must find. Only tests can switch one on.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Bytes of another node are taken without a look at their checksums: a bug of crate `peer`.
    #[cfg(test)]
    TrustAnyBytes,
    /// A node that is asked for one version of a file serves the one that it has.
    ServeOtherVersion,
    /// A node that is asked as the primary asks whom it takes for the primary itself.
    AskOnAsPrimary,
    /// An older map comes into force.
    TakeOlderMap,
    /// A coordinator that counts anew is taken for one with older maps.
    StayInHistory,
    /// Blocks of a copy are kept under the numbers of other blocks.
    CopyToWrongPlace,
    /// A copy of an old version is made where a newer one lies.
    CopyOverNewer,
    /// A node that is not in the map gets bytes.
    AnswerStrangers,
    /// What another node does not have is taken for gone.
    BelieveAbsence,
    /// A call waits for its deadline, though the node that was called does not answer heartbeats.
    WaitForTheGone,
}

/// The bug that is planted, if any is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sabotage(#[cfg(test)] pub Option<Bug>);

impl Sabotage {
    #[cfg(test)]
    pub fn is(self, bug: Bug) -> bool {
        self.0 == Some(bug)
    }

    #[cfg(not(test))]
    pub fn is(self, _bug: Bug) -> bool {
        false
    }
}
