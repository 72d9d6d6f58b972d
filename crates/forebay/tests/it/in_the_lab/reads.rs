//! A tree of a NAS that is 69.5 ms away, read by a real kernel NFS client.

use std::time::{Duration, Instant};

use testkit::lab::with_lab;

use super::{FAR, drop_client_caches, make_file, mount_nas, mount_tier, sum_at_nas, tier_over, timed_read};
use crate::tier::readahead;

/// Ttl of the junctions here, short enough to wait for.
const TTL: Duration = Duration::from_secs(3);

/// In one process: a guest starts processes slowly.
const MAKE_TREE: &str = r##"
set -e
cd /mnt/export
mkdir -p tree links odd huge
perl -e '
    sub put { my ($path, $bytes) = @_; open(my $f, ">", $path) or die "$path: $!"; print $f $bytes; close($f) }
    srand(1);
    for my $d (1..50) {
        my $dir = sprintf("tree/d%02d", $d);
        mkdir($dir);
        for my $f (1..40) {
            put(sprintf("$dir/f%02d", $f), join("", map { pack("N", rand(2**32)) } 1..($f * 53 + $d)));
        }
    }
    put(sprintf("huge/entry-%06d", $_), "") for 1..30000;
'
for i in $(seq 20); do ln -s ../tree/d01/f0$((i % 9 + 1)) links/s$i; ln tree/d02/f0$((i % 9 + 1)) links/h$i; done
ln -s /nowhere/at/all links/broken
printf x > $'odd/latin-\xe9\xff'; printf y > $'odd/new\nline'; printf z > 'odd/ space '
sync
"##;

/// A cold read that is not three times as fast as a direct one is tried so often.
const COLD_TRIES: usize = 3;

/// Names, kinds, sizes, modes, link counts and targets, and a checksum of every file, sorted.
const DESCRIBE: &str = r"
cd ROOT
find . -path ./lost+found -prune -o \( -printf '%P\t%y\t%s\t%m\t%n\t%l\n' \) | grep -v -P '^lost\+found|^\t' | LC_ALL=C sort | md5sum
find tree links odd -type f -print0 | LC_ALL=C sort -z | xargs -0 -n 25 -P 16 md5sum | LC_ALL=C sort | md5sum
";

#[test]
fn the_tree_is_equal_and_a_second_pass_reads_nothing_at_the_nas() {
    with_lab("the_tree_is_equal", FAR, |lab| {
        let dir = tempfile::tempdir().expect("temporary directory");
        lab.set_rtt(Duration::ZERO);
        lab.nas.must(MAKE_TREE);
        make_file(lab, "/mnt/export/big", 256, "one");
        lab.set_rtt(FAR);
        let expected = lab.nas.must(&DESCRIBE.replace("ROOT", "/mnt/export")).stdout;
        let expected_sum = sum_at_nas(lab, "/mnt/export/big");

        mount_nas(lab, "/mnt/direct");
        let (direct, sum) = timed_read(lab, "/mnt/direct/big");
        assert_eq!(sum, expected_sum);
        lab.client.must("umount /mnt/direct");

        let tier = tier_over(lab, dir.path(), "files = \"10m\"\ndirectories = \"10m\"");
        mount_tier(lab, &tier, "/mnt/near", "ro");
        let mut cold = f64::INFINITY;
        // The direct read waits for the line, the cold one for this machine, which may be busy with other things.
        for attempt in 1..=COLD_TRIES {
            let (took, sum) = timed_read(lab, "/mnt/near/big");
            assert_eq!(sum, expected_sum);
            cold = cold.min(took);
            if direct / cold >= 3.0 || attempt == COLD_TRIES || readahead() == "0" {
                break;
            }
            assert!(tier.ask(&["evict", "/big"]).status.success());
            drop_client_caches(lab);
        }
        let megabytes = 256.0 * 1.048_576;
        eprintln!(
            "256 MiB at 69.5 ms: direct {direct:.2} s ({:.1} MB/s), cold {cold:.2} s ({:.1} MB/s), ratio {:.2}",
            megabytes / direct,
            megabytes / cold,
            direct / cold
        );
        let start = Instant::now();
        let seen = lab.client.must(&DESCRIBE.replace("ROOT", "/mnt/near")).stdout;
        let (took, cpu) = (start.elapsed().as_secs_f64(), tier.cpu_seconds());
        eprintln!("walk and checksum, cold: {took:.1} s; the tier has used {cpu:.1} s of CPU");
        assert_eq!(seen, expected, "the tree differs");

        drop_client_caches(lab);
        let reads = lab.nas_reads();
        let start = Instant::now();
        let seen = lab.client.must(&DESCRIBE.replace("ROOT", "/mnt/near")).stdout;
        let (warm, sum) = timed_read(lab, "/mnt/near/big");
        eprintln!(
            "walk and checksum, warm: {:.1} s; 256 MiB warm {warm:.2} s",
            start.elapsed().as_secs_f64() - warm
        );
        assert_eq!((seen, sum), (expected, expected_sum));
        assert_eq!(lab.nas_reads(), reads, "the second pass read at the NAS");
        if readahead() != "0" {
            assert!(direct / cold >= 3.0, "cold is only {:.2} times as fast as direct", direct / cold);
        }
    });
}

#[test]
fn kill_nine_in_the_middle_of_a_read() {
    with_lab("kill_nine_in_the_middle_of_a_read", FAR, |lab| {
        let dir = tempfile::tempdir().expect("temporary directory");
        make_file(lab, "/mnt/export/big", 128, "two");
        let expected = sum_at_nas(lab, "/mnt/export/big");
        let mut tier = tier_over(lab, dir.path(), "files = \"10m\"\ndirectories = \"10m\"");
        mount_tier(lab, &tier, "/mnt/near", "ro");
        // Read the first half, so that it is certainly cached; then the whole, and kill in the middle of that.
        lab.client.must("dd if=/mnt/near/big of=/dev/null bs=1M count=64");
        std::thread::sleep(Duration::from_secs(1));
        drop_client_caches(lab);
        let before = lab.nas_read_bytes();
        let read = lab.client.start("dd if=/mnt/near/big bs=64k 2>/dev/null | md5sum");
        std::thread::sleep(Duration::from_millis(400));
        tier.kill_nine();
        assert!(read.wait(Duration::from_millis(100)).is_none(), "the read was over before the kill");
        tier.start_again();
        let output = read.wait(Duration::from_secs(120)).expect("the client goes on");
        assert_eq!((output.status, output.stdout), (0, expected), "{}", output.stderr);
        let again = lab.nas_read_bytes() - before;
        // What was cached is not read again; what was on its way at the kill may be.
        let most = (64 + 40) << 20;
        assert!(again <= most, "the NAS sent {again} bytes after half the file was cached");
    });
}

#[test]
fn sixty_four_clients_read_the_nas_once() {
    with_lab("sixty_four_clients_read_the_nas_once", FAR, |lab| {
        let dir = tempfile::tempdir().expect("temporary directory");
        make_file(lab, "/mnt/export/big", 64, "three");
        let expected = sum_at_nas(lab, "/mnt/export/big");
        let tier = tier_over(lab, dir.path(), "");
        // Each mount has caches of its own, so that the client's cannot join the reads.
        lab.client.must("modprobe -d /tmp/mod nfsv3; for i in $(seq 64); do mkdir -p /mnt/m$i; done");
        let (host, port) = (lab.host(), tier.nfs_port);
        lab.client.must(&format!(
            "for i in $(seq 64); do mount.nfs {host}:/ /mnt/m$i -o \
             vers=3,tcp,nolock,port={port},mountport={port},mountproto=tcp,nosharecache,ro || exit 1; done"
        ));
        let before = lab.nas_read_bytes();
        let sums = lab.client.must(
            "for i in $(seq 64); do (dd if=/mnt/m$i/big iflag=direct bs=1M 2>/dev/null | md5sum > /tmp/sum$i) & done; wait; cat /tmp/sum*",
        );
        let read = lab.nas_read_bytes() - before;
        assert_eq!(sums.stdout.lines().count(), 64);
        assert!(sums.stdout.lines().all(|line| line == expected.trim()), "{}", sums.stdout);
        let ratio = read as f64 / f64::from(64 << 20);
        eprintln!(
            "64 clients, one cold file: NAS bytes / file bytes = {ratio:.4}; peak resident {} MiB",
            tier.resident_mib()
        );
        assert!(ratio <= 1.01, "the NAS sent {ratio:.3} times the file");
    });
}

#[test]
fn a_change_at_the_nas_is_seen_after_its_ttl() {
    with_lab("a_change_at_the_nas_is_seen_after_its_ttl", FAR, |lab| {
        let dir = tempfile::tempdir().expect("temporary directory");
        make_file(lab, "/mnt/export/file", 8, "old");
        let old = sum_at_nas(lab, "/mnt/export/file");
        let ttl = format!("files = \"{}s\"\ndirectories = \"{}s\"", TTL.as_secs(), TTL.as_secs());
        let tier = tier_over(lab, dir.path(), &ttl);
        // noac: the client itself remembers nothing, so that what is seen is the tier's promise.
        mount_tier(lab, &tier, "/mnt/near", "ro,noac");
        assert_eq!(timed_read(lab, "/mnt/near/file").1, old);
        make_file(lab, "/mnt/export/file", 8, "new");
        let new = sum_at_nas(lab, "/mnt/export/file");
        let changed = Instant::now();
        loop {
            let seen = timed_read(lab, "/mnt/near/file").1;
            if seen == new {
                break;
            }
            assert_eq!(seen, old, "neither the old bytes nor the new ones: a mix");
            assert!(changed.elapsed() < TTL + Duration::from_secs(3), "the change is not seen");
        }
        drop(tier);
    });
}

#[test]
fn with_always_a_change_is_seen_at_the_next_open() {
    with_lab("with_always_a_change_is_seen_at_the_next_open", FAR, |lab| {
        let dir = tempfile::tempdir().expect("temporary directory");
        let tier = tier_over(lab, dir.path(), "files = \"always\"\ndirectories = \"always\"");
        mount_tier(lab, &tier, "/mnt/near", "ro");
        for key in ["a", "b", "c"] {
            make_file(lab, "/mnt/export/file", 2, key);
            assert_eq!(timed_read(lab, "/mnt/near/file").1, sum_at_nas(lab, "/mnt/export/file"), "{key}");
        }
    });
}

#[test]
fn an_unreachable_nas() {
    with_lab("an_unreachable_nas", FAR, |lab| {
        let dir = tempfile::tempdir().expect("temporary directory");
        make_file(lab, "/mnt/export/cached", 8, "five");
        // In another directory: what lies beside a file that is read may be fetched ahead.
        lab.nas.must("mkdir /mnt/export/elsewhere");
        make_file(lab, "/mnt/export/elsewhere/missing", 1, "six");
        let (cached, missing) =
            (sum_at_nas(lab, "/mnt/export/cached"), sum_at_nas(lab, "/mnt/export/elsewhere/missing"));
        let ttl = format!("files = \"{}s\"\ndirectories = \"{}s\"", TTL.as_secs(), TTL.as_secs());
        let tier = tier_over(lab, dir.path(), &ttl);
        mount_tier(lab, &tier, "/mnt/near", "ro,noac");
        assert_eq!(timed_read(lab, "/mnt/near/cached").1, cached);
        lab.client.must("stat /mnt/near/elsewhere/missing");
        lab.cut_nas();
        std::thread::sleep(TTL + Duration::from_secs(1));
        drop_client_caches(lab);
        assert_eq!(timed_read(lab, "/mnt/near/cached").1, cached, "cached data in an outage");
        let miss = lab.client.start("md5sum < /mnt/near/elsewhere/missing");
        assert!(miss.wait(Duration::from_secs(8)).is_none(), "a miss must wait for the NAS, not fail");
        lab.restore_nas();
        let output = miss.wait(Duration::from_secs(60)).expect("the miss recovers by itself");
        assert_eq!((output.status, output.stdout), (0, missing), "{}", output.stderr);
        drop(tier);
    });
}

#[test]
fn a_nested_export_is_served_or_an_error_but_never_empty() {
    with_lab("a_nested_export", FAR, |lab| {
        let dir = tempfile::tempdir().expect("temporary directory");
        lab.nas.must(
            "set -e; mkdir -p /mnt/export/nested; mount -t tmpfs none /mnt/export/nested; \
             echo inside > /mnt/export/nested/file; \
             exportfs -o rw,no_root_squash,insecure,no_subtree_check,fsid=2 '*:/mnt/export/nested'",
        );
        let tier = tier_over(lab, dir.path(), &format!("directories = \"{}s\"", TTL.as_secs()));
        mount_tier(lab, &tier, "/mnt/near", "ro,noac");
        assert_eq!(lab.client.must("cat /mnt/near/nested/file").stdout, "inside\n");
        let listed = lab.client.must("ls /mnt/near/nested").stdout;
        assert_eq!(listed, "file\n");
    });
}
