//! Files of the cache directory that are not what the tier wrote, each kind of them: at rest and while it runs. Clients get right
//! bytes or an error, what was acknowledged is there or it is told that something is lost, and nothing panics.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use origin::{Change, Object, Origin};
use testkit::ports::free_port;
use types::ErrorKind;

use crate::replaced::{Client, named};
use crate::tier::Tier;

const CLEAN: usize = 6;
const DIRTY: usize = 6;
const OBJECT: &str = "stored by S3";
const ID: &str = "AKFOREBAYTESTROT";
const SECRET: &str = "real+clients/sign/with+this/secret000001";
const REGION: &str = "eu-test-1";
/// Of the flips that the databases and the journal get in their own tests, each of which costs two starts here.
const SHARE: usize = 10;

fn clean(number: usize) -> Bytes {
    Bytes::from(format!("clean {number}|").into_bytes().repeat(1_000 + 5_000 * number))
}

fn dirty(number: usize) -> Bytes {
    Bytes::from(format!("dirty {number}|").into_bytes().repeat(700 + 9_000 * number))
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 24) as usize % end.max(1)
    }
}

/// A tier whose cache directory has files of all kinds, as a stop and as a kill left it.
struct Bed {
    tier: Tier,
    dir: tempfile::TempDir,
    s3_port: u16,
    /// Handles that a client holds.
    handles: Vec<Object>,
    /// Of another tier over the same tree.
    other: PathBuf,
}

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().expect("it is installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).expect("made");
    run(Command::new("cp").arg("-a").arg(from.join(".")).arg(to));
}

impl Bed {
    async fn new() -> Bed {
        let dir = tempfile::tempdir().expect("temporary directory");
        let tree = dir.path().join("tree/bucket");
        fs::create_dir_all(&tree).expect("made");
        for number in 0..CLEAN {
            fs::write(tree.join(format!("clean{number}")), clean(number)).expect("written");
        }
        let s3_port = free_port();
        let config = |s3_port: u16| {
            format!(
                "[[junction]]\npath = \"/\"\norigin = \"file://{}\"\nwrite = \"back\"\nflush_delay = \"1h\"\n\
                 [s3]\nlisten = \"127.0.0.1:{s3_port}\"\nregion = \"{REGION}\"\n\
                 [[s3.key]]\nid = \"{ID}\"\nsecret = \"{SECRET}\"\nread = [\"*\"]\nwrite = [\"*\"]\n",
                dir.path().join("tree").display()
            )
        };
        let beside = dir.path().join("beside");
        fs::create_dir(&beside).expect("made");
        let mut other = Tier::start(&beside, &config(free_port()));
        fill(&other, 0, &["/bucket/clean0"]).await;
        assert_eq!(other.stop(), Some(0));
        let tier = Tier::start(dir.path(), &config(s3_port));
        let paths: Vec<String> = (0..CLEAN).map(|number| format!("/bucket/clean{number}")).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        fill(&tier, DIRTY, &paths).await;
        let mut bed = Bed { tier, s3_port, handles: Vec::new(), other: beside.join("cache"), dir };
        let body = bed.left("body");
        fs::write(&body, OBJECT).expect("written");
        let kept = ["--header", "content-type: text/x-kept"];
        bed.curl(&[&kept[..], &["-T", body.to_str().expect("UTF-8")]].concat()).expect("stored");
        assert_eq!(bed.curl(&[]).expect("read"), OBJECT.as_bytes());
        let client = Client::of(&bed.tier).await;
        for path in ["/bucket/clean1", "/bucket/dirty1"] {
            bed.handles.push(client.find(path).await.expect("there"));
        }
        bed.tier.json(&["warm", "--pin", "/bucket/clean2"]);
        bed.tier.kill_nine();
        copy(&bed.cache(), &bed.left("killed"));
        assert!(bed.tier.start_again_to_die(None), "{}", bed.tier.log_tail());
        assert_eq!(bed.tier.stop(), Some(0));
        copy(&bed.cache(), &bed.left("stopped"));
        bed
    }

    fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    fn left(&self, how: &str) -> PathBuf {
        self.dir.path().join(how)
    }

    /// What curl gets; `None`: an answer that is no success.
    fn curl(&self, arguments: &[&str]) -> Option<Vec<u8>> {
        let mut command = Command::new("curl");
        command.args(["--silent", "--fail", "--noproxy", "*", "--max-time", "30", "--aws-sigv4"]);
        command.arg(format!("aws:amz:{REGION}:s3")).arg("--user").arg(format!("{ID}:{SECRET}"));
        // Not every curl signs S3's way without it.
        command.args(["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]);
        command.args(arguments).arg(format!("http://127.0.0.1:{}/bucket/object", self.s3_port));
        let output = command.output().expect("curl is installed");
        output.status.success().then_some(output.stdout)
    }

    /// Regular files of the cache directory, as paths below it, one of each kind; those that are told apart by what is in
    /// them only (blocks) are one kind.
    fn kinds(&self, left: &str) -> Vec<PathBuf> {
        let root = self.left(left);
        let mut kinds = BTreeSet::new();
        let mut dirs = vec![root.clone()];
        let (mut data, mut map) = (None, None);
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).expect("listed") {
                let entry = entry.expect("listed");
                let (path, kind) = (entry.path(), entry.file_type().expect("known"));
                let below = path.strip_prefix(&root).expect("below").to_owned();
                match path.extension().and_then(|it| it.to_str()) {
                    _ if kind.is_dir() => dirs.push(path),
                    Some("data") if fs::metadata(&path).expect("there").len() > 0 => data = Some(below),
                    Some("map") => map = Some(below),
                    // Locks are empty; of the log nobody reads anything.
                    _ if !kind.is_file() || below.ends_with("LOCK") || below.ends_with("audit.log") => {}
                    _ => drop(kinds.insert(below)),
                }
            }
        }
        kinds.extend(data.into_iter().chain(map));
        kinds.into_iter().collect()
    }

    /// What is told of losses and damage.
    fn told(&self) -> bool {
        let status = self.tier.json(&["status"]);
        let some = |list: &serde_json::Value| list.as_array().is_some_and(|list| !list.is_empty());
        some(&status["journal"]["damaged"]) || some(&status["journal"]["alarms"])
    }

    /// As clients see it.
    async fn check(&self, what: &str) {
        let client = Client::of(&self.tier).await;
        let told = self.told();
        let mut names: Vec<String> = (0..CLEAN).map(|number| format!("clean{number}")).collect();
        names.extend((0..DIRTY).map(|number| format!("dirty{number}")));
        names.push("object".to_owned());
        names.sort();
        let seen = client.names("/bucket").await;
        assert!(seen == names || told && seen.iter().all(|name| names.contains(name)), "{what}: {seen:?}");
        for number in 0..CLEAN {
            let read = client.read(&format!("/bucket/clean{number}")).await;
            let right = read.as_ref().is_ok_and(|bytes| *bytes == clean(number));
            assert!(right, "{what}: clean{number}: {:?}", read.map(|bytes| bytes.len()));
        }
        for number in 0..DIRTY {
            self.check_dirty(&client, what, told, &format!("dirty{number}"), &dirty(number)).await;
        }
        self.check_dirty(&client, what, told, "object", &Bytes::from_static(OBJECT.as_bytes())).await;
        if let Some(body) = self.curl(&[]) {
            assert!(body == OBJECT.as_bytes() || told, "{what}: by S3 {body:?}");
        }
        self.check_handles(&client, what, told).await;
    }

    async fn check_dirty(&self, client: &Client, what: &str, told: bool, name: &str, bytes: &Bytes) {
        match client.read(&format!("/bucket/{name}")).await {
            Ok(read) if told => {
                // A write that is lost, and told, leaves a hole.
                let right = read.iter().zip(bytes).all(|(read, written)| read == written || *read == 0);
                assert!(right && read.len() <= bytes.len(), "{what}: {name} has other bytes");
            }
            Ok(read) => assert!(read == *bytes, "{what}: {name} has {} bytes", read.len()),
            // Bytes that rotted are never shown.
            Err(e) if matches!(e.kind(), ErrorKind::Io | ErrorKind::Corrupt) => {}
            Err(e) => assert!(told, "{what}: {name}: {e}"),
        }
    }

    /// Right, or refused.
    async fn check_handles(&self, client: &Client, what: &str, told: bool) {
        for held in &self.handles {
            let asked = client.0.getattr(&held.reference).await;
            match asked {
                Ok(now) => assert!(now.attr.size == held.attr.size || told, "{what}: another size"),
                Err(e) => assert!(
                    matches!(e.kind(), ErrorKind::Stale | ErrorKind::Busy | ErrorKind::InvalidArgument),
                    "{what}: {e}"
                ),
            }
        }
    }

    /// The tier is started on what is there. A start that is refused says what it is about.
    async fn start_and_check(&mut self, file: &Path, what: &str) -> bool {
        let log = self.dir.path().join("forebay.log");
        fs::write(&log, "").expect("emptied");
        let serves = self.tier.start_again_to_die(None);
        if serves {
            self.check(what).await;
            self.tier.kill_nine();
        } else {
            let told = self.tier.log_tail();
            let code = wait_for_end(&mut self.tier);
            let name = file.file_name().expect("a file").to_string_lossy().into_owned();
            let dir = file.parent().map(|dir| dir.display().to_string()).unwrap_or_default();
            assert!(code != Some(101), "{what}: {told}");
            let names_it = told.to_lowercase().contains(&name.to_lowercase());
            assert!(names_it || !dir.is_empty() && told.contains(&dir), "{what}: {told}");
        }
        let told = fs::read_to_string(&log).expect("there");
        assert!(!told.contains("panicked"), "{what}: {told}");
        serves
    }
}

fn wait_for_end(tier: &mut Tier) -> Option<i32> {
    loop {
        if let Some(status) = tier.ended() {
            return status.code();
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

async fn fill(tier: &Tier, dirty_files: usize, paths: &[&str]) {
    let client = Client::of(tier).await;
    for path in paths {
        client.read(path).await.expect("read");
    }
    let dir = client.find("/bucket").await.expect("there").reference;
    for number in 0..dirty_files {
        client.make(&format!("/bucket/first{number}"), &dirty(number)).await;
        let (from, to) = (named(&format!("first{number}")), named(&format!("dirty{number}")));
        let (from_dir, to_dir) = (dir.clone(), dir.clone());
        client.change(Change::Rename { from_dir, from, to_dir, to, identity: None }).await;
    }
    client.names("/bucket").await;
}

/// Where something was written.
fn used_place(bytes: &[u8], random: &mut Random) -> usize {
    for _ in 0..1000 {
        let at = random.below(bytes.len());
        if bytes[at] != 0 {
            return at;
        }
    }
    random.below(bytes.len())
}

fn flip(path: &Path, random: &mut Random) -> Option<usize> {
    use std::os::unix::fs::FileExt;
    // A journal's segment has much room behind what is in it.
    let bytes = fs::read(path).expect("there");
    let pages: Vec<&[u8]> = bytes.chunks(4096).collect();
    let last = pages.iter().rposition(|page| **page != [0; 4096][..page.len()])?;
    let at = used_place(&bytes[..bytes.len().min((last + 1) * 4096)], random);
    let file = fs::OpenOptions::new().write(true).open(path).expect("opened");
    file.write_all_at(&[bytes[at] ^ 1 << random.below(8)], at as u64).expect("written");
    Some(at)
}

/// FOREBAY_FLIPS=2000 tries a tenth of that; a few always.
#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_of_any_file_of_the_cache_directory_is_never_a_wrong_byte() {
    let mut bed = Bed::new().await;
    let asked = std::env::var("FOREBAY_FLIPS").ok().and_then(|count| count.parse::<usize>().ok());
    let kinds = ["killed", "stopped"].map(|left| bed.kinds(left));
    let flips = asked.map_or(kinds[0].len(), |count| count / SHARE);
    let (mut random, mut refused) = (Random(11), 0);
    for flip_number in 0..flips {
        let left = flip_number % 2;
        let file = &kinds[left][(flip_number / 2 + left) % kinds[left].len()];
        let left = ["killed", "stopped"][left];
        copy(&bed.left(left), &bed.cache());
        let Some(at) = flip(&bed.cache().join(file), &mut random) else { continue };
        let what = format!("byte {at} of {} of a tier that was {left}", file.display());
        refused += usize::from(!bed.start_and_check(file, &what).await);
    }
    println!("{flips} flips in files of {} kinds: {refused} starts refused", kinds[0].len());
}

const WAYS: [&str; 5] = ["cut", "emptied", "removed", "of another tier", "of another kind"];

/// False: there is none of another tier.
fn spoil(path: &Path, like: &Path, how: &str) -> bool {
    match how {
        "cut" => {
            let file = fs::OpenOptions::new().write(true).open(path).expect("opened");
            file.set_len(file.metadata().expect("known").len() / 2).expect("cut");
        }
        "emptied" => fs::write(path, "").expect("written"),
        "removed" => fs::remove_file(path).expect("removed"),
        "of another tier" if !like.exists() => return false,
        "of another tier" => drop(fs::copy(like, path).expect("copied")),
        _ => fs::write(path, b"another file's bytes".repeat(1000)).expect("written"),
    }
    true
}

/// All ways for all files with FOREBAY_FLIPS; a third of them always.
fn is_tried(at: usize, way: usize) -> bool {
    std::env::var_os("FOREBAY_FLIPS").is_some() || (at + way).is_multiple_of(3)
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_the_cache_directory_that_are_cut_emptied_removed_or_swapped_at_rest() {
    let mut bed = Bed::new().await;
    for (at, file) in bed.kinds("killed").into_iter().enumerate() {
        for (way, how) in WAYS.into_iter().enumerate().filter(|(way, _)| is_tried(at, *way)) {
            let left = ["killed", "stopped"][(at + way) % 2];
            copy(&bed.left(left), &bed.cache());
            if bed.cache().join(&file).exists()
                && spoil(&bed.cache().join(&file), &bed.other.join(&file), how)
            {
                let what = format!("{} {how}, of a tier that was {left}", file.display());
                bed.start_and_check(&file, &what).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_the_cache_directory_that_are_cut_emptied_removed_or_swapped_while_it_runs() {
    let mut bed = Bed::new().await;
    for (at, file) in bed.kinds("stopped").into_iter().enumerate() {
        let ways = WAYS.into_iter().chain(["flipped"]).enumerate();
        for (way, how) in ways.filter(|(way, _)| is_tried(at, *way)) {
            copy(&bed.left("stopped"), &bed.cache());
            let what = format!("{} {how} while it ran", file.display());
            fs::write(bed.dir.path().join("forebay.log"), "").expect("emptied");
            assert!(bed.tier.start_again_to_die(None), "{what}: {}", bed.tier.log_tail());
            bed.check("before").await;
            let path = bed.cache().join(&file);
            match how {
                "flipped" => drop(flip(&path, &mut Random((at * 7 + way) as u64))),
                _ if spoil(&path, &bed.other.join(&file), how) => {}
                _ => {
                    bed.tier.kill_nine();
                    continue;
                }
            }
            bed.check(&what).await;
            assert!(!bed.tier.log_tail().contains("panicked"), "{what}: {}", bed.tier.log_tail());
            bed.tier.kill_nine();
            bed.start_and_check(&file, &format!("{what}, and was started again")).await;
        }
    }
}
