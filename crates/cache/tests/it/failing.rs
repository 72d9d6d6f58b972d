//! An origin that fails, or that has moved on to another version.

use std::sync::atomic::Ordering::Relaxed;

use types::{ByteRange, ErrorKind};

use crate::harness::*;

#[test]
fn a_failing_origin_fails_the_read_and_a_recovered_one_serves_it() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let source = TestSource::new();
    let key = key(1, 1, 4 * MIB);
    tier.check(&source, &key, ByteRange::new(0, MIB));
    source.failing.store(true, Relaxed);
    let error = tier.try_read(&source, &key, ByteRange::new(3 * MIB + 1, 10)).unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    tier.check(&source, &key, ByteRange::new(0, MIB));
    source.failing.store(false, Relaxed);
    tier.check_all(&source, &key);
    assert_eq!(tier.cached_bytes(&key), key.size);
}

#[test]
fn a_fetch_of_the_old_version_that_lands_late_does_not_drive_out_the_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.readahead_max = 0);
    let source = TestSource::slow(300);
    let (old, new) = (key(1, 1, 2 * MIB), key(1, 2, 2 * MIB));
    let late = tier.spawn(read(tier.cache().clone(), source.clone(), old, whole(&old)));
    eventually("the old version is being fetched", || source.calls() > 0);
    source.delay_ms.store(0, Relaxed);
    tier.check_all(&source, &new);
    assert_same(&tier.run(late).unwrap().unwrap(), &old, whole(&old));
    assert_eq!(tier.cached_bytes(&new), new.size);
    assert_eq!(tier.cached_bytes(&old), 0);
    assert_eq!(tier.cache().stats().files, 1);
}

#[test]
fn every_waiter_of_a_failed_fetch_gets_the_error() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let source = TestSource::slow(50);
    source.failing.store(true, Relaxed);
    let key = key(1, 1, 100_000);
    let readers: Vec<_> =
        (0..8).map(|_| tier.spawn(read(tier.cache().clone(), source.clone(), key, whole(&key)))).collect();
    for reader in readers {
        let error = tier.run(reader).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}

#[test]
fn a_changed_version_is_passed_up_and_no_foreign_byte_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.readahead_max = 0);
    let source = TestSource::new();
    let (old, new) = (key(1, 1, 2 * MIB), key(1, 2, 2 * MIB));
    tier.check(&source, &old, ByteRange::new(0, MIB));
    source.changes_to(&new);
    let error = tier.try_read(&source, &old, ByteRange::new(MIB, MIB)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::VersionChanged);
    assert_eq!(tier.cached_bytes(&old), MIB, "what is cached of the old version is right, and no more");
    tier.check(&source, &old, ByteRange::new(0, MIB));
    tier.check_all(&source, &new);
    assert_eq!(tier.cached_bytes(&new), new.size);
    tier.check_all(&source, &new);
}
