//! READ: exactly the bytes asked for, of exactly the version asked for.
//!
//! Every reply carries the attributes after the read; data counts only if they describe the version that
//! the caller wants. A server that leaves them out is asked once more at the end.

use bytes::{Bytes, BytesMut};
use origin::Reference;
use rpc_nfs3::nfs3::file::{self, ReadArgs, ReadOk};
use rpc_nfs3::nfs3::{FileHandle, procedure};
use types::{Attr, ByteRange, Error, ErrorKind, Result, Version};

use crate::connection_pool::Lane;
use crate::errors::failure;
use crate::origin::{NfsOrigin, attr_of, handle_of, ok_or_status};

const WHAT: &str = "read from";

impl NfsOrigin {
    pub(crate) async fn read_range(
        &self,
        object: &Reference,
        version: Version,
        range: ByteRange,
    ) -> Result<Bytes> {
        let file = handle_of(object)?;
        let mut first: Option<Bytes> = None;
        let mut joined = BytesMut::new();
        let mut proven = true;
        let mut at = range.offset;
        while at < range.end() {
            let left = range.end() - at;
            let count = u32::try_from(left).unwrap_or(u32::MAX).min(self.read_max);
            let ok = self.read_once(&file, at, count).await?;
            let attr = ok.attr.as_ref().map(attr_of);
            match &attr {
                Some(attr) => check(attr, version, range)?,
                None => proven = false,
            }
            let got = ok.data.len() as u64;
            if got == left && first.is_none() && joined.is_empty() {
                first = Some(ok.data);
            } else {
                joined.extend_from_slice(&ok.data);
            }
            at += got;
            if at < range.end() && (ok.eof || got == 0) {
                return Err(self.ended_early(&file, attr, version, range, ok.eof).await);
            }
        }
        if !proven {
            check(&self.getattr_of(&file).await?, version, range)?;
        }
        Ok(first.unwrap_or_else(|| joined.freeze()))
    }

    async fn read_once(&self, file: &FileHandle, offset: u64, count: u32) -> Result<ReadOk> {
        let args = ReadArgs { file: file.clone(), offset, count };
        let encode = |e: &mut _| args.encode(e);
        let decode = |d: &mut _| file::decode_read(d, count as usize);
        let reply = self.pool.call(Lane::Bulk, WHAT, procedure::READ, encode, decode).await?;
        ok_or_status(WHAT, self.place(), reply)
    }

    /// The file is shorter than the range: another version, a range that never fitted, or a server that
    /// makes no sense.
    async fn ended_early(
        &self,
        file: &FileHandle,
        attr: Option<Attr>,
        version: Version,
        range: ByteRange,
        eof: bool,
    ) -> Error {
        let attr = match attr {
            Some(attr) => Ok(attr),
            None => self.getattr_of(file).await,
        };
        if let Err(error) = attr.and_then(|attr| check(&attr, version, range)) {
            return error;
        }
        if eof {
            let reason = "the file ends before its size";
            return failure(ErrorKind::VersionChanged, WHAT, self.place(), reason);
        }
        failure(ErrorKind::Corrupt, WHAT, self.place(), "the server sends no data and no end of file")
    }
}

fn check(attr: &Attr, version: Version, range: ByteRange) -> Result<()> {
    if Version::from_attr(attr) != version {
        return Err(Error::new(ErrorKind::VersionChanged, WHAT, format!("file {}", attr.fileid)));
    }
    if range.end() > attr.size {
        let reason = format!("the range ends at {}, the file at {}", range.end(), attr.size);
        return Err(failure(ErrorKind::InvalidArgument, WHAT, format!("file {}", attr.fileid), reason));
    }
    Ok(())
}
