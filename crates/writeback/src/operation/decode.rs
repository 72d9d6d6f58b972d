//! An operation from bytes. They come from the disk and passed a checksum; they are checked all the same.

use bytes::Bytes;
use types::{Error, ErrorKind, FileId, JunctionId, Name, NewNode, Result, Timestamp, Version};

use super::encode::FORMAT;
use super::{Action, Attributes, JournalOperation, NewObject, Rename, ReplacedObject, TARGET_MAX, corrupt};

pub fn decode(head: &[u8]) -> Result<JournalOperation> {
    let mut reader = OperationReader(head);
    let format = reader.u8()?;
    if format != FORMAT {
        let context = format!("of format {format}; flush with the version that wrote it");
        return Err(Error::new(ErrorKind::NotSupported, "decode journalled operation", context));
    }
    let kind = reader.u8()?;
    if reader.array::<2>()? != [0; 2] {
        return Err(corrupt("with bytes where there are zeros"));
    }
    let junction = JunctionId(reader.u32()?);
    let (acknowledged, since) = (reader.time()?, reader.time()?);
    let action = reader.action(kind)?;
    if !reader.0.is_empty() {
        return Err(corrupt("that goes on behind its end"));
    }
    Ok(JournalOperation { junction, acknowledged, since, action })
}

struct OperationReader<'a>(&'a [u8]);

impl OperationReader<'_> {
    fn action(&mut self, kind: u8) -> Result<Action> {
        Ok(match kind {
            1 => {
                let (dir, id, name) = (self.id()?, self.id()?, self.name()?);
                Action::Make { dir, name, id, what: self.new_object()?, set: self.attributes()? }
            }
            2 => {
                let (file, offset) = (self.id()?, self.u64()?);
                Action::Write { file, offset, size_before: self.u64()?, base: self.base()? }
            }
            3 => {
                let (file, size) = (self.id()?, self.u64()?);
                Action::Truncate { file, size, size_before: self.u64()?, base: self.base()? }
            }
            4 => Action::Set { object: self.id()?, set: self.attributes()?, base: self.base()? },
            5 => {
                let (dir, file) = (self.id()?, self.id()?);
                let links = self.u32()?;
                Action::Link { file, dir, name: self.name()?, links, base: self.base()? }
            }
            6 => {
                let (dir, object) = (self.id()?, self.id()?);
                let links = self.u32()?;
                Action::Remove { dir, object, name: self.name()?, links, base: self.base()? }
            }
            7 => {
                let (dir, object) = (self.id()?, self.id()?);
                Action::Rmdir { dir, object, name: self.name()? }
            }
            8 => Action::Rename(self.rename()?),
            _ => return Err(corrupt("of an unknown kind")),
        })
    }

    fn rename(&mut self) -> Result<Rename> {
        let (from_dir, to_dir, object) = (self.id()?, self.id()?, self.id()?);
        let (from, to) = (self.name()?, self.name()?);
        let (is_dir, base) = (self.flag()?, self.base()?);
        let replaced = match self.flag()? {
            true => Some(ReplacedObject { object: self.id()?, links: self.u32()?, base: self.base()? }),
            false => None,
        };
        Ok(Rename { from_dir, from, to_dir, to, object, is_dir, base, replaced })
    }

    fn new_object(&mut self) -> Result<NewObject> {
        Ok(match self.u8()? {
            0 => NewObject::File,
            1 => NewObject::Directory,
            2 => {
                let length = usize::from(u16::from_le_bytes(self.array()?));
                if !(1..=TARGET_MAX).contains(&length) {
                    return Err(corrupt("whose target is too long or empty"));
                }
                NewObject::Symlink(Bytes::copy_from_slice(self.take(length)?))
            }
            3 => NewObject::Special(NewNode::Fifo),
            4 => NewObject::Special(NewNode::Socket),
            5 => NewObject::Special(NewNode::CharDevice(self.u32()?, self.u32()?)),
            6 => NewObject::Special(NewNode::BlockDevice(self.u32()?, self.u32()?)),
            _ => return Err(corrupt("that makes nothing known")),
        })
    }

    fn attributes(&mut self) -> Result<Attributes> {
        let bits = self.u8()?;
        if bits >= 1 << 5 {
            return Err(corrupt("with unknown attributes"));
        }
        let is = |at: u8| bits & 1 << at != 0;
        Ok(Attributes {
            mode: is(0).then(|| self.u32()).transpose()?,
            uid: is(1).then(|| self.u32()).transpose()?,
            gid: is(2).then(|| self.u32()).transpose()?,
            atime: is(3).then(|| self.time()).transpose()?,
            mtime: is(4).then(|| self.time()).transpose()?,
        })
    }

    fn base(&mut self) -> Result<Option<Version>> {
        self.flag()?.then(|| self.array().map(Version)).transpose()
    }

    fn name(&mut self) -> Result<Name> {
        let length = usize::from(self.u8()?);
        let bytes = Bytes::copy_from_slice(self.take(length)?);
        Name::new(bytes).map_err(|_| corrupt("with a name that is none"))
    }

    fn id(&mut self) -> Result<FileId> {
        self.array().map(FileId)
    }

    fn time(&mut self) -> Result<Timestamp> {
        let (seconds, nanos) = (i64::from_le_bytes(self.array()?), self.u32()?);
        if nanos >= 1_000_000_000 {
            return Err(corrupt("with a time that is none"));
        }
        Ok(Timestamp { seconds, nanos })
    }

    fn flag(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(corrupt("with a flag that is neither")),
        }
    }

    fn u8(&mut self) -> Result<u8> {
        self.array().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| corrupt("that is too short"))
    }

    fn take(&mut self, length: usize) -> Result<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(|| corrupt("that is too short"))?;
        self.0 = rest;
        Ok(taken)
    }
}
