//! What the server says that it can never take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use origin::{Origin, OriginLimits};
use rpc_nfs3::nfs3::fs::{PathconfOk, encode_pathconf};
use rpc_nfs3::nfs3::wcc::{WccData, encode_wcc_result};
use rpc_nfs3::nfs3::{self, NfsStatus, procedure};

use crate::server::{Act, Server, Tree, results};

fn names_of(bytes: u32) -> Bytes {
    let told = PathconfOk {
        attr: None,
        link_max: 255,
        name_max: bytes,
        no_truncate: true,
        chown_restricted: true,
        case_insensitive: false,
        case_preserving: true,
    };
    results(|e| encode_pathconf(e, &Ok(told)))
}

fn removal(status: NfsStatus) -> Bytes {
    results(|e| encode_wcc_result(e, &Err((status, WccData::default()))))
}

#[tokio::test]
async fn the_largest_file_the_longest_name_and_an_export_that_is_read_only_are_known() {
    let state = Arc::new(AtomicU8::new(0));
    let now = state.clone();
    let server = Server::start(Tree::sample(), move |call| {
        if call.program != nfs3::PROGRAM {
            return Act::Honest;
        }
        match (call.procedure, now.load(Ordering::SeqCst)) {
            (procedure::PATHCONF, 0 | 1) => Act::Results(names_of(143)),
            (procedure::REMOVE, 0) => Act::Results(removal(NfsStatus::ROFS)),
            (procedure::REMOVE, 1) => Act::Results(removal(NfsStatus::NOENT)),
            (procedure::REMOVE, _) => Act::Results(removal(NfsStatus::ACCES)),
            _ => Act::Honest,
        }
    })
    .await;
    let origin = server.connect().await;
    let (file_size_max, name_max) = (Some(u64::MAX >> 1), Some(143));
    let writable = OriginLimits { file_size_max, name_max, ..OriginLimits::default() };
    let told = origin.limits().await.expect("told");
    assert_eq!(told, OriginLimits { read_only: true, ..writable });
    state.store(1, Ordering::SeqCst);
    assert_eq!(origin.limits().await.expect("told"), writable);
    // A server without PATHCONF, at which we may remove nothing.
    state.store(2, Ordering::SeqCst);
    assert_eq!(origin.limits().await.expect("told"), OriginLimits { name_max: None, ..writable });
}
