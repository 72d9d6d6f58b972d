//! A server that restarts, cuts connections and writes less than it is given, at random, against a caller that
//! heeds the write verifiers: what the caller holds for committed is on the server's disk.

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use origin::{Origin, Reference};
use origin_nfs::NfsOrigin;
use rpc_nfs3::nfs3::procedure;
use rpc_nfs3::nfs3::wcc::WccData;
use rpc_nfs3::nfs3::write::{self, CommitOk, StableHow, WriteArgs, WriteOk};
use types::{ByteRange, Stability};

use crate::server::{Act, Call, Server, Tree, results};

const SIZE: usize = 400_000;
/// Larger than one WRITE of the server.
const PIECE: usize = 90_000;

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }
}

struct Disk {
    stable: Vec<u8>,
    cached: Vec<u8>,
    starts: u64,
    chance: Chance,
}

impl Disk {
    fn answer(&mut self, call: &Call) -> Act {
        if self.chance.one_in(10) {
            self.cached = self.stable.clone();
            self.starts += 1;
        }
        if self.chance.one_in(12) {
            return Act::Cut;
        }
        let reply = match call.procedure {
            procedure::WRITE => self.write(call),
            procedure::COMMIT => {
                self.stable = self.cached.clone();
                let ok = CommitOk { wcc: WccData::default(), verifier: self.starts.to_be_bytes() };
                results(|e| write::encode_commit(e, &Ok(ok)))
            }
            _ => return Act::Honest,
        };
        // Done, but nobody is told.
        if self.chance.one_in(12) { Act::Cut } else { Act::Results(reply) }
    }

    fn write(&mut self, call: &Call) -> Bytes {
        let args = WriteArgs::decode(&mut call.args.clone(), 65_536).expect("WRITE arguments");
        let short = self.chance.one_in(4);
        let count = if short { args.data.len().div_ceil(2) } else { args.data.len() };
        let start = args.offset as usize;
        self.cached[start..start + count].copy_from_slice(&args.data[..count]);
        let (committed, verifier) = (StableHow::Unstable, self.starts.to_be_bytes());
        let ok = WriteOk { wcc: WccData::default(), count: count as u32, committed, verifier };
        results(|e| write::encode_write(e, &Ok(ok)))
    }
}

/// Writes the pieces that are not safe side by side and commits, until all are safe. The number of rounds.
async fn write_until_safe(origin: &Arc<NfsOrigin>, data: &Bytes) -> usize {
    let file = Reference(Bytes::from_static(b"file"));
    let mut unsafe_pieces: Vec<usize> = (0..SIZE).step_by(PIECE).collect();
    for round in 1..100 {
        let mut writes = tokio::task::JoinSet::new();
        for at in unsafe_pieces.drain(..) {
            let (origin, file) = (Arc::clone(origin), file.clone());
            let piece = data.slice(at..SIZE.min(at + PIECE));
            writes.spawn(async move {
                let written = origin.write(&file, at as u64, piece, Stability::Unstable).await;
                (at, written.map(|done| done.verifier).ok())
            });
        }
        let written = writes.join_all().await;
        let committed =
            origin.commit(&file, ByteRange::new(0, 0)).await.expect("the server comes back").verifier;
        unsafe_pieces = written.iter().filter(|(_, v)| *v != Some(committed)).map(|(at, _)| *at).collect();
        if unsafe_pieces.is_empty() {
            return round;
        }
    }
    panic!("never safe");
}

#[tokio::test]
async fn what_a_caller_holds_for_committed_is_on_the_disk() {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let seed = since.as_nanos() as u64;
    println!("seed {seed}");
    let (mut rounds, mut restarts) = (0, 0);
    for run in 0..12 {
        let chance = Chance(seed.wrapping_add(run));
        let disk = Disk { stable: vec![0; SIZE], cached: vec![0; SIZE], starts: 0, chance };
        let disk = Arc::new(Mutex::new(disk));
        let behind = Arc::clone(&disk);
        let server = Server::start(Tree::sample(), move |call| match call.procedure {
            procedure::WRITE | procedure::COMMIT if call.program == rpc_nfs3::nfs3::PROGRAM => {
                behind.lock().expect("disk").answer(call)
            }
            _ => Act::Honest,
        })
        .await;
        let origin = server.connect().await;
        let data: Bytes = (0..SIZE).map(|i| (i % 249) as u8 + 1).collect();
        rounds += write_until_safe(&origin, &data).await;
        let disk = disk.lock().expect("disk");
        restarts += disk.starts;
        assert!(disk.stable == data, "seed {seed}, run {run}");
    }
    println!("{rounds} rounds for 12 runs, {restarts} restarts");
    assert!(restarts > 0, "seed {seed}: nothing was tried");
}
