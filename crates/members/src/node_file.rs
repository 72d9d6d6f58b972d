//! `cluster.json` in the node's directory: who it is, and what it knew last, so that it starts while etcd is away.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use cluster::{ClusterMap, MAP_BYTES_MAX};
use serde::{Deserialize, Serialize};
use types::{Error, ErrorKind, NodeId, Result};

use crate::junctions::{KnownJunction, KnownJunctions};
use crate::records::ClusterId;

const NAME: &str = "cluster.json";
const UNFINISHED: &str = "cluster.json.unfinished";
const FORMAT: u64 = 1;
/// A map, and some thousands of junctions.
const BYTES_MAX: u64 = 2 * MAP_BYTES_MAX as u64;
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
}

impl NodeFile {
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
        let map = text.map.map(|map| ClusterMap::from_json(map.to_string().as_bytes())).transpose();
        Ok(NodeFile {
            cluster: text.cluster,
            node: text.node.parse().map_err(|error: Error| error.to_string())?,
            map: map.map_err(|error| error.to_string())?,
            junctions: KnownJunctions { junctions: text.junctions, next: text.next_junction },
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
        };
        let mut text = serde_json::to_string_pretty(&text).map_err(failed)?;
        text.push('\n');
        Ok(text)
    }
}

#[cfg(test)]
mod tests;
