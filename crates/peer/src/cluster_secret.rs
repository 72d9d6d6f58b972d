//! The secret that all nodes of a cluster share, from which the keys that must be the same on all of them follow.

use std::fmt;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use types::{Error, ErrorKind, Result};

const SECRET_BYTES: usize = 32;

/// 32 random bytes, as text 64 hexadecimal digits.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterSecret([u8; SECRET_BYTES]);

impl ClusterSecret {
    pub fn draw() -> Result<ClusterSecret> {
        let mut bytes = [0; SECRET_BYTES];
        let failed = |_| Error::new(ErrorKind::Io, "draw a secret from", "the system");
        SystemRandom::new().fill(&mut bytes).map_err(failed)?;
        Ok(ClusterSecret(bytes))
    }

    /// The secret of a lab that has no certificates: it follows from the cluster's id, so everybody knows it.
    pub fn insecure(cluster: &str) -> ClusterSecret {
        let digest = ring::digest::digest(&ring::digest::SHA256, cluster.as_bytes());
        let mut bytes = [0; SECRET_BYTES];
        bytes.iter_mut().zip(digest.as_ref()).for_each(|(to, from)| *to = *from);
        ClusterSecret(bytes)
    }

    /// A key for one purpose. From it neither the secret nor the key for another purpose follows.
    pub fn key_for(&self, purpose: &str) -> [u8; 16] {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &self.0), purpose.as_bytes());
        let mut key = [0; 16];
        key.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
        key
    }

    pub(crate) fn to_text(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn from_text(text: &str) -> Result<ClusterSecret> {
        let wrong = || {
            let what = format!("a cluster's secret is {} hexadecimal digits", 2 * SECRET_BYTES);
            Error::new(ErrorKind::Config, "read a secret:", what)
        };
        let digits = text.trim().as_bytes();
        let mut bytes = [0; SECRET_BYTES];
        if digits.len() != 2 * SECRET_BYTES {
            return Err(wrong());
        }
        for (to, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
            *to = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(ClusterSecret(bytes))
    }
}

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_back_and_keys_of_two_purposes_differ() {
        let secret = ClusterSecret::draw().expect("drawn");
        assert!(ClusterSecret::from_text(&secret.to_text()).expect("read back") == secret);
        assert!(secret != ClusterSecret::draw().expect("drawn"));
        assert_ne!(secret.key_for("a"), secret.key_for("b"));
        assert_eq!(secret.key_for("a"), secret.key_for("a"));
        for wrong in ["", "00", &"g".repeat(64), &"0".repeat(63), &"é".repeat(32), &"0".repeat(66)] {
            assert!(ClusterSecret::from_text(wrong).is_err(), "{wrong}");
        }
    }
}
