//! Names, listings, attributes, credentials.

use origin::{Change, Copied, DirCursor, Origin};
use origin_azfile::{AzFileOrigin, Config};
use testkit::azfile::StandIn;
use types::{CreateHow, ErrorKind, SetAttr, TimeChange, Timestamp};

use crate::share::{
    connect, create, find, kind, mkdir, name, names, put, read_all, remove, rename, root, start, variables,
};

#[tokio::test(flavor = "multi_thread")]
async fn names_come_go_and_move_as_files_do() {
    let (stand_in, origin) = start().await;
    let top = root(&origin).await;
    let show = mkdir(&origin, &top, "show é").await.expect("made");
    put(&origin, &show.reference, "frame 1&2 + 3.exr", b"pixels").await;
    put(&origin, &show.reference, "dot.", b"").await;
    let fresh = connect(&stand_in, "share", "").await;
    let frame = find(&fresh, "show é/frame 1&2 + 3.exr").await.expect("found");
    assert_eq!(read_all(&fresh, &frame).await.expect("read"), "pixels");
    assert_eq!(names(&fresh, &show.reference).await, ["dot.", "frame 1&2 + 3.exr"]);
    // A listing tells the same as a look.
    let page = fresh.readdir(&show.reference, DirCursor::default()).await.expect("listed");
    let listed =
        page.entries.into_iter().find(|entry| entry.name == name("frame 1&2 + 3.exr")).expect("listed");
    assert_eq!(listed.object.expect("with its attributes"), frame);
    // Below a directory it is that part of the share.
    let below = connect(&stand_in, "share/show é", "").await;
    assert_eq!(names(&below, &root(&below).await).await, ["dot.", "frame 1&2 + 3.exr"]);
    let same = find(&below, "frame 1&2 + 3.exr").await.expect("found");
    assert_eq!(same.identity, frame.identity);
    // A directory takes what is in it along, and each is the same file afterwards.
    rename(&origin, &top, "show é", "moved").await.expect("renamed");
    let moved = find(&fresh, "moved/frame 1&2 + 3.exr").await.expect("found");
    assert_eq!((&moved.identity, moved.version), (&frame.identity, frame.version));
    assert_eq!(kind(fresh.getattr(&frame.reference).await), ErrorKind::Stale);
    // Nothing is left of how files are made.
    assert_eq!(names(&fresh, &top).await, ["moved"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_no_share_can_have_are_refused_and_never_changed() {
    let (_stand_in, origin) = start().await;
    let top = root(&origin).await;
    for bad in ["a:b", "what?", "a*", "back\\slash", "nul", "COM1", "new\nline"] {
        let refused = create(&origin, &top, bad).await.expect_err("refused");
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
        assert!(refused.to_string().contains("an Azure share has no"), "{refused}");
        assert_eq!(kind(mkdir(&origin, &top, bad).await), ErrorKind::InvalidArgument);
        assert_eq!(kind(origin.lookup(&top, &name(bad)).await), ErrorKind::NotFound);
        assert_eq!(kind(remove(&origin, &top, bad).await), ErrorKind::NotFound);
    }
    put(&origin, &top, "good", b"x").await;
    assert_eq!(kind(rename(&origin, &top, "good", "b|d").await), ErrorKind::InvalidArgument);
    assert_eq!(names(&origin, &top).await, ["good"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_differ_in_case_are_one_name() {
    let (_stand_in, origin) = start().await;
    let top = root(&origin).await;
    let made = put(&origin, &top, "Readme", b"x").await;
    assert_eq!(find(&origin, "README").await.expect("found").identity, made.identity);
    assert_eq!(kind(create(&origin, &top, "readme").await), ErrorKind::Exists);
    assert_eq!(kind(mkdir(&origin, &top, "READme").await), ErrorKind::Exists);
    assert_eq!(names(&origin, &top).await, ["Readme"]);
    let renamed = rename(&origin, &top, "Readme", "README").await.expect("renamed");
    assert_eq!(renamed.identity, made.identity);
    assert_eq!(names(&origin, &top).await, ["README"]);
    let dir = mkdir(&origin, &top, "Dir").await.expect("made");
    let into_itself = Change::Rename {
        from_dir: top.clone(),
        from: name("dir"),
        to_dir: dir.reference,
        to: name("x"),
        identity: None,
    };
    assert_eq!(kind(origin.change(&into_itself).await), ErrorKind::InvalidArgument);
}

/// Create File takes the place of what is there: it must never be asked to.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_make_the_same_file_one_does() {
    let (stand_in, origin) = start().await;
    let top = root(&origin).await;
    for round in 0..10 {
        let text = format!("file-{round}");
        let mut makers = tokio::task::JoinSet::new();
        for maker in 0..8 {
            let (origin, text) = (connect(&stand_in, "share", "").await, text.clone());
            makers.spawn(async move {
                let top = root(&origin).await;
                let made = create(&origin, &top, &text).await?;
                crate::share::write(&origin, &made.reference, 0, &[maker; 100]).await?;
                Ok::<u8, types::Error>(maker)
            });
        }
        let mut winners = Vec::new();
        while let Some(made) = makers.join_next().await {
            match made.expect("no panic") {
                Ok(winner) => winners.push(winner),
                Err(e) => assert_eq!(e.kind(), ErrorKind::Exists, "{e}"),
            }
        }
        assert_eq!(winners.len(), 1);
        let file = find(&origin, &text).await.expect("there");
        assert_eq!(read_all(&origin, &file).await.expect("read"), vec![winners[0]; 100]);
    }
    assert_eq!(names(&origin, &top).await.len(), 10, "nothing else is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn mode_owner_and_times_are_stored_with_a_file() {
    let (stand_in, origin) = start().await;
    let top = root(&origin).await;
    let mtime = Timestamp { seconds: 1_234_567_890, nanos: 123_456_789 };
    let atime = Timestamp { seconds: 4_000_000_000, nanos: 1 };
    let set = SetAttr {
        mode: Some(0o4711),
        uid: Some(7),
        gid: Some(u32::MAX),
        mtime: TimeChange::To(mtime),
        atime: TimeChange::To(atime),
        size: Some(12_345),
    };
    let how = CreateHow::Guarded;
    let made = origin.change(&Change::Create { dir: top.clone(), name: name("made"), how, set }).await;
    let later = create(&origin, &top, "later").await.expect("made").reference;
    origin.change(&Change::Set { object: later, set, guard: None }).await.expect("set");
    origin.change(&Change::Mkdir { dir: top.clone(), name: name("dir"), set }).await.expect("made");
    assert_eq!(made.expect("made").made().expect("told"), find(&origin, "made").await.expect("there"));
    let fresh = connect(&stand_in, "share", "&mode=0600&uid=1&gid=1").await;
    for path in ["made", "later", "dir"] {
        let attr = find(&fresh, path).await.expect("there").attr;
        assert_eq!((attr.mode, attr.uid, attr.gid), (0o4711, 7, u32::MAX), "{path}");
        assert_eq!((attr.mtime, attr.atime), (mtime, atime), "{path}, to the nanosecond");
        assert!(attr.is_dir() || attr.size == 12_345);
    }
    put(&origin, &top, "plain", b"x").await;
    let plain = find(&fresh, "plain").await.expect("there").attr;
    assert_eq!((plain.mode, plain.uid, plain.gid), (0o600, 1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_taken_a_directorys_place_is_not_changed_in_its_name() {
    let (stand_in, ours) = start().await;
    let theirs = connect(&stand_in, "share", "").await;
    let top = root(&ours).await;
    let old = mkdir(&ours, &top, "dir").await.expect("made").reference;
    put(&ours, &old, "file", b"old").await;
    rename(&theirs, &top, "dir", "elsewhere").await.expect("renamed");
    let new = mkdir(&theirs, &top, "dir").await.expect("made").reference;
    let file = put(&theirs, &new, "file", b"theirs").await;
    assert_eq!(kind(create(&ours, &old, "made").await), ErrorKind::Stale);
    assert_eq!(kind(mkdir(&ours, &old, "made").await), ErrorKind::Stale);
    assert_eq!(kind(remove(&ours, &old, "file").await), ErrorKind::Stale);
    assert_eq!(kind(rename(&ours, &old, "file", "other").await), ErrorKind::Stale);
    assert_eq!(kind(ours.lookup(&old, &name("file")).await), ErrorKind::Stale);
    assert_eq!(kind(ours.lookup(&old, &name("none")).await), ErrorKind::Stale);
    assert_eq!(kind(ours.readdir(&old, DirCursor::default()).await), ErrorKind::Stale);
    assert_eq!(names(&theirs, &new).await, ["file"]);
    assert_eq!(read_all(&theirs, &file).await.expect("read"), "theirs");
}

/// A rename counts as a change there.
#[tokio::test(flavor = "multi_thread")]
async fn a_rename_tells_which_version_became_which() {
    let (_stand_in, origin) = start().await;
    let top = root(&origin).await;
    let file = put(&origin, &top, "file", b"bytes").await;
    let before = file.version;
    let (from, to) = (name("file"), name("moved"));
    let change = Change::Rename { from_dir: top.clone(), from, to_dir: top, to, identity: None };
    let told = origin.change(&change).await.expect("renamed");
    let moved = told.object.expect("told");
    let after = origin.getattr(&moved.reference).await.expect("there").version;
    assert_ne!(before, after);
    assert_eq!(told.copied, [Copied { reference: moved.reference, before, after }]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_or_share_is_told_in_one_line() {
    let stand_in = StandIn::start(&["share"]).await;
    let connected = |url: String, variable: &str, value: &str| {
        let variables = vec![(variable.to_owned(), value.to_owned())];
        async move {
            let config = Config::from_url(&url).expect("a URL");
            AzFileOrigin::connect_as(config, Some(variables))
                .await
                .map(drop)
                .expect_err("refused")
                .to_string()
        }
    };
    let told = connected(stand_in.url("share", ""), "AZURE_STORAGE_KEY", "d3Jvbmc=").await;
    assert!(told.contains("the key or SAS is not this account's") && !told.contains('\n'), "{told}");
    let told =
        connected(stand_in.url("share", ""), "AZURE_STORAGE_SAS_TOKEN", "sv=2023-11-03&sr=s&sig=YWJj").await;
    assert!(told.contains("the key or SAS is not this account's") && !told.contains("YWJj"), "{told}");
    let told = connected(stand_in.url("share", ""), "OTHER", "").await;
    assert!(told.contains("no credentials; give AZURE_STORAGE_KEY"), "{told}");
    let told = connected(stand_in.url("other", ""), "AZURE_STORAGE_KEY", testkit::azfile::KEY).await;
    assert!(told.contains("there is no such share"), "{told}");
    let config = Config::from_url(&stand_in.url("share/none", "")).expect("a URL");
    let told = AzFileOrigin::connect_as(config, Some(variables())).await.map(drop).expect_err("refused");
    assert!(told.kind() == ErrorKind::Config && told.to_string().contains("no directory \"none\""), "{told}");
}
