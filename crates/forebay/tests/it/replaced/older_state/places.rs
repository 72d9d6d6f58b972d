//! Origins of each kind whose administrator takes a snapshot and restores it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::azfile;
use testkit::gcs::{self, Gcs};
use testkit::lab::{EXPORT, Lab, NotRun};

/// Where an origin is, and what its administrator does. It stays the same storage.
pub trait Rewound {
    /// A junction's `origin`.
    fn url(&self) -> String;
    /// To be restored later.
    fn snapshot(&mut self);
    /// What was there then is there again, and nothing else. Returns what was in the files just before, one after the
    /// other: that the origin had it, and has it no more, is nobody's doing but the administrator's.
    fn restore(&mut self) -> String;
    /// Whether what is set back between our bytes and our times is noticed: the interface has a condition for a change, or
    /// tells what it was made on.
    fn tells_what_was_before(&self) -> bool {
        true
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// How an administrator brings a tree back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// As rsync does with `--inplace`: files that differ are written over.
    InPlace,
    /// As rsync does: files that differ are replaced, the others and directories left alone.
    Replaced,
    /// All that is there is moved away, and a copy of all that was there comes in its place.
    MovedAway,
}

/// A directory of this machine.
pub struct Directory {
    dir: tempfile::TempDir,
    how: How,
}

impl Directory {
    pub fn new(how: How) -> Directory {
        let dir = tempfile::tempdir().expect("temporary directory");
        for sub in ["origin", "lost"] {
            fs::create_dir(dir.path().join(sub)).expect("made");
        }
        Directory { dir, how }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Out of the tree, in one step: who is writing to it goes on where it is.
    fn set_aside(&self, path: &Path) {
        let number = fs::read_dir(self.at("lost")).expect("listed").count();
        fs::rename(path, self.at("lost").join(number.to_string())).expect("renamed");
    }

    fn set_back(&self, now: &Path, then: &Path, lost: &mut String) {
        for name in names(now).into_iter().filter(|name| !then.join(name).exists()) {
            self.set_aside(&now.join(name));
        }
        for name in names(then) {
            let (now, then) = (now.join(&name), then.join(&name));
            if then.is_dir() && now.is_dir() {
                self.set_back(&now, &then, lost);
            } else if !now.exists() {
                copy(&then, &now);
            } else if !is_same(&now, &then) && self.how == How::InPlace {
                lost.push_str(&text(&fs::read(&now).expect("read")));
                fs::write(&now, fs::read(&then).expect("read")).expect("written");
                let modified = then.metadata().and_then(|it| it.modified()).expect("told");
                let file = fs::File::options().write(true).open(&now).expect("opened");
                file.set_modified(modified).expect("set");
            } else if !is_same(&now, &then) {
                self.set_aside(&now);
                copy(&then, &now);
            }
        }
    }
}

fn names(dir: &Path) -> Vec<std::ffi::OsString> {
    fs::read_dir(dir).expect("listed").map(|entry| entry.expect("listed").file_name()).collect()
}

fn is_same(one: &Path, other: &Path) -> bool {
    let modified = |path: &Path| path.metadata().and_then(|it| it.modified()).ok();
    modified(one) == modified(other) && fs::read(one).ok() == fs::read(other).ok()
}

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-aT").arg(from).arg(to).status().expect("cp");
    assert!(done.success(), "{} is not copied", from.display());
}

/// What is in all files below.
fn contents(dir: &Path) -> String {
    let of = |name| {
        let path = dir.join(name);
        if path.is_dir() { contents(&path) } else { text(&fs::read(path).expect("read")) }
    };
    names(dir).into_iter().map(of).collect()
}

impl Rewound for Directory {
    fn url(&self) -> String {
        format!("file://{}", self.at("origin").display())
    }

    fn snapshot(&mut self) {
        copy(&self.at("origin"), &self.at("kept"));
    }

    fn restore(&mut self) -> String {
        let mut lost = String::new();
        if self.how == How::MovedAway {
            names(&self.at("origin")).iter().for_each(|name| self.set_aside(&self.at("origin").join(name)));
        }
        self.set_back(&self.at("origin"), &self.at("kept"), &mut lost);
        lost + &contents(&self.at("lost"))
    }
}

/// A directory that knfsd exports: files that differ are replaced, the others and directories left alone.
pub struct Exported<'a> {
    lab: &'a Lab,
    name: &'static str,
}

/// In one process: a guest starts processes slowly. What is replaced or removed is told, and then gone, so that handles of
/// it are good no more.
const SET_BACK: &str = r#"
use strict;
my ($name, $count) = ($ARGV[0], 0);
sub names { opendir(my $dir, $_[0]) or die "$_[0]: $!"; grep { !/^\.\.?$/ } readdir($dir) }
sub bytes { open(my $file, "<", $_[0]) or die "$_[0]: $!"; local $/; <$file> // "" }
sub aside { rename($_[0], "$name-lost/" . $count++) or die "$_[0]: $!" }
sub copy { system("cp", "-aT", @_) == 0 or die "cp @_" }
sub back {
    my ($now, $then) = @_;
    -e "$then/$_" or aside("$now/$_") for names($now);
    for (names($then)) {
        my ($now, $then) = ("$now/$_", "$then/$_");
        if (-d $now && -d $then) { back($now, $then); next }
        next if -e $now && (stat($now))[9] == (stat($then))[9] && bytes($now) eq bytes($then);
        aside($now) if -e $now;
        copy($then, $now);
    }
}
back($name, "$name-kept");
"#;

impl Exported<'_> {
    pub fn new<'a>(lab: &'a Lab, name: &'static str) -> Exported<'a> {
        lab.nas.must(&format!("mkdir {EXPORT}/{name}"));
        Exported { lab, name }
    }
}

impl Rewound for Exported<'_> {
    fn url(&self) -> String {
        format!("nfs://{}{EXPORT}/{}?mountport=20048", self.lab.nas.address(), self.name)
    }

    fn snapshot(&mut self) {
        self.lab.nas.must(&format!("cd {EXPORT}; cp -aT {name} {name}-kept", name = self.name));
    }

    /// Meanwhile nobody can reach it.
    fn restore(&mut self) -> String {
        self.lab.cut_nas();
        let script = format!(
            "set -e; cd {EXPORT}; mkdir {name}-lost; perl - {name} <<'END'\n{SET_BACK}END\n\
             find {name}-lost -type f -exec cat {{}} +; rm -r {name}-lost",
            name = self.name
        );
        let lost = self.lab.nas.must(&script).stdout;
        self.lab.restore_nas();
        lost
    }
}

/// A stand-in of Google's store.
pub struct GoogleBucket(Gcs, Option<gcs::GcsSnapshot>);

impl GoogleBucket {
    pub fn new() -> Result<GoogleBucket, NotRun> {
        let store = Gcs::start()?;
        store.make_bucket("bucket");
        Ok(GoogleBucket(store, None))
    }
}

impl Rewound for GoogleBucket {
    fn url(&self) -> String {
        format!("gs://bucket?endpoint={}&anonymous=yes", self.0.endpoint())
    }

    fn snapshot(&mut self) {
        self.1 = Some(self.0.snapshot("bucket"));
    }

    fn restore(&mut self) -> String {
        let lost = self.0.restore("bucket", self.1.as_ref().expect("a snapshot"));
        lost.iter().map(|bytes| text(bytes)).collect()
    }
}

/// A stand-in of Azure Files.
pub struct Share {
    store: azfile::StandIn,
    keys: tempfile::TempDir,
    kept: Option<azfile::AzFileSnapshot>,
}

impl Share {
    pub async fn new() -> Share {
        let keys = tempfile::tempdir().expect("temporary directory");
        Share { store: azfile::StandIn::start(&["share"]).await, keys, kept: None }
    }
}

impl Rewound for Share {
    fn url(&self) -> String {
        let credentials = azfile::credentials(self.keys.path());
        self.store.url("share", &format!("&credentials={}", credentials.display()))
    }

    fn snapshot(&mut self) {
        self.kept = Some(self.store.snapshot("share"));
    }

    fn restore(&mut self) -> String {
        let lost = self.store.restore("share", self.kept.as_ref().expect("a snapshot"));
        lost.iter().map(|bytes| text(bytes)).collect()
    }

    fn tells_what_was_before(&self) -> bool {
        false
    }
}
