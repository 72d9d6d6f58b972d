//! SIGHUP: what was typed is read again. What can change while the tier runs is changed; what cannot is named, a line each.

use std::sync::Arc;

use front_nfs::ExportRules;
use front_s3::Keys;
use tracing::{error, info, warn};
use types::Result;
use vfs::Vfs;

use crate::settings::{JunctionSettings, Settings};
use crate::{cli, wire_up};

/// Reads the settings as they were read at the start.
pub type Again = Box<dyn Fn() -> Result<Settings> + Send + Sync>;

/// The parts whose settings can change.
pub struct Live {
    pub vfs: Arc<Vfs>,
    /// Of the NFS server, if there is one.
    pub exports: Option<ExportRules>,
    /// Of the S3 server, if there is one.
    pub keys: Option<Keys>,
    /// What is in force: of what needs a restart, what it was at the start.
    pub settings: Settings,
}

impl Live {
    /// A file with a mistake in it changes nothing.
    pub fn reload(&mut self, again: &Again) {
        let new = match again() {
            Ok(new) => new,
            Err(e) => {
                error!("SIGHUP: nothing is changed: {e}");
                return;
            }
        };
        let needing = needing_restart(&self.settings, &new);
        for key in &needing {
            warn!(key, "SIGHUP: changed, and needs a restart");
        }
        let mut changed = 0;
        if let Some(exports) = &self.exports {
            let typed = format!("{:?}", new.exports);
            // Rules of junctions that are new are for after the restart.
            match wire_up::export_rules(&new.exports, &self.vfs) {
                Ok(rules) if typed != format!("{:?}", self.settings.exports) => {
                    exports.replace(rules);
                    self.settings.exports.clone_from(&new.exports);
                    changed += told("[[nfs.export]]");
                }
                Ok(_) => {}
                Err(e) => warn!(key = "[[nfs.export]]", "SIGHUP: left as it was: {e}"),
            }
        }
        if let (Some(keys), Some(s3)) = (&self.keys, &new.s3)
            && keys.replace(&s3.keys)
        {
            changed += told("[[s3.key]]");
        }
        if new.log != self.settings.log {
            match cli::set_log(new.log.as_deref()) {
                Ok(()) => {
                    self.settings.log.clone_from(&new.log);
                    changed += told("log");
                }
                Err(e) => warn!(key = "log", "SIGHUP: left as it was: {e}"),
            }
        }
        for junction in &mut self.settings.junctions {
            let Some(now) = new.junctions.iter().find(|now| now.path == junction.path) else { continue };
            if format!("{:?}", now.flush) != format!("{:?}", junction.flush)
                && self.vfs.set_flush_policy(&junction.path, &now.flush)
            {
                junction.flush = now.flush.clone();
                changed +=
                    told(&format!("flush_delay, flush_rate, flush_windows, conflicts of {}", now.path));
            }
        }
        info!(changed, needing_restart = needing.len(), "SIGHUP: the configuration was read again");
    }
}

fn told(key: &str) -> u64 {
    info!(key, "SIGHUP: changed, and in force");
    1
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
    compare("[cache]", old.dir == new.dir && same(&old.cache, &new.cache));
    compare("[journal]", same(&old.journal, &new.journal));
    compare("[nfs] listen", old.nfs == new.nfs);
    compare("[nfs] rpcbind", old.rpcbind == new.rpcbind);
    compare("[admin]", old.admin == new.admin);
    compare("--mount", old.mount == new.mount);
    let of_s3 = |settings: &Settings| {
        let s3 = settings.s3.as_ref()?;
        Some(format!("{:?}", (s3.listen, &s3.region, &s3.domain, &s3.buckets, &s3.certificate)))
    };
    compare("[s3] listen, region, domain, certificate, [[s3.bucket]]", of_s3(old) == of_s3(new));
    for junction in &new.junctions {
        match old.junctions.iter().find(|known| known.path == junction.path) {
            None => keys.push(format!("[[junction]] {} (added)", junction.path)),
            Some(known) => {
                let of = |it: &JunctionSettings| {
                    [
                        ("origin", format!("{:?}", it.store)),
                        ("write", it.write.to_string()),
                        ("files", it.files.to_string()),
                        ("directories", it.directories.to_string()),
                        ("negative", format!("{:?}", it.negative_ttl)),
                        ("stale_if_error", format!("{:?}", it.stale_if_error)),
                        ("directory_names_max", it.directory_names_max.to_string()),
                    ]
                };
                let differing = of(known).into_iter().zip(of(junction)).filter(|(was, is)| was != is);
                keys.extend(differing.map(|((key, _), _)| format!("{key} of {}", junction.path)));
            }
        }
    }
    let gone = old.junctions.iter().filter(|known| new.junctions.iter().all(|it| it.path != known.path));
    keys.extend(gone.map(|known| format!("[[junction]] {} (removed)", known.path)));
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ServeArgs;

    fn settings(text: &str) -> Settings {
        let file = toml::from_str(text).expect("TOML of the right shape");
        Settings::build(file, &ServeArgs::default()).expect("right")
    }

    #[test]
    fn what_a_hangup_cannot_change_is_named_by_its_key() {
        let junction = "[[junction]]\npath = \"/a\"\norigin = \"file:///a\"\n";
        let old = settings(junction);
        assert!(needing_restart(&old, &settings(junction)).is_empty());
        let more = format!("{junction}[[nfs.export]]\nclients = [\"10.0.0.0/8\"]\n");
        assert!(needing_restart(&old, &settings(&more)).is_empty(), "that is changed at once");
        for (text, key) in [
            (format!("{junction}[cache]\nsize = \"1GiB\"\n"), "[cache]"),
            (format!("{junction}[nfs]\nlisten = \":2050\"\n"), "[nfs] listen"),
            (format!("{junction}files = \"always\"\n"), "files of /a"),
            (format!("{junction}write = \"read-only\"\n"), "write of /a"),
            (junction.replace("file:///a", "file:///b"), "origin of /a"),
            (
                format!("{junction}[[junction]]\npath = \"/b\"\norigin = \"file:///b\"\n"),
                "[[junction]] /b (added)",
            ),
        ] {
            assert_eq!(needing_restart(&old, &settings(&text)), [key], "{text}");
        }
        let other = settings(&junction.replace("\"/a\"", "\"/c\""));
        let named = needing_restart(&old, &other);
        assert_eq!(named, ["[[junction]] /c (added)", "[[junction]] /a (removed)"]);
    }
}
