//! What the tier buys a real kernel NFS client of a real knfsd that is far away. Measurements, not tests:
//! `cargo test -p forebay --test it in_the_lab::figures -- --ignored --nocapture --test-threads=1`

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use testkit::lab::{EXPORT, Lab, with_lab};

use super::{FAR, drop_client_caches, make_file, mount_nas, mount_tier, sum_at_nas, tier_over, timed_read};
use crate::tier::{Tier, forebay, forebay_bench};

const FARTHEST: Duration = Duration::from_micros(221_500);
const ROUNDS: usize = 6;

/// 10,000 files in 100 directories.
const MAKE_TREE: &str = r##"
cd /mnt/export && perl -e '
    for my $d (1..100) {
        my $dir = sprintf("tree/d%03d", $d);
        mkdir("tree"); mkdir($dir);
        for my $f (1..100) {
            my $path = sprintf("$dir/file-%04d", $f);
            open(my $file, ">", $path) or die "$path: $!"; print $file "x" x ($f * 7); close($file);
        }
    }
' && sync
"##;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

/// One line of a table: what was measured in all rounds, and the ratios to the first column within each round.
fn report(what: &str, columns: &[&str], rounds: &[Vec<f64>]) {
    eprint!("{what}:");
    for (number, column) in columns.iter().enumerate() {
        let seconds = median(rounds.iter().map(|round| round[number]).collect());
        let ratios: Vec<_> = rounds.iter().map(|round| round[0] / round[number]).collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        eprint!(" {column} {seconds:.3} s ({:.1}x, least {least:.1}x);", median(ratios));
    }
    eprintln!(" n = {}", rounds.len());
}

/// `find -ls` of all; seconds.
fn find(lab: &Lab, root: &str) -> f64 {
    let start = Instant::now();
    let lines = lab.client.must(&format!("find {root}/tree -ls | wc -l")).stdout;
    let took = start.elapsed().as_secs_f64();
    assert_eq!(lines.trim(), "10101");
    took
}

const RULES: &str = "files = \"10m\"\ndirectories = \"10m\"";

fn fresh_tier<T>(lab: &Lab, measure: impl FnOnce() -> T) -> T {
    let dir = tempfile::tempdir().expect("temporary directory");
    let tier = tier_over(lab, dir.path(), RULES);
    mount_tier(lab, &tier, "/mnt/near", "ro");
    let measured = measure();
    lab.client.must("umount /mnt/near");
    measured
}

/// As `fresh_tier`, mounted by FUSE on the host, where no guest's slow processor is between.
fn fresh_mount<T>(origin: &str, measure: impl FnOnce(&Path) -> T) -> T {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mount = dir.path().join("mnt");
    std::fs::create_dir(&mount).expect("made");
    let junction = format!("[[junction]]\npath = \"/\"\norigin = \"{origin}\"\n{RULES}\n");
    let mut tier = Tier::start_mounted(dir.path(), &junction, Some(&mount));
    let measured = measure(&mount);
    assert_eq!(tier.stop(), Some(0));
    measured
}

/// What `command` prints on the host, and the seconds it took.
fn on_host(command: &str) -> (f64, String) {
    let start = Instant::now();
    let output = Command::new("sh").args(["-c", command]).output().expect("there is a shell");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    (start.elapsed().as_secs_f64(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Names, attributes and pages that the host's kernel has of the mount (and of all else).
fn drop_host_caches() {
    std::fs::write("/proc/sys/vm/drop_caches", "3").expect("the lab runs as root");
}

/// Seconds for each MiB of the first 256 MiB, by the kernel's client: all of it would take minutes at the same rate.
fn direct(lab: &Lab) -> f64 {
    const MIB: u32 = 256;
    let start = Instant::now();
    lab.client.must(&format!("dd if=/mnt/direct/big bs=1M count={MIB} 2>/dev/null | md5sum"));
    let seconds = start.elapsed().as_secs_f64() / f64::from(MIB);
    lab.client.must("umount /mnt/direct");
    seconds
}

/// MB/s of seconds for each MiB.
fn rate(seconds: f64) -> f64 {
    1.048_576 / seconds
}

#[test]
#[ignore = "a measurement"]
fn a_file_of_1_gib_at_221_ms() {
    with_lab("a_file_of_1_gib_at_221_ms", FARTHEST, |lab| {
        make_file(lab, "/mnt/export/big", 1024, "far");
        let expected = sum_at_nas(lab, "/mnt/export/big");
        let whole = |path| {
            let (took, sum) = timed_read(lab, path);
            assert_eq!(sum, expected);
            took / 1024.0
        };
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            mount_nas(lab, "/mnt/direct");
            let direct = direct(lab);
            let (cold, warm) = fresh_tier(lab, || {
                let cold = whole("/mnt/near/big");
                drop_client_caches(lab);
                (cold, whole("/mnt/near/big"))
            });
            eprintln!("MB/s: direct {:.1}, cold {:.1}, warm {:.1}", rate(direct), rate(cold), rate(warm));
            rounds.push(vec![direct, cold, warm]);
        }
        report("1 GiB at 221.5 ms, for each MiB", &["direct", "cold", "warm"], &rounds);
    });
}

/// A process of ours that serves something, and where.
struct Served(Child, u16, #[expect(dead_code, reason = "it may say more")] BufReader<ChildStdout>);

impl Served {
    fn start(mut command: Command) -> Served {
        let mut process = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let mut said = BufReader::new(process.stdout.take().expect("piped"));
        said.read_line(&mut line).expect("it says where it is");
        let port = line.split(|c: char| !c.is_ascii_digit() && c != ':' && c != '.').find_map(|word| {
            let address: std::net::SocketAddr = word.parse().ok()?;
            Some(address.port())
        });
        Served(process, port.unwrap_or_else(|| panic!("no address in {line}")), said)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The far NAS is on the host here, where no guest's slow processor limits it, and so is who reads through the tier.
#[test]
#[ignore = "a measurement"]
fn a_file_of_1_gib_at_221_ms_from_a_fast_nas() {
    with_lab("a_file_of_1_gib_at_221_ms_from_a_fast_nas", FARTHEST, |lab| {
        let export = tempfile::tempdir().expect("temporary directory");
        let big = export.path().join("big");
        on_host(&format!("head -c 1G /dev/urandom > {0}; touch -d yesterday {0}", big.display()));
        let (_, expected) = on_host(&format!("md5sum < {}", big.display()));
        let mut nas = forebay();
        nas.arg("nas").arg(export.path());
        let nas = Served::start(nas);
        let to = format!("127.0.0.1:{}", nas.1);
        let mut line = forebay_bench();
        line.args(["relay", "--to", &to, "--listen", "0.0.0.0:0", "--rtt", "221.5ms"]);
        let line = Served::start(line);
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            lab.client.mount(lab.host(), line.1, line.1, "/", "/mnt/direct", "ro");
            let direct = direct(lab);
            let cold = fresh_mount(&format!("nfs://127.0.0.1:{0}/?mountport={0}", line.1), |mount| {
                let (took, sum) =
                    on_host(&format!("dd if={}/big bs=1M 2>/dev/null | md5sum", mount.display()));
                assert_eq!(sum, expected);
                took / 1024.0
            });
            eprintln!("MB/s: direct {:.1}, cold {:.1}", rate(direct), rate(cold));
            rounds.push(vec![direct, cold]);
        }
        report("1 GiB at 221.5 ms from a fast NAS, for each MiB", &["direct", "cold by FUSE"], &rounds);
    });
}

#[test]
#[ignore = "a measurement"]
fn find_ls_of_10_000_files_at_69_5_ms() {
    with_lab("find_ls_of_10_000_files", FAR, |lab| {
        lab.nas.must(MAKE_TREE);
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            mount_nas(lab, "/mnt/direct");
            let direct = find(lab, "/mnt/direct");
            lab.client.must("umount /mnt/direct");
            let (cold, warm, own) = fresh_tier(lab, || {
                let cold = find(lab, "/mnt/near");
                drop_client_caches(lab);
                let warm = find(lab, "/mnt/near");
                (cold, warm, find(lab, "/mnt/near"))
            });
            let (mounted, mounted_warm) = fresh_mount(&lab.nas_url(), |mount| {
                let find = || {
                    let (took, lines) = on_host(&format!("find {}/tree -ls | wc -l", mount.display()));
                    assert_eq!(lines.trim(), "10101");
                    took
                };
                let cold = find();
                drop_host_caches();
                (cold, find())
            });
            eprintln!(
                "direct {direct:.2} s, cold {cold:.3} s, warm {warm:.3} s, from the client's cache {own:.3} s, \
                 by FUSE cold {mounted:.3} s, warm {mounted_warm:.3} s"
            );
            rounds.push(vec![direct, cold, warm, own, mounted, mounted_warm]);
        }
        report(
            "find -ls of 10,000 files at 69.5 ms",
            &["direct", "cold", "warm", "the client alone", "cold by FUSE", "warm by FUSE"],
            &rounds,
        );
    });
}

/// Sixteen processes that each create a file, write 4 KiB and close it, again and again, in one directory; prints the
/// files and the seconds it took.
const CREATES: &str = r##"
mkdir -p DIR && perl -MFcntl -MTime::HiRes=time -e '
    my ($dir, $begin) = ("DIR", time);
    for my $who (1..16) {
        next if fork;
        for (my $n = 0; time < $begin + 20; $n++) {
            sysopen(my $file, "$dir/$who-$n", O_CREAT | O_EXCL | O_WRONLY) or die "create: $!";
            syswrite($file, "x" x 4096) == 4096 or die "write: $!";
            close($file) or die "close: $!";
        }
        exit 0;
    }
    1 while wait > 0;
    my $took = time - $begin;
    opendir(my $all, $dir) or die $!;
    print scalar(grep { !/^[.]/ } readdir($all)), " ", $took;
'
"##;

/// Seconds for each file.
fn creates(dir: &str, run: impl FnOnce(&str) -> String) -> f64 {
    let said = run(&CREATES.replace("DIR", dir));
    let numbers: Vec<f64> = said.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    assert!(numbers[0] > 0.0, "{said}");
    numbers[1] / numbers[0]
}

#[test]
#[ignore = "a measurement"]
fn files_made_by_sixteen_processes_at_200_ms() {
    with_lab("files_made_by_sixteen_processes", Duration::from_millis(200), |lab| {
        let mut rounds = Vec::new();
        for round in 0..ROUNDS {
            let in_guest = |dir: &str| creates(dir, |script| lab.client.must(script).stdout);
            lab.client.mount(lab.nas.address(), 2049, 20048, EXPORT, "/mnt/direct", "rw");
            let direct = in_guest(&format!("/mnt/direct/direct{round}"));
            lab.client.must("umount /mnt/direct");
            let dir = tempfile::tempdir().expect("temporary directory");
            let mount = dir.path().join("mnt");
            std::fs::create_dir(&mount).expect("made");
            let url = lab.nas_url();
            let junction = format!(
                "[[junction]]\npath = \"/\"\norigin = \"{url}\"\nwrite = \"back\"\nflush_delay = \"1h\"\n"
            );
            let tier = Tier::start_mounted(dir.path(), &junction, Some(&mount));
            let by_fuse = creates(&mount.join("by-fuse").display().to_string(), |script| on_host(script).1);
            mount_tier(lab, &tier, "/mnt/near", "rw");
            let by_nfs = in_guest("/mnt/near/by-nfs");
            lab.client.must("umount /mnt/near");
            eprintln!(
                "files/s: direct {:.2}, back {:.0} by FUSE, {:.0} by NFS",
                1.0 / direct,
                1.0 / by_fuse,
                1.0 / by_nfs
            );
            rounds.push(vec![direct, by_fuse, by_nfs]);
        }
        let columns = ["direct", "written back, by FUSE", "written back, by NFS"];
        report("a file of 4 KiB, 16 processes in one directory, at 200 ms", &columns, &rounds);
    });
}

/// 5,000 files of 4 KiB in 50 directories, as an archive in the client's memory.
const MAKE_ARCHIVE: &str = r##"
set -e
mkdir -p /tmp/packed && cd /tmp/packed
perl -e '
    for my $d (0..49) {
        mkdir(sprintf("d%02d", $d)) or die $!;
        for my $f (0..99) {
            open(my $file, ">", sprintf("d%02d/file-%02d", $d, $f)) or die $!;
            print $file pack("N", $d * 100 + $f) x 1024; close($file) or die $!;
        }
    }
'
tar cf /tmp/tree.tar . && rm -rf /tmp/packed
"##;

/// Unpacks the archive into a new directory, walks it without the client's caches, and removes it; seconds of each.
fn unpack_walk_and_remove(lab: &Lab, root: &str) -> [f64; 3] {
    let timed = |command: String| {
        let start = Instant::now();
        lab.client.must(&command);
        start.elapsed().as_secs_f64()
    };
    let unpack = timed(format!("mkdir {root}/tree && tar xf /tmp/tree.tar -C {root}/tree"));
    drop_client_caches(lab);
    let walk = timed(format!("test $(find {root}/tree -type f -size 8 | wc -l) = 5000"));
    [unpack, walk, timed(format!("rm -rf {root}/tree"))]
}

/// knfsd over ext4, exported `sync`, in a guest; and the tier on the host, written back over a directory. The client and its
/// distance are the same.
#[test]
#[ignore = "a measurement"]
fn small_files_by_the_kernels_client_beside_knfsd() {
    with_lab("small_files_by_the_kernels_client", Duration::ZERO, |lab| {
        lab.client.must(MAKE_ARCHIVE);
        lab.nas.must(&format!(
            "exportfs -o rw,sync,no_root_squash,insecure,no_subtree_check,fsid=1 '*:{EXPORT}'"
        ));
        let dir = tempfile::tempdir().expect("temporary directory");
        let origin = dir.path().join("origin");
        std::fs::create_dir(&origin).expect("made");
        let junction = format!(
            "[[junction]]\npath = \"/\"\norigin = \"file://{}\"\nwrite = \"back\"\n",
            origin.display()
        );
        let tier = Tier::start(dir.path(), &junction);
        let measure = |is_tier: bool| {
            match is_tier {
                true => mount_tier(lab, &tier, "/mnt/near", "rw"),
                false => lab.client.mount(lab.nas.address(), 2049, 20048, EXPORT, "/mnt/near", "rw"),
            }
            let seconds = unpack_walk_and_remove(lab, "/mnt/near");
            lab.client.must("umount /mnt/near");
            seconds
        };
        let mut rows = [Vec::new(), Vec::new(), Vec::new()];
        for round in 0..ROUNDS {
            let first = measure(round % 2 == 1);
            let second = measure(round % 2 == 0);
            let (knfsd, tier) = if round % 2 == 1 { (second, first) } else { (first, second) };
            eprintln!("unpack, walk, remove: knfsd {knfsd:.2?}, tier {tier:.2?}");
            for (row, pair) in rows.iter_mut().zip(knfsd.into_iter().zip(tier)) {
                row.push(vec![pair.0, pair.1]);
            }
        }
        for (what, rounds) in
            ["tar x of 5,000 files of 4 KiB", "find -size of them", "rm -rf of them"].iter().zip(&rows)
        {
            report(what, &["knfsd, sync", "written back"], rounds);
        }
    });
}
