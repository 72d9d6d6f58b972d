//! RPC records in a TCP stream: however they are cut, the same records come out, and memory stays near what has come.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rpc_nfs3::record::RecordReader;
use tokio::io::AsyncReadExt;

const RECORD_MAX: usize = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let Some((cut, stream)) = bytes.split_first() else { return };
    let cut = usize::from(*cut) * stream.len() / 255;
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let whole = records(stream).await;
        assert_eq!(whole, records(stream[..cut].chain(&stream[cut..])).await);
        assert!(whole.iter().map(|record| record.len()).sum::<usize>() <= stream.len());
    });
});

async fn records(stream: impl tokio::io::AsyncRead + Unpin) -> Vec<bytes::Bytes> {
    let mut reader = RecordReader::new(stream, RECORD_MAX);
    let mut records = Vec::new();
    while let Ok(record) = reader.record().await {
        records.push(record);
        assert!(reader.reserved() <= 4 * RECORD_MAX);
    }
    records
}
