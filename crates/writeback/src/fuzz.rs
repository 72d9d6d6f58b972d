//! What the fuzzer calls (`fuzz/`): the journal's decoders over bytes that a disk may return.

use std::io;

use crate::JournalOperation;
use crate::disk::DiskFile;
use crate::sabotage::Sabotage;
use crate::scan::{ScanExtent, scan};
use crate::segment::{DATA_MAX, HEAD_MAX, HEADER_BYTES, Header, RecordFrame, RecordKind, RecordPlace};

/// An operation that is understood is encoded as it was.
pub fn operation(head: &[u8]) {
    if let Ok(operation) = JournalOperation::decode(head) {
        assert_eq!(operation.encode(), head, "{operation:?}");
    }
}

/// A segment whose records are made of `input`, with right checksums and wrong ones, with gaps and cuts: what is scanned lies
/// within the file, in order, and a record that is believed has the head that its checksum says.
pub fn segment(input: &[u8]) {
    let mut input = Input(input);
    let header = Header { journal: [7; 16], number: 3, first_sequence: 1, previous_end: 0, size: 1 << 20 };
    let extent = match input.byte() % 2 {
        0 => ScanExtent::Sealed { end: u64::from(input.word()) % (1 << 16) },
        _ => ScanExtent::Last { whole: u64::from(input.word()) % (1 << 16) },
    };
    let mut file = header.encode().to_vec();
    while !input.0.is_empty() && file.len() < 1 << 16 {
        piece(&mut input, &header, &mut file);
    }
    let scanned = scan(&Memory(&file), &header, extent, Sabotage::default()).expect("memory can be read");
    let mut last = HEADER_BYTES;
    for found in &scanned.records {
        let (offset, head) = (found.offset, found.frame.head_length as usize);
        assert!(offset >= last && offset < scanned.end.max(file.len() as u64), "{scanned:?}");
        last = offset + found.frame.span();
        let at = (offset + crate::segment::FRAME_BYTES) as usize;
        let head = file.get(at..at + head).expect("a head within the file");
        assert_eq!(crc32c::crc32c(head), found.frame.head_crc);
    }
}

/// One more record, or bytes that are none, or the end of the file cut.
fn piece(input: &mut Input<'_>, header: &Header, file: &mut Vec<u8>) {
    match input.byte() % 8 {
        0 => {
            let count = usize::from(input.byte());
            file.extend_from_slice(input.take(count));
        }
        1 => {
            let left = (file.len() as u64).saturating_sub(input.byte().into()).max(HEADER_BYTES);
            file.truncate(left as usize);
        }
        kind => {
            file.resize(file.len().next_multiple_of(8), 0);
            let offset = file.len() as u64;
            let (head_length, data_length) = (usize::from(input.byte()), usize::from(input.byte()));
            let (head, data) = (input.take(head_length).to_vec(), input.take(data_length).to_vec());
            let flaw = input.byte();
            let mut frame = RecordFrame {
                kind: [RecordKind::Entry, RecordKind::Done, RecordKind::Moved][usize::from(kind) % 3],
                sequence: if flaw & 1 == 0 { u64::from(input.byte()) } else { u64::MAX },
                head_length: head.len() as u32,
                data_length: data.len() as u32,
                head_crc: crc32c::crc32c(&head),
                data_crc: crc32c::crc32c(&data),
                covered: input.word() % (1 << 17),
                written_ms: 0,
            };
            frame.head_crc ^= u32::from(flaw & 2);
            frame.data_crc ^= u32::from(flaw & 4);
            if flaw & 8 != 0 {
                (frame.head_length, frame.data_length) = (HEAD_MAX, DATA_MAX);
            }
            let place = RecordPlace { journal: &header.journal, segment: header.number, offset };
            file.extend_from_slice(&frame.encode(place));
            file.extend_from_slice(&head);
            file.extend_from_slice(&data);
        }
    }
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn word(&mut self) -> u32 {
        self.take(4).iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
    }
}

struct Memory<'a>(&'a [u8]);

impl DiskFile for Memory<'_> {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, _: u64, _: &[&[u8]]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
