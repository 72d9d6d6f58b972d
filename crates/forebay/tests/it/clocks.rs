//! The wall clock of a tier under load is set to another time, by a second up to ten years, while it runs and while it is
//! down: what counts in intervals does not notice, and windows follow.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::tier::{Tier, forebay};

const YEARS_10: i64 = 10 * 365 * 86_400;
const STEPS: [i64; 10] = [-1, 1, -60, 60, -3600, 3600, -86_400, 86_400, -YEARS_10, YEARS_10];
const DAY: i64 = 86_400;
/// A machine under the load of all tests may do nothing for so long.
const PATIENCE: Duration = Duration::from_secs(20);
/// What waits by the clock (a delay or a ttl of a second) is there a second later than that at the latest, ...
const DELAY: Duration = Duration::from_secs(1);
const IN_TIME: Duration = Duration::from_secs(2);
/// ... at one of so many tries: the machine may have been busy at the others. A clock that counts wrong is late at each.
const TRIES: u32 = 8;

/// Sets the wall clock of one process that is told of it by the environment.
struct WallClock {
    file: PathBuf,
    library: String,
}

impl WallClock {
    fn find(name: &str, dir: &Path) -> Option<WallClock> {
        let places = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
        let library = places.map(|place| place.path().join("faketime/libfaketimeMT.so.1"));
        let Some(library) = library.into_iter().find(|library| library.exists()) else {
            testkit::lab::not_run(name, "Debian's faketime is not installed");
            return None;
        };
        let clock = WallClock { file: dir.join("wall-clock"), library: library.display().to_string() };
        clock.set(0);
        Some(clock)
    }

    fn environment(&self) -> Vec<(String, String)> {
        let file = self.file.display().to_string();
        [
            ("LD_PRELOAD", &self.library[..]),
            ("FAKETIME_TIMESTAMP_FILE", &file),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("DONT_FAKE_MONOTONIC", "1"),
            ("NO_FAKE_STAT", "1"),
            ("TZ", "UTC0"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    /// This far from the right time.
    fn set(&self, seconds: i64) {
        let unfinished = self.file.with_extension("unfinished");
        fs::write(&unfinished, format!("{seconds:+}\n")).expect("written");
        fs::rename(&unfinished, &self.file).expect("renamed");
    }
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as i64
}

fn junction(status: &Value, path: &str) -> Value {
    let mut all = status["junctions"].as_array().expect("junctions").iter();
    all.find(|junction| junction["path"] == path).expect("this one").clone()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// How long it takes at the best of some tries; each of them may take long on a machine under load.
fn at_best(what: &str, mut once: impl FnMut() -> Duration) {
    let mut best = Duration::MAX;
    for _ in 0..TRIES {
        best = best.min(once());
        if best <= IN_TIME {
            return;
        }
    }
    panic!("{what}: {best:?} at the best of {TRIES} tries");
}

/// A plain NFS server in a process of its own, so that it can be away.
struct Nas(std::process::Child);

impl Nas {
    fn start(dir: &Path, port: u16) -> Nas {
        let mut command = forebay();
        command.arg("nas").arg(dir).args(["--nfs", &format!("127.0.0.1:{port}")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let nas = Nas(command.spawn().expect("forebay starts"));
        until("the NAS answers", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        nas
    }
}

impl Drop for Nas {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes and reads on until it is dropped.
struct Load(Arc<AtomicBool>, Option<std::thread::JoinHandle<u64>>);

impl Load {
    fn on(dir: PathBuf) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, rounds) = (stop.clone(), AtomicU64::new(0));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let round = rounds.fetch_add(1, Ordering::Relaxed);
                let file = dir.join(format!("load{}", round % 7));
                let bytes = round.to_string();
                fs::write(&file, &bytes).expect("written under load");
                assert_eq!(fs::read_to_string(&file).expect("read under load"), bytes);
                std::thread::sleep(Duration::from_millis(5));
            }
            rounds.load(Ordering::Relaxed)
        });
        Load(stop, Some(thread))
    }

    fn end(mut self) {
        self.0.store(true, Ordering::Relaxed);
        let rounds = self.1.take().expect("once").join().expect("no call failed");
        assert!(rounds > 0);
    }
}

struct Bed {
    dir: tempfile::TempDir,
    clock: WallClock,
    /// When the file that is held was written.
    held: Instant,
    /// When the tier told that the NAS is away, and for how long it had been then.
    away: (Instant, Duration),
    /// When a conflict was told.
    conflict: Instant,
    files: u32,
}

impl Bed {
    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// What must hold at any time, whatever the clock says.
    fn check(&mut self, tier: &Tier, step: i64) {
        let what = format!("after a step of {step} s");
        // The flush: neither late nor before its delay.
        let (mount, origin) = (self.at("mnt"), self.at("origin"));
        at_best(&format!("{what}: the flush"), || {
            self.files += 1;
            let name = format!("quick/f{}", self.files);
            let begun = Instant::now();
            fs::write(mount.join(&name), b"new").expect("written");
            until(&format!("{what}: {name} is flushed"), || origin.join(&name).exists());
            let took = begun.elapsed();
            assert!(took > DELAY / 2, "{what}: {name} after {took:?}");
            took
        });
        assert!(!origin.join("held/held").exists(), "{what}: it is held for an hour");
        // The ttl, in both directions: a change of somebody else shows, and no question is asked at each look.
        let (there, here) = (origin.join("read/changing"), mount.join("read/changing"));
        at_best(&format!("{what}: the ttl"), || {
            self.files += 1;
            let text = format!("number {}", self.files);
            fs::write(&there, &text).expect("written at the origin");
            let begun = Instant::now();
            until(&format!("{what}: a change at the origin shows"), || {
                fs::read_to_string(&here).is_ok_and(|found| found == text)
            });
            begun.elapsed()
        });
        let looked = Instant::now();
        let known = tier.json(&["stat", "/read/changing"]);
        let age = Duration::from_millis(known["age_ms"].as_u64().expect("an age"));
        assert!(age <= IN_TIME + looked.elapsed(), "{what}: {known}");
        let calls = || junction(&tier.json(&["status"]), "/read")["origin_calls"].as_u64().expect("a number");
        let before = calls();
        let begun = Instant::now();
        (0..200).for_each(|_| assert!(fs::metadata(&here).is_ok()));
        let allowed = 20 + 20 * begun.elapsed().as_secs();
        assert!(calls() - before < allowed, "{what}: {} calls", calls() - before);
        self.check_ages(tier, &what);
    }

    /// By this process's own clock; what is told in seconds is cut to whole ones.
    fn check_ages(&self, tier: &Tier, what: &str) {
        let asked = Instant::now();
        let status = tier.json(&["status"]);
        let answered = Instant::now();
        let check = |of: &str, told: f64, since: Instant| {
            let (least, most) = ((asked - since).as_secs_f64() - 1.1, (answered - since).as_secs_f64() + 1.0);
            let is_right = (least..=most).contains(&told);
            assert!(is_right, "{what}: {of}: {told} s, not {least:.1} to {most:.1} s\n{status}");
        };
        let seconds = |value: &Value| value.as_u64().expect("a number") as f64;
        check("the held file", seconds(&junction(&status, "/held")["dirty_oldest_seconds"]), self.held);
        check("the journal", seconds(&status["journal"]["oldest_seconds"]), self.held);
        let (seen, before) = self.away;
        check("the outage", seconds(&junction(&status, "/away")["failing_ms"]) / 1000.0, seen - before);
        let conflicts = conflicts(&status);
        check("the conflict", conflicts.into_iter().max().expect("told") as f64, self.conflict);
        // It is brought up to date now and then.
        let metric = tier.metric("forebay_journal_oldest_entry_seconds");
        let most = self.held.elapsed().as_secs_f64() + 1.0;
        assert!((0.0..=most).contains(&metric), "{what}: {metric} s, not {most:.1} s");
    }

    /// Both write a file that both know. Whether the tier tells that it kept both.
    fn writes_both(&mut self, tier: &Tier) -> bool {
        self.files += 1;
        let name = format!("quick/both{}", self.files);
        let (here, there) = (self.at("mnt").join(&name), self.at("origin").join(&name));
        fs::write(&here, "first").expect("written");
        until("it is flushed", || fs::read(&there).is_ok_and(|found| found == b"first"));
        fs::write(&here, "ours, here").expect("written");
        fs::write(&there, "theirs, at the origin").expect("written");
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE / 4 {
            if !conflicts(&tier.json(&["status"])).is_empty() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }

    /// They write such a file, and the NAS is found to be away.
    fn begin_ages(&mut self, tier: &Tier) {
        // On a busy machine ours may be home before theirs is written: then there is none.
        let told = (0..TRIES).any(|_| self.writes_both(tier));
        assert!(told, "a conflict is told, of {TRIES} files");
        let oldest = conflicts(&tier.json(&["status"])).into_iter().max().expect("told");
        self.conflict = Instant::now() - Duration::from_secs(oldest);
        let mut failing = None;
        until("the NAS is found to be away", || {
            let _ = fs::metadata(self.at("mnt/away/file"));
            failing = junction(&tier.json(&["status"]), "/away")["failing_ms"].as_u64();
            failing.is_some()
        });
        self.away = (Instant::now(), Duration::from_millis(failing.expect("it fails")));
    }
}

/// The ages of the alarms that tell of one.
fn conflicts(status: &Value) -> Vec<u64> {
    let alarms = status["journal"]["alarms"].as_array().expect("alarms").iter();
    let conflicts = alarms.filter(|alarm| alarm["kind"] == "kept both");
    conflicts.map(|alarm| alarm["age_seconds"].as_u64().expect("a number")).collect()
}

#[test]
fn the_wall_clock_may_be_set_anywhere_and_the_flush_ttls_ages_and_windows_stay_right() {
    let name = "the_wall_clock_may_be_set_anywhere_and_the_flush_ttls_ages_and_windows_stay_right";
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        return testkit::lab::not_run(name, "it needs /dev/fuse, and root");
    }
    let dir = tempfile::Builder::new().prefix("forebay-clocks-").tempdir().expect("temporary directory");
    let Some(clock) = WallClock::find(name, dir.path()) else { return };
    for sub in ["origin/quick", "origin/read", "origin/held", "origin/night", "origin/away", "mnt", "cache"] {
        fs::create_dir_all(dir.path().join(sub)).expect("made");
    }
    let table = |path: &str, more: &str| {
        format!(
            "[[junction]]\npath = \"/{path}\"\norigin = \"file://{}/origin/{path}\"\nfiles = \"1s\"\ndirectories = \"1s\"\n\
             {more}\n",
            dir.path().display()
        )
    };
    let port = testkit::ports::free_port();
    fs::write(dir.path().join("origin/away/file"), b"far").expect("written");
    let nas = Nas::start(&dir.path().join("origin/away"), port);
    let away = format!(
        "[[junction]]\npath = \"/away\"\norigin = \"nfs://127.0.0.1:{port}/\"\nfiles = \"1s\"\ndirectories = \"1s\"\n"
    );
    let junctions = [
        away,
        table("quick", "write = \"back\"\nflush_delay = \"1s\""),
        table("read", ""),
        table("held", "write = \"back\"\nflush_delay = \"1h\""),
        table("night", "write = \"back\"\nflush_delay = \"0s\"\nflush_windows = [\"22:00-06:00\"]"),
    ];
    // The clock begins at noon, so that no step of less than a day but those meant to reaches the night.
    let noon = DAY / 2 - now().rem_euclid(DAY);
    clock.set(noon);
    let mount = dir.path().join("mnt");
    let mut tier = Tier::start_with_env(dir.path(), &junctions.concat(), Some(&mount), clock.environment());
    fs::write(mount.join("held/held"), b"waits").expect("written");
    let held = Instant::now();
    assert_eq!(fs::read(mount.join("away/file")).expect("read"), b"far");
    drop(nas);
    let mut bed = Bed { dir, clock, held, away: (held, Duration::ZERO), conflict: held, files: 0 };
    bed.begin_ages(&tier);
    let load = Load::on(bed.at("mnt/quick"));
    bed.check(&tier, 0);
    for step in STEPS {
        bed.clock.set(noon + step);
        bed.check(&tier, step);
        // And back, from there.
        bed.clock.set(noon);
        bed.check(&tier, -step);
    }

    // At night, ten years ago and in ten years as well, and by nothing else than that.
    for (day, step) in [(0, 11 * 3600), (-3650, 11 * 3600), (3650, -7 * 3600)] {
        let file = format!("night/of{day}");
        bed.clock.set(noon + day * DAY);
        fs::write(bed.at("mnt").join(&file), b"by night").expect("written");
        std::thread::sleep(Duration::from_secs(1));
        assert!(!bed.at("origin").join(&file).exists(), "{file}: it is noon there");
        bed.clock.set(noon + day * DAY + step);
        until(&format!("{file} is flushed by night"), || bed.at("origin").join(&file).exists());
    }
    load.end();

    for step in STEPS {
        bed.clock.set(noon);
        tier.stop();
        bed.clock.set(noon + step);
        tier.start_again();
        // These begin with the process.
        bed.begin_ages(&tier);
        bed.check(&tier, step);
    }
}
