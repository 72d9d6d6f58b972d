//! The limits of the server: the largest file by FSINFO, the longest name by PATHCONF, and whether the export can be
//! written to.

use origin::OriginLimits;
use rpc_nfs3::nfs3::fs;
use rpc_nfs3::nfs3::procedure;
use types::{Error, ErrorKind, Name, Result};

use crate::connection_pool::Lane;
use crate::origin::{NfsOrigin, ok_or_status};

impl NfsOrigin {
    /// The number of links by PATHCONF is not taken: servers tell the least of what their file systems have.
    pub(crate) async fn export_limits(&self) -> Result<OriginLimits> {
        let root = self.root_handle();
        let encode = |e: &mut _| root.encode(e);
        let what = "ask limits of";
        let (info, names, read_only) = tokio::join!(
            self.pool.call(Lane::Metadata, what, procedure::FSINFO, encode, fs::decode_fsinfo),
            self.pool.call(Lane::Metadata, what, procedure::PATHCONF, encode, fs::decode_pathconf),
            self.is_read_only(),
        );
        let info = ok_or_status(what, self.place(), info?)?;
        // A server need not have PATHCONF.
        let name_max = names.ok().and_then(|told| told.ok()).map(|told| told.name_max).filter(|max| *max > 0);
        let file_size_max = Some(info.file_size_max).filter(|max| *max > 0);
        Ok(OriginLimits { file_size_max, name_max, read_only: read_only?, ..OriginLimits::default() })
    }

    /// No procedure tells it, so a name is removed that nothing has: a server looks first whether anything may be
    /// removed at all.
    async fn is_read_only(&self) -> Result<bool> {
        let mut random = [0; 16];
        let read = std::fs::File::open("/dev/urandom")
            .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut random));
        read.map_err(|e| Error::io("read", "/dev/urandom", e))?;
        let name = Name::new(format!(".forebay-none-{:032x}", u128::from_be_bytes(random)))?;
        let dir = origin::Reference(self.root_handle().0);
        match self.make_change(&origin::Change::Remove { dir, name }).await {
            Err(e) if e.kind() == ErrorKind::ReadOnly => Ok(true),
            Err(e) if e.is_retryable() => Err(e),
            _ => Ok(false),
        }
    }
}
