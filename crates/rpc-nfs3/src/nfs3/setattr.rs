//! SETATTR, and the attributes (sattr3) that it and the procedures that make objects set.

use super::FileHandle;
use super::attr::Nfstime3;
use crate::xdr::{WireError, WireResult, XdrDecoder, XdrEncoder};

/// set_atime and set_mtime
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    #[default]
    Keep,
    ServerTime,
    To(Nfstime3),
}

impl SetTime {
    fn decode(d: &mut XdrDecoder) -> WireResult<SetTime> {
        Ok(match d.u32()? {
            0 => SetTime::Keep,
            1 => SetTime::ServerTime,
            2 => SetTime::To(Nfstime3::decode(d)?),
            _ => return Err(WireError::BadValue),
        })
    }

    fn encode(self, e: &mut XdrEncoder) {
        match self {
            SetTime::Keep => e.u32(0),
            SetTime::ServerTime => e.u32(1),
            SetTime::To(time) => {
                e.u32(2);
                time.encode(e);
            }
        }
    }
}

/// sattr3: what is `None` or `Keep` stays as it is, or becomes the server's default for a new object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sattr3 {
    /// Permission bits, without the file type.
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Bytes: truncates a file, or extends it with zeros.
    pub size: Option<u64>,
    pub atime: SetTime,
    pub mtime: SetTime,
}

impl Sattr3 {
    pub fn decode(d: &mut XdrDecoder) -> WireResult<Sattr3> {
        Ok(Sattr3 {
            mode: d.option(XdrDecoder::u32)?,
            uid: d.option(XdrDecoder::u32)?,
            gid: d.option(XdrDecoder::u32)?,
            size: d.option(XdrDecoder::u64)?,
            atime: SetTime::decode(d)?,
            mtime: SetTime::decode(d)?,
        })
    }

    pub fn encode(&self, e: &mut XdrEncoder) {
        for word in [self.mode, self.uid, self.gid] {
            e.option(word, XdrEncoder::u32);
        }
        e.option(self.size, XdrEncoder::u64);
        self.atime.encode(e);
        self.mtime.encode(e);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetattrArgs {
    pub object: FileHandle,
    pub attributes: Sattr3,
    /// sattrguard3: only if this is still the object's ctime; otherwise `NfsStatus::NOT_SYNC`.
    pub guard: Option<Nfstime3>,
}

impl SetattrArgs {
    pub fn decode(d: &mut XdrDecoder) -> WireResult<SetattrArgs> {
        Ok(SetattrArgs {
            object: FileHandle::decode(d)?,
            attributes: Sattr3::decode(d)?,
            guard: d.option(Nfstime3::decode)?,
        })
    }

    pub fn encode(&self, e: &mut XdrEncoder) {
        self.object.encode(e);
        self.attributes.encode(e);
        e.option(self.guard, |e, time| time.encode(e));
    }
}
