//! Portmapper and MOUNT: from host and path to ports, file handles and the list of exports. Each question
//! takes a connection of its own; they are rare.

use bytes::Bytes;
use rpc_nfs3::mount::{self, ExportEntry, MountStatus};
use rpc_nfs3::nfs3::{self, FileHandle};
use rpc_nfs3::portmap::{self, Mapping};
use rpc_nfs3::rpc::Credentials;
use rpc_nfs3::{XdrDecoder, XdrEncoder};
use types::{Error, ErrorKind, OutageReason, Result};

use crate::config::Config;
use crate::dial::dial;
use crate::errors::{failure, mount_kind, shut_out, wire_error};
use crate::exchange::{CallTarget, begin_call, exchange};

/// AUTH_NONE and AUTH_SYS, which is what we can offer.
const FLAVORS: [u32; 2] = [0, 1];

/// Exports named in an error message.
const EXPORTS_TOLD: usize = 10;

pub struct Mounter {
    host: String,
    nfs_port: u16,
    mount_port: u16,
    credentials: Credentials,
    timeout: std::time::Duration,
}

impl Mounter {
    pub async fn find(config: &Config, credentials: Credentials) -> Result<Mounter> {
        let (nfs_port, mount_port) = ports(config).await?;
        let (host, timeout) = (config.host.clone(), config.connect_timeout);
        Ok(Mounter { host, nfs_port, mount_port, credentials, timeout })
    }

    pub fn nfs_port(&self) -> u16 {
        self.nfs_port
    }

    /// The handle of `path`. The kind of the error is `NotFound` if there is no such export.
    pub async fn mount(&self, path: &[u8]) -> Result<FileHandle> {
        let context = format!("{}:{}", self.host, path.escape_ascii());
        let mut call = self.begin(mount::procedure::MNT);
        call.opaque(path);
        let mut d = self.ask("mount", &context, call).await?;
        let result = mount::decode_mount_result(&mut d).map_err(|e| wire_error("mount", &context, e))?;
        let mounted = result.map_err(|status| refused(&context, status))?;
        if !mounted.flavors.is_empty() && !mounted.flavors.iter().any(|f| FLAVORS.contains(f)) {
            let reason = "the export wants Kerberos; allow sec=sys for this host";
            return Err(shut_out("mount", context, reason));
        }
        // A handle lives long; the record it came in must not.
        Ok(FileHandle(Bytes::copy_from_slice(&mounted.handle.0)))
    }

    pub async fn exports(&self) -> Result<Vec<ExportEntry>> {
        let call = self.begin(mount::procedure::EXPORT);
        let mut d = self.ask("list exports of", &self.host, call).await?;
        mount::decode_exports(&mut d).map_err(|e| wire_error("list exports of", &self.host, e))
    }

    /// The first mount, whose error is read by an operator: it says what the server has instead.
    pub async fn mount_or_explain(&self, path: &[u8]) -> Result<FileHandle> {
        let error = match self.mount(path).await {
            Err(error)
                if error.kind() == ErrorKind::NotFound
                    || error.outage_reason() == Some(OutageReason::Credentials) =>
            {
                error
            }
            other => return other,
        };
        let exports = self.exports().await.unwrap_or_default();
        if exports.iter().any(|e| e.path == path) {
            return Err(error);
        }
        let context = format!("{}:{}", self.host, path.escape_ascii());
        let reason = format!("the server has no such export; {}", exports_text(&exports));
        Err(failure(ErrorKind::Config, "mount", context, reason))
    }

    fn begin(&self, procedure: u32) -> XdrEncoder {
        let target = CallTarget { program: mount::PROGRAM, version: mount::VERSION, procedure };
        begin_call(target, &self.credentials)
    }

    async fn ask(&self, operation: &'static str, context: &str, call: XdrEncoder) -> Result<XdrDecoder> {
        let mut stream = dial(&self.host, self.mount_port, None, self.timeout).await?;
        exchange(&mut stream, operation, context, call, self.timeout).await
    }
}

fn refused(context: &str, status: MountStatus) -> Error {
    let kind = mount_kind(status);
    let reason = match kind {
        ErrorKind::AccessDenied => {
            return shut_out("mount", context, "the server does not allow this host to mount it");
        }
        ErrorKind::NotFound => "the server has no such export".to_owned(),
        ErrorKind::NotADirectory => "it is not a directory".to_owned(),
        _ => format!("mountstat3 {}", status.0),
    };
    failure(kind, "mount", context, reason)
}

fn exports_text(exports: &[ExportEntry]) -> String {
    if exports.is_empty() {
        return "it lists no exports".to_owned();
    }
    let mut names: Vec<String> =
        exports.iter().take(EXPORTS_TOLD).map(|e| e.path.escape_ascii().to_string()).collect();
    if exports.len() > EXPORTS_TOLD {
        names.push(format!("and {} more", exports.len() - EXPORTS_TOLD));
    }
    format!("it exports {}", names.join(", "))
}

/// Where NFS and MOUNT listen: at the configured ports, otherwise the portmapper's.
pub async fn ports(config: &Config) -> Result<(u16, u16)> {
    let ask = |program| getport(config, program);
    Ok(match (config.port, config.mount_port) {
        (Some(nfs), Some(mount)) => (nfs, mount),
        (None, Some(mount)) => (2049, mount),
        // Servers that need no portmapper (ours too) answer MOUNT on the NFS port.
        (Some(nfs), None) => (nfs, ask(mount::PROGRAM).await.unwrap_or(nfs)),
        (None, None) => tokio::try_join!(ask(nfs3::PROGRAM), ask(mount::PROGRAM))?,
    })
}

async fn getport(config: &Config, program: u32) -> Result<u16> {
    let context = format!("{}:{}", config.host, portmap::PORT);
    let target =
        CallTarget { program: portmap::PROGRAM, version: portmap::VERSION, procedure: portmap::GETPORT };
    let mut call = begin_call(target, &Credentials::None);
    Mapping { program, version: 3, port: 0 }.encode(&mut call);
    let operation = "ask the portmapper of";
    let dialled = dial(&config.host, portmap::PORT, None, config.connect_timeout).await;
    let mut stream = dialled.map_err(|e| {
        let hint = "without a portmapper give both ports: nfs://host:2049/export?mountport=N";
        failure(e.kind(), operation, &config.host, format!("{e} ({hint})"))
    })?;
    let mut d = exchange(&mut stream, operation, &context, call, config.connect_timeout).await?;
    let port = d.u32().map_err(|e| wire_error(operation, &context, e))?;
    match u16::try_from(port) {
        Ok(port) if port > 0 => Ok(port),
        _ => {
            let what = if program == nfs3::PROGRAM { "NFS version 3" } else { "MOUNT version 3" };
            let reason = format!("{what} over TCP is not registered; give the port in the URL if it runs");
            Err(failure(ErrorKind::Unavailable, operation, context, reason))
        }
    }
}
