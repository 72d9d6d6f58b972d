//! Directories in pieces.

use std::time::Duration;

use types::ErrorKind;

use crate::harness::{AFTER_TTL, counted, kind, names_in_pieces, tier};

#[tokio::test(flavor = "multi_thread")]
async fn listing_in_pieces_names_stable_entries_once_while_others_come_and_go() {
    let t = tier();
    let stable: Vec<Vec<u8>> = (0..300).map(|i| format!("stable{i}").into_bytes()).collect();
    for name in &stable {
        t.far.memory.write_file(name, b"").unwrap();
    }
    for i in 0..300 {
        t.far.memory.write_file(format!("going{i}").as_bytes(), b"").unwrap();
    }
    let root = t.ns.root();
    let (mut t, mut after, mut seen, mut piece) = (t, 0, Vec::new(), 0);
    loop {
        let listed = t.ns.readdir(root, after, 7).await.unwrap();
        for entry in listed.entries {
            assert!(entry.cookie > after, "cookies grow");
            after = entry.cookie;
            seen.push(entry.name.to_vec());
        }
        if listed.eof {
            break;
        }
        t.far.memory.remove(format!("going{piece}").as_bytes()).unwrap();
        t.far.memory.write_file(format!("coming{piece}").as_bytes(), b"").unwrap();
        match piece {
            20 => t = t.after_a_restart().await,
            40 => t = t.after_a_crash(),
            _ if piece % 5 == 0 => t.pass(AFTER_TTL),
            _ => {}
        }
        piece += 1;
    }
    assert!(piece > 50, "it took many pieces");
    let counts = counted(seen);
    for name in &stable {
        assert_eq!(counts.get(name), Some(&1), "{}", name.escape_ascii());
    }
    assert!(counts.values().all(|n| *n == 1), "nothing is named twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_big_directory_lists_each_name_once_in_pages_of_a_hundred() {
    const NAMES: usize = 20_000;
    let t = tier();
    t.far.memory.mkdir(b"big").unwrap();
    for i in 0..NAMES {
        t.far.memory.write_file(format!("big/{i:05}").as_bytes(), b"").unwrap();
    }
    let dir = t.id(b"/big").await;
    t.far.forget_calls();
    let names = names_in_pieces(&t.ns, dir, 100).await.unwrap();
    let expected: Vec<_> = (0..NAMES).map(|i| format!("{i:05}").into_bytes()).collect();
    assert_eq!(names, expected);
    assert_eq!(t.far.calls("readdir"), 20, "the origin gives a thousand at a time");
    assert_eq!(t.far.calls("lookup"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_bytes() {
    let t = tier();
    let mut odd: Vec<Vec<u8>> =
        vec![b"\xff\xfe".to_vec(), b"caf\xe9".to_vec(), b" ".to_vec(), b"a\nb".to_vec(), vec![b'x'; 255]];
    for name in &odd {
        t.far.memory.write_file(name, name).unwrap();
    }
    odd.sort();
    assert_eq!(t.names(t.ns.root()).await.unwrap(), odd);
    for name in &odd {
        assert_eq!(t.lookup(name).await.unwrap().attr().size, name.len() as u64);
    }
    let t = t.after_a_restart().await;
    assert_eq!(t.names(t.ns.root()).await.unwrap(), odd);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_listed_without_their_object_are_looked_up() {
    let t = tier();
    for i in 0..40 {
        let name = format!("f{i}").into_bytes();
        t.far.memory.write_file(&name, b"abc").unwrap();
        t.far.list_without_object(&name);
    }
    let listed = t.ns.readdir(t.ns.root(), 0, 100).await.unwrap();
    assert_eq!(listed.entries.len(), 40);
    for entry in listed.entries {
        let child = entry.child.expect("looked up");
        assert_eq!((child.attr().size, child.id().fileid64()), (3, entry.fileid));
    }
    assert_eq!(t.lookup(b"/f7").await.unwrap().attr().size, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_listed_without_its_attributes_is_not_fresh_because_its_name_is() {
    let t = tier();
    t.far.memory.write_file(b"file", b"abc").unwrap();
    t.far.list_without_object(b"file");
    t.names(t.ns.root()).await.unwrap();
    let id = t.id(b"/file").await;
    for size in 4..8 {
        t.far.memory.write_file(b"file", &vec![0; size]).unwrap();
        t.far.memory.write_file(format!("new{size}").as_bytes(), b"").unwrap();
        t.pass(AFTER_TTL);
        t.names(t.ns.root()).await.unwrap(); // lists anew: the directory has changed
        assert_eq!(t.getattr(id).await.unwrap().attr().size, size as u64);
        assert_eq!(t.lookup(b"/file").await.unwrap().attr().size, size as u64);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_object_does_not_take_its_neighbours_out_of_the_listing() {
    let t = tier();
    t.far.memory.write_file(b"here", b"").unwrap();
    t.far.memory.mkdir(b"submount").unwrap();
    t.far.list_without_object(b"submount");
    let seen = t.names(t.ns.root()).await.unwrap();
    assert_eq!(seen, [b"here".to_vec(), b"submount".to_vec()]);
    t.far.set_down(true);
    t.pass(AFTER_TTL);
    assert_eq!(t.names(t.ns.root()).await.unwrap(), seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_names_leave_the_listing_and_renamed_ones_move() {
    let t = tier();
    t.far.memory.mkdir(b"dir").unwrap();
    for name in ["dir/a", "dir/b", "dir/c"] {
        t.far.memory.write_file(name.as_bytes(), b"").unwrap();
    }
    let dir = t.id(b"/dir").await;
    let b = t.id(b"/dir/b").await;
    t.names(dir).await.unwrap();
    t.far.memory.remove(b"dir/a").unwrap();
    t.far.memory.rename(b"dir/b", b"dir/z").unwrap();
    t.pass(AFTER_TTL);
    assert_eq!(t.names(dir).await.unwrap(), [b"c".to_vec(), b"z".to_vec()]);
    assert_eq!(t.id(b"/dir/z").await, b);
    assert_eq!(kind(t.lookup(b"/dir/a").await), Some(ErrorKind::NotFound));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_not_listed_and_holds_no_names() {
    let t = tier();
    t.far.memory.write_file(b"file", b"").unwrap();
    let file = t.id(b"/file").await;
    assert_eq!(kind(t.ns.readdir(file, 0, 10).await), Some(ErrorKind::NotADirectory));
    assert_eq!(kind(t.lookup(b"/file/x").await), Some(ErrorKind::NotADirectory));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_changes_while_it_is_listed_is_listed_in_the_end() {
    let t = tier();
    t.far.memory.mkdir(b"dir").unwrap();
    for i in 0..3000 {
        t.far.memory.write_file(format!("dir/{i:04}").as_bytes(), b"").unwrap();
    }
    let dir = t.id(b"/dir").await;
    let memory = t.far.memory.clone();
    let writer = tokio::spawn(async move {
        for i in 0..20 {
            memory.write_file(format!("dir/new{i}").as_bytes(), b"").unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    for _ in 0..200 {
        match t.names(dir).await {
            Ok(names) => assert!(names.len() >= 3000),
            Err(e) => assert_eq!(e.kind(), ErrorKind::Busy),
        }
        if writer.is_finished() {
            break;
        }
    }
    writer.await.unwrap();
    t.pass(AFTER_TTL);
    assert_eq!(t.names(dir).await.unwrap().len(), 3020);
}
