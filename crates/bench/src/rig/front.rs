//! The S3 front of a tier that the bench has put up, with keys that only this run knows.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use types::{Error, Result};

/// The bucket that a tier's only origin is, when it is served by S3.
pub const BUCKET: &str = "bench";
const KEY_ID: &str = "FOREBAYBENCH";

/// Removed with the directory that it is in.
pub struct Keys {
    secret: String,
    file: PathBuf,
}

impl Keys {
    /// Written to a file in `dir` that only we can read, as clients of S3 want it.
    pub fn make(dir: &Path) -> Result<Keys> {
        let mut random = [0; 20];
        let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random));
        read.map_err(|e| Error::io("read", "/dev/urandom", e))?;
        let secret: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let file = dir.join("credentials");
        let text = format!("[default]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {secret}\n");
        let options = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file);
        let written = options.and_then(|mut out| out.write_all(text.as_bytes()));
        written.map_err(|e| Error::io("write", file.display(), e))?;
        Ok(Keys { secret, file })
    }

    /// What a tier takes its key from.
    pub fn environment(&self) -> [(&'static str, &str); 2] {
        [("FOREBAY_S3_ACCESS_KEY_ID", KEY_ID), ("FOREBAY_S3_SECRET_ACCESS_KEY", &self.secret)]
    }

    /// For clients of the tier.
    pub fn url(&self, front: SocketAddr) -> String {
        let file = self.file.display();
        format!("s3://{BUCKET}?endpoint=http://{front}&region=us-east-1&credentials={file}")
    }
}
