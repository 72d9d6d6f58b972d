//! Has anybody else changed a file while we wrote to it? Pure: each answer to a write or commit of ours tells what the
//! file was just before it and just after, as far as the origin tells. Whoever can put them in a row, from what the file
//! was known to be to what it is now, has found no gap in which another could have been.

use origin::Object;
use types::Version;

/// One answer.
#[derive(Clone, Debug)]
pub struct Link {
    pub before: Option<Version>,
    pub after: Option<Object>,
}

/// What all answers together say.
#[derive(Debug)]
pub struct Verdict {
    /// The file now, if it is known which answer was the last.
    pub last: Option<Object>,
    /// Nobody else changed it, as far as answers can tell.
    pub alone: bool,
    /// What it may be then.
    ends: Vec<Version>,
}

impl Verdict {
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
pub fn judge(base: Version, links: &[Link], looked: bool) -> Verdict {
    let told = || links.iter().filter_map(|link| link.after.as_ref());
    let silent = links.iter().any(|link| link.before.is_none() || link.after.is_none());
    let mut steps: Vec<(Version, Version)> = links
        .iter()
        .filter_map(|link| Some((link.before?, link.after.as_ref()?.version)))
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
        None if links.is_empty() => vec![base],
        None => told().map(|object| object.version).collect(),
    };
    Verdict { last, alone, ends }
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

    fn verdict(base: u32, links: &[(u32, u32)], looked: bool) -> (bool, Option<Version>) {
        let links: Vec<_> = links
            .iter()
            .map(|(before, after)| Link {
                before: (*before > 0).then(|| object(*before).version),
                after: (*after > 0).then(|| object(*after)),
            })
            .collect();
        let verdict = judge(object(base).version, &links, looked);
        (verdict.alone, verdict.last.map(|last| last.version))
    }

    #[test]
    fn which_of_silent_answers_was_the_last_is_asked_if_they_do_not_agree() {
        let links = |links: &[u32]| -> Vec<Link> {
            links.iter().map(|after| Link { before: None, after: Some(object(*after)) }).collect()
        };
        // The clock was set back, or the answers came in another order.
        let verdict = judge(object(1).version, &links(&[3, 2]), true);
        assert!(verdict.last.is_none() && verdict.alone);
        assert!(verdict.is_ours(object(2).version) && verdict.is_ours(object(3).version));
        assert!(!verdict.is_ours(object(4).version) && !verdict.is_ours(object(1).version));
        let verdict = judge(object(1).version, &links(&[2, 3]), true);
        assert!(verdict.is_ours(object(3).version) && !verdict.is_ours(object(2).version));
        let verdict = judge(object(1).version, &[], true);
        assert!(!verdict.is_ours(object(2).version));
    }

    #[test]
    fn answers_that_make_a_row_in_any_order_are_ours_alone() {
        for (base, links, alone, last) in [
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
            assert_eq!(verdict(base, links, true), (alone, last), "{base} {links:?}");
            let silent = links.iter().any(|(before, _)| *before == 0);
            assert_eq!(
                verdict(base, links, false),
                (alone && !silent, last),
                "not looked at: {base} {links:?}"
            );
        }
        assert_eq!(verdict(1, &[], false), (true, None));
    }
}
