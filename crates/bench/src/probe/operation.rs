//! The operations that are probed, and how each is done at a server through our own client.

use std::time::Instant;

use bytes::Bytes;
use origin::{Change, DirCursor, Object, Origin, Reference};
use origin_nfs::NfsOrigin;
use relay::null_on_a_new_connection;
use types::{ByteRange, CreateHow, Name, Result, SetAttr, Stability};

use super::calls::PATIENCE;
use super::far::FarNfs;
use super::objects::ProbeObjects;

/// In the order in which they are tried.
#[derive(Clone, Copy, Debug, strum::Display, PartialEq, Eq, PartialOrd, Ord, strum::VariantArray)]
pub enum ProbeOperation {
    #[strum(to_string = "TCP connect and first NULL")]
    Connect,
    #[strum(to_string = "NULL")]
    Null,
    #[strum(to_string = "GETATTR")]
    Getattr,
    #[strum(to_string = "LOOKUP")]
    Lookup,
    #[strum(to_string = "READ 4 KiB")]
    Read4K,
    #[strum(to_string = "READ 64 KiB")]
    Read64K,
    #[strum(to_string = "READ 1 MiB")]
    Read1M,
    #[strum(to_string = "open, read, close a small file")]
    OpenReadClose,
    #[strum(to_string = "list a directory")]
    List,
    #[strum(to_string = "create, write 4 KiB, close")]
    CreateWriteClose,
}

impl ProbeOperation {
    pub fn read_bytes(self) -> Option<u64> {
        match self {
            ProbeOperation::Read4K => Some(4 << 10),
            ProbeOperation::Read64K => Some(64 << 10),
            ProbeOperation::Read1M => Some(1 << 20),
            _ => None,
        }
    }
}

/// Pages of a listing that are read at most: enough to see that it takes several round trips.
const PAGES_MAX: usize = 16;

impl FarNfs {
    /// Seconds that the operation took. `None` if the target has nothing to do it with.
    pub async fn time(
        &self,
        operation: ProbeOperation,
        objects: &ProbeObjects,
        write: bool,
    ) -> Result<Option<f64>> {
        let start = Instant::now();
        match operation {
            ProbeOperation::Connect => {
                return Ok(Some(null_on_a_new_connection(self.nfs, PATIENCE).await?.0));
            }
            ProbeOperation::Null => return Ok(Some(null_on_a_new_connection(self.nfs, PATIENCE).await?.1)),
            ProbeOperation::Getattr => drop(self.client.getattr(&objects.root).await?),
            ProbeOperation::Lookup => {
                let Some((dir, name)) = objects.any_name() else { return Ok(None) };
                self.client.lookup(dir, name).await?;
            }
            ProbeOperation::Read4K | ProbeOperation::Read64K | ProbeOperation::Read1M => {
                let bytes = operation.read_bytes().unwrap_or_default();
                let Some(file) = objects.with_bytes(bytes) else { return Ok(None) };
                if bytes > u64::from(self.client.traits().read_max) {
                    return Ok(None);
                }
                read(&self.client, file, bytes).await?;
            }
            ProbeOperation::OpenReadClose => {
                let Some((dir, name, file)) = &objects.small else { return Ok(None) };
                let found = self.client.lookup(dir, name).await?;
                read(&self.client, &found, file.attr.size).await?;
            }
            ProbeOperation::List => list(&self.client, objects.listed()).await?,
            ProbeOperation::CreateWriteClose if write => {
                return self.create_write_close(&objects.root).await.map(Some);
            }
            ProbeOperation::CreateWriteClose => return Ok(None),
        }
        Ok(Some(start.elapsed().as_secs_f64()))
    }

    /// Written to stable storage, as a close would have it; the removal is not counted.
    async fn create_write_close(&self, dir: &Reference) -> Result<f64> {
        let name = Name::new(format!(".forebay-probe-{}", std::process::id()).into_bytes())?;
        let (how, set) = (CreateHow::Unchecked, SetAttr::default());
        let create = Change::Create { dir: dir.clone(), name: name.clone(), how, set };
        let start = Instant::now();
        let made = self.client.change(&create).await?.made()?;
        let data = Bytes::from_static(&[0x5a; 4096]);
        let written = self.client.write(&made.reference, 0, data, Stability::FileSync).await;
        let took = start.elapsed().as_secs_f64();
        let removed = self.client.change(&Change::Remove { dir: dir.clone(), name }).await;
        written?;
        removed?;
        Ok(took)
    }
}

async fn read(client: &NfsOrigin, file: &Object, bytes: u64) -> Result<()> {
    client.read(&file.reference, file.version, ByteRange::new(0, bytes)).await.map(drop)
}

async fn list(client: &NfsOrigin, dir: &Reference) -> Result<()> {
    let mut cursor = DirCursor::default();
    for _ in 0..PAGES_MAX {
        match client.readdir(dir, cursor).await?.next {
            Some(next) => cursor = next,
            None => break,
        }
    }
    Ok(())
}
