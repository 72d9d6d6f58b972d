use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::*;
use crate::store::{GetResult, ListPage};

#[test]
fn what_was_written_and_what_was_not_are_known() {
    let mut filling = PartBuffer::new();
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
    composes: bool,
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
impl ObjectStore for Memory {
    fn copy_max(&self) -> u64 {
        0
    }
    fn composes(&self) -> bool {
        self.composes
    }
    async fn head(&self, _: &str) -> Result<Option<ObjectStat>> {
        Ok(None)
    }
    async fn get(&self, _: &str, _: Option<&str>, range: ByteRange) -> Result<GetResult> {
        let object = self.object.lock().unwrap().clone();
        let data = object.slice(range.offset as usize..range.end() as usize);
        Ok(GetResult { etag: "1".into(), size: object.len() as u64, data })
    }
    async fn list(&self, _: &str, _: bool, _: Option<&str>, _: u32) -> Result<ListPage> {
        unreachable!()
    }
    async fn put(&self, _: &str, _: Bytes, _: &Metadata, _: Precondition<'_>) -> Result<PutResult> {
        unreachable!()
    }
    async fn delete(&self, _: &str, _: Option<&str>) -> Result<()> {
        unreachable!()
    }
    async fn copy(&self, _: CopySource<'_>, _: &str) -> Result<String> {
        unreachable!()
    }
    async fn describe(&self, _: CopySource<'_>, _: &Metadata) -> Result<String> {
        unreachable!()
    }
    async fn begin(&self, key: &str, metadata: &Metadata) -> Result<MultipartUpload> {
        tokio::task::yield_now().await;
        *self.begun.lock().unwrap() += 1;
        Ok(MultipartUpload { key: key.into(), id: "1".into(), metadata: metadata.clone() })
    }
    async fn part(&self, _: &MultipartUpload, number: u32, data: Bytes) -> Result<UploadedPart> {
        self.answer("part")?;
        *self.came.lock().unwrap() += data.len() as u64;
        self.parts.lock().unwrap().insert(number, data);
        Ok(UploadedPart { number, etag: number.to_string() })
    }
    async fn part_of(
        &self,
        _: &MultipartUpload,
        number: u32,
        _: CopySource<'_>,
        range: ByteRange,
    ) -> Result<UploadedPart> {
        self.answer("part_of")?;
        let got = self.get("", None, range).await?;
        self.parts.lock().unwrap().insert(number, got.data);
        Ok(UploadedPart { number, etag: number.to_string() })
    }
    async fn complete(
        &self,
        _: &MultipartUpload,
        parts: &[UploadedPart],
        _: Precondition<'_>,
    ) -> Result<PutResult> {
        self.answer("complete")?;
        let stored = self.parts.lock().unwrap();
        let bytes: Vec<&[u8]> = parts.iter().map(|part| &stored[&part.number][..]).collect();
        *self.object.lock().unwrap() = bytes.concat().into();
        Ok(PutResult { etag: "2".into(), modified: None })
    }
    async fn abort(&self, _: &MultipartUpload) -> Result<()> {
        Ok(())
    }
}

fn writer_of(size: u64) -> Arc<ObjectWriter> {
    let modified = types::Timestamp { seconds: 1, nanos: 0 };
    let stat = ObjectStat { size, etag: "1".into(), modified, metadata: Metadata::new() };
    ObjectWriter::new("key".into(), stat, ("mark".into(), "1".into()), ["mtime", "atime"])
}

/// A change of an object in memory; `lost` calls have no answer the first time. The bytes that came for it.
async fn changed(composes: bool, lost: &'static str, writes: &[(u64, usize)]) -> u64 {
    static BYTES: LazyLock<Bytes> =
        LazyLock::new(|| (0..BASE).map(|at| at.wrapping_mul(0x9e37_79b9) as u8).collect());
    let memory = Memory { composes, object: Mutex::new(BYTES.clone()), ..Memory::default() };
    let memory = Arc::new(Memory { refuse: Mutex::new(Some((lost, 1))), ..memory });
    let store: Arc<dyn ObjectStore> = memory.clone();
    let writer = writer_of(BASE);
    let pacer = Arc::new(PartPacer::new());
    let mut expected = BYTES.to_vec();
    for (turn, (offset, length)) in writes.iter().enumerate() {
        let data = Bytes::from(vec![turn as u8 + 1; *length]);
        let end = *offset as usize + length;
        match writer.write(&*store, &pacer, *offset, &data).await {
            Ok(WriteOutcome::Taken) => {
                expected.resize(expected.len().max(end), 0);
                expected[*offset as usize..end].copy_from_slice(&data);
            }
            Ok(WriteOutcome::Behind) => {}
            Ok(WriteOutcome::Over) => panic!("not over yet"),
            Err(e) => panic!("{e}"),
        }
        if turn == 0 {
            let lost = writer.complete(&store, &pacer, writer.unchanged(), &|_| ()).await.err();
            assert_eq!(lost.map(|e| e.kind()), Some(ErrorKind::Unavailable));
        }
    }
    let completed =
        writer.complete(&store, &pacer, writer.unchanged(), &|_| ()).await.unwrap().expect("changed");
    assert_eq!(completed.size, expected.len() as u64);
    assert!(*memory.object.lock().unwrap() == expected, "joins {composes}, lost {lost}, {writes:?}");
    *memory.came.lock().unwrap()
}

#[tokio::test]
async fn what_is_written_after_a_completion_that_failed_lies_where_it_belongs() {
    let part = PART as usize;
    for composes in [false, true] {
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
                    changed(composes, lost, &[first, second]).await;
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
    let (writer, pacer) = (writer_of(0), PartPacer::new());
    let part = Bytes::from(vec![1; PART as usize]);
    let write = |number: u64| writer.write(&memory, &pacer, number * PART, &part);
    let (first, second, third) = tokio::join!(write(0), write(1), write(2));
    for wrote in [first, second, third] {
        assert!(matches!(wrote, Ok(WriteOutcome::Taken)));
    }
    assert_eq!((*memory.begun.lock().unwrap(), memory.parts.lock().unwrap().len()), (1, 3));
}

/// The second of them had no bytes any more, and nothing could be completed ever after.
#[tokio::test]
async fn of_parts_that_one_write_fills_all_are_here_still_if_the_first_is_refused() {
    let memory = Arc::new(Memory { refuse: Mutex::new(Some(("part", 1))), ..Memory::default() });
    let store: Arc<dyn ObjectStore> = memory.clone();
    let (writer, pacer) = (writer_of(0), Arc::new(PartPacer::new()));
    let two = Bytes::from(vec![1; 2 * PART as usize]);
    let refused = writer.write(&*store, &pacer, 0, &two).await;
    assert_eq!(refused.err().map(|e| e.kind()), Some(ErrorKind::Unavailable));
    let again = writer.write(&*store, &pacer, 0, &two).await;
    assert!(matches!(again, Ok(WriteOutcome::Taken)));
    let completed =
        writer.complete(&store, &pacer, writer.unchanged(), &|_| ()).await.unwrap().expect("changed");
    assert_eq!((completed.size, memory.object.lock().unwrap().len() as u64), (2 * PART, 2 * PART));
}
