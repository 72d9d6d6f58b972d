//! What is in an inode of the origin in memory, and what of it would be left after a restart.

use std::collections::BTreeMap;

use bytes::Bytes;
use types::{Attr, ByteRange, Error, ErrorKind, FileKind, Name, Result, Stability, Timestamp, XattrName};

use super::generated::generated;

/// Largest file that is written rather than generated: it is in memory.
const WRITTEN_MAX: u64 = 1 << 30;

#[derive(Clone)]
pub enum NodeBody {
    Dir(BTreeMap<Name, u64>),
    Bytes(Vec<u8>),
    Generated(u64),
    Link(Bytes),
    Special,
}

pub struct Inode {
    pub attr: Attr,
    pub body: NodeBody,
    pub xattrs: BTreeMap<XattrName, Bytes>,
    /// What a restart would bring back, if that is not what is shown: the file before the first write that nobody
    /// has asked to be stored.
    pub stable: Option<Box<Stable>>,
}

pub struct Stable {
    body: NodeBody,
    size: u64,
    mtime: Timestamp,
    ctime: Timestamp,
}

impl Inode {
    /// Attributes or the number of names changed: that is stored at once.
    pub fn altered(&mut self, now: Timestamp) {
        self.attr.ctime = now;
        if let Some(stable) = &mut self.stable {
            (stable.mtime, stable.ctime) = (self.attr.mtime, now);
        }
    }

    /// New contents, stored.
    pub fn replace(&mut self, body: NodeBody, size: u64, now: Timestamp) {
        (self.body, self.stable) = (body, None);
        (self.attr.size, self.attr.used) = (size, size);
        (self.attr.mtime, self.attr.ctime) = (now, now);
    }

    pub fn resize(&mut self, size: u64, now: Timestamp) -> Result<()> {
        self.check_is_file("set the size of")?;
        resize(&mut self.body, self.attr.size, size)?;
        (self.attr.size, self.attr.used) = (size, size);
        self.attr.mtime = now;
        if let Some(stable) = &mut self.stable {
            resize(&mut stable.body, stable.size, size)?;
            stable.size = size;
        }
        Ok(())
    }

    pub fn write(&mut self, offset: u64, data: &[u8], stability: Stability, now: Timestamp) -> Result<()> {
        self.check_is_file("write to")?;
        if data.is_empty() {
            return Ok(());
        }
        let size = self.attr.size;
        match (&mut self.stable, stability) {
            (None, Stability::Unstable) => {
                let (body, mtime, ctime) = (self.body.clone(), self.attr.mtime, self.attr.ctime);
                self.stable = Some(Box::new(Stable { body, size, mtime, ctime }));
            }
            (Some(stable), Stability::DataSync | Stability::FileSync) => {
                stable.size = overwrite(&mut stable.body, stable.size, offset, data)?;
                (stable.mtime, stable.ctime) = (now, now);
            }
            _ => {}
        }
        let size = overwrite(&mut self.body, size, offset, data)?;
        (self.attr.size, self.attr.used) = (size, size);
        (self.attr.mtime, self.attr.ctime) = (now, now);
        Ok(())
    }

    /// What was written is stored.
    pub fn store(&mut self) -> Result<()> {
        self.check_is_file("commit")?;
        self.stable = None;
        Ok(())
    }

    /// What was not stored is gone.
    pub fn lose_unsynced(&mut self) {
        if let Some(stable) = self.stable.take() {
            let Stable { body, size, mtime, ctime } = *stable;
            self.body = body;
            (self.attr.size, self.attr.used) = (size, size);
            (self.attr.mtime, self.attr.ctime) = (mtime, ctime);
        }
    }

    fn check_is_file(&self, operation: &'static str) -> Result<()> {
        match self.attr.kind {
            FileKind::Regular => Ok(()),
            FileKind::Directory => Err(Error::new(ErrorKind::IsADirectory, operation, "a directory")),
            _ => Err(Error::new(ErrorKind::InvalidArgument, operation, "what is no file")),
        }
    }
}

fn resize(body: &mut NodeBody, before: u64, size: u64) -> Result<()> {
    if let NodeBody::Generated(_) = body
        && size <= before
    {
        return Ok(());
    }
    in_memory(body, before, size)?.resize(size as usize, 0);
    Ok(())
}

/// The size afterwards.
fn overwrite(body: &mut NodeBody, before: u64, offset: u64, data: &[u8]) -> Result<u64> {
    let size = before.max(offset.saturating_add(data.len() as u64));
    let bytes = in_memory(body, before, size)?;
    bytes.resize(size as usize, 0);
    bytes[offset as usize..][..data.len()].copy_from_slice(data);
    Ok(size)
}

/// The bytes of a file that is to have `wanted` of them.
fn in_memory(body: &mut NodeBody, size: u64, wanted: u64) -> Result<&mut Vec<u8>> {
    if size.max(wanted) > WRITTEN_MAX {
        return Err(Error::new(ErrorKind::NoSpace, "keep in memory", format!("{wanted} bytes")));
    }
    if let NodeBody::Generated(seed) = body {
        *body = NodeBody::Bytes(generated(*seed, ByteRange::new(0, size)).to_vec());
    }
    match body {
        NodeBody::Bytes(bytes) => Ok(bytes),
        _ => Err(Error::new(ErrorKind::InvalidArgument, "write to", "what is no file")),
    }
}
