//! S3 through real clients: what they upload, list, read in parts, copy and delete, and the same bytes on a mount.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use testkit::lab::not_run;
use testkit::ports::free_port;

use crate::http;
use crate::tier::Tier;

const ID: &str = "AKFOREBAYTESTCLIENTS";
const SECRET: &str = "real+clients/sign/with+this/secret000001";
const REGION: &str = "eu-test-1";
const BOTO3: &str = include_str!("s3/clients.py");
/// Sent in parts by every client.
const BIG: usize = 100 << 20;

/// A tier that serves a directory by S3, and a mount of it where that can be had.
struct Bed {
    /// Ends, and its mount with it, before its origin is removed.
    tier: Tier,
    dir: TempDir,
    s3_port: u16,
    is_mounted: bool,
    policy: String,
}

impl Bed {
    fn new(policy: &str, certificate: Option<(&Path, &Path)>) -> Bed {
        let dir = tempfile::Builder::new().prefix("forebay-s3-").tempdir().expect("temporary directory");
        for sub in ["origin", "origin/data", "mnt", "work"] {
            fs::create_dir(dir.path().join(sub)).expect("made");
        }
        fs::write(dir.path().join("origin/data/old.txt"), b"was there before\n").expect("written");
        fs::write(dir.path().join("work/big.bin"), big()).expect("written");
        fs::write(dir.path().join("work/small.txt"), b"small\n").expect("written");
        let s3_port = free_port();
        let tls = certificate.map_or(String::new(), |(chain, key)| {
            format!("certificate = \"{}\"\nprivate_key = \"{}\"\n", chain.display(), key.display())
        });
        let config = format!(
            "[[junction]]\npath = \"/\"\norigin = \"file://{}\"\nwrite = \"{policy}\"\n\
             [s3]\nlisten = \"127.0.0.1:{s3_port}\"\nregion = \"{REGION}\"\n{tls}\
             [[s3.key]]\nid = \"{ID}\"\nsecret = \"{SECRET}\"\nread = [\"*\"]\nwrite = [\"*\"]\n",
            dir.path().join("origin").display()
        );
        let is_mounted = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
        let mount = dir.path().join("mnt");
        let tier = Tier::start_mounted(dir.path(), &config, is_mounted.then_some(mount.as_path()));
        Bed { dir, tier, s3_port, is_mounted, policy: policy.to_owned() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.s3_port)
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.at("work")).env("HOME", self.at("work"));
        command.env("AWS_ACCESS_KEY_ID", ID).env("AWS_SECRET_ACCESS_KEY", SECRET);
        command.env("AWS_DEFAULT_REGION", REGION).env("AWS_EC2_METADATA_DISABLED", "true");
        command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1").env_remove("AWS_CA_BUNDLE");
        command
    }

    fn run(&self, program: &Path, arguments: &[&str]) -> Output {
        let output = self.command(program).args(arguments).output().expect("it is installed");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {arguments:?}: {told}\n{}", program.display(), text(&output));
        output
    }

    /// What a key has for others: on the mount, and at the origin once it is there.
    fn others_see(&self, key: &str, bytes: &[u8]) {
        if self.is_mounted {
            let seen = fs::read(self.at("mnt/data").join(key)).expect("there");
            assert!(seen == bytes, "{key} has other bytes on the mount");
        }
        self.bring_home();
        assert!(fs::read(self.at("origin/data").join(key)).expect("there") == bytes, "{key} at the origin");
    }

    fn origin_has(&self, key: &str) -> bool {
        self.bring_home();
        self.at("origin/data").join(key).exists()
    }

    fn bring_home(&self) {
        if self.policy == "back" {
            let flushed = self.tier.ask(&["flush", "--wait"]);
            assert!(flushed.status.success(), "{}", String::from_utf8_lossy(&flushed.stderr));
        }
    }

    /// By a client that has no key.
    fn fetch(&self, url: &str) -> Vec<u8> {
        http::get(url).expect("answered").into()
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn big() -> Vec<u8> {
    (0..BIG as u64).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect()
}

/// A program that is installed; whoever asks reports what is not.
fn installed(test: &str, program: &str, package: &str) -> Option<PathBuf> {
    // Debian's own: what setup.sh installs.
    let places = ["/usr/bin", "/usr/local/bin"].map(|dir| Path::new(dir).join(program));
    let found = places.into_iter().find(|path| path.exists());
    if found.is_none() {
        not_run(test, &format!("Debian's {package} is not installed"));
    }
    found
}

/// A Python with boto3: that of setup.sh, or any.
fn python_with_boto3() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let own = cache.map(|cache| cache.join("forebay/boto3/bin/python"));
    let has = |python: &PathBuf| {
        Command::new(python).args(["-c", "import boto3"]).output().is_ok_and(|output| output.status.success())
    };
    own.into_iter().chain([PathBuf::from("python3")]).find(has)
}

fn both(test: impl Fn(&Bed)) {
    for policy in ["through", "back"] {
        test(&Bed::new(policy, None));
    }
}

#[test]
fn aws_cli_works_with_what_is_served() {
    let name = "aws_cli_works_with_what_is_served";
    let Some(aws) = installed(name, "aws", "awscli") else { return };
    both(|bed| {
        let endpoint = bed.endpoint();
        let run = |arguments: &[&str]| {
            let all: Vec<_> = ["--endpoint-url", &endpoint].iter().chain(arguments).copied().collect();
            text(&bed.run(&aws, &all))
        };
        assert!(run(&["s3", "ls"]).contains("data"));
        run(&["s3", "cp", "big.bin", "s3://data/dir/big.bin"]);
        bed.others_see("dir/big.bin", &big());
        run(&["s3", "cp", "small.txt", "s3://data/dir/small é.txt"]);
        let listed = run(&["s3", "ls", "--recursive", "s3://data"]);
        assert!(listed.contains("dir/big.bin") && listed.contains("old.txt"), "{listed}");
        run(&["s3", "cp", "s3://data/dir/big.bin", "back.bin"]);
        assert!(fs::read(bed.at("work/back.bin")).expect("there") == big());
        let range = ["--bucket", "data", "--key", "dir/big.bin", "--range", "bytes=1000-1999", "part.bin"];
        run(&[&["s3api", "get-object"], &range[..]].concat());
        assert!(fs::read(bed.at("work/part.bin")).expect("there") == big()[1000..2000]);
        run(&["s3", "cp", "s3://data/dir/big.bin", "s3://data/copy.bin"]);
        bed.others_see("copy.bin", &big());
        let url = run(&["s3", "presign", "s3://data/old.txt"]);
        assert_eq!(bed.fetch(url.trim()), b"was there before\n");
        run(&["s3", "sync", ".", "s3://data/synced", "--exclude", "*.bin"]);
        bed.others_see("synced/small.txt", b"small\n");
        run(&["s3", "rm", "--recursive", "s3://data/dir"]);
        assert!(!bed.origin_has("dir"), "empty directories go");
    });
}

#[test]
fn a_secret_that_everybody_may_read_is_named_at_the_start() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().expect("temporary directory");
    fs::create_dir(dir.path().join("origin")).expect("made");
    let config = |extra: &str| {
        format!(
            "[[junction]]\npath = \"/\"\norigin = \"file://{}\"\n[s3]\nlisten = \"127.0.0.1:0\"\n{extra}",
            dir.path().join("origin").display()
        )
    };
    let lines = |config: &str, mode: u32| {
        let place = tempfile::tempdir_in(dir.path()).expect("temporary directory");
        let secret = place.path().join("secret");
        fs::write(&secret, SECRET).expect("written");
        fs::set_permissions(&secret, fs::Permissions::from_mode(mode)).expect("set");
        let tier = Tier::start(place.path(), &config.replace("SECRET-FILE", &secret.display().to_string()));
        let log = tier.log_tail();
        assert!(!log.contains(SECRET), "{log}");
        log.lines()
            .filter(|line| line.contains("may be read by others"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let by_file = config(&format!("[[s3.key]]\nid = \"{ID}\"\nsecret_file = \"SECRET-FILE\"\n"));
    let told = lines(&by_file, 0o644);
    assert!(told.len() == 1 && told[0].contains("/secret") && told[0].contains("chmod 600"), "{told:?}");
    assert!(lines(&by_file, 0o600).is_empty());
    let inline = config(&format!("[[s3.key]]\nid = \"{ID}\"\nsecret = \"{SECRET}\"\n"));
    let told = lines(&inline, 0o600);
    assert!(told.len() == 1 && told[0].contains(".toml"), "the configuration itself: {told:?}");
}

#[test]
fn s3cmd_works_with_what_is_served() {
    let name = "s3cmd_works_with_what_is_served";
    let Some(s3cmd) = installed(name, "s3cmd", "s3cmd") else { return };
    both(|bed| {
        let host = format!("127.0.0.1:{}", bed.s3_port);
        let config = format!(
            "[default]\naccess_key = {ID}\nsecret_key = {SECRET}\nhost_base = {host}\nhost_bucket = {host}\n\
             use_https = False\nbucket_location = {REGION}\n"
        );
        fs::write(bed.at("work/s3cfg"), config).expect("written");
        let run = |arguments: &[&str]| {
            let all: Vec<_> = ["-c", "s3cfg", "--no-progress"].iter().chain(arguments).copied().collect();
            text(&bed.run(&s3cmd, &all))
        };
        assert!(run(&["ls"]).contains("s3://data"));
        run(&["put", "big.bin", "s3://data/dir/big.bin"]);
        bed.others_see("dir/big.bin", &big());
        run(&["put", "small.txt", "s3://data/dir/small.txt"]);
        assert!(run(&["ls", "-r", "s3://data"]).contains("s3://data/dir/small.txt"));
        run(&["get", "s3://data/dir/big.bin", "back.bin"]);
        assert!(fs::read(bed.at("work/back.bin")).expect("there") == big());
        run(&["cp", "s3://data/dir/small.txt", "s3://data/copy.txt"]);
        bed.others_see("copy.txt", b"small\n");
        assert!(run(&["info", "s3://data/copy.txt"]).contains("MD5"));
        run(&["del", "s3://data/copy.txt"]);
        assert!(!bed.origin_has("copy.txt"));
        run(&["del", "--recursive", "--force", "s3://data/dir"]);
        assert!(!bed.origin_has("dir"));
    });
}

#[test]
fn rclone_works_with_what_is_served() {
    let name = "rclone_works_with_what_is_served";
    let Some(rclone) = installed(name, "rclone", "rclone") else { return };
    both(|bed| {
        let remote = format!(
            ":s3,provider=Other,env_auth=true,region={REGION},force_path_style=true,endpoint='{}':data",
            bed.endpoint()
        );
        let at = |path: &str| format!("{remote}/{path}");
        let run = |arguments: &[&str]| {
            let all: Vec<_> = ["--config", "/dev/null"].iter().chain(arguments).copied().collect();
            text(&bed.run(&rclone, &all))
        };
        run(&["copy", ".", &at("all"), "--include", "*.{bin,txt}", "--s3-upload-cutoff", "20M"]);
        bed.others_see("all/big.bin", &big());
        bed.others_see("all/small.txt", b"small\n");
        run(&["check", ".", &at("all"), "--one-way", "--include", "*.{bin,txt}", "--download"]);
        assert!(run(&["lsf", "-R", &remote]).contains("all/big.bin"));
        run(&["copyto", &at("all/small.txt"), &at("copied.txt")]);
        bed.others_see("copied.txt", b"small\n");
        assert_eq!(run(&["cat", "--offset", "2", "--count", "3", &at("copied.txt")]), "all");
        run(&["moveto", &at("copied.txt"), &at("moved.txt")]);
        assert!(!bed.origin_has("copied.txt") && bed.origin_has("moved.txt"));
        run(&["purge", &at("all")]);
        assert!(!bed.origin_has("all"));
    });
}

#[test]
fn boto3_works_with_what_is_served() {
    let name = "boto3_works_with_what_is_served";
    let Some(python) = python_with_boto3() else {
        return not_run(name, "no Python here has boto3 (scripts/setup.sh test makes one)");
    };
    both(|bed| {
        let script = bed.at("work/clients.py");
        fs::write(&script, BOTO3).expect("written");
        let script = script.display().to_string();
        let told = text(&bed.run(&python, &[&script, &bed.endpoint(), "big.bin"]));
        assert!(told.contains("all is well"), "{told}");
        bed.others_see("boto3/big.bin", &big());
        bed.others_see("boto3/small", b"small");
    });
}

#[test]
fn s3_is_served_over_tls_and_the_status_tells_of_it() {
    let name = "s3_is_served_over_tls_and_the_status_tells_of_it";
    let Some(openssl) = installed(name, "openssl", "openssl") else { return };
    let Some(curl) = installed(name, "curl", "curl") else { return };
    let files = tempfile::tempdir().expect("temporary directory");
    let (chain, key) = (files.path().join("chain.pem"), files.path().join("key.pem"));
    let made = Command::new(openssl)
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&chain)
        .output()
        .expect("runs");
    assert!(made.status.success(), "{made:?}");
    let bed = Bed::new("through", Some((&chain, &key)));
    let url = format!("https://127.0.0.1:{}/data/old.txt", bed.s3_port);
    let user = format!("{ID}:{SECRET}");
    let signing = format!("aws:amz:{REGION}:s3");
    let read = Command::new(curl)
        .args(["-sS", "--noproxy", "*", "--aws-sigv4", &signing, "--user", &user, "--cacert"])
        .arg(&chain)
        .args([
            "-H",
            "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            &url,
        ])
        .output()
        .expect("runs");
    assert_eq!(String::from_utf8_lossy(&read.stdout), "was there before\n", "{read:?}");
    let status = bed.tier.json(&["status"]);
    assert_eq!((status["s3"]["tls"].as_bool(), status["s3"]["address"].is_string()), (Some(true), true));
    assert!(bed.tier.metric("forebay_s3_read_bytes_total") >= 17.0);
    assert!(!bed.tier.log_tail().contains(SECRET));
}
