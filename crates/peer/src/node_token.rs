//! What a node is given to be in a cluster: one file, made where the cluster's authority is.

use std::ffi::OsStr;
use std::path::Path;

use serde::{Deserialize, Serialize};
use types::{Error, ErrorKind, Result};

use crate::authority::NodeCertificate;
use crate::cluster_secret::ClusterSecret;
use crate::private_file::{read_private, write_private};

const FORMAT: u32 = 1;

/// Whoever has it is this node to the others.
#[derive(Clone)]
pub struct NodeToken {
    /// What people call the node, unless its settings say otherwise.
    pub name: String,
    pub certificate: NodeCertificate,
    pub secret: ClusterSecret,
}

/// As the file has it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenText {
    v: u32,
    name: String,
    authority: String,
    certificate: String,
    key: String,
    secret: String,
}

impl NodeToken {
    /// Writes the token's file, which no other user can read. One that is there is replaced.
    pub fn write(&self, path: &Path) -> Result<()> {
        let name = path.file_name().and_then(OsStr::to_str);
        let wrong = || Error::new(ErrorKind::InvalidArgument, "write the node's token", path.display());
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        write_private(dir, name.ok_or_else(wrong)?, &self.to_text()?)
    }

    fn to_text(&self) -> Result<String> {
        let text = TokenText {
            v: FORMAT,
            name: self.name.clone(),
            authority: self.certificate.authority_pem.clone(),
            certificate: self.certificate.certificate_pem.clone(),
            key: self.certificate.key_pem.clone(),
            secret: self.secret.to_text(),
        };
        let failed = |e| Error::new(ErrorKind::Io, "write", "a node's token").with_source(e);
        Ok(serde_json::to_string_pretty(&text).map_err(failed)? + "\n")
    }

    /// Reads a token's file. What its certificate says is looked at by [`crate::PeerIdentity::new`].
    ///
    /// Errors: `Config` for a file that is malformed, too long or open to other users; `NotFound` for one that is missing; otherwise
    /// what the system says of it.
    pub fn read(path: &Path) -> Result<NodeToken> {
        NodeToken::parse(&read_private(path)?).map_err(|why| {
            let what =
                format!("{}: {why}; have it made by forebay cluster join-token, as a whole", path.display());
            Error::new(ErrorKind::Config, "read the node's token", what)
        })
    }

    fn parse(text: &str) -> std::result::Result<NodeToken, String> {
        let text: TokenText = serde_json::from_str(text).map_err(|e| e.to_string())?;
        if text.v != FORMAT {
            return Err(format!("it is of version {}, and this version of Forebay reads {FORMAT}", text.v));
        }
        let secret = ClusterSecret::from_text(&text.secret).map_err(|e| e.to_string())?;
        let certificate = NodeCertificate {
            authority_pem: text.authority,
            certificate_pem: text.certificate,
            key_pem: text.key,
        };
        Ok(NodeToken { name: text.name, certificate, secret })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use types::NodeId;

    use super::*;
    use crate::authority::make_authority;

    #[test]
    fn a_token_is_read_back_and_a_malformed_or_open_one_is_refused_with_its_path() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("gpu1.token");
        let made =
            make_authority("prod").and_then(|authority| authority.token("gpu1", NodeId(7))).expect("made");
        let text = made.to_text().expect("written");
        let put = |text: &str, mode| {
            std::fs::write(&path, text).expect("written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("set");
        };
        made.write(&path).expect("written");
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = NodeToken::read(&path).expect("read back");
        assert!(read.name == "gpu1" && read.certificate == made.certificate && read.secret == made.secret);
        let told = || NodeToken::read(&path).err().expect("refused").to_string();
        put(&text, 0o644);
        assert!(told().contains("open to other users"), "{}", told());
        for (wrong, why) in [
            ("", "EOF"),
            (&text[..text.len() / 2], "EOF"),
            (&text.replace("\"v\": 1", "\"v\": 2"), "version 2"),
            (&text.replace("secret", "sekret"), "sekret"),
        ] {
            put(wrong, 0o600);
            assert!(told().contains(why) && told().contains("gpu1.token"), "{}", told());
        }
    }
}
