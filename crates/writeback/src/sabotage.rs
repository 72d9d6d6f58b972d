//! Planted bugs, which the test harness must find. Only tests can switch one on.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A commit does not sync the segment.
    SkipSync,
    /// A commit says that it is durable, and then makes it so.
    AcknowledgeBeforeSync,
    /// A commit believes that all is well although the sync failed.
    IgnoreFailedSync,
    /// A new segment's name is not synced.
    SkipSyncDir,
    /// Removed names are not synced one by one.
    SkipSyncDirOnRemove,
    /// A full segment is left without a sync.
    SkipSyncOnSeal,
    /// After a crash, sequences go on from what was found.
    ReuseSequence,
    /// Compaction marks what it moves as done.
    DoneBeforeMove,
    /// Compaction removes the old segment before the copies are durable.
    RemoveBeforeCopy,
    /// Any segment without live entries is removed, not the oldest only.
    RemoveOutOfOrder,
    /// The data's checksum covers the first half of it.
    ShortCrc,
    /// A record's checksum says nothing of its segment.
    UnboundFrame,
    /// The verifier stays after an unclean end.
    KeepVerifier,
    /// Bad bytes in a sealed segment are taken for a torn tail.
    CutSealed,
    /// Torn data at the tail is believed.
    TrustTail,
    /// Of a torn tail what cannot be read is left out, and not what lies behind it.
    KeepBeyondGap,
    /// Of a tail what no sync was seen to cover is left out, also after a mere kill.
    KeepSyncedOnly,
    /// What is found after a crash is believed to be on disk because it can be read.
    TrustCache,
    /// Done records are forgotten at recovery.
    ForgetDone,
    /// A position after the journal's compaction is the one from before.
    StalePosition,
    /// A flush does not see that operations touch the same name.
    ForgetNames,
    /// A unit takes what waits for something outside of it.
    CoalesceOverDependency,
    /// An entry is marked as done, and then its operation is carried out.
    DoneBeforeApplied,
    /// The entries of a unit are marked as done from the last to the first.
    DoneBackwards,
    /// An operation begins although those it waited for may come back after a crash.
    BeginOnUnsynced,
    /// A changed file at the origin is written as if nobody had changed it.
    SkipConflictCheck,
    /// Ids of what is made here begin anew at each start.
    ReuseLocalId,
    /// What our own flush left at the origin is not remembered.
    ForgetOwnVersion,
    /// What an origin does not have is taken for done or lost, whichever origin it is.
    FlushToReplaced,
    /// What may have been made at the origin is believed to have vanished.
    VanishInDoubt,
    /// What is removed in the end is carried there first, although the origin refuses it.
    CarryWhatEnds,
    /// Who waited for an operation that went ahead waits for nothing any more.
    ForgetOver,
    /// Operations that an operator gives up are marked as done from the first to the last.
    GiveUpForwards,
    /// Operations go ahead of others whatever these touch.
    PassObstacles,
    /// What a rename of ours that had no answer put under the new name is taken for another's.
    ForgetHalfRenames,
}

/// The bug that is planted, if any is.
#[derive(Clone, Copy, Default)]
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
