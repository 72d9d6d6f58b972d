//! What a run of crashes needs: an origin's directory, a cache, a mount, a tier that is killed and started again.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use origin::{Change, Origin};
use origin_nfs::NfsOrigin;
use rustix::mount::{MountFlags, UnmountFlags};
use types::Name;

use crate::crash::chance::Chance;
use crate::crash::look::{self, Sight};
use crate::crash::model::{SHARED, split};
use crate::crash::nfs;
use crate::crash::power::Disk;
use crate::crash::{Plan, Policy};
use crate::tier::{Ports, Tier, forebay};

/// A tier that cannot be looked at for this long does not answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// A tier whose connections broke is dead after this at the latest, on a busy machine too.
const DYING: Duration = Duration::from_secs(20);
/// A killed process ends within this, unless its mount holds it.
const STUCK: Duration = Duration::from_millis(500);

pub struct Bed {
    tier: Option<Tier>,
    pub ports: Ports,
    disk: Option<Disk>,
    pub has_mount: bool,
    /// The origin is another one at times: until it is noticed that it is not any more, clients are told to come later.
    pub swaps: bool,
    /// Deaths at a crash point before the tier served.
    pub early_deaths: u32,
    /// Names that a mount had given to removed files that were open when it was killed.
    pub hidden: u32,
    /// Killed tiers that did not end before their mount was aborted.
    pub stuck: u32,
    dir: tempfile::TempDir,
}

impl Bed {
    /// The reason where this machine has not what it takes.
    pub fn new(plan: &Plan, clients: usize, chance: &mut Chance) -> Result<Bed, String> {
        let dir = tempfile::Builder::new().prefix("forebay-crash-").tempdir().expect("temporary directory");
        for sub in ["origin", "cache", "mnt", "control"] {
            std::fs::create_dir(dir.path().join(sub)).expect("made");
        }
        let own = (0..clients).map(|client| format!("c{client}"));
        for sub in own.chain([SHARED.to_owned()]) {
            std::fs::create_dir(dir.path().join("origin").join(sub)).expect("made");
        }
        let disk = match plan.power_cut {
            true => {
                let commit = *chance.of(&[1, 300]);
                Some(Disk::new(dir.path().join("disk.img"), dir.path().join("cache"), commit)?)
            }
            false => None,
        };
        let has_mount = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
        let ports = Ports::free();
        let mut bed = Bed {
            tier: None,
            ports,
            disk,
            has_mount,
            swaps: plan.swaps,
            early_deaths: 0,
            hidden: 0,
            stuck: 0,
            dir,
        };
        bed.configure(plan, chance);
        Ok(bed)
    }

    fn configure(&mut self, plan: &Plan, chance: &mut Chance) {
        let (nfs, admin) = (self.ports.nfs, self.ports.admin);
        let rule = chance.of(&["always", "1s", "30s"]);
        let mut text = format!(
            "[cache]\ndir = \"{}\"\nsize = \"64MiB\"\nfree_floor = \"0\"\nreadahead = \"1MiB\"\n\
             [nfs]\nlisten = \"127.0.0.1:{nfs}\"\n[[nfs.export]]\nclients = [\"*\"]\nsquash = \"none\"\n\
             [admin]\nlisten = \"{admin}\"\n",
            self.at("cache").display()
        );
        let origin = self.at("origin").display().to_string();
        let mut junction = format!(
            "[[junction]]\npath = \"/\"\norigin = \"file://{origin}\"\nfiles = \"{rule}\"\ndirectories = \"{rule}\"\n\
             write = \"{}\"\n",
            plan.policy.name()
        );
        if plan.policy == Policy::Back {
            text.push_str("[journal]\nsize = \"256MiB\"\n");
            junction.push_str(&format!("flush_delay = \"{}\"\n", chance.of(&["0s", "1s", "1h"])));
            junction.push_str(&format!("durability = \"{}\"\n", plan.durability));
        }
        std::fs::write(self.at("forebay.toml"), text + &junction).expect("written");
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn tier(&mut self) -> &mut Tier {
        self.tier.as_mut().expect("started")
    }

    /// Start the tier, or start it again: at this crash point it dies, but only once.
    pub fn start(&mut self, crash_at: Option<&str>) {
        let mount = self.has_mount.then(|| self.at("mnt"));
        let (config, log) = (self.at("forebay.toml"), self.at("forebay.log"));
        let serves = match &mut self.tier {
            Some(tier) => tier.start_again_to_die(crash_at),
            none => {
                let (tier, serves) = Tier::start_to_die(config, &self.ports, mount.as_deref(), log, crash_at);
                *none = Some(tier);
                serves
            }
        };
        if !serves {
            assert!(crash_at.is_some(), "forebay does not start");
            self.early_deaths += 1;
            self.kill();
            self.start(None);
        }
    }

    /// By SIGKILL, if it is not dead already; then the disk has what was synced.
    pub fn kill(&mut self) {
        self.bury();
        if let Some(disk) = &self.disk {
            disk.cut();
        }
    }

    /// Dead, and all that it held is free. A thread of it that tells the kernel of a change may wait for a lock of a
    /// program that waits for an answer of the tier: neither ends before the mount is aborted. The next start would do
    /// that; but what is started here closes the files of the mount that this process has open, and waits for that.
    fn bury(&mut self) {
        let (mount, control) = (self.at("mnt"), self.at("control"));
        let Some(tier) = &mut self.tier else { return };
        tier.kill();
        let start = Instant::now();
        while tier.ended().is_none() {
            std::thread::sleep(Duration::from_millis(1));
            if start.elapsed() > STUCK {
                self.stuck += 1;
                abort(&mount, &control);
                return tier.kill_nine();
            }
        }
    }

    /// Whether it is dead soon: its connections go before the process does.
    fn dies(&mut self) -> bool {
        let start = Instant::now();
        while !self.tier().is_dead() {
            if start.elapsed() > DYING {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Start it again if it died at a crash point.
    fn revive(&mut self) -> bool {
        let dead = self.tier().is_dead();
        if dead {
            self.kill();
            self.start(None);
        }
        dead
    }

    /// Wait until `done`, with a tier that serves.
    pub async fn tend(&mut self, what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            self.revive();
            assert!(start.elapsed() < PATIENCE, "{what}: it takes too long");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// What is there, through NFS and through the mount.
    pub async fn look(&mut self) -> (Sight, Option<Sight>) {
        let start = Instant::now();
        loop {
            let looking = tokio::spawn(look_once(self.ports.nfs, self.has_mount.then(|| self.at("mnt"))));
            let abort = looking.abort_handle();
            let mut died = false;
            while !looking.is_finished() && !died {
                assert!(start.elapsed() < PATIENCE, "nothing can be seen");
                died = self.revive();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if died {
                abort.abort();
                continue;
            }
            match looking.await.expect("no panic") {
                Ok((sight, mounted, 0)) => return (sight, mounted),
                Ok((_, _, hidden)) => self.hidden += hidden,
                Err(e) => {
                    let is_later = self.swaps && e.contains("NFS3ERR_JUKEBOX");
                    assert!(is_later || self.dies(), "look at the tree: {e}");
                    self.revive();
                    tokio::time::sleep(STUCK).await;
                }
            }
        }
    }

    /// Operations that the origin does not have yet; `None` if the tier is dead, or dies while it is asked.
    pub fn dirty(&mut self) -> Option<u64> {
        let answer = self.tier().try_get("/v1/status");
        let body = answer.as_ref().ok().and_then(|answer| answer.split_once("\r\n\r\n"));
        let Some((_, body)) = body else {
            assert!(self.dies(), "its status: {answer:?}");
            return None;
        };
        let status: serde_json::Value = serde_json::from_str(body).expect("JSON");
        Some(status["journal"]["operations"].as_u64().expect("written back"))
    }

    /// All goes home, without a conflict and without a refusal; or what is told.
    pub async fn flush(&mut self) -> Result<(), String> {
        let admin = self.ports.admin.to_string();
        let mut command = forebay();
        command.args(["flush", "--wait", "--admin", &admin]).stdout(Stdio::null());
        let mut flushing = command.spawn().expect("forebay runs");
        self.tend("forebay flush --wait", || flushing.try_wait().expect("our child").is_some()).await;
        let status = self.tier().json(&["status"])["journal"].clone();
        let flushed = flushing.wait().expect("our child");
        let told = format!("forebay flush: {flushed}, {status:#}");
        let none = |name: &str| status[name].as_u64() == Some(0);
        let is_home = flushed.success() && ["operations", "conflicts", "refused"].into_iter().all(none);
        if is_home { Ok(()) } else { Err(told) }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.bury();
        self.tier = None;
        let _ = rustix::mount::unmount(self.at("mnt"), UnmountFlags::DETACH);
        if std::thread::panicking() && std::env::var_os("FOREBAY_CRASH_KEEP").is_some() {
            let kept =
                Command::new("cp").arg("-a").arg(self.dir.path()).arg("/tmp/forebay-crash-kept").status();
            eprintln!("kept in /tmp/forebay-crash-kept: {kept:?}");
        }
    }
}

/// And how many hidden names it found, and removed.
async fn look_once(port: u16, mount: Option<PathBuf>) -> Result<(Sight, Option<Sight>, u32), String> {
    let nfs = nfs::connect(port).await.map_err(|e| e.to_string())?;
    let sight = look::through_nfs(&nfs).await.map_err(|e| e.to_string())?;
    let hidden = remove_hidden(&nfs, &sight).await.map_err(|e| e.to_string())?;
    if hidden > 0 {
        return Ok((sight, None, hidden));
    }
    let Some(mount) = mount else { return Ok((sight, None, 0)) };
    let mounted = tokio::task::spawn_blocking(move || look::in_directory(&mount)).await;
    let mounted = mounted.expect("no panic").map_err(|e| format!("through the mount: {e}"))?;
    Ok((sight, Some(mounted), 0))
}

async fn remove_hidden(nfs: &Arc<NfsOrigin>, sight: &Sight) -> types::Result<u32> {
    let mut removed = 0;
    for path in sight.keys().filter(|path| path.contains("/.forebay-")) {
        let (dir, name) = split(path);
        let dir = look::walk(nfs, dir).await?.reference;
        nfs.change(&Change::Remove { dir, name: Name::new(name.to_owned())? }).await?;
        removed += 1;
    }
    Ok(removed)
}

/// Everybody who waits for an answer through this mount gets an error. Without a command, which would wait for that.
fn abort(mount: &Path, control: &Path) {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("Linux has it");
    let line = table.lines().find(|line| line.split(' ').nth(4) == mount.to_str());
    let Some(minor) = line.and_then(|line| line.split(' ').nth(2)?.split(':').nth(1)) else { return };
    rustix::mount::mount("none", control, "fusectl", MountFlags::empty(), None).expect("the kernel has it");
    match std::fs::write(control.join(minor).join("abort"), "1") {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {} // the mount has just gone by itself
        told => told.expect("aborted"),
    }
    let _ = rustix::mount::unmount(control, UnmountFlags::DETACH);
}
