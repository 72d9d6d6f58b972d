//! A file of a server, as the calls of one open file share it.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use origin::Reference;
use tokio::task::JoinHandle;
use types::{ByteRange, ErrorKind, Result, Version};

use super::NfsClientState;

/// `NfsOrigin::read` gives data only of the version that it was asked for; a kernel client takes what comes. So a
/// READ of a file that somebody else is writing is repeated, each time after a look at the attributes; both are
/// counted. About one attempt in three met a change when six workers wrote and read one file at full speed: after
/// this many in a row it is not the file's changing that is wrong.
const CHANGES_MAX: u32 = 32;

pub(super) struct SharedNfsFile {
    pub client: Arc<NfsClientState>,
    pub reference: Reference,
    version: Mutex<Version>,
}

impl SharedNfsFile {
    pub fn new(client: Arc<NfsClientState>, reference: Reference, version: Version) -> SharedNfsFile {
        SharedNfsFile { client, reference, version: Mutex::new(version) }
    }

    pub fn start(self: &Arc<Self>, range: ByteRange) -> JoinHandle<Result<Bytes>> {
        let shared = Arc::clone(self);
        tokio::spawn(async move { shared.read(range).await })
    }

    pub fn version(&self) -> Version {
        *self.version.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One READ, of whatever version the file has now.
    pub async fn read(&self, range: ByteRange) -> Result<Bytes> {
        let mut changes = 0;
        loop {
            self.client.count("read");
            match self.client.origin.read(&self.reference, self.version(), range).await {
                Err(error) if error.kind() == ErrorKind::VersionChanged && changes < CHANGES_MAX => {
                    changes += 1;
                    let now = self.client.getattr(&self.reference).await?.version;
                    *self.version.lock().unwrap_or_else(PoisonError::into_inner) = now;
                }
                other => return other,
            }
        }
    }
}
