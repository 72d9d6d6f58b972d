//! Has anybody else changed a file while we wrote to it? Pure: each answer to a write or commit of ours tells what the
//! file was just before it and just after, as far as the origin tells. Whoever can put them in a row, from what the file
//! was known to be to what it is now, has found no gap in which another could have been.

use origin::Object;
use types::Version;

/// The answer to one write or commit: the file just before it and just after, if the origin tells.
#[derive(Clone, Debug)]
pub struct WriteAck {
    pub before: Option<Version>,
    pub after: Option<Object>,
}

/// What all answers together say.
#[derive(Debug)]
pub struct WriteVerdict {
    /// The file now, if it is known which answer was the last.
    pub last: Option<Object>,
    /// Nobody else changed it, as far as answers can tell.
    pub alone: bool,
    /// What it may be then.
    ends: Vec<Version>,
}

impl WriteVerdict {
    /// The file is this now. Is that what we left, and nobody else?
    pub fn is_ours(&self, now: Version) -> bool {
        self.alone && self.ends.contains(&now)
    }
}

/// `base` is what the file was known to be before the first of them; all of them are over. Answers to calls that were
/// under way together may come in any order.
///
/// An origin that is silent about `before` (Linux's NFS server is, of writes) is taken to tell of nobody else if it was
/// `looked` at the file just before the first of them, and else of somebody.
pub fn detect_foreign_write(base: Version, acks: &[WriteAck], looked: bool) -> WriteVerdict {
    let told = || acks.iter().filter_map(|ack| ack.after.as_ref());
    let silent = acks.iter().any(|ack| ack.before.is_none() || ack.after.is_none());
    let mut steps: Vec<(Version, Version)> = acks
        .iter()
        .filter_map(|ack| Some((ack.before?, ack.after.as_ref()?.version)))
        .filter(|(before, after)| before != after)
        .collect();
    let mut row = vec![base];
    while let Some(next) = steps.iter().position(|(before, _)| row.last() == Some(before)) {
        row.push(steps.swap_remove(next).1);
    }
    let is_row = !silent && steps.is_empty() && told().all(|object| row.contains(&object.version));
    // Of answers that do not make a row, times say which is the last, and so does which came last; if these differ, they
    // were under way together, or the origin's clock was set back.
    let end = told().find(|object| is_row && row.last() == Some(&object.version));
    let time = |object: &&Object| (object.attr.ctime, object.attr.mtime, object.attr.size);
    let came_last =
        told().last().filter(|last| told().max_by_key(time).map(|o| o.version) == Some(last.version));
    let last = end.or(came_last).cloned();
    // With silent ones in between, the row has gaps that are perhaps theirs.
    let alone = is_row || silent && looked;
    let ends = match &last {
        Some(last) => vec![last.version],
        None if acks.is_empty() => vec![base],
        None => told().map(|object| object.version).collect(),
    };
    WriteVerdict { last, alone, ends }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use origin::{Identity, Reference};
    use types::{Attr, FileKind, Timestamp};

    use super::*;

    fn object(n: u32) -> Object {
        let time = Timestamp { seconds: 5, nanos: n };
        let attr = Attr {
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
        };
        let (reference, identity) = (Reference(Bytes::new()), Identity(Bytes::new()));
        Object { reference, identity, attr, version: Version::from_attr(&attr) }
    }

    fn verdict(base: u32, acks: &[(u32, u32)], looked: bool) -> (bool, Option<Version>) {
        let acks: Vec<_> = acks
            .iter()
            .map(|(before, after)| WriteAck {
                before: (*before > 0).then(|| object(*before).version),
                after: (*after > 0).then(|| object(*after)),
            })
            .collect();
        let verdict = detect_foreign_write(object(base).version, &acks, looked);
        (verdict.alone, verdict.last.map(|last| last.version))
    }

    #[test]
    fn which_of_silent_answers_was_the_last_is_asked_if_they_do_not_agree() {
        let acks = |acks: &[u32]| -> Vec<WriteAck> {
            acks.iter().map(|after| WriteAck { before: None, after: Some(object(*after)) }).collect()
        };
        // The clock was set back, or the answers came in another order.
        let verdict = detect_foreign_write(object(1).version, &acks(&[3, 2]), true);
        assert!(verdict.last.is_none() && verdict.alone);
        assert!(verdict.is_ours(object(2).version) && verdict.is_ours(object(3).version));
        assert!(!verdict.is_ours(object(4).version) && !verdict.is_ours(object(1).version));
        let verdict = detect_foreign_write(object(1).version, &acks(&[2, 3]), true);
        assert!(verdict.is_ours(object(3).version) && !verdict.is_ours(object(2).version));
        let verdict = detect_foreign_write(object(1).version, &[], true);
        assert!(!verdict.is_ours(object(2).version));
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
            let last = Some(object(last).version);
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
