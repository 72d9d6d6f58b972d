//! One client of an NFS server: a connection, with one call at a time.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use rpc_nfs3::mount;
use rpc_nfs3::nfs3::attr::FileType;
use rpc_nfs3::nfs3::create::{self, CreateArgs, CreateHow3};
use rpc_nfs3::nfs3::readdir::{self, ReaddirArgs};
use rpc_nfs3::nfs3::setattr::Sattr3;
use rpc_nfs3::nfs3::{self, DirOp, FileHandle, NfsStatus, procedure};
use rpc_nfs3::record::{RecordReader, mark};
use rpc_nfs3::rpc::{AuthSys, CallHeader, Credentials, ReplyHeader, ReplyStatus};
use rpc_nfs3::{XdrDecoder, XdrEncoder};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

const ANSWER_MAX: usize = 4 << 20;
/// Of all that the NAS by formula has.
const OWNER: u32 = 1000;
const LISTING_BYTES: u32 = 64 << 10;
/// A tier that has no answer yet says so, and is asked again after this.
const AGAIN: Duration = Duration::from_millis(50);

pub struct Client {
    records: RecordReader<OwnedReadHalf>,
    writing: OwnedWriteHalf,
    xid: u32,
    /// How often it was told to ask again.
    pub delayed: u64,
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Result<Client, String> {
        let stream = TcpStream::connect(address).await.map_err(|e| format!("connect to {address}: {e}"))?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let (reading, writing) = stream.into_split();
        Ok(Client { records: RecordReader::new(reading, ANSWER_MAX), writing, xid: 0, delayed: 0 })
    }

    async fn call(
        &mut self,
        program: u32,
        procedure: u32,
        arguments: impl FnOnce(&mut XdrEncoder),
    ) -> Result<XdrDecoder, String> {
        self.xid += 1;
        let credentials = Credentials::Sys(AuthSys {
            machine_name: "growth".into(),
            uid: OWNER,
            gid: OWNER,
            ..AuthSys::default()
        });
        let (rpc_version, version) = (rpc_nfs3::rpc::RPC_VERSION, 3);
        let mut e = XdrEncoder::with_capacity(256);
        CallHeader { xid: self.xid, rpc_version, program, version, procedure, credentials }.encode(&mut e);
        arguments(&mut e);
        let call = e.finish();
        let mut out = BytesMut::with_capacity(4 + call.len());
        out.put_slice(&mark(call.len()));
        out.put_slice(&call);
        self.writing.write_all(&out).await.map_err(|e| format!("send: {e}"))?;
        let record = self.records.record().await.map_err(|e| format!("no answer: {e:?}"))?;
        let mut d = XdrDecoder::new(record);
        match ReplyHeader::decode(&mut d) {
            Ok(ReplyHeader { xid, status: ReplyStatus::Success }) if xid == self.xid => Ok(d),
            other => Err(format!("refused: {other:?}")),
        }
    }

    pub async fn mount(&mut self, path: &str) -> Result<FileHandle, String> {
        let mut d = self.call(mount::PROGRAM, mount::procedure::MNT, |e| e.opaque(path.as_bytes())).await?;
        let mounted = mount::decode_mount_result(&mut d).map_err(|e| e.to_string())?;
        mounted.map(|mounted| mounted.handle).map_err(|status| format!("mount {path}: {status:?}"))
    }

    /// Lists a directory. The number of names of files, and the handles of its directories.
    pub async fn list(&mut self, dir: &FileHandle) -> Result<(u64, Vec<FileHandle>), String> {
        let (mut cookie, mut verifier) = (0, [0; 8]);
        let (mut files, mut directories) = (0, Vec::new());
        loop {
            let args = ReaddirArgs {
                dir: dir.clone(),
                cookie,
                verifier,
                dir_count: LISTING_BYTES,
                max_count: LISTING_BYTES,
            };
            let mut d = self.call(nfs3::PROGRAM, procedure::READDIRPLUS, |e| args.encode(e, true)).await?;
            let page = match readdir::decode_readdir(&mut d, true).map_err(|e| e.to_string())? {
                Ok(page) => page,
                Err((NfsStatus::JUKEBOX, _)) => {
                    self.delayed += 1;
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
                Err((status, _)) => return Err(format!("list: {status:?}")),
            };
            verifier = page.verifier;
            for entry in page.entries {
                cookie = entry.cookie;
                let attr = entry.attr.ok_or("a name came without its attributes")?;
                let is_directory = attr.kind == FileType::Directory;
                if !is_directory {
                    files += 1;
                } else if entry.name != Bytes::from_static(b".") && entry.name != Bytes::from_static(b"..") {
                    directories.push(entry.handle.ok_or("a directory came without its handle")?);
                }
            }
            if page.eof {
                return Ok((files, directories));
            }
        }
    }

    /// Makes an empty file.
    pub async fn create(&mut self, dir: &FileHandle, name: Bytes) -> Result<(), String> {
        let set = Sattr3 { mode: Some(0o644), ..Sattr3::default() };
        let args = CreateArgs { place: DirOp { dir: dir.clone(), name }, how: CreateHow3::Unchecked(set) };
        loop {
            let mut d = self.call(nfs3::PROGRAM, procedure::CREATE, |e| args.encode(e)).await?;
            match create::decode_create(&mut d).map_err(|e| e.to_string())? {
                Ok(_) => return Ok(()),
                Err((NfsStatus::JUKEBOX, _)) => {
                    self.delayed += 1;
                    tokio::time::sleep(AGAIN).await;
                }
                Err((status, _)) => return Err(format!("create: {status:?}")),
            }
        }
    }
}
