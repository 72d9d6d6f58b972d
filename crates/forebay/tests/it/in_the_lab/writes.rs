//! A real kernel NFS client that writes through Forebay to a real knfsd that is 20 ms away.

use std::path::Path;
use std::time::{Duration, Instant};

use testkit::lab::{EXPORT, Lab, RunningGuest, with_lab};

use super::{drop_client_caches, mount_tier, tier_over};
use crate::tier::Tier;

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

/// `/through` and `/back`, each in a directory of the NAS of that name.
fn both_policies(lab: &Lab, dir: &Path) -> Tier {
    let junction = |policy: &str, more: &str| {
        lab.nas.must(&format!("mkdir {EXPORT}/{policy}"));
        let origin = format!("nfs://{}{EXPORT}/{policy}?mountport=20048", lab.nas.address());
        format!("[[junction]]\npath = \"/{policy}\"\norigin = \"{origin}\"\nwrite = \"{policy}\"\n{more}\n")
    };
    let junctions = junction("through", "") + &junction("back", "flush_delay = \"1s\"");
    let tier = Tier::start(dir, &junctions);
    mount_tier(lab, &tier, "/mnt/near", "rw");
    tier
}

/// What pjdfstest asks in chmod/12: a file with setuid and setgid, written to by somebody else.
#[test]
fn a_write_by_another_user_of_the_kernels_client_ends_setuid_and_setgid_under_both_policies() {
    with_lab("a_write_by_another_user_ends_setuid", RTT, |lab| {
        let dir = tempfile::tempdir().expect("temporary directory");
        let tier = both_policies(lab, dir.path());
        for policy in ["through", "back"] {
            let seen = lab.client.must(&format!(
                "set -e; cd /mnt/near/{policy}; chmod 777 .; printf 12345 >program; chmod 6777 program; stat -c %a program; \
                 perl -e '$) = \"65534 65534\"; $> = 65534; open(my $f, \"+<\", \"program\") or die $!; print $f \"x\"; \
                 close($f) or die $!'; stat -c %a program; cat program"
            ));
            assert_eq!(seen.stdout, "6777\n777\nx2345", "{policy}");
        }
        assert!(tier.ask(&["flush", "--wait"]).status.success());
        for policy in ["through", "back"] {
            let there = lab.nas.must(&format!("stat -c %a {EXPORT}/{policy}/program")).stdout;
            assert_eq!(there.trim(), "777", "{policy}");
        }
    });
}

/// Written and not committed when the tier is killed.
const UNSTABLE_BYTES: u64 = 24 << 20;

#[test]
fn what_a_client_wrote_unstable_to_a_tier_that_is_killed_it_sends_again() {
    with_lab("what_a_client_wrote_unstable", RTT, |lab| {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut tier = both_policies(lab, dir.path());
        lab.client.must(&format!(
            "head -c {UNSTABLE_BYTES} /dev/zero | openssl enc -aes-128-ctr -nosalt -pass pass:x -md sha256 \
             -pbkdf2 -iter 1 2>/dev/null > /tmp/big"
        ));
        let expected = lab.client.must("md5sum < /tmp/big").stdout;
        for policy in ["through", "back"] {
            let answered = |tier: &Tier, what: &str| {
                tier.metric(&format!("forebay_nfs_call_seconds_count{{procedure=\"{what}\"}}"))
            };
            let commits = answered(&tier, "COMMIT");
            let before = tier.metric("forebay_nfs_written_bytes_total");
            let path = format!("/mnt/near/{policy}/file");
            let copy = lab.client.start(&format!("dd if=/tmp/big of={path} bs=1M conv=fsync 2>/dev/null"));
            let start = Instant::now();
            while tier.metric("forebay_nfs_written_bytes_total") - before < (UNSTABLE_BYTES / 2) as f64 {
                assert!(start.elapsed() < Duration::from_secs(60), "{policy}: nothing is written");
            }
            assert_eq!(answered(&tier, "COMMIT"), commits, "{policy}: it is committed already");
            tier.kill_nine();
            assert!(copy.wait(Duration::from_millis(100)).is_none(), "{policy}: it was over before the kill");
            tier.start_again();
            let copied = copy.wait(Duration::from_secs(120)).expect("the client goes on");
            assert_eq!(copied.status, 0, "{policy}: {}", copied.stderr);
            // What was answered before the kill too: another verifier came with the next answer.
            let sent = tier.metric("forebay_nfs_written_bytes_total");
            assert!(sent >= UNSTABLE_BYTES as f64, "{policy}: only {sent} bytes were sent after the kill");
            drop_client_caches(lab);
            assert_eq!(
                lab.client.must(&format!("md5sum < {path}")).stdout,
                expected,
                "{policy}: other bytes"
            );
        }
        tier.json(&["flush", "--wait"]);
        for policy in ["through", "back"] {
            let at_nas = lab.nas.must(&format!("md5sum < {EXPORT}/{policy}/file")).stdout;
            assert_eq!(at_nas, expected, "{policy}: other bytes at the NAS");
        }
    });
}

/// Adds a line to a log and puts a file in place by rename, again and again, each synced, until it is told to end.
const WORKER: &str = r##"
perl -MIO::Handle -e '
    my ($root, $policy) = ("/mnt/near/POLICY", "POLICY");
    sub put {
        my ($path, $how, $bytes) = @_;
        open(my $f, $how, $path) or die "$path: $!";
        print $f $bytes; $f->flush; $f->sync or die "sync $path: $!"; close($f) or die "close $path: $!";
    }
    my $i = 0;
    while (! -e "/tmp/end") {
        $i++;
        put("$root/log", ">>", "line $i\n");
        put("$root/part", ">", "$i " x 5000);
        rename("$root/part", "$root/file$i") or die "rename: $!";
        unlink("$root/file" . ($i - 5)) or die "unlink: $!" if $i > 5 && $i % 2;
        open(my $f, ">", "/tmp/new.$policy") or die $!; print $f $i; close($f);
        rename("/tmp/new.$policy", "/tmp/done.$policy") or die $!; # never read half written
        select(undef, undef, undef, 0.05);
    }
'
"##;

/// What one of [`WORKER`] leaves after so many rounds.
const EXPECT: &str = r##"
perl -e '
    my ($root, $n) = ("ROOT", ROUNDS);
    my %expected = (log => join("", map { "line $_\n" } 1..$n));
    for my $i (1..$n) { $expected{"file$i"} = "$i " x 5000 }
    for my $i (6..$n) { delete $expected{"file" . ($i - 5)} if $i % 2 }
    opendir(my $dir, $root) or die $!;
    for my $name (grep { !/^\.\.?$/ } readdir($dir)) {
        open(my $f, "<", "$root/$name") or die $!; local $/; my $bytes = <$f>;
        my $right = delete $expected{$name};
        die "$name should not be there\n" unless defined $right;
        die "$name has other contents\n" unless $bytes eq $right;
    }
    die "missing: " . join(" ", keys %expected) . "\n" if %expected;
'
"##;

fn rounds_of(lab: &Lab, policy: &str) -> u64 {
    lab.client.must(&format!("cat /tmp/done.{policy}")).stdout.parse().expect("a number")
}

#[test]
fn a_line_that_is_cut_for_a_minute_loses_nothing_and_does_nothing_twice() {
    with_lab("a_line_that_is_cut_for_a_minute", RTT, |lab| {
        let dir = tempfile::tempdir().expect("temporary directory");
        let tier = both_policies(lab, dir.path());
        let work = |policy: &str| lab.client.start(&WORKER.replace("POLICY", policy));
        let (through, back) = (work("through"), work("back"));
        // In the midst of flushes: the delay is a second.
        std::thread::sleep(Duration::from_secs(5));
        lab.cut_nas();
        std::thread::sleep(Duration::from_secs(5));
        let early = (rounds_of(lab, "through"), rounds_of(lab, "back"));
        std::thread::sleep(Duration::from_secs(50));
        let late = (rounds_of(lab, "through"), rounds_of(lab, "back"));
        std::thread::sleep(Duration::from_secs(5));
        lab.restore_nas();
        assert_eq!(late.0, early.0, "through: something was answered that the NAS cannot have");
        assert!(late.1 > early.1 + 50, "back: {early:?} rounds, and 50 s later {late:?}");
        let start = Instant::now();
        while rounds_of(lab, "through") <= late.0 + 3 {
            assert!(start.elapsed() < Duration::from_secs(90), "through: it does not go on");
            std::thread::sleep(Duration::from_millis(200));
        }
        lab.client.must("touch /tmp/end");
        let end = |worker: RunningGuest<'_>| {
            let ended = worker.wait(Duration::from_secs(60)).expect("it ends");
            assert_eq!(ended.status, 0, "{}", ended.stderr);
        };
        end(through);
        end(back);
        tier.json(&["flush", "--wait"]);
        for policy in ["through", "back"] {
            let rounds = rounds_of(lab, policy);
            eprintln!("{policy}: {rounds} rounds");
            let expect = |root: String| EXPECT.replace("ROOT", &root).replace("ROUNDS", &rounds.to_string());
            lab.client.must(&expect(format!("/mnt/near/{policy}")));
            lab.nas.must(&expect(format!("{EXPORT}/{policy}")));
        }
        let journal = tier.json(&["status"])["journal"].clone();
        assert_eq!(journal["conflicts"], 0, "{journal}");
    });
}
