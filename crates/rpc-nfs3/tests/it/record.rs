//! The record reader: any cut of the stream gives the same records; lies cost nothing.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use rpc_nfs3::record::{RecordError, RecordReader, mark};
use tokio::io::{AsyncRead, ReadBuf};

const CAP: usize = 1 << 20;

/// Gives its bytes in pieces of the given sizes, over and over.
struct Pieces {
    bytes: Bytes,
    sizes: Vec<usize>,
    turn: usize,
}

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let size = self.sizes[self.turn % self.sizes.len()];
        self.turn += 1;
        let take = size.min(out.remaining()).min(self.bytes.len());
        let piece = self.bytes.split_to(take);
        out.put_slice(&piece);
        Poll::Ready(Ok(()))
    }
}

fn reader(bytes: impl Into<Bytes>, sizes: Vec<usize>) -> RecordReader<Pieces> {
    RecordReader::new(Pieces { bytes: bytes.into(), sizes, turn: 0 }, CAP)
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().expect("runtime").block_on(future)
}

/// The stream of records, each cut into the fragments given.
fn stream(records: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let mut out = Vec::new();
    for fragments in records {
        for (i, fragment) in fragments.iter().enumerate() {
            let mut head = mark(fragment.len());
            if i + 1 < fragments.len() {
                head[0] &= 0x7f;
            }
            out.extend(head);
            out.extend(fragment);
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn records_come_out_whole_however_the_stream_is_cut(
        records in vec(vec(vec(any::<u8>(), 0..300), 1..6), 0..6),
        sizes in vec(1usize..400, 1..8),
    ) {
        block_on(async {
            let mut reader = reader(stream(&records), sizes);
            for record in &records {
                assert_eq!(reader.record().await.expect("a record"), record.concat());
            }
            assert!(matches!(reader.record().await, Err(RecordError::Closed)));
        });
    }

    #[test]
    fn arbitrary_streams_end_in_an_error_and_hold_little(
        bytes in vec(any::<u8>(), 0..2000), sizes in vec(1usize..400, 1..8),
    ) {
        let length = bytes.len();
        block_on(async {
            let mut reader = reader(bytes, sizes);
            let mut records = 0;
            while reader.record().await.is_ok() {
                records += 1;
                assert!(records <= length / 4, "every record takes at least its mark");
            }
            assert!(reader.reserved() <= 256 * 1024, "{} bytes for {length}", reader.reserved());
        });
    }
}

#[test]
fn a_claimed_mebibyte_costs_no_mebibyte_before_it_comes() {
    block_on(async {
        let mut bytes = mark(CAP).to_vec();
        bytes.extend([1; 100]);
        let mut reader = reader(bytes, vec![50]);
        assert!(matches!(reader.record().await, Err(RecordError::Io(_))));
        assert!(reader.reserved() <= 256 * 1024, "{}", reader.reserved());
    });
}

#[test]
fn the_first_mark_announces_the_record_and_takes_nothing_away() {
    block_on(async {
        let mut one = reader(stream(&[vec![vec![3; 5000]], vec![vec![4; 10], vec![5; 10]]]), vec![7]);
        assert_eq!(one.announced().await.expect("a mark"), 5000);
        assert_eq!(one.announced().await.expect("a mark"), 5000);
        assert_eq!(one.record().await.expect("a record"), vec![3; 5000]);
        assert_eq!(one.announced().await.expect("a mark"), CAP, "more fragments may follow");
        assert_eq!(one.record().await.expect("a record").len(), 20);
        let mut long = reader(mark(CAP + 1).to_vec(), vec![4]);
        assert!(matches!(long.announced().await, Err(RecordError::TooLong)));
    });
}

/// Who keeps a slice of a record keeps what it was read into: small records behind a large one are not in its memory.
#[test]
fn a_large_record_leaves_no_memory_for_those_behind_it() {
    block_on(async {
        let mut records = vec![vec![vec![1; CAP]]];
        records.extend((0..50).map(|_| vec![vec![2; 100]]));
        let mut reader = reader(stream(&records), vec![200_000]);
        let kept = reader.record().await.expect("a record");
        assert_eq!(kept.len(), CAP);
        assert!(reader.reserved() <= 64 * 1024, "{} bytes", reader.reserved());
        for _ in 0..50 {
            assert_eq!(reader.record().await.expect("a record"), vec![2; 100]);
            assert!(reader.reserved() <= 64 * 1024, "{} bytes", reader.reserved());
        }
    });
}

#[test]
fn a_record_over_the_cap_is_refused_by_its_mark() {
    block_on(async {
        let mut one = reader(mark(CAP + 1).to_vec(), vec![4]);
        assert!(matches!(one.record().await, Err(RecordError::TooLong)));
        let mut negative = reader(vec![0xff; 4], vec![4]);
        assert!(matches!(negative.record().await, Err(RecordError::TooLong)));
        // Fragments count together.
        let half = vec![0; CAP / 2 + 1];
        let mut two = reader(stream(&[vec![half.clone(), half]]), vec![65_536]);
        assert!(matches!(two.record().await, Err(RecordError::TooLong)));
    });
}

#[test]
fn a_record_of_the_cap_passes() {
    block_on(async {
        let mut reader = reader(stream(&[vec![vec![3; CAP]]]), vec![10_000]);
        assert_eq!(reader.record().await.expect("a record").len(), CAP);
    });
}

#[test]
fn endless_empty_fragments_end() {
    block_on(async {
        let mut reader = reader(vec![0; 1 << 16], vec![1000]);
        assert!(matches!(reader.record().await, Err(RecordError::TooLong)));
    });
}

#[test]
fn a_record_in_some_small_fragments_passes_and_one_in_many_is_refused() {
    block_on(async {
        let pieces = |count: usize, length: usize| vec![vec![5; length]; count];
        let passes = [pieces(17, 1), pieces(64, 512), pieces(1, 1)];
        let mut one = reader(stream(&passes), vec![1000]);
        for record in passes {
            assert_eq!(one.record().await.expect("a record"), record.concat());
        }
        for refused in [pieces(18, 1), pieces(18, 511), pieces(60, 0)] {
            let mut one = reader(stream(&[refused]), vec![1000]);
            assert!(matches!(one.record().await, Err(RecordError::TooLong)));
        }
    });
}

#[test]
fn a_stream_cut_inside_a_record_is_an_error_and_not_an_end() {
    block_on(async {
        let whole = stream(&[vec![vec![1; 10]]]);
        for cut in 1..whole.len() {
            let mut reader = reader(whole[..cut].to_vec(), vec![3]);
            assert!(matches!(reader.record().await, Err(RecordError::Io(_))), "{cut}");
        }
    });
}
