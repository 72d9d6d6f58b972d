//! Has anybody else written to a file while we wrote to it? Pure: the answer to each write or commit of ours tells what
//! the file was just before it and just after, as far as the origin tells.
//!
//! Answers that can be put in a row, from what the file was known to be to what it is now, leave no gap in which another
//! write could have been: nobody else wrote. If they cannot, nothing is proved: answers may have come late, twice or not at
//! all, or from servers that look at the file and write to it in two steps.

use types::{Attr, Version};

/// The answer to one write or commit. `T` is what the caller has of a file's state.
#[derive(Clone, Debug)]
pub struct WriteAck<T> {
    /// The file just before it, if the origin tells.
    pub before: Option<Version>,
    /// Just after it, if the origin tells.
    pub after: Option<T>,
    /// It may have been carried out more than once.
    pub resent: bool,
}

/// What all answers together say.
#[derive(Debug)]
pub struct WriteVerdict<T> {
    /// The file now, if it is known which answer was the last.
    pub last: Option<T>,
    /// Nobody else changed it, as far as answers can tell.
    pub alone: bool,
    /// What it may be then.
    ends: Vec<Version>,
}

impl<T> WriteVerdict<T> {
    /// The file is this now. Is that what we left, and nobody else?
    pub fn is_ours(&self, now: Version) -> bool {
        self.alone && self.ends.contains(&now)
    }
}

/// `base` is what the file was known to be before the first of them; all of them are over. Answers to calls that were
/// under way together may come in any order. `state` tells the version and the attributes of a state.
///
/// An origin that is silent about `before` (Linux's NFS server is, of writes) is taken to tell of nobody else if it was
/// `looked` at the file just before the first of them, and else of somebody.
pub fn detect_foreign_write<T: Clone>(
    base: Version,
    acks: &[WriteAck<T>],
    looked: bool,
    state: impl Fn(&T) -> (Version, Attr),
) -> WriteVerdict<T> {
    let version = |told: &T| state(told).0;
    let told = || acks.iter().filter_map(|ack| ack.after.as_ref());
    let silent = acks.iter().any(|ack| ack.before.is_none() || ack.after.is_none());
    let mut steps: Vec<(Version, Version)> = acks
        .iter()
        .filter_map(|ack| Some((ack.before?, version(ack.after.as_ref()?))))
        .filter(|(before, after)| before != after)
        .collect();
    let mut row = vec![base];
    while let Some(next) = steps.iter().position(|(before, _)| row.last() == Some(before)) {
        row.push(steps.swap_remove(next).1);
    }
    let is_row = !silent && steps.is_empty() && told().all(|after| row.contains(&version(after)));
    // Of answers that do not make a row, times say which is the last, and so does which came last; if these differ, they
    // were under way together, or the origin's clock was set back.
    let end = told().find(|after| is_row && row.last() == Some(&version(after)));
    let time = |after: &&T| {
        let attr = state(after).1;
        (attr.ctime, attr.mtime, attr.size)
    };
    let latest = told().max_by_key(time).map(version);
    let came_last = told().last().filter(|last| latest == Some(version(last)));
    let last = end.or(came_last).cloned();
    // With silent ones in between, the row has gaps that are perhaps theirs.
    let alone = is_row || silent && looked;
    let ends = match &last {
        Some(last) => vec![version(last)],
        None if acks.is_empty() => vec![base],
        None => told().map(version).collect(),
    };
    WriteVerdict { last, alone, ends }
}

#[cfg(test)]
mod tests {
    use types::{FileKind, Timestamp};

    use super::*;

    fn attr(n: u32) -> Attr {
        let time = Timestamp { seconds: 5, nanos: n };
        Attr {
            kind: FileKind::Regular,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: 9,
            used: 9,
            rdev: (0, 0),
            fsid: 0,
            fileid: 1,
            atime: time,
            mtime: time,
            ctime: time,
        }
    }

    fn version(n: u32) -> Version {
        Version::from_attr(&attr(n))
    }

    fn ack(before: u32, after: u32) -> WriteAck<Attr> {
        WriteAck {
            before: (before > 0).then(|| version(before)),
            after: (after > 0).then(|| attr(after)),
            resent: false,
        }
    }

    fn judge(base: u32, acks: &[WriteAck<Attr>], looked: bool) -> WriteVerdict<Attr> {
        detect_foreign_write(version(base), acks, looked, |attr| (Version::from_attr(attr), *attr))
    }

    fn verdict(base: u32, acks: &[(u32, u32)], looked: bool) -> (bool, Option<Version>) {
        let acks: Vec<_> = acks.iter().map(|(before, after)| ack(*before, *after)).collect();
        let verdict = judge(base, &acks, looked);
        (verdict.alone, verdict.last.map(|last| Version::from_attr(&last)))
    }

    #[test]
    fn which_of_silent_answers_was_the_last_is_asked_if_they_do_not_agree() {
        // The clock was set back, or the answers came in another order.
        let verdict = judge(1, &[ack(0, 3), ack(0, 2)], true);
        assert!(verdict.last.is_none() && verdict.alone);
        assert!(verdict.is_ours(version(2)) && verdict.is_ours(version(3)));
        assert!(!verdict.is_ours(version(4)) && !verdict.is_ours(version(1)));
        let verdict = judge(1, &[ack(0, 2), ack(0, 3)], true);
        assert!(verdict.is_ours(version(3)) && !verdict.is_ours(version(2)));
        let verdict = judge(1, &[], true);
        assert!(!verdict.is_ours(version(2)));
    }

    #[test]
    fn answers_that_make_a_row_in_any_order_are_ours_alone() {
        for (base, acks, alone, last) in [
            (1, &[(1, 2)][..], true, 2),
            (1, &[(2, 3), (1, 2), (3, 4)], true, 4),
            (1, &[(1, 2), (2, 2), (2, 2), (2, 3), (3, 3)], true, 3),
            (1, &[(1, 1)], true, 1),
            // The origin's clock was set back meanwhile.
            (5, &[(5, 6), (3, 4), (6, 3)], true, 4),
            // Another was there before us, between two of ours, after the last but one.
            (1, &[(2, 3)], false, 3),
            (1, &[(1, 2), (3, 4)], false, 4),
            (1, &[(1, 2), (2, 3), (4, 4)], false, 4),
            // The origin does not tell.
            (1, &[(0, 2), (0, 3)], true, 3),
            (1, &[(1, 2), (0, 3)], true, 3),
        ] {
            let last = Some(version(last));
            assert_eq!(verdict(base, acks, true), (alone, last), "{base} {acks:?}");
            let silent = acks.iter().any(|(before, _)| *before == 0);
            assert_eq!(
                verdict(base, acks, false),
                (alone && !silent, last),
                "not looked at: {base} {acks:?}"
            );
        }
        assert_eq!(verdict(1, &[], false), (true, None));
    }
}
