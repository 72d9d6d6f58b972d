//! SIGHUP: what was typed is read again. What can change while the tier runs is changed; what cannot is named, a line each.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use axum::http::StatusCode;
use front_nfs::ExportRules;
use front_s3::AccessKeys;
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::{error, info, warn};
use types::{Error, ErrorKind, Result};
use vfs::{NewJunction, Vfs, WritePolicy};

use crate::admin::{Admin, Who};
use crate::settings::{ExportSettings, JunctionSettings, Settings};
use crate::{running, wire_up};

/// Why junctions stay as they are.
const OF_A_NODE: &str = "a node of a cluster takes in at its start which junctions it serves; restart it";

/// Reads the settings as they were read at the start.
pub type Again = Box<dyn Fn() -> Result<Settings> + Send + Sync>;

/// The parts whose settings can change.
pub struct Live {
    pub admin: Arc<Admin>,
    /// Of the NFS server, if there is one.
    pub exports: Option<ExportRules>,
    /// Of the S3 server, if there is one.
    pub keys: Option<AccessKeys>,
    /// What is in force: of what needs a restart, what it was at the start.
    pub settings: Settings,
}

/// Reloads one after the other; those that are asked for during one are one more.
pub struct Reloading {
    asked: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Reloading {
    pub fn start(mut live: Live, again: Again) -> Reloading {
        let asked = Arc::new(Notify::new());
        let wanted = asked.clone();
        let task = tokio::spawn(async move {
            loop {
                wanted.notified().await;
                live.reload(&again).await;
            }
        });
        Reloading { asked, task }
    }

    /// From what it calls any thread may ask.
    pub fn ask(&self) -> impl Fn() + use<> {
        let asked = self.asked.clone();
        move || asked.notify_one()
    }

    /// One that is under way is cut short: each of its changes is made or not.
    pub async fn stop(self) {
        self.task.abort();
        let _ = self.task.await; // it was
    }
}

/// What became of one reload.
#[derive(Default)]
struct Outcome {
    changed: Vec<String>,
    /// With the reason.
    refused: Vec<String>,
}

impl Outcome {
    fn changed(&mut self, key: impl Into<String>) {
        let key = key.into();
        info!(key, "SIGHUP: changed, and in force");
        self.changed.push(key);
    }

    fn refused(&mut self, key: impl Into<String>, why: impl std::fmt::Display) {
        let key = key.into();
        warn!(key, "SIGHUP: left as it was: {why}");
        self.refused.push(format!("{key}: {why}"));
    }
}

impl Live {
    fn vfs(&self) -> &Arc<Vfs> {
        &self.admin.vfs
    }

    /// A file with a mistake in it changes nothing. Each reload has its line in the audit log.
    pub async fn reload(&mut self, again: &Again) {
        let audit = &self.admin.guard.audit;
        let mut line = audit.begin(Who::Signal, "SIGHUP".to_owned(), &Default::default());
        let new = match again() {
            Ok(new) => new,
            Err(e) => {
                error!("SIGHUP: nothing is changed: {e}");
                let answer = json!({ "error": e.to_string() }).to_string();
                line.answered(StatusCode::BAD_REQUEST, &answer.into());
                return;
            }
        };
        let needing = needing_restart(&self.settings, &new);
        for key in &needing {
            warn!(key, "SIGHUP: changed, and needs a restart");
        }
        let mut outcome = Outcome::default();
        self.place_junctions(&new, &mut outcome).await;
        self.change_junctions(&new, &mut outcome);
        self.change_cache(&new, &mut outcome);
        self.change_exports(&new, &mut outcome);
        if let (Some(keys), Some(s3)) = (&self.keys, &new.s3)
            && keys.replace(&s3.keys)
        {
            outcome.changed("[[s3.key]]");
        }
        if new.log != self.settings.log {
            match program::log::set(new.log.as_deref()) {
                Ok(()) => {
                    self.settings.log.clone_from(&new.log);
                    outcome.changed("log");
                }
                Err(e) => outcome.refused("log", e),
            }
        }
        let Outcome { changed, refused } = outcome;
        info!(
            changed = changed.len(),
            refused = refused.len(),
            needing_restart = needing.len(),
            "SIGHUP: the configuration was read again"
        );
        let answer =
            json!({ "changed": changed, "refused": refused, "needing_restart": needing }).to_string();
        let status = if refused.is_empty() { StatusCode::OK } else { StatusCode::CONFLICT };
        line.answered(status, &answer.into());
    }

    /// Those that are not typed any more go, and those that are new come.
    async fn place_junctions(&mut self, new: &Settings, outcome: &mut Outcome) {
        let is_typed = |path: &str, all: &[JunctionSettings]| all.iter().any(|it| it.path == path);
        let known = self.settings.junctions.clone();
        for gone in known.iter().filter(|known| !is_typed(&known.path, &new.junctions)) {
            let key = format!("[[junction]] {} (removed)", gone.path);
            let removed = match self.settings.cluster {
                None => self.vfs().remove_junction(&gone.path).await,
                Some(_) => Err(Error::new(ErrorKind::NotSupported, "remove the junction", OF_A_NODE)),
            };
            match removed {
                Ok(()) => {
                    self.settings.junctions.retain(|it| it.path != gone.path);
                    outcome.changed(key);
                }
                Err(e) => outcome.refused(key, e),
            }
        }
        for added in new.junctions.iter().filter(|it| !is_typed(&it.path, &known)) {
            let key = format!("[[junction]] {} (added)", added.path);
            match self.add_junction(added, new).await {
                Ok(()) => {
                    self.settings.junctions.push(added.clone());
                    running::tell_junction(added, &self.settings.journal.dir);
                    outcome.changed(key);
                }
                Err(e) => outcome.refused(key, e),
            }
        }
    }

    async fn add_junction(&mut self, added: &JunctionSettings, new: &Settings) -> Result<()> {
        if self.settings.cluster.is_some() {
            return Err(Error::new(ErrorKind::NotSupported, "add the junction", OF_A_NODE));
        }
        let metadata: PathBuf = wire_up::metadata_of(&self.settings);
        let junction = wire_up::junction(added, &metadata, &self.admin.origin_metrics).await?;
        if added.write == WritePolicy::Back
            && let Some(journaling) = wire_up::journaling(new)?
            && self.vfs().open_journal(journaling).await?
        {
            self.settings.journal = new.journal.clone();
            let mut registry = self.admin.registry.write().unwrap_or_else(PoisonError::into_inner);
            self.admin.vfs.register_journal(&mut registry);
        }
        let (write, flush, durability) = (added.write, added.flush.clone(), added.durability);
        self.vfs().add_junction(NewJunction { junction, write, flush, durability }).await
    }

    fn change_cache(&mut self, new: &Settings, outcome: &mut Outcome) {
        let room = |settings: &Settings| {
            let cache::Config { size_max, free_floor, guests_max, .. } = settings.cache;
            (size_max, free_floor, guests_max)
        };
        if room(&self.settings) == room(new) {
            return;
        }
        let what = "[cache] size, free_floor, [cluster] guests";
        let (size_max, free_floor, guests_max) = room(new);
        match self.admin.cache.set_limits(size_max, free_floor, guests_max) {
            Ok(()) => {
                let now = &mut self.settings.cache;
                (now.size_max, now.free_floor, now.guests_max) = (size_max, free_floor, guests_max);
                outcome.changed(what);
            }
            Err(e) => outcome.refused(what, e),
        }
    }

    /// What those that stay go by.
    fn change_junctions(&mut self, new: &Settings, outcome: &mut Outcome) {
        let vfs = self.admin.vfs.clone();
        for junction in &mut self.settings.junctions {
            let Some(now) = new.junctions.iter().find(|now| now.path == junction.path) else { continue };
            let differing = differing(&junction.rules_by_name(), &now.rules_by_name());
            if !differing.is_empty() {
                let key = format!("{} of {}", differing.join(", "), now.path);
                match vfs.set_rules(&now.path, now.rules()) {
                    Ok(()) => {
                        junction.take_rules(now);
                        outcome.changed(key);
                    }
                    Err(e) => outcome.refused(key, e),
                }
            }
            if format!("{:?}", now.flush) != format!("{:?}", junction.flush)
                && vfs.set_flush_policy(&junction.path, &now.flush)
            {
                junction.flush = now.flush.clone();
                outcome.changed(format!("flush_delay, flush_rate, flush_windows, conflicts of {}", now.path));
            }
            if now.durability != junction.durability && vfs.set_durability(&junction.path, now.durability) {
                junction.durability = now.durability;
                outcome.changed(format!("durability of {}", now.path));
            }
        }
    }

    /// A junction that had to stay keeps its rules, and rules of one that could not be added are for when it is.
    fn change_exports(&mut self, new: &Settings, outcome: &mut Outcome) {
        let Some(exports) = &self.exports else { return };
        let is_there = |path: &str| self.settings.junctions.iter().any(|it| it.path == path);
        let stays = |path: &str| is_there(path) && !new.junctions.iter().any(|it| it.path == path);
        let of_one = |rule: &&ExportSettings, wanted: &dyn Fn(&str) -> bool| {
            rule.junction.as_ref().is_some_and(|path| wanted(path))
        };
        let kept = self.settings.exports.iter().filter(|rule| of_one(rule, &stays));
        let typed = new.exports.iter().filter(|rule| rule.junction.is_none() || of_one(rule, &is_there));
        let all: Vec<ExportSettings> = typed.chain(kept).cloned().collect();
        match wire_up::export_rules(&all, self.vfs()) {
            // Also where what is typed is the same: a junction that came again has its id by its origin.
            Ok(rules) => {
                let is_new = format!("{all:?}") != format!("{:?}", self.settings.exports);
                exports.replace(rules);
                self.settings.exports = all;
                if is_new {
                    running::tell_exports(&self.settings.exports);
                    outcome.changed("[[nfs.export]]");
                }
            }
            Err(e) => outcome.refused("[[nfs.export]]", e),
        }
    }
}

fn differing(old: &[(&'static str, String)], new: &[(&'static str, String)]) -> Vec<&'static str> {
    old.iter().zip(new).filter(|(was, is)| was != is).map(|((key, _), _)| *key).collect()
}

/// What differs and cannot change while the tier runs.
fn needing_restart(old: &Settings, new: &Settings) -> Vec<String> {
    let mut keys = Vec::new();
    let mut compare = |key: &str, is_same: bool| {
        if !is_same {
            keys.push(key.to_owned());
        }
    };
    let same =
        |one: &dyn std::fmt::Debug, other: &dyn std::fmt::Debug| format!("{one:?}") == format!("{other:?}");
    let of_cache =
        |settings: &Settings| cache::Config { size_max: 0, free_floor: 0, ..settings.cache.clone() };
    compare("[cache]", old.dir == new.dir && same(&of_cache(old), &of_cache(new)));
    compare("[journal]", same(&old.journal, &new.journal));
    compare("[nfs] listen", old.nfs == new.nfs);
    compare("[nfs] rpcbind", old.rpcbind == new.rpcbind);
    compare("[admin]", old.admin == new.admin);
    compare("--mount", old.mount == new.mount);
    let mount = |it: &Settings| (it.mount_patience, it.mount_low_latency);
    compare("[mount]", mount(old) == mount(new));
    compare("[cluster]", same(&old.cluster, &new.cluster));
    let of_s3 = |settings: &Settings| {
        let s3 = settings.s3.as_ref()?;
        Some(format!("{:?}", (s3.listen, &s3.region, &s3.domain, &s3.buckets, &s3.certificate)))
    };
    compare("[s3] listen, region, domain, certificate, [[s3.bucket]]", of_s3(old) == of_s3(new));
    for junction in &new.junctions {
        let Some(known) = old.junctions.iter().find(|known| known.path == junction.path) else { continue };
        let of = |it: &JunctionSettings| {
            [
                ("origin", format!("{:?}", it.origin)),
                ("write", it.write.to_string()),
                ("copies", format!("{:?}", it.copies)),
                ("topology", format!("{:?}", it.topology)),
            ]
        };
        let differing = differing(&of(known), &of(junction)).into_iter();
        keys.extend(differing.map(|key| format!("{key} of {}", junction.path)));
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Overrides;

    fn settings(text: &str) -> Settings {
        let file = toml::from_str(text).expect("TOML of the right shape");
        Settings::build(file, &Overrides::default()).expect("right")
    }

    #[test]
    fn what_a_hangup_cannot_change_is_named_by_its_key() {
        let junction = "[[junction]]\npath = \"/a\"\norigin = \"file:///a\"\n";
        let old = settings(junction);
        assert!(needing_restart(&old, &settings(junction)).is_empty());
        let at_once = [
            format!("{junction}[[nfs.export]]\nclients = [\"10.0.0.0/8\"]\n"),
            format!("{junction}files = \"always\"\nnegative = \"1s\"\nstale_if_error = \"1h\"\n"),
            format!("{junction}[[junction]]\npath = \"/b\"\norigin = \"file:///b\"\n"),
            junction.replace("\"/a\"", "\"/c\""),
            format!("{junction}[cache]\nsize = \"30GiB\"\nfree_floor = \"2GiB\"\n"),
        ];
        for text in at_once {
            assert!(needing_restart(&old, &settings(&text)).is_empty(), "that is changed at once: {text}");
        }
        for (text, key) in [
            (format!("{junction}[cache]\ninflight = \"64MiB\"\n"), "[cache]"),
            (format!("{junction}[nfs]\nlisten = \":2050\"\n"), "[nfs] listen"),
            (format!("{junction}write = \"read-only\"\n"), "write of /a"),
            (junction.replace("file:///a", "file:///b"), "origin of /a"),
        ] {
            assert_eq!(needing_restart(&old, &settings(&text)), [key], "{text}");
        }
    }
}
