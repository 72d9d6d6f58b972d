//! Names, listings, attributes, reads.

use bytes::Bytes;
use origin::retry::{Retry, RetryConfig};
use origin::{Change, DirCursor, Origin};
use origin_object::{Config, Metadata, Precondition, open_store_as};
use testkit::gcs::fresh_key;
use testkit::stores::RealStore;
use types::{ByteRange, CreateHow, ErrorKind, FileKind, SetAttr, TimeChange, Timestamp};

use crate::store::{
    create, find, list, mkdir, name, names, on_each_bucket, overwrite, pattern, put, read_all, root,
};

fn kind<T: std::fmt::Debug>(result: types::Result<T>) -> ErrorKind {
    result.expect_err("must fail").kind()
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_files_and_slashes_are_directories() {
    on_each_bucket("objects_are_files_and_slashes_are_directories", |bucket| async move {
        let origin = bucket.origin("").await;
        let show = mkdir(&origin, &root(), "show").await.expect("made").reference;
        let shot = mkdir(&origin, &show, "shot 1+é").await.expect("made").reference;
        put(&origin, &shot, "frame 1&2.exr", b"pixels").await;
        put(&origin, &root(), "top", b"").await;
        let fresh = bucket.origin("").await;
        assert_eq!(names(&fresh, &root()).await, ["show", "top"]);
        let frame = find(&fresh, "show/shot 1+é/frame 1&2.exr").await.expect("found");
        assert_eq!((frame.attr.kind, frame.attr.size, frame.attr.nlink), (FileKind::Regular, 6, 1));
        assert_eq!(read_all(&fresh, &frame).await.expect("read"), "pixels");
        let again = fresh.getattr(&frame.reference).await.expect("still there");
        assert_eq!(
            (again.identity.clone(), again.version, again.attr),
            (frame.identity, frame.version, frame.attr)
        );
        let listed = list(&fresh, &shot).await;
        let listed = listed[0].object.as_ref().expect("listed with its attributes");
        assert_eq!(
            (&listed.identity, listed.version, listed.attr),
            (&again.identity, again.version, again.attr)
        );
        // A bucket below a prefix is that part of it.
        let url = bucket.url("show/shot 1+é", "");
        let below = bucket.connect(&url).await.expect("connected");
        assert_eq!(names(&below, &root()).await, ["frame 1&2.exr"]);

        assert_eq!(kind(fresh.lookup(&root(), &name("missing")).await), ErrorKind::NotFound);
        assert_eq!(kind(fresh.lookup(&again.reference, &name("x")).await), ErrorKind::NotADirectory);
        assert_eq!(
            kind(fresh.readdir(&again.reference, DirCursor::default()).await),
            ErrorKind::NotADirectory
        );
        assert_eq!(kind(fresh.readlink(&again.reference).await), ErrorKind::InvalidArgument);
        let bytes = types::Name::new(b"\xff".to_vec()).expect("a name");
        assert_eq!(kind(fresh.lookup(&root(), &bytes).await), ErrorKind::NotFound);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_listing_comes_page_by_page() {
    on_each_bucket("a_long_listing_comes_page_by_page", |bucket| async move {
        let origin = bucket.origin("").await;
        let dir = mkdir(&origin, &root(), "many").await.expect("made").reference;
        let config = Config::from_url(&bucket.url("", "")).expect("a URL");
        let store = open_store_as(&config, Some(&bucket.store.environment())).expect("credentials");
        let mut made = tokio::task::JoinSet::new();
        for at in 0..2_500 {
            let (store, key) = (store.clone(), format!("many/f{at}"));
            made.spawn(async move {
                store.put(&key, Bytes::new(), &Metadata::new(), Precondition::Absent).await.map(drop)
            });
            if made.len() == 32 {
                made.join_next().await.expect("under way").expect("no panic").expect("made");
            }
        }
        while let Some(made) = made.join_next().await {
            made.expect("no panic").expect("made");
        }
        // As in a tier: the store has closed the connection meanwhile, which was idle for seconds.
        let origin = Retry::new(origin, RetryConfig::default());
        let (mut all, mut pages, mut cursor) = (Vec::new(), 0, Some(DirCursor::default()));
        while let Some(at) = cursor {
            let page = origin.readdir(&dir, at).await.expect("listed");
            all.extend(page.entries.into_iter().map(|entry| entry.name.to_string()));
            (cursor, pages) = (page.next, pages + 1);
        }
        all.sort();
        let mut expected: Vec<_> = (0..2_500).map(|at| format!("f{at}")).collect();
        expected.sort();
        assert_eq!(all, expected);
        assert_eq!(pages, 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_bytes_of_the_version_that_is_asked_for_are_given() {
    on_each_bucket("only_bytes_of_the_version_that_is_asked_for_are_given", |bucket| async move {
        let (ours, theirs) = (bucket.origin("").await, bucket.origin("").await);
        let bytes = pattern(300_001, 1);
        let file = put(&ours, &root(), "file", &bytes).await;
        for (offset, length) in [(0, 300_001), (0, 1), (1, 65_535), (300_000, 1), (7, 0)] {
            let range = ByteRange::new(offset, length);
            let read = theirs.read(&file.reference, file.version, range).await.expect("read");
            assert!(read == bytes[offset as usize..range.end() as usize], "{length} bytes from {offset}");
        }
        for (length, seed) in [(300_001, 2), (10, 3), (400_000, 4)] {
            let old = find(&ours, "file").await.expect("found");
            let new = overwrite(&theirs, &file.reference, &pattern(length, seed)).await;
            assert_eq!(kind(read_all(&ours, &old).await), ErrorKind::VersionChanged, "{length}");
            // Who has never seen the old one does not take the new one's bytes for it.
            assert_eq!(
                kind(read_all(&*bucket.origin("").await, &old).await),
                ErrorKind::VersionChanged,
                "{length}"
            );
            assert_eq!(new.identity, old.identity);
            assert!(
                read_all(&ours, &find(&ours, "file").await.expect("found")).await.expect("read")
                    == pattern(length, seed)
            );
        }
        let last = find(&ours, "file").await.expect("found");
        theirs.change(&Change::Remove { dir: root(), name: name("file") }).await.expect("removed");
        // Azurite looks at the condition first: gone is not what it was.
        let gone = kind(read_all(&ours, &last).await);
        assert!(
            gone == ErrorKind::Stale || bucket.store.is_azure() && gone == ErrorKind::VersionChanged,
            "{gone:?}"
        );
        assert_eq!(kind(ours.getattr(&last.reference).await), ErrorKind::Stale);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_come_go_and_move_as_files_do() {
    on_each_bucket("names_come_go_and_move_as_files_do", |bucket| async move {
        let origin = bucket.origin("").await;
        let a = mkdir(&origin, &root(), "a").await.expect("made").reference;
        assert_eq!(kind(mkdir(&origin, &root(), "a").await), ErrorKind::Exists);
        assert_eq!(kind(create(&origin, &root(), "a").await), ErrorKind::Exists);
        put(&origin, &a, "f", b"one").await;
        assert_eq!(kind(create(&origin, &a, "f").await), ErrorKind::Exists);
        assert_eq!(kind(mkdir(&origin, &a, "f").await), ErrorKind::Exists);
        let change = |change: Change| {
            let origin = origin.clone();
            async move { origin.change(&change).await }
        };
        let rmdir = |dir, text| change(Change::Rmdir { dir, name: name(text) });
        let remove = |dir, text| change(Change::Remove { dir, name: name(text) });
        assert_eq!(kind(rmdir(root(), "a").await), ErrorKind::NotEmpty);
        assert_eq!(kind(rmdir(a.clone(), "f").await), ErrorKind::NotADirectory);
        assert_eq!(kind(remove(root(), "a").await), ErrorKind::IsADirectory);
        assert_eq!(kind(remove(root(), "b").await), ErrorKind::NotFound);
        let rename = |from_dir, from, to_dir, to| {
            change(Change::Rename { from_dir, from: name(from), to_dir, to: name(to), identity: None })
        };
        let b = mkdir(&origin, &a, "b").await.expect("made").reference;
        put(&origin, &b, "deep", b"two").await;
        rename(a.clone(), "f", b.clone(), "g").await.expect("renamed");
        assert_eq!(names(&origin, &b).await, ["deep", "g"]);
        assert_eq!(kind(rename(root(), "a", b.clone(), "x").await), ErrorKind::InvalidArgument);
        rename(root(), "a", root(), "z").await.expect("renamed");
        let fresh = bucket.origin("").await;
        assert_eq!(names(&fresh, &root()).await, ["z"]);
        let moved = find(&fresh, "z/b/g").await.expect("moved");
        assert_eq!(read_all(&fresh, &moved).await.expect("read"), "one");
        let z = find(&origin, "z").await.expect("found").reference;
        assert_eq!(kind(rename(z.clone(), "b", root(), "z").await), ErrorKind::NotEmpty);
        // A directory stays when the last file in it goes, as directories do.
        let b = find(&origin, "z/b").await.expect("found").reference;
        for text in ["deep", "g"] {
            remove(b.clone(), text).await.expect("removed");
        }
        assert_eq!(names(&*bucket.origin("").await, &b).await, [""; 0]);
        rmdir(z, "b").await.expect("removed");
        rmdir(root(), "z").await.expect("removed");
        assert_eq!(names(&origin, &root()).await, [""; 0]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mode_owner_and_times_are_stored_with_an_object() {
    on_each_bucket("mode_owner_and_times_are_stored_with_an_object", |bucket| async move {
        let origin = bucket.origin("&attributes=stored").await;
        let time = Timestamp { seconds: 1_595_002_920, nanos: 123_456_789 };
        let file = put(&origin, &root(), "file", b"bytes").await;
        let set = SetAttr {
            mode: Some(0o640),
            uid: Some(12),
            gid: Some(34),
            mtime: TimeChange::To(time),
            ..SetAttr::default()
        };
        let change = Change::Set { object: file.reference.clone(), set, guard: None };
        let changed = origin.change(&change).await.expect("set");
        assert_eq!(changed.before.map(|before| before.version), Some(file.version));
        let target = bytes::Bytes::from_static(b"../else/where");
        let link = Change::Symlink { dir: root(), name: name("link"), target, set: SetAttr::default() };
        origin.change(&link).await.expect("made");
        let dir = mkdir(&origin, &root(), "dir").await.expect("made");
        let set = SetAttr { mode: Some(0o2775), ..SetAttr::default() };
        origin.change(&Change::Set { object: dir.reference, set, guard: None }).await.expect("set");

        let fresh = bucket.origin("&attributes=stored").await;
        let found = find(&fresh, "file").await.expect("found");
        assert_eq!(
            (found.attr.mode, found.attr.uid, found.attr.gid, found.attr.mtime),
            (0o640, 12, 34, time)
        );
        assert_eq!(read_all(&fresh, &found).await.expect("read"), "bytes");
        let link = find(&fresh, "link").await.expect("found");
        assert_eq!((link.attr.kind, link.attr.mode), (FileKind::Symlink, 0o777));
        assert_eq!(fresh.readlink(&link.reference).await.expect("a link"), "../else/where");
        assert_eq!(find(&fresh, "dir").await.expect("found").attr.mode, 0o2775);
        for entry in list(&fresh, &root()).await {
            // Azure's and Google's listings tell what is stored; S3's do not, and each is asked for.
            let told = entry.object.is_some();
            assert_eq!(told, !bucket.store.is_s3() && entry.name != name("dir"), "{}", entry.name);
            let attr = entry.object.filter(|_| entry.name == name("file")).map(|object| object.attr);
            assert!(attr.is_none_or(|attr| attr == found.attr));
        }

        // An exclusive create is known again by whoever asks for it once more.
        let how = CreateHow::Exclusive([1, 2, 3, 4, 5, 6, 7, 8]);
        let set = SetAttr::default();
        let exclusive = Change::Create { dir: root(), name: name("once"), how, set };
        let first = origin.change(&exclusive).await.expect("made").made().expect("told");
        let second = fresh.change(&exclusive).await.expect("the same").made().expect("told");
        assert_eq!((&first.identity, first.version), (&second.identity, second.version));
        let set_mode = SetAttr { mode: Some(0o731), ..set };
        let dressing = Change::Create { dir: root(), name: name("once"), how, set: set_mode };
        let dressed = fresh.change(&dressing).await.expect("the same").made().expect("told");
        assert_eq!((&dressed.identity, dressed.attr.mode), (&first.identity, 0o731));
        let how = CreateHow::Exclusive([0; 8]);
        let other = Change::Create { dir: root(), name: name("once"), how, set };
        assert_eq!(kind(fresh.change(&other).await), ErrorKind::Exists);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_the_way_to_a_bucket_is_one_clear_line() {
    on_each_bucket("what_is_wrong_with_the_way_to_a_bucket_is_one_clear_line", |bucket| async move {
        let url = bucket.url("", "");
        let nowhere = bucket.store.url("no-such-bucket", "", "");
        let dead = bucket.store.url_by("http://127.0.0.1:9", "bucket", "", "");
        let good = bucket.store.environment();
        // Base64, as a key of Azure's is.
        let wrong = "Z3Vlc3NlZC1hbmQtd3Jvbmc=";
        let with = |name: &'static str, value: &'static str| {
            let others = good.iter().copied().filter(|(known, _)| *known != name);
            others.chain([(name, value)]).collect::<Vec<_>>()
        };
        let (no_file, no_key, other_key, private);
        let mut cases = vec![(&dead, good.clone(), "onnect")];
        if let RealStore::Gcs(gcs) = &bucket.store {
            let with = |file: std::path::PathBuf| bucket.url("", &format!("&credentials={}", file.display()));
            no_file = with("/no/such/file".into());
            no_key = with(gcs.credentials_with("none", wrong));
            other_key = with(gcs.credentials_with("other", &fresh_key().expect("openssl")));
            gcs.make_bucket("private-bucket");
            private = bucket.store.url("private-bucket", "", "");
            cases.extend([
                (&nowhere, good.clone(), "there is no such bucket"),
                (&no_file, good.clone(), "cannot read the credentials in /no/such/file"),
                (&no_key, good.clone(), "private_key should be an RSA key"),
                (&other_key, good.clone(), "Invalid JWT Signature"),
                (&private, good.clone(), "the store does not take these credentials, or wants some"),
            ]);
        } else if bucket.store.is_azure() {
            cases.extend([
                (&url, with("AZURE_STORAGE_KEY", wrong), "the key is not the account's"),
                (&url, with("AZURE_STORAGE_KEY", "!"), "should be Base64"),
                (&url, with("AZURE_STORAGE_ACCOUNT", "another"), "is of account another"),
                (&url, vec![("AZURE_STORAGE_SAS_TOKEN", "sv=2021-12-02&sig=x")], "the SAS token"),
                (&nowhere, good.clone(), "there is no such container"),
            ]);
        } else {
            cases.extend([
                (&url, with("AWS_ACCESS_KEY_ID", "nobody"), "does not know this access key"),
                (&url, with("AWS_SECRET_ACCESS_KEY", wrong), "the secret does not belong to the access key"),
                (&nowhere, good.clone(), "there is no such bucket"),
            ]);
        }
        for (url, keys, told) in cases {
            let config = Config::from_url(url).expect("a URL");
            let error = origin_object::ObjectOrigin::connect_as(config, Some(&keys)).await;
            let text = error.err().expect("refused").to_string();
            assert!(text.contains(told) && !text.contains('\n'), "{told}: {text}");
            let secrets = keys.iter().filter(|(name, _)| name.ends_with("KEY") || name.ends_with("TOKEN"));
            let told = secrets.filter(|(_, secret)| secret.len() > 1 && text.contains(secret)).count();
            assert_eq!(told, 0, "a secret: {text}");
        }
    })
    .await;
}
