//! The lab itself: what the scenarios stand on is shown to hold, and to go away afterwards.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use testkit::lab::{EXPORT, Lab, with_lab};

const RTT: Duration = Duration::from_micros(69_500);

/// A TCP connection stands after one round trip, from the host as from the client.
fn measured_rtt(lab: &Lab) -> Duration {
    let connect = || {
        let start = Instant::now();
        TcpStream::connect((lab.nas.address(), 2049)).expect("the NAS answers");
        start.elapsed()
    };
    (0..5).map(|_| connect()).min().expect("five were made")
}

fn mount_nas(lab: &Lab, dir: &str) {
    lab.client.mount(lab.nas.address(), 2049, 20048, EXPORT, dir, "rsize=1048576");
}

fn mib_per_second(lab: &Lab, script: &str, mib: u32) -> f64 {
    let start = Instant::now();
    lab.client.must(script);
    f64::from(mib) / start.elapsed().as_secs_f64()
}

#[test]
fn a_client_reads_a_nas_that_is_as_far_as_asked() {
    let start = Instant::now();
    with_lab("a_client_reads_a_nas_that_is_as_far_as_asked", RTT, |lab| {
        println!("lab: up in {:.1} s", start.elapsed().as_secs_f64());
        let rtt = measured_rtt(lab);
        println!("lab: asked for {RTT:?}, measured {rtt:?}");
        assert!(rtt >= RTT.mul_f64(0.95) && rtt <= RTT.mul_f64(1.05), "{rtt:?}");

        lab.nas.must(&format!("head -c 64M /dev/urandom >{EXPORT}/data; echo from here >{EXPORT}/word"));
        let sum = lab.nas.must(&format!("sha256sum <{EXPORT}/data")).stdout;
        lab.nas.must(&format!("mkdir {EXPORT}/many; cd {EXPORT}/many; touch $(seq 300); ln -s ../word link"));
        let before = lab.nas_reads();
        mount_nas(lab, "/mnt/far");
        let rate = mib_per_second(lab, "dd if=/mnt/far/data of=/tmp/copy bs=1M 2>/dev/null", 64);
        println!("lab: kernel client, straight from the NAS: {rate:.1} MiB/s");
        assert!(lab.nas_reads() > before && lab.nas_read_bytes() >= 64 << 20);
        assert_eq!(lab.client.must("sha256sum </tmp/copy").stdout, sum);
        assert_eq!(
            lab.client.must("ls /mnt/far/many | wc -l; cat /mnt/far/many/link").stdout,
            "301\nfrom here\n"
        );

        lab.set_rtt(Duration::from_millis(10));
        let near = measured_rtt(lab);
        assert!(near < Duration::from_millis(14), "{near:?}");
    });
}

#[test]
fn commands_report_their_output_and_status_and_run_side_by_side() {
    with_lab("commands_report_their_output_and_status_and_run_side_by_side", Duration::ZERO, |lab| {
        let output = lab.client.sh("echo out; echo err >&2; exit 7");
        assert_eq!((output.stdout.as_str(), output.stderr.as_str(), output.status), ("out\n", "err\n", 7));
        let waits = lab.client.start("until [ -e /tmp/go ]; do sleep 0.1; done");
        assert!(waits.wait(Duration::from_millis(500)).is_none());
        lab.client.must("touch /tmp/go");
        assert!(waits.wait(Duration::from_secs(20)).is_some());
    });
}

#[test]
fn a_cut_line_is_silence_until_it_is_restored() {
    with_lab("a_cut_line_is_silence_until_it_is_restored", Duration::from_millis(5), |lab| {
        lab.nas.must(&format!("echo one >{EXPORT}/one; echo two >{EXPORT}/two"));
        mount_nas(lab, "/mnt/far");
        assert_eq!(lab.client.must("cat /mnt/far/one").stdout, "one\n");
        lab.cut_nas();
        let read = lab.client.start("cat /mnt/far/two");
        assert!(read.wait(Duration::from_secs(3)).is_none(), "a cut line carried an answer");
        lab.restore_nas();
        let output = read.wait(Duration::from_secs(90)).expect("the read goes on");
        assert_eq!(output.stdout, "two\n");
    });
}

const HELD: &str = "LAB_SMOKE_HELD";

fn taps_of(lab: &Lab) -> String {
    format!("{} {}", lab.nas.tap(), lab.client.tap())
}

fn assert_gone(taps: &str) {
    let deadline = Instant::now() + Duration::from_secs(15);
    let left = |tap: &str| {
        // Guests name their tap on their command line.
        let named = |entry: PathBuf| {
            let line = std::fs::read(entry.join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&format!("ifname={tap}"))
        };
        Path::new("/sys/class/net").join(tap).exists()
            || std::fs::read_dir("/proc").expect("mounted").flatten().any(|entry| named(entry.path()))
    };
    while taps.split_whitespace().any(left) {
        assert!(Instant::now() < deadline, "something is left of the lab with {taps}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The victim of the next test, in a process of its own.
#[test]
#[ignore = "started by nothing_is_left_of_a_lab_whose_test_is_killed"]
fn hold_a_lab() {
    if std::env::var_os(HELD).is_some() {
        with_lab("hold_a_lab", Duration::ZERO, |lab| {
            println!("\ntaps {}", taps_of(lab));
            std::thread::sleep(Duration::from_secs(120));
        });
    }
}

#[test]
fn nothing_is_left_of_a_lab_whose_test_is_killed() {
    let mut command = Command::new(std::env::current_exe().expect("known"));
    command.args(["--ignored", "--exact", "hold_a_lab", "--nocapture"]).env(HELD, "1").stdout(Stdio::piped());
    let mut victim = command.spawn().expect("this binary runs");
    let output = BufReader::new(victim.stdout.take().expect("piped"));
    let taps =
        output.lines().map_while(Result::ok).find_map(|line| line.strip_prefix("taps ").map(String::from));
    victim.kill().expect("our child");
    victim.wait().expect("our child");
    match taps {
        Some(taps) => assert_gone(&taps),
        None => {
            testkit::lab::not_run("nothing_is_left_of_a_lab_whose_test_is_killed", "the lab did not start")
        }
    }
}

#[test]
fn nothing_is_left_of_a_lab_whose_scenario_panics() {
    let mut taps = None;
    let scenario = std::panic::AssertUnwindSafe(|| {
        with_lab("nothing_is_left_of_a_lab_whose_scenario_panics", Duration::ZERO, |lab| {
            taps = Some(taps_of(lab));
            panic!("as planned");
        });
    });
    let ended = std::panic::catch_unwind(scenario);
    if let Some(taps) = taps {
        assert!(ended.is_err());
        assert_gone(&taps);
    }
}
