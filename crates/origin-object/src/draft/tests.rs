use std::sync::LazyLock;

use super::*;
use crate::store::{Got, Page};

#[test]
fn what_was_written_and_what_was_not_are_known() {
    let mut filling = Filling::new();
    filling.write(10, b"ten..");
    filling.write(0, b"zero");
    assert_eq!(
        (filling.written.as_slice(), filling.holes(20)),
        (&[(0, 4), (10, 15)][..], vec![(4, 10), (15, 20)])
    );
    filling.write(4, b"middle");
    assert_eq!(&filling.bytes[..], b"zeromiddleten..");
    assert!(filling.is_full(15) && !filling.is_full(16));
    filling.write(2, b"XX");
    assert_eq!(filling.written, [(0, 15)]);
    filling.cut(7);
    assert_eq!((filling.written.as_slice(), &filling.bytes[..]), (&[(0, 7)][..], &b"zeXXmid"[..]));
    filling.cut(0);
    assert_eq!(filling.holes(3), [(0, 3)]);
}

const BASE: u64 = 3 * PART - 100;

/// One object, and an upload of another one, which it is told to lose.
#[derive(Default)]
struct Memory {
    joins: bool,
    /// Calls to refuse: `(name, how often)`.
    refuse: Mutex<Option<(&'static str, u32)>>,
    object: Mutex<Bytes>,
    parts: Mutex<BTreeMap<u32, Bytes>>,
    /// Bytes that came from here.
    came: Mutex<u64>,
    /// Uploads.
    begun: Mutex<u32>,
}

impl Memory {
    fn answer(&self, name: &'static str) -> Result<()> {
        match self.refuse.lock().unwrap().as_mut() {
            Some((call, times)) if *call == name && *times > 0 => {
                *times -= 1;
                Err(Error::new(ErrorKind::Unavailable, name, "the test"))
            }
            _ => Ok(()),
        }
    }
}

#[async_trait::async_trait]
impl Store for Memory {
    fn copy_max(&self) -> u64 {
        0
    }
    fn joins(&self) -> bool {
        self.joins
    }
    async fn head(&self, _: &str) -> Result<Option<Stat>> {
        Ok(None)
    }
    async fn get(&self, _: &str, _: Option<&str>, range: ByteRange) -> Result<Got> {
        let object = self.object.lock().unwrap().clone();
        let data = object.slice(range.offset as usize..range.end() as usize);
        Ok(Got { etag: "1".into(), size: object.len() as u64, data })
    }
    async fn list(&self, _: &str, _: bool, _: Option<&str>, _: u32) -> Result<Page> {
        unreachable!()
    }
    async fn put(&self, _: &str, _: Bytes, _: &Metadata, _: Condition<'_>) -> Result<Made> {
        unreachable!()
    }
    async fn delete(&self, _: &str, _: Option<&str>) -> Result<()> {
        unreachable!()
    }
    async fn copy(&self, _: Source<'_>, _: &str) -> Result<String> {
        unreachable!()
    }
    async fn describe(&self, _: Source<'_>, _: &Metadata) -> Result<String> {
        unreachable!()
    }
    async fn begin(&self, key: &str, metadata: &Metadata) -> Result<Upload> {
        tokio::task::yield_now().await;
        *self.begun.lock().unwrap() += 1;
        Ok(Upload { key: key.into(), id: "1".into(), metadata: metadata.clone() })
    }
    async fn part(&self, _: &Upload, number: u32, data: Bytes) -> Result<Part> {
        self.answer("part")?;
        *self.came.lock().unwrap() += data.len() as u64;
        self.parts.lock().unwrap().insert(number, data);
        Ok(Part { number, etag: number.to_string() })
    }
    async fn part_of(&self, _: &Upload, number: u32, _: Source<'_>, range: ByteRange) -> Result<Part> {
        self.answer("part_of")?;
        let got = self.get("", None, range).await?;
        self.parts.lock().unwrap().insert(number, got.data);
        Ok(Part { number, etag: number.to_string() })
    }
    async fn complete(&self, _: &Upload, parts: &[Part], _: Condition<'_>) -> Result<Made> {
        self.answer("complete")?;
        let stored = self.parts.lock().unwrap();
        let bytes: Vec<&[u8]> = parts.iter().map(|part| &stored[&part.number][..]).collect();
        *self.object.lock().unwrap() = bytes.concat().into();
        Ok(Made { etag: "2".into(), modified: None })
    }
    async fn abort(&self, _: &Upload) -> Result<()> {
        Ok(())
    }
}

fn draft_of(size: u64) -> Arc<Draft> {
    let modified = types::Timestamp { seconds: 1, nanos: 0 };
    let stat = Stat { size, etag: "1".into(), modified, metadata: Metadata::new() };
    Draft::new("key".into(), stat, ("mark".into(), "1".into()), ["mtime", "atime"])
}

/// A change of an object in memory; `lost` calls have no answer the first time. The bytes that came for it.
async fn changed(joins: bool, lost: &'static str, writes: &[(u64, usize)]) -> u64 {
    static BYTES: LazyLock<Bytes> =
        LazyLock::new(|| (0..BASE).map(|at| at.wrapping_mul(0x9e37_79b9) as u8).collect());
    let memory = Memory { joins, object: Mutex::new(BYTES.clone()), ..Memory::default() };
    let memory = Arc::new(Memory { refuse: Mutex::new(Some((lost, 1))), ..memory });
    let store: Arc<dyn Store> = memory.clone();
    let draft = draft_of(BASE);
    let turns = Arc::new(Turns::new());
    let mut expected = BYTES.to_vec();
    for (turn, (offset, length)) in writes.iter().enumerate() {
        let data = Bytes::from(vec![turn as u8 + 1; *length]);
        let end = *offset as usize + length;
        match draft.write(&*store, &turns, *offset, &data).await {
            Ok(Wrote::Taken) => {
                expected.resize(expected.len().max(end), 0);
                expected[*offset as usize..end].copy_from_slice(&data);
            }
            Ok(Wrote::Behind) => {}
            Ok(Wrote::Over) => panic!("not over yet"),
            Err(e) => panic!("{e}"),
        }
        if turn == 0 {
            let lost = draft.complete(&store, &turns, &|_| ()).await.err();
            assert_eq!(lost.map(|e| e.kind()), Some(ErrorKind::Unavailable));
        }
    }
    let completed = draft.complete(&store, &turns, &|_| ()).await.unwrap().expect("changed");
    assert_eq!(completed.size, expected.len() as u64);
    assert!(*memory.object.lock().unwrap() == expected, "joins {joins}, lost {lost}, {writes:?}");
    *memory.came.lock().unwrap()
}

#[tokio::test]
async fn what_is_written_after_a_completion_that_failed_lies_where_it_belongs() {
    let part = PART as usize;
    for joins in [false, true] {
        for lost in ["complete", "part", "part_of"] {
            for first in [(5, 10), (BASE, 10), (BASE + 3, part), (PART, 10), (BASE - 1, 2)] {
                for second in [
                    (6, 1),
                    (BASE - 200, 300),
                    (BASE + 1, 5),
                    (BASE + 200, 5),
                    (4 * PART + 7, 9),
                    (PART + 1, 2 * part),
                ] {
                    changed(joins, lost, &[first, second]).await;
                }
            }
        }
    }
}

#[tokio::test]
async fn bytes_behind_an_object_are_all_that_comes_where_the_store_joins() {
    assert_eq!(changed(true, "complete", &[(BASE, 10)]).await, 10);
    assert_eq!(changed(true, "complete", &[(BASE + 50, 10), (BASE, 1)]).await, 60);
    let read = changed(false, "complete", &[(BASE, 10)]).await;
    assert_eq!(read, PART - 100 + 10, "the part that was not full");
}

#[tokio::test]
async fn parts_that_fill_side_by_side_are_of_one_upload() {
    let memory = Memory::default();
    let (draft, turns) = (draft_of(0), Turns::new());
    let part = Bytes::from(vec![1; PART as usize]);
    let write = |number: u64| draft.write(&memory, &turns, number * PART, &part);
    let (first, second, third) = tokio::join!(write(0), write(1), write(2));
    for wrote in [first, second, third] {
        assert!(matches!(wrote, Ok(Wrote::Taken)));
    }
    assert_eq!((*memory.begun.lock().unwrap(), memory.parts.lock().unwrap().len()), (1, 3));
}

/// The second of them had no bytes any more, and nothing could be completed ever after.
#[tokio::test]
async fn of_parts_that_one_write_fills_all_are_here_still_if_the_first_is_refused() {
    let memory = Arc::new(Memory { refuse: Mutex::new(Some(("part", 1))), ..Memory::default() });
    let store: Arc<dyn Store> = memory.clone();
    let (draft, turns) = (draft_of(0), Arc::new(Turns::new()));
    let two = Bytes::from(vec![1; 2 * PART as usize]);
    let refused = draft.write(&*store, &turns, 0, &two).await;
    assert_eq!(refused.err().map(|e| e.kind()), Some(ErrorKind::Unavailable));
    let again = draft.write(&*store, &turns, 0, &two).await;
    assert!(matches!(again, Ok(Wrote::Taken)));
    let completed = draft.complete(&store, &turns, &|_| ()).await.unwrap().expect("changed");
    assert_eq!((completed.size, memory.object.lock().unwrap().len() as u64), (2 * PART, 2 * PART));
}
