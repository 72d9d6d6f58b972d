//! `cluster.json` in the node's directory: who it is, and what it knew last, so that it starts while etcd is away.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use cluster::{ClusterMap, MAP_BYTES_MAX};
use serde::{Deserialize, Serialize};
use types::{Error, ErrorKind, JunctionId, NodeId, Result};

use crate::copy_rules::CopyRules;
use crate::junctions::{KnownJunction, KnownJunctions};
use crate::records::{ClusterId, CopyRulesRecord, KeyRecord};

const NAME: &str = "cluster.json";
const UNFINISHED: &str = "cluster.json.unfinished";
const FORMAT: u64 = 1;
/// A map, and some thousands of junctions.
const BYTES_MAX: u64 = 2 * MAP_BYTES_MAX as u64;
/// Of the rules on copies in it: the full ones of some dozens of junctions.
const RULES_BYTES_MAX: usize = MAP_BYTES_MAX / 2;
/// What an operator can do about a file that cannot be read.
const ADVICE: &str = "restore it from a backup, or remove it: the node then joins as a new one, under another name, or under \
                      its own once the former one was forgotten";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFile {
    pub cluster: ClusterId,
    pub node: NodeId,
    /// None before the node has joined.
    pub map: Option<ClusterMap>,
    pub junctions: KnownJunctions,
    pub copy_rules: BTreeMap<JunctionId, Arc<CopyRules>>,
}

#[derive(Deserialize)]
struct NodeFileVersion {
    v: u64,
}

#[derive(Serialize, Deserialize)]
struct FileText {
    v: u64,
    cluster: ClusterId,
    node: String,
    map: Option<serde_json::Value>,
    junctions: Vec<KnownJunction>,
    next_junction: u32,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    copy_rules: BTreeMap<u32, CopyRules>,
}

impl NodeFile {
    /// Of a node that has not joined.
    pub fn of(cluster: ClusterId, node: NodeId) -> NodeFile {
        let (junctions, copy_rules) = (KnownJunctions::default(), BTreeMap::new());
        NodeFile { cluster, node, map: None, junctions, copy_rules }
    }

    /// Whether this, in place of `kept`, is written at once and not with the next changes of the map: the next process begins with it.
    ///
    /// After etcd went back a node asks to be in the state that it last knew of itself (a drain, an undrain), and the numbers of maps
    /// begin anew: a process that knew neither would undo what operators did, or take the restored etcd for one that has just gone back.
    pub fn is_urgent(&self, kept: Option<&NodeFile>) -> bool {
        let Some((kept, before)) = kept.and_then(|kept| Some((kept, kept.map.as_ref()?))) else {
            return true;
        };
        let own_state = |map: &ClusterMap| map.node(self.node).map(|own| own.state);
        kept.junctions != self.junctions
            || self
                .map
                .as_ref()
                .is_some_and(|now| now.number() < before.number() || own_state(now) != own_state(before))
    }

    /// `None`: there is none.
    ///
    /// Errors: `Config` for a file that is malformed, too long, or of another version; otherwise what the system says of it.
    pub fn load(dir: &Path) -> Result<Option<NodeFile>> {
        let path = dir.join(NAME);
        let mut bytes = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes));
        match read {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("read", path.display(), error)),
            Ok(_) => {}
        }
        let wrong = |why: String| {
            Error::new(ErrorKind::Config, "read", format!("{}: {why}; {ADVICE}", path.display()))
        };
        if bytes.len() as u64 > BYTES_MAX {
            return Err(wrong(format!("it has more than {BYTES_MAX} bytes")));
        }
        NodeFile::parse(&bytes).map(Some).map_err(wrong)
    }

    fn parse(bytes: &[u8]) -> std::result::Result<NodeFile, String> {
        let NodeFileVersion { v } = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if v != FORMAT {
            return Err(format!("it is of version {v}, and this version of Forebay reads {FORMAT}"));
        }
        let text: FileText = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        for rules in text.copy_rules.values() {
            let record = CopyRulesRecord { rules: rules.rules.clone() };
            record.check().map_err(|error| error.to_string())?;
        }
        let map = text.map.map(|map| ClusterMap::from_json(map.to_string().as_bytes())).transpose();
        Ok(NodeFile {
            cluster: text.cluster,
            node: text.node.parse().map_err(|error: Error| error.to_string())?,
            map: map.map_err(|error| error.to_string())?,
            junctions: KnownJunctions { junctions: text.junctions, next: text.next_junction },
            copy_rules: text
                .copy_rules
                .into_iter()
                .map(|(id, rules)| (JunctionId(id), Arc::new(rules)))
                .collect(),
        })
    }

    /// After a crash it is the former one or this one.
    ///
    /// Errors: what the system says of the directory and its disk, such as `NoSpace` or `AccessDenied`.
    pub fn save(&self, dir: &Path) -> Result<()> {
        let failed = |error| Error::io("write", dir.join(NAME).display(), error);
        let text = self.text()?;
        let unfinished = dir.join(UNFINISHED);
        // The mode counts only for a file that is made.
        match std::fs::remove_file(&unfinished) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished);
        let written = file.and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&unfinished, dir.join(NAME))?;
            File::open(dir)?.sync_all()
        });
        written.map_err(failed)
    }

    /// As many junctions' rules as there is room for: a file that is too long is none.
    fn kept_rules(&self) -> BTreeMap<u32, CopyRules> {
        let bytes =
            |rules: &CopyRules| 64 + rules.rules.keys().map(|path| 2 * path.len() + 32).sum::<usize>();
        let mut left = RULES_BYTES_MAX;
        let fitting = self.copy_rules.iter().take_while(|(_, rules)| {
            let fits = bytes(rules) <= left;
            left = left.saturating_sub(bytes(rules));
            fits
        });
        fitting.map(|(id, rules)| (id.0, (**rules).clone())).collect()
    }

    fn text(&self) -> Result<String> {
        let failed = |error| Error::new(ErrorKind::Io, "write", NAME).with_source(error);
        let map = self.map.as_ref().map(ClusterMap::to_json).transpose()?;
        let map = map.map(|map| serde_json::from_str(&map)).transpose().map_err(failed)?;
        let text = FileText {
            v: FORMAT,
            cluster: self.cluster,
            node: self.node.to_string(),
            map,
            junctions: self.junctions.junctions.clone(),
            next_junction: self.junctions.next,
            copy_rules: self.kept_rules(),
        };
        let mut text = serde_json::to_string_pretty(&text).map_err(failed)?;
        text.push('\n');
        Ok(text)
    }
}

#[cfg(test)]
mod tests;
