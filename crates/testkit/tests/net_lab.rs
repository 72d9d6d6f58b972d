//! The lab of network namespaces: its links carry what they are shaped to, its faults do what they say and end, and nothing is
//! left of it.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use testkit::lab::net::{LabHost, LinkSide, NetLab, eventually, with_net_lab};
use testkit::lab::not_run;

/// Low enough for a machine that does much else.
const RATE: u64 = 20_000_000;
const AMPLE: u64 = 5 * RATE;
/// What must happen happens within this.
const PATIENCE: Duration = Duration::from_secs(60);
/// What must not happen is waited for so long.
const SILENCE: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_millis(700);
const WINDOWS: usize = 7;

/// Bytes run from one host to another over one of their links, as fast as they may.
struct Flow {
    ends: [TcpStream; 2],
    threads: Vec<JoinHandle<()>>,
}

impl Flow {
    fn start(from: &LabHost, to: &LabHost, link: usize) -> Flow {
        let address = to.link(link).address();
        let listener = to.within(|| TcpListener::bind((address, 0))).expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let mut sends = from.within(|| TcpStream::connect(address)).expect("it listens");
        let (mut receives, _) = listener.accept().expect("one connects");
        let ends = [&sends, &receives].map(|end| end.try_clone().expect("a descriptor"));
        let sender = std::thread::spawn(move || while sends.write_all(&[0; 1 << 16]).is_ok() {});
        let mut room = vec![0; 1 << 18];
        let receiver = std::thread::spawn(move || while receives.read(&mut room).is_ok_and(|n| n > 0) {});
        Flow { ends, threads: vec![sender, receiver] }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        for end in &self.ends {
            let _ = end.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Bytes per second by this counter: the median of some windows, so that a moment without a core does not count.
fn rate_of(count: impl Fn() -> u64) -> f64 {
    let window = |_| {
        let (begin, begun) = (count(), Instant::now());
        std::thread::sleep(WINDOW);
        let end = count();
        (end - begin) as f64 / begun.elapsed().as_secs_f64()
    };
    let mut rates: Vec<f64> = (0..WINDOWS).map(window).collect();
    rates.sort_by(f64::total_cmp);
    rates[WINDOWS / 2]
}

/// A host's rate on some of its links together.
fn rate_on(host: &LabHost, links: &[usize], side: LinkSide) -> f64 {
    rate_of(|| links.iter().map(|link| host.link(*link).bytes(side)).sum())
}

/// Whether what one host says is heard by another: it is said again and again until then.
fn is_heard_within(patience: Duration, from: &LabHost, to: &LabHost) -> bool {
    let ear = to.within(|| UdpSocket::bind((to.address(), 0))).expect("a port");
    ear.set_read_timeout(Some(Duration::from_millis(20))).expect("it takes that");
    let at = ear.local_addr().expect("it is bound");
    let mouth = from.within(|| UdpSocket::bind((from.address(), 0))).expect("a port");
    let begun = Instant::now();
    while begun.elapsed() < patience {
        // A host whose cable is pulled may be told so.
        let _ = mouth.send_to(b"?", at);
        if ear.recv_from(&mut [0; 8]).is_ok() {
            return true;
        }
    }
    false
}

fn is_heard(from: &LabHost, to: &LabHost) -> bool {
    is_heard_within(PATIENCE, from, to)
}

fn is_silent(from: &LabHost, to: &LabHost) -> bool {
    !is_heard_within(SILENCE, from, to)
}

/// Within a tenth below. The kernel counts a large packet before it is cut into frames; of those the queue lets through as
/// many as the rate allows, with their headers.
fn is_about(measured: f64, rate: u64) -> bool {
    let part = measured / rate as f64;
    println!("net lab: {:.2} MB/s, {part:.3} of the rate", measured / 1e6);
    (0.9..1.05).contains(&part)
}

#[test]
fn a_link_carries_its_rate_in_either_direction() {
    with_net_lab("a_link_carries_its_rate_in_either_direction", |lab| {
        let (narrow, wide) = (lab.host("narrow", &[RATE]), lab.host("wide", &[AMPLE]));
        let out = Flow::start(&narrow, &wide, 0);
        assert!(is_about(rate_on(&narrow, &[0], LinkSide::Out), RATE), "it sends at another rate");
        drop(out);
        let _in = Flow::start(&wide, &narrow, 0);
        assert!(is_about(rate_on(&narrow, &[0], LinkSide::In), RATE), "it receives at another rate");
    });
}

#[test]
fn two_links_of_a_host_carry_twice_what_one_carries() {
    with_net_lab("two_links_of_a_host_carry_twice_what_one_carries", |lab| {
        let (node, client) = (lab.host("node", &[RATE; 2]), lab.host("client", &[AMPLE; 2]));
        assert_ne!(node.link(0).address().octets()[2], node.link(1).address().octets()[2], "one subnet");
        let _first = Flow::start(&node, &client, 0);
        let one = rate_on(&node, &[0, 1], LinkSide::Out);
        let _second = Flow::start(&node, &client, 1);
        let both = rate_on(&node, &[0, 1], LinkSide::Out);
        println!("net lab: {:.3} times as much over two", both / one);
        assert!((1.8..2.2).contains(&(both / one)), "{one} over one, {both} over two");
    });
}

#[test]
fn a_slowed_link_still_carries_a_little_and_is_itself_again_when_restored() {
    with_net_lab("a_slowed_link_still_carries_a_little_and_is_itself_again_when_restored", |lab| {
        let (a, b) = (lab.host("a", &[RATE]), lab.host("b", &[AMPLE]));
        let under_way = Flow::start(&a, &b, 0);
        eventually("much is under way", PATIENCE, || b.link(0).bytes(LinkSide::In) > RATE / 4);
        a.link(0).set_rate(1000);
        let sent = || a.link(0).bytes(LinkSide::Out);
        let (before, begun) = (sent(), Instant::now());
        eventually("a slow link carries some frames", PATIENCE, || sent() > before + 3000);
        let (carried, seconds) = (sent() - before, begun.elapsed().as_secs_f64());
        assert!(carried as f64 <= 1000.0 * seconds + 3200.0, "{carried} bytes in {seconds:.1} s");
        drop(under_way);
        a.link(0).restore();
        let _anew = Flow::start(&a, &b, 0);
        assert!(is_about(rate_on(&a, &[0], LinkSide::Out), RATE), "another rate than before");
    });
}

#[test]
fn a_pulled_cable_carries_nothing_until_it_is_restored() {
    with_net_lab("a_pulled_cable_carries_nothing_until_it_is_restored", |lab| {
        let (a, b) = (lab.host("a", &[RATE, RATE]), lab.host("b", &[RATE, RATE]));
        assert!(is_heard(&a, &b) && is_heard(&b, &a));
        a.link(0).down();
        assert!(is_silent(&a, &b) && is_silent(&b, &a), "a pulled cable carried something");
        let other = Flow::start(&a, &b, 1);
        let before = a.link(1).bytes(LinkSide::Out);
        eventually("the other link carries", PATIENCE, || {
            a.link(1).bytes(LinkSide::Out) > before + RATE / 10
        });
        drop(other);
        a.link(0).restore();
        assert!(is_heard(&a, &b) && is_heard(&b, &a));
        let _flow = Flow::start(&a, &b, 0);
        assert!(is_about(rate_on(&a, &[0], LinkSide::Out), RATE), "another rate than before");
    });
}

#[test]
fn what_is_lost_one_way_arrives_the_other_way() {
    with_net_lab("what_is_lost_one_way_arrives_the_other_way", |lab| {
        let (a, b) = (lab.host("a", &[RATE]), lab.host("b", &[RATE]));
        for (side, lost, kept) in [(LinkSide::Out, (&a, &b), (&b, &a)), (LinkSide::In, (&b, &a), (&a, &b))] {
            assert!(is_heard(lost.0, lost.1) && is_heard(kept.0, kept.1));
            a.link(0).lose(side);
            assert!(is_silent(lost.0, lost.1), "{side:?} was not lost");
            assert!(is_heard(kept.0, kept.1), "{side:?} was lost with the other direction");
            a.link(0).restore();
            assert!(is_heard(lost.0, lost.1), "{side:?} is lost for good");
        }
    });
}

#[test]
fn a_host_that_one_other_does_not_hear_is_heard_by_the_rest_and_hears_all() {
    with_net_lab("a_host_that_one_other_does_not_hear_is_heard_by_the_rest_and_hears_all", |lab| {
        let [a, b, c] = ["a", "b", "c"].map(|name| lab.host(name, &[RATE]));
        assert!(is_heard(&a, &b) && is_heard(&b, &a));
        a.lose_to(&b);
        let before = c.link(0).bytes(LinkSide::In);
        assert!(is_silent(&a, &b), "it is heard");
        // With some fifty messages it would be more.
        let seen = c.link(0).bytes(LinkSide::In) - before;
        assert!(seen < 500, "what is lost came to one who was not meant: {seen} bytes");
        assert!(is_heard(&b, &a) && is_heard(&a, &c) && is_heard(&c, &a));
        a.reach(&b);
        assert!(is_heard(&a, &b));
    });
}

/// Says something again and again.
fn talker() -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "while :; do echo still here; sleep 0.01; done"]);
    command
}

#[test]
fn a_stopped_process_does_nothing_until_it_goes_on_and_a_killed_one_is_gone() {
    with_net_lab("a_stopped_process_does_nothing_until_it_goes_on_and_a_killed_one_is_gone", |lab| {
        let host = lab.host("a", &[RATE]);
        let mut process = host.start("talker", &talker());
        let talks_again = |than: usize| {
            eventually("it talks", PATIENCE, || process.log().len() > than);
        };
        talks_again(0);
        process.stop();
        let before = process.log().len();
        std::thread::sleep(SILENCE);
        assert_eq!(process.log().len(), before, "it was stopped, and talked");
        process.go_on();
        talks_again(before);
        process.stop();
        process.kill();
        assert!(process.ended().is_some());
        assert!(!Path::new(&format!("/proc/{}", process.pid())).exists(), "it was killed, and is there");
    });
}

#[test]
fn a_process_is_in_its_host_and_has_a_run_directory_that_the_machine_does_not_see() {
    with_net_lab("a_process_is_in_its_host_and_has_a_run_directory_that_the_machine_does_not_see", |lab| {
        let host = lab.host("a", &[RATE, RATE]);
        let mark = format!("/run/forebay-net-lab-{}", std::process::id());
        let mut command = Command::new("sh");
        let script =
            "echo $LAB $PWD; cut -s -d: -f1 /proc/net/dev | tr -d ' ' | sort; touch $0; echo no >&2; exit 7";
        command.args(["-c", script, &mark]).env("LAB", "it is").current_dir("/usr");
        let output = host.run(&command, PATIENCE);
        assert_eq!(output.stdout, "it is /usr\nlink0\nlink1\nlo\n");
        assert_eq!((output.stderr.as_str(), output.status), ("no\n", 7));
        let left = Path::new(&mark).exists();
        let _ = fs::remove_file(&mark);
        assert!(!left, "what it left in /run is the machine's");
    });
}

/// Of the machine; other labs make taps.
fn interfaces() -> Vec<String> {
    let text = fs::read_to_string("/proc/net/dev").expect("mounted");
    let names = text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
    names.filter(|name| !name.starts_with("fb")).collect()
}

#[test]
fn labs_side_by_side_have_the_same_addresses_and_do_not_meet_each_other_or_the_machine() {
    let name = "labs_side_by_side_have_the_same_addresses_and_do_not_meet_each_other_or_the_machine";
    let before = interfaces();
    with_net_lab(name, |one| {
        with_net_lab(name, |other| {
            assert_eq!(interfaces(), before, "the machine has the lab's interfaces");
            let [listens, near] = ["listens", "near"].map(|name| one.host(name, &[RATE]));
            let [twin, far] = ["twin", "far"].map(|name| other.host(name, &[RATE]));
            assert_eq!((listens.address(), near.address()), (twin.address(), far.address()));
            let listener = listens.within(|| TcpListener::bind((listens.address(), 0))).expect("a port");
            let address = listener.local_addr().expect("it is bound");
            assert!(near.within(|| TcpStream::connect(address)).is_ok());
            assert!(far.within(|| TcpStream::connect(address)).is_err(), "it was met from another lab");
        });
    });
    assert_eq!(interfaces(), before);
}

/// What there is of a lab.
struct Traces {
    dir: PathBuf,
    undertaker: i32,
    process: PathBuf,
    /// By their numbers.
    namespaces: Vec<u64>,
}

impl Traces {
    fn of(lab: &NetLab, hosts: &[&LabHost], process: u32) -> Traces {
        let number =
            |host: &&LabHost| host.within(|| fs::metadata("/proc/thread-self/ns/net").expect("there").ino());
        Traces {
            dir: lab.dir().to_owned(),
            undertaker: lab.undertaker().try_into().expect("a pid"),
            process: PathBuf::from(format!("/proc/{process}")),
            namespaces: hosts.iter().map(number).collect(),
        }
    }

    fn print(&self) {
        let numbers = self.namespaces.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        println!("\ntraces {} {} {} {numbers}", self.dir.display(), self.undertaker, self.process.display());
    }

    fn read(line: &str) -> Option<Traces> {
        let words: Vec<&str> = line.strip_prefix("traces ")?.split(' ').collect();
        let [dir, undertaker, process, numbers] = words[..] else { return None };
        Some(Traces {
            dir: dir.into(),
            undertaker: undertaker.parse().ok()?,
            process: process.into(),
            namespaces: numbers.split(',').filter_map(|number| number.parse().ok()).collect(),
        })
    }

    fn assert_processes_gone(&self) {
        eventually("the lab's processes are gone", PATIENCE, || !self.process.exists());
        let undertaker = PathBuf::from(format!("/proc/{}", self.undertaker));
        eventually("the undertaker is gone", PATIENCE, || !undertaker.exists());
        eventually("nobody holds its networks", PATIENCE, || !self.namespaces.iter().any(|n| is_held(*n)));
    }

    fn assert_gone(&self) {
        self.assert_processes_gone();
        eventually("the lab's directory is gone", PATIENCE, || !self.dir.exists());
    }
}

/// By a process that is in it, or has a descriptor of it, or by a mount.
fn is_held(namespace: u64) -> bool {
    let name = format!("net:[{namespace}]");
    let leads_there = |link: PathBuf| fs::read_link(link).is_ok_and(|to| to.to_string_lossy() == name);
    let mounted = fs::read_to_string("/proc/self/mountinfo").expect("mounted").contains(&name);
    let processes = fs::read_dir("/proc").expect("mounted").flatten().map(|entry| entry.path());
    mounted
        || processes.into_iter().any(|process| {
            let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
            leads_there(process.join("ns/net"))
                || descriptors.into_iter().any(|entry| leads_there(entry.path()))
        })
}

/// A lab with something in it.
fn furnished(lab: &NetLab, scenario: impl FnOnce(Traces)) {
    let (a, b) = (lab.host("a", &[RATE, RATE]), lab.host("b", &[RATE, RATE]));
    let process = a.start("talker", &talker());
    eventually("it talks", PATIENCE, || !process.log().is_empty());
    let _flow = Flow::start(&a, &b, 1);
    scenario(Traces::of(lab, &[&a, &b], process.pid()));
}

#[test]
fn nothing_is_left_of_a_lab_that_has_ended() {
    let mut traces = None;
    with_net_lab("nothing_is_left_of_a_lab_that_has_ended", |lab| {
        furnished(lab, |found| {
            assert!(found.dir.exists() && found.process.exists());
            assert!(found.namespaces.iter().all(|number| is_held(*number)), "one who looks sees nothing");
            traces = Some(found);
        });
    });
    if let Some(traces) = traces {
        traces.assert_gone();
    }
}

#[test]
fn nothing_is_left_of_a_lab_whose_scenario_panics() {
    let mut traces = None;
    let scenario = std::panic::AssertUnwindSafe(|| {
        with_net_lab("nothing_is_left_of_a_lab_whose_scenario_panics", |lab| {
            furnished(lab, |found| {
                traces = Some(found);
                panic!("as planned");
            });
        });
    });
    let ended = std::panic::catch_unwind(scenario);
    if let Some(traces) = traces {
        assert!(ended.is_err());
        traces.assert_gone();
    }
}

const HELD: &str = "NET_LAB_HELD";

/// The victim of the next tests, in a process of its own.
#[test]
#[ignore = "started by the tests of labs that are killed"]
fn hold_a_net_lab() {
    if std::env::var_os(HELD).is_some() {
        with_net_lab("hold_a_net_lab", |lab| {
            furnished(lab, |traces| {
                traces.print();
                std::thread::sleep(Duration::from_secs(120));
            });
        });
    }
}

/// A process that has a lab below this directory, and what there is of it. `None`: labs are not run here.
fn victim(test: &str, dir: &Path) -> Option<(Child, Traces)> {
    let mut command = Command::new(std::env::current_exe().expect("known"));
    command.args(["--ignored", "--exact", "hold_a_net_lab", "--nocapture"]).env(HELD, "1").env("TMPDIR", dir);
    let mut victim = command.stdout(Stdio::piped()).spawn().expect("this binary runs");
    let output = BufReader::new(victim.stdout.take().expect("piped"));
    match output.lines().map_while(Result::ok).find_map(|line| Traces::read(&line)) {
        Some(traces) => Some((victim, traces)),
        None => {
            let _ = victim.wait();
            not_run(test, "the lab did not start");
            None
        }
    }
}

#[test]
fn nothing_is_left_of_a_lab_whose_test_is_killed() {
    // Nobody else clears up there.
    let dir = tempfile::tempdir().expect("a directory");
    let test = "nothing_is_left_of_a_lab_whose_test_is_killed";
    let Some((mut victim, traces)) = victim(test, dir.path()) else { return };
    victim.kill().expect("our child");
    victim.wait().expect("our child");
    traces.assert_gone();
}

#[test]
fn what_a_lab_leaves_that_is_killed_with_its_undertaker_is_removed_by_the_next() {
    let test = "what_a_lab_leaves_that_is_killed_with_its_undertaker_is_removed_by_the_next";
    let Some((mut victim, traces)) = victim(test, &std::env::temp_dir()) else { return };
    let undertaker = Pid::from_raw(traces.undertaker).expect("a pid");
    // Stopped, it cannot clear up between the two.
    kill_process(Pid::from_child(&victim), Signal::STOP).expect("our child");
    kill_process(undertaker, Signal::KILL).expect("it watches");
    victim.kill().expect("our child");
    victim.wait().expect("our child");
    traces.assert_processes_gone();
    with_net_lab(test, |alive| {
        assert!(!traces.dir.exists(), "it is left");
        with_net_lab(test, |_| assert!(alive.dir().exists(), "the next lab removed a living one"));
    });
}
