//! A real kernel NFS client that writes through Forebay to a real knfsd that is 20 ms away.

use std::time::{Duration, Instant};

use testkit::lab::{Lab, with_lab};

use crate::lab::{drop_client_caches, mount_tier, tier_over};

const RTT: Duration = Duration::from_millis(20);

/// What is copied: 42 files in 6 directories, 0 to 300 KiB, and one of 6 MB.
const MAKE_SOURCE: &str = r##"
set -e
mkdir -p /tmp/source
perl -e '
    srand(1);
    sub put { my ($path, $words) = @_; open(my $f, ">", $path) or die "$path: $!"; print $f join("", map { pack("N", rand(2**32)) } 1..$words); close($f) }
    for my $d (1..6) {
        mkdir("/tmp/source/d$d");
        put("/tmp/source/d$d/f$_", ($_ - 1) ** 3 * 350 + $d) for 1..7;
    }
    put("/tmp/source/big", 1500001);
'
"##;

/// What a user does, in ROOT.
const WORK: &str = r##"
set -e
umask 022
mkdir -p ROOT; cd ROOT
cp -r /tmp/source copy
mkdir -p a/b/c
mv copy/d1 a/b/c/moved
mv copy/d2/f1 copy/d2/renamed
mv copy/d2/f2 copy/d2/f3
ln copy/d3/f1 hard
ln -s copy/d3/f1 soft; ln -s /nowhere/at/all broken
mkfifo fifo
rm copy/d4/f1 copy/d4/f7; rm -r copy/d5
mkdir old new; touch old/inside; mv -T old new; mkdir gone; rmdir gone
chmod 600 copy/d3/f2; chmod 2750 a/b; chmod u+x hard
chown 7:8 copy/d3/f3
touch empty; touch -d '2001-02-03 04:05:06.789 UTC' copy/d3/f4
cp -p copy/d3/f4 preserved
dd if=/tmp/source/big of=synced bs=64k conv=fsync 2>/dev/null
dd if=/tmp/source/big of=copy/big bs=100k conv=notrunc oflag=append 2>/dev/null
for i in $(seq 50); do echo "line $i" >>log; done
truncate -s 10000 log; truncate -s 77777 copy/d6/f7; truncate -s 400000 copy/d6/f2
perl -MIO::Handle -e '
    # As a database with a rollback journal: the old page into the journal, that synced; the page in place, synced;
    # the journal removed.
    srand(2);
    open(my $db, "+>", "db") or die $!;
    $db->autoflush(1);
    print $db "-" x 4096 for 1..64;
    $db->sync or die "sync: $!";
    for my $transaction (1..25) {
        my $page = int(rand(64)) * 4096;
        seek($db, $page, 0); read($db, my $old, 4096) == 4096 or die "a page is short";
        open(my $journal, ">", "db-journal") or die $!;
        print $journal pack("N", $page), $old; $journal->flush; $journal->sync or die "sync: $!"; close($journal);
        seek($db, $page, 0); print $db pack("N", $transaction) x 1024; $db->flush; $db->sync or die "sync: $!";
        unlink("db-journal") or die $!;
    }
    # Removed while it is open.
    open(my $open, "+>", "unlinked") or die $!; $open->autoflush(1);
    print $open "still here"; unlink("unlinked") or die $!;
    seek($open, 0, 0); my $line = <$open>; $line eq "still here" or die "an open file lost its contents";
'
"##;

/// Names, kinds, modes, link counts, owners, targets, sizes of what has contents, times that were set; and contents.
const DESCRIBE: &str = r##"
cd ROOT
find . -type d -printf '%P\t%y\t%m\t%n\t%U\t%G\n' -o -printf '%P\t%y\t%m\t%n\t%U\t%G\t%s\t%l\n' | LC_ALL=C sort
stat -c '%n %.Y' copy/d3/f4 preserved
find . -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum
"##;

fn describe(guest: &testkit::lab::Guest, root: &str) -> String {
    guest.must(&DESCRIBE.replace("ROOT", root)).stdout
}

fn work_on_both_sides(lab: &Lab) {
    lab.nas.must(MAKE_SOURCE);
    lab.client.must(MAKE_SOURCE);
    lab.nas.must(&WORK.replace("ROOT", "/mnt/export/expected"));
    let start = Instant::now();
    lab.client.must(&WORK.replace("ROOT", "/mnt/near/work"));
    eprintln!("a user's work through the tier: {:.1} s", start.elapsed().as_secs_f64());
}

#[test]
fn what_a_user_does_through_the_tier_is_at_the_nas_as_if_it_was_done_there() {
    with_lab("what_a_user_does_through_the_tier", RTT, |lab| {
        let dir = tempfile::tempdir().expect("temporary directory");
        let tier = tier_over(lab, dir.path(), "write = \"through\"");
        mount_tier(lab, &tier, "/mnt/near", "rw");
        work_on_both_sides(lab);
        let expected = describe(&lab.nas, "/mnt/export/expected");
        assert_eq!(describe(&lab.client, "/mnt/near/work"), expected, "as its client sees it");
        drop_client_caches(lab);
        assert_eq!(describe(&lab.client, "/mnt/near/work"), expected, "without the client's caches");
        lab.client.must("umount /mnt/near");
        assert_eq!(describe(&lab.nas, "/mnt/export/work"), expected, "as the NAS has it");
    });
}
