//! How far the clocks of this place are from UTC, from the system's own tables: the standard library knows UTC alone.
//!
//! As the C library does it: TZ names a table or is a rule; without TZ, /etc/localtime; nothing readable is UTC. A table
//! (RFC 9636) is a list of changes; behind the last of them stands a rule (POSIX) for all time to come.

mod rule;

use std::path::Path;

const TABLES: &str = "/usr/share/zoneinfo";

/// Seconds east of UTC, at a time since 1970.
pub fn utc_offset(now: i64) -> i32 {
    let place = std::env::var("TZ").ok();
    of_place(place.as_deref(), now).unwrap_or(0)
}

fn of_place(place: Option<&str>, now: i64) -> Option<i32> {
    let in_file = |path: &Path| in_table(&std::fs::read(path).ok()?, now);
    let Some(place) = place else { return in_file(Path::new("/etc/localtime")) };
    let name = place.strip_prefix(':').unwrap_or(place);
    if name.is_empty() {
        return Some(0);
    }
    // An absolute name stays as it is.
    in_file(&Path::new(TABLES).join(name)).or_else(|| rule::offset_at(name, now))
}

/// One of the two blocks of a table: times of four bytes, and once more of eight.
struct Block<'a> {
    version: u8,
    times: &'a [u8],
    /// Of each time: which type begins then.
    begins: &'a [u8],
    /// Six bytes each, the offset first.
    types: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Block<'a> {
    fn read(table: &'a [u8], width: usize) -> Option<Block<'a>> {
        let (head, rest) = table.split_at_checked(44)?;
        let head = head.strip_prefix(b"TZif")?;
        let count = |i: usize| {
            let bytes: [u8; 4] = head.get(16 + 4 * i..20 + 4 * i)?.try_into().ok()?;
            usize::try_from(u32::from_be_bytes(bytes)).ok()
        };
        let (utc_marks, standard_marks, leaps) = (count(0)?, count(1)?, count(2)?);
        let (times_len, types_len, letters) = (count(3)?, count(4)?, count(5)?);
        let (times, rest) = rest.split_at_checked(times_len.checked_mul(width)?)?;
        let (begins, rest) = rest.split_at_checked(times_len)?;
        let (types, rest) = rest.split_at_checked(types_len.checked_mul(6)?)?;
        let leaps = leaps.checked_mul(width + 4)?;
        let skipped = letters.checked_add(leaps)?.checked_add(standard_marks)?.checked_add(utc_marks)?;
        let (_, rest) = rest.split_at_checked(skipped)?;
        Some(Block { version: *head.first()?, times, begins, types, rest })
    }

    fn offset_of(&self, kind: u8) -> Option<i32> {
        let at = usize::from(kind) * 6;
        Some(i32::from_be_bytes(self.types.get(at..at + 4)?.try_into().ok()?))
    }

    /// How many changes were before, of how many.
    fn changes_until(&self, now: i64, width: usize) -> (usize, usize) {
        let begun = |time: &&[u8]| {
            let negative = time.first().is_some_and(|byte| *byte >= 0x80);
            let start = if negative { -1 } else { 0 };
            time.iter().fold(start, |time: i64, byte| (time << 8) | i64::from(*byte)) <= now
        };
        let all = self.times.chunks_exact(width);
        (all.clone().take_while(begun).count(), all.len())
    }
}

/// Of a table; nothing of what is no table.
fn in_table(table: &[u8], now: i64) -> Option<i32> {
    let mut width = 4;
    let mut block = Block::read(table, width)?;
    if block.version >= b'2' {
        width = 8;
        block = Block::read(block.rest, width)?;
    }
    let (passed, all) = block.changes_until(now, width);
    if passed == all && width == 8 {
        let footer = block.rest.strip_prefix(b"\n").and_then(|rest| rest.split(|byte| *byte == b'\n').next());
        let footer = footer.and_then(|footer| std::str::from_utf8(footer).ok()).unwrap_or_default();
        if !footer.is_empty() {
            return rule::offset_at(footer, now);
        }
    }
    // Before the first change the first type is meant.
    let kind = passed.checked_sub(1).map_or(Some(0), |last| block.begins.get(last).copied())?;
    block.offset_of(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of both widths: changes of (time, type), offsets of the types, a rule.
    fn table(changes: &[(i32, u8)], offsets: &[i32], footer: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        for width in [4, 8] {
            bytes.extend(b"TZif2");
            bytes.extend([0; 15]);
            let letters = 4;
            for count in [0, 0, 0, changes.len(), offsets.len(), letters] {
                bytes.extend(u32::try_from(count).expect("few").to_be_bytes());
            }
            for (time, _) in changes {
                bytes.extend(&i64::from(*time).to_be_bytes()[8 - width..]);
            }
            bytes.extend(changes.iter().map(|(_, kind)| *kind));
            for offset in offsets {
                bytes.extend(offset.to_be_bytes());
                bytes.extend([0, 0]);
            }
            bytes.extend(b"LMT\0");
        }
        bytes.extend(format!("\n{footer}\n").as_bytes());
        bytes
    }

    #[test]
    fn the_last_change_before_now_counts() {
        let table = table(&[(-1000, 1), (1000, 2)], &[1172, 3600, 7200], "");
        for (now, offset) in [(-1001, 1172), (-1000, 3600), (999, 3600), (1000, 7200), (9_000_000_000, 7200)]
        {
            assert_eq!(in_table(&table, now), Some(offset), "{now}");
        }
    }

    #[test]
    fn behind_the_last_change_the_rule_counts() {
        let table = table(&[(1000, 0)], &[1172], "CET-1CEST,M3.5.0,M10.5.0/3");
        assert_eq!(in_table(&table, 999), Some(1172));
        assert_eq!(in_table(&table, 1_784_116_800), Some(7200), "July 2026");
    }

    #[test]
    fn what_is_no_table_tells_nothing() {
        let whole = table(&[(1000, 1)], &[0, 3600], "UTC0");
        for cut in 0..whole.len() - 6 {
            // A shorter one may end between the changes and the rule.
            let _ = in_table(&whole[..cut], 2000);
        }
        assert_eq!(in_table(b"", 0), None);
        assert_eq!(in_table(b"no table at all, and long enough to be one: 44 bytes", 0), None);
        assert_eq!(in_table(&table(&[(0, 9)], &[0], ""), 1), None, "a type that is not there");
        let mut huge = whole.clone();
        huge[32..36].fill(0xff);
        assert_eq!(in_table(&huge, 0), None, "more changes than bytes");
    }

    #[test]
    fn a_place_may_be_a_rule_and_none_is_utc() {
        assert_eq!(of_place(Some(""), 0), Some(0));
        assert_eq!(of_place(Some("IST-5:30"), 0), Some(19_800));
        assert_eq!(of_place(Some("no such place"), 0), None);
    }
}
