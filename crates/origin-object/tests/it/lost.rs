//! What becomes of a change that the store has made when its answer is lost.

use bytes::Bytes;
use origin::{Change, Origin, Replacing};
use testkit::lossy_line::{LossyLine, is_conditional_change};
use types::{ByteRange, CreateHow, ErrorKind, Name, SetAttr, Stability};

use crate::store::{find, name, on_each_bucket, overwrite, pattern, put, read_all, root};

const ALL: ByteRange = ByteRange { offset: 0, length: 0 };

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_was_completed_without_an_answer_is_known_as_ours() {
    on_each_bucket("an_object_that_was_completed_without_an_answer_is_known_as_ours", |bucket| async move {
        let line = LossyLine::to(bucket.store.address()).await;
        let url = bucket.store.url_by(&line.endpoint(), &bucket.name, "", "");
        let (ours, theirs) = (bucket.connect(&url).await.expect("connected"), bucket.origin("").await);
        for (seed, length) in [(1, 5), (2, 20 << 20)] {
            let text = format!("file-{length}");
            let file = put(&ours, &root(), &text, b"base").await.reference;
            let bytes = pattern(length, seed);
            let data = Bytes::from(bytes.clone());
            let written = ours.write(&file, 0, data, Stability::Unstable).await.expect("written");
            line.lose_answer(is_conditional_change);
            let lost = ours.commit(&file, ALL).await.expect_err("no answer").kind();
            assert!(matches!(lost, ErrorKind::Unavailable | ErrorKind::OutcomeUnknown), "{lost:?}");
            let committed = ours.commit(&file, ALL).await.expect("it is there");
            assert_eq!(committed.verifier, written.verifier, "nothing is to be written again");
            let seen = find(&theirs, &text).await.expect("there");
            assert_eq!(committed.after.expect("told").version, seen.version);
            assert!(read_all(&theirs, &seen).await.expect("read") == bytes);
            // Where others stored something since, it is theirs.
            let data = Bytes::from(pattern(length, seed + 7));
            ours.write(&file, 0, data, Stability::Unstable).await.expect("written");
            line.lose_answer(is_conditional_change);
            ours.commit(&file, ALL).await.expect_err("no answer");
            overwrite(&theirs, &find(&theirs, &text).await.expect("there").reference, b"theirs").await;
            let foreign = ours.commit(&file, ALL).await.expect_err("theirs").kind();
            assert_eq!(foreign, ErrorKind::VersionChanged);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draft_that_was_published_without_an_answer_is_published_once() {
    on_each_bucket("a_draft_that_was_published_without_an_answer_is_published_once", |bucket| async move {
        let line = LossyLine::to(bucket.store.address()).await;
        let url = bucket.store.url_by(&line.endpoint(), &bucket.name, "", "");
        let (ours, theirs) = (bucket.connect(&url).await.expect("connected"), bucket.origin("").await);
        for (seed, length) in [(1, 5), (2, 20 << 20)] {
            let text = format!("file-{length}");
            let bytes = pattern(length, seed);
            let begun = ours.draft(&root(), &name(&text), &SetAttr::default()).await.expect("begun");
            let draft = begun.expect("there are drafts").reference;
            let data = Bytes::from(bytes.clone());
            ours.write(&draft, 0, data, Stability::Unstable).await.expect("written");
            line.lose_answer(is_conditional_change);
            let (dir, over) = (root(), Replacing::Nothing);
            let publish = Change::Publish { draft, dir, name: name(&text), over };
            let lost = ours.change(&publish).await.expect_err("no answer").kind();
            assert!(matches!(lost, ErrorKind::Unavailable | ErrorKind::OutcomeUnknown), "{lost:?}");
            let seen = find(&theirs, &text).await.expect("there");
            let made = ours.change(&publish).await.expect("it is ours").made().expect("told");
            assert_eq!(made.version, seen.version);
            assert!(read_all(&theirs, &seen).await.expect("read") == bytes);
        }
    })
    .await;
}

/// As a flush does that did not hear whether it has made a file.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_made_again_is_known_as_ours_whatever_else_is_made_meanwhile() {
    on_each_bucket(
        "a_file_that_is_made_again_is_known_as_ours_whatever_else_is_made_meanwhile",
        |bucket| async move {
            let origin = bucket.origin("").await;
            let make = move |name: String, verifier: u8| {
                let origin = origin.clone();
                let name = Name::new(name).expect("a name");
                let how = CreateHow::Exclusive([verifier; 8]);
                let change = Change::Create { dir: root(), name, how, set: SetAttr::default() };
                async move { origin.change(&change).await }
            };
            let others: Vec<_> = (0..8)
                .map(|lane| {
                    let make = make.clone();
                    tokio::spawn(async move {
                        for number in 0.. {
                            make(format!("other-{lane}-{number}"), 1).await.expect("made");
                        }
                    })
                })
                .collect();
            for _ in 0..150 {
                make("ours".to_owned(), 7).await.expect("made, or known");
            }
            let theirs = make("ours".to_owned(), 8).await.expect_err("another's");
            assert_eq!(theirs.kind(), ErrorKind::Exists);
            others.iter().for_each(tokio::task::JoinHandle::abort);
        },
    )
    .await;
}
