//! Where the parts of a multipart upload lie until it is completed. Pure.
//!
//! Most uploads have parts of one size, but for the last, so each part is written at once to its slot in the file
//! that becomes the object: completion copies no byte. A part that does not fit (longer, or a second one of the same
//! number) gets a file of its own, and then completion copies.
//!
//! Where the origin keeps parts, a part is sent there under its number and there is no data file. One that is too large
//! to be held until it is checked, or a second one of the same number, gets a file of its own there, too; the origin
//! copies it when the upload is completed.

use std::collections::{BTreeMap, HashSet};

use crate::part_checksums::{Algorithm, PartChecksum};
use crate::sigv4::{hex, unhex, unhex_all};

/// S3's own.
pub const NUMBER_MAX: u32 = 10_000;
/// The least size of all parts but the last: S3's own limit.
pub const PART_BYTES_MIN: u64 = 5 << 20;

/// Where a part is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartTarget {
    /// In the data file, at this offset.
    Slot(u64),
    /// In a file of its own.
    Own,
    /// At the origin, as the part of this number.
    AtOrigin,
}

/// Where a stored part is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartPlace {
    Slot(u64),
    Own,
    /// At the origin, which gave this receipt for it.
    AtOrigin(String),
}

/// The longest note of a receipt that a mark can carry beside the rest, in bytes.
const RECEIPT_NOTE_BYTES_MAX: usize = 113;

/// How a receipt is noted in a mark, which is a name. Most are hexadecimal digits in quotes: those are taken as they are.
fn receipt_note(receipt: &str) -> String {
    let quoted = receipt.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match quoted.filter(|digits| is_hex(digits)) {
        Some(digits) => format!("q{digits}"),
        None => format!("r{}", hex(receipt.as_bytes())),
    }
}

fn is_hex(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a mark can carry this receipt.
pub fn can_be_noted(receipt: &str) -> bool {
    receipt_note(receipt).len() <= RECEIPT_NOTE_BYTES_MAX
}

/// A stored part. Its mark is the name of an empty file that is created after the bytes are stored: so a part exists
/// as a whole or not at all, and no record is rewritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPart {
    pub number: u32,
    /// A later part of the same number has a larger one.
    pub sequence: u64,
    pub size: u64,
    pub md5: [u8; 16],
    pub place: PartPlace,
    /// The part's checksum, from which the object's is combined.
    pub sum: Option<PartChecksum>,
}

impl StoredPart {
    pub fn mark_name(&self) -> String {
        let place = match &self.place {
            PartPlace::Slot(offset) => format!("s{offset:x}"),
            PartPlace::Own => "o".to_owned(),
            PartPlace::AtOrigin(receipt) => receipt_note(receipt),
        };
        let sum = self.sum.as_ref().map(|sum| format!(".{}-{}", sum.algorithm.name(), hex(&sum.value)));
        format!(
            "p.{:05}.{:016x}.{:x}.{}.{place}{}",
            self.number,
            self.sequence,
            self.size,
            hex(&self.md5),
            sum.unwrap_or_default()
        )
    }

    pub fn parse(mark: &[u8]) -> Option<StoredPart> {
        let mut fields = std::str::from_utf8(mark).ok()?.strip_prefix("p.")?.split('.');
        let number = fields.next()?.parse().ok()?;
        let sequence = u64::from_str_radix(fields.next()?, 16).ok()?;
        let size = u64::from_str_radix(fields.next()?, 16).ok()?;
        let md5 = unhex(fields.next()?)?;
        let place = match fields.next()? {
            "o" => PartPlace::Own,
            receipt if let Some(digits) = receipt.strip_prefix('r') => {
                PartPlace::AtOrigin(String::from_utf8(unhex_all(digits)?).ok()?)
            }
            quoted if let Some(digits) = quoted.strip_prefix('q') => {
                PartPlace::AtOrigin(is_hex(digits).then(|| format!("\"{digits}\""))?)
            }
            slot => PartPlace::Slot(u64::from_str_radix(slot.strip_prefix('s')?, 16).ok()?),
        };
        let sum = match fields.next() {
            None => None,
            Some(sum) => Some(parse_sum(sum)?),
        };
        fields.next().is_none().then_some(StoredPart { number, sequence, size, md5, place, sum })
    }

    /// The name of a part's own file.
    pub fn own_file(number: u32, sequence: u64) -> String {
        format!("f.{number:05}.{sequence:016x}")
    }
}

fn parse_sum(text: &str) -> Option<PartChecksum> {
    let (algorithm, digits) = text.split_once('-')?;
    let value = match digits.len() {
        8 => unhex::<4>(digits)?.to_vec(),
        16 => unhex::<8>(digits)?.to_vec(),
        40 => unhex::<20>(digits)?.to_vec(),
        64 => unhex::<32>(digits)?.to_vec(),
        _ => return None,
    };
    PartChecksum::new(Algorithm::parse(algorithm)?, value)
}

/// The newest part of each number.
pub fn newest_by_number(parts: impl Iterator<Item = StoredPart>) -> BTreeMap<u32, StoredPart> {
    let mut newest: BTreeMap<u32, StoredPart> = BTreeMap::new();
    for part in parts {
        let known = newest.get(&part.number);
        if known.is_none_or(|known| known.sequence < part.sequence) {
            newest.insert(part.number, part);
        }
    }
    newest
}

/// The slots of one upload's data file.
#[derive(Debug, Default)]
pub struct PartLayout {
    /// The size of a slot: that of the first part that arrived.
    stride: Option<u64>,
    /// The part numbers whose slots are stored or being written.
    taken: HashSet<u32>,
    /// The highest sequence of a part so far.
    last_sequence: u64,
    /// Nothing more is sent to the origin before the completion.
    is_own_only: bool,
}

impl PartLayout {
    /// Rebuilds the layout from the stored parts.
    pub fn of<'a>(parts: impl Iterator<Item = &'a StoredPart>) -> PartLayout {
        let mut layout = PartLayout::default();
        for part in parts {
            layout.last_sequence = layout.last_sequence.max(part.sequence);
            let offset = match part.place {
                PartPlace::Slot(offset) => offset,
                PartPlace::Own => continue,
                PartPlace::AtOrigin(_) => {
                    layout.taken.insert(part.number);
                    continue;
                }
            };
            layout.taken.insert(part.number);
            match part.number.checked_sub(1) {
                Some(before) if before > 0 => layout.stride = Some(offset / u64::from(before)),
                _ => layout.stride = layout.stride.or(Some(part.size)),
            }
        }
        layout
    }

    /// Assigns a place to a part that is about to arrive; no other part gets the same.
    pub fn place(&mut self, number: u32, length: u64) -> PartTarget {
        let stride = *self.stride.get_or_insert(length);
        if length > stride || stride == 0 || !self.taken.insert(number) {
            return PartTarget::Own;
        }
        PartTarget::Slot(stride * u64::from(number.saturating_sub(1)))
    }

    /// The same where the origin keeps parts. A second part of a number must not take the first one's place there: the
    /// body may yet prove to be wrong.
    pub fn place_at_origin(&mut self, number: u32) -> PartTarget {
        let is_free = !self.is_own_only && self.taken.insert(number);
        if is_free { PartTarget::AtOrigin } else { PartTarget::Own }
    }

    /// What the origin answers cannot be noted: all parts that come get files of their own.
    pub fn use_own_files(&mut self) {
        self.is_own_only = true;
    }

    /// The sequence of a new part: higher than all before, even if the clock was set back, because the last part
    /// that arrives under a number counts.
    pub fn sequence(&mut self, now_nanos: u64) -> u64 {
        self.last_sequence = now_nanos.max(self.last_sequence.saturating_add(1));
        self.last_sequence
    }

    /// Frees the slot of a part that did not arrive.
    pub fn release_slot(&mut self, number: u32) {
        self.taken.remove(&number);
    }
}

/// Whether these parts, in order, lie in the data file as the object needs them.
pub fn is_in_place<'a>(parts: impl Iterator<Item = &'a StoredPart>) -> bool {
    let mut end = 0;
    for part in parts {
        if part.place != PartPlace::Slot(end) {
            return false;
        }
        end += part.size;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(number: u32, size: u64, place: PartPlace) -> StoredPart {
        StoredPart { number, sequence: 1, size, md5: [number as u8; 16], place, sum: None }
    }

    fn stored(target: PartTarget) -> PartPlace {
        match target {
            PartTarget::Slot(offset) => PartPlace::Slot(offset),
            PartTarget::Own => PartPlace::Own,
            PartTarget::AtOrigin => PartPlace::AtOrigin("\"e\"".to_owned()),
        }
    }

    #[test]
    fn a_mark_is_read_back_and_other_names_are_none() {
        let receipts = ["\"".repeat(56), format!("\"{}\"", "0a".repeat(56)), "\"0A\"".into(), "\"\"".into()];
        let receipts = receipts.into_iter().chain([String::new(), "\"".into(), "0a".into()]).map(|receipt| {
            assert!(can_be_noted(&receipt), "{receipt}");
            PartPlace::AtOrigin(receipt)
        });
        for receipt in ["e".repeat(57), format!("\"{}\"", "0".repeat(113))] {
            assert!(!can_be_noted(&receipt), "{receipt}");
        }
        for place in
            [PartPlace::Slot(0), PartPlace::Slot(u64::MAX), PartPlace::Own].into_iter().chain(receipts)
        {
            let part = StoredPart { sequence: u64::MAX, ..part(10_000, 5 << 30, place) };
            assert_eq!(StoredPart::parse(part.mark_name().as_bytes()), Some(part.clone()));
            for (algorithm, length) in
                [(Algorithm::Crc32c, 4), (Algorithm::Crc64Nvme, 8), (Algorithm::Sha256, 32)]
            {
                let part =
                    StoredPart { sum: PartChecksum::new(algorithm, vec![0xab; length]), ..part.clone() };
                assert!(part.mark_name().len() < 255, "a name of a file");
                assert_eq!(StoredPart::parse(part.mark_name().as_bytes()), Some(part));
            }
        }
        for name in [
            "upload",
            "data",
            "p.",
            "p.1.2.3",
            "f.00001.0000000000000001",
            "p.1.1.1.zz.o",
            "p.1.1.1.00000000000000000000000000000000.r0",
            "p.1.1.1.00000000000000000000000000000000.rff",
            "p.1.1.1.00000000000000000000000000000000.q",
            "p.1.1.1.00000000000000000000000000000000.q0A",
        ] {
            assert_eq!(StoredPart::parse(name.as_bytes()), None);
        }
    }

    #[test]
    fn equal_parts_lie_as_the_object_has_them_in_whatever_order_they_come() {
        let mut layout = PartLayout::default();
        let mut parts: Vec<_> = [3_u32, 1, 4, 2]
            .into_iter()
            .map(|number| {
                let size = if number == 4 { 7 } else { 10 };
                part(number, size, stored(layout.place(number, size)))
            })
            .collect();
        parts.sort_by_key(|part| part.number);
        assert!(is_in_place(parts.iter()));
        assert_eq!(parts[3].place, PartPlace::Slot(30));
        // After a restart the rest goes on.
        let mut again = PartLayout::of(parts[2..].iter());
        assert_eq!((again.place(1, 10), again.place(2, 10)), (PartTarget::Slot(0), PartTarget::Slot(10)));
    }

    #[test]
    fn what_does_not_fit_lies_by_itself() {
        let mut layout = PartLayout::default();
        // The last one came first.
        assert_eq!(layout.place(3, 4), PartTarget::Slot(8));
        assert_eq!(layout.place(1, 10), PartTarget::Own);
        let mut layout = PartLayout::default();
        assert_eq!(layout.place(1, 10), PartTarget::Slot(0));
        assert_eq!(
            layout.place(1, 10),
            PartTarget::Own,
            "the first one may be the one that counts in the end"
        );
        layout.release_slot(1);
        assert_eq!(layout.place(1, 10), PartTarget::Slot(0));
        assert!(!is_in_place([part(1, 10, PartPlace::Slot(0)), part(2, 10, PartPlace::Own)].iter()));
        assert!(!is_in_place([part(2, 10, PartPlace::Slot(10))].iter()), "there is a hole in front");
        assert!(!is_in_place([part(1, 9, PartPlace::Slot(0)), part(2, 10, PartPlace::Slot(10))].iter()));
    }

    #[test]
    fn a_number_has_one_part_at_the_origin_also_after_a_restart() {
        let mut layout = PartLayout::default();
        assert_eq!(
            (layout.place_at_origin(2), layout.place_at_origin(2)),
            (PartTarget::AtOrigin, PartTarget::Own)
        );
        layout.release_slot(2);
        assert_eq!(layout.place_at_origin(2), PartTarget::AtOrigin);
        let mut again = PartLayout::of([part(2, 10, PartPlace::AtOrigin("e".into()))].iter());
        assert_eq!(
            (again.place_at_origin(2), again.place_at_origin(1)),
            (PartTarget::Own, PartTarget::AtOrigin)
        );
        again.use_own_files();
        assert_eq!(again.place_at_origin(3), PartTarget::Own);
    }

    #[test]
    fn the_newest_of_a_number_counts() {
        let old = part(1, 10, PartPlace::Slot(0));
        let new = StoredPart { sequence: 2, ..part(1, 12, PartPlace::Own) };
        assert_eq!(newest_by_number([new.clone(), old].into_iter()).get(&1), Some(&new));
    }

    #[test]
    fn the_part_that_comes_last_counts_though_the_clock_was_set_back() {
        let mut layout =
            PartLayout::of([StoredPart { sequence: 1000, ..part(1, 10, PartPlace::Slot(0)) }].iter());
        let later: Vec<u64> = [2000, 500, 2001, 0].into_iter().map(|now| layout.sequence(now)).collect();
        assert_eq!(later, [2000, 2001, 2002, 2003]);
        assert_eq!(layout.sequence(3000), 3000);
    }
}
