//! One question to a tier, over its Unix socket where that is found, else over TCP.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use program::http;
use quantity::Address;
use serde_json::Value;
use types::{Error, ErrorKind, Result};

use tier::door;
use tier::settings::ADMIN_DEFAULT;

const CONNECT: Duration = Duration::from_secs(5);
/// Of an answer; metrics of many junctions are long.
const ANSWER_MAX: usize = 64 << 20;
/// The token, for a tier on another machine.
const TOKEN_VARIABLE: &str = "FOREBAY_ADMIN_TOKEN";

// What every command that asks a tier takes.
#[derive(Args, Clone, Debug)]
pub struct ClientArgs {
    /// Where the running tier answers: its address, or the path of its socket
    #[arg(long, value_name = "ADDR", default_value_t = AdminAt::Tcp(ADMIN_DEFAULT))]
    pub admin: AdminAt,
    /// The tier's admin.token, for who is not its user or asks from another machine [default: FOREBAY_ADMIN_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Where a tier is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminAt {
    Tcp(Address),
    /// An absolute path.
    Socket(PathBuf),
}

impl FromStr for AdminAt {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<AdminAt, String> {
        if text.starts_with('/') {
            return Ok(AdminAt::Socket(PathBuf::from(text)));
        }
        text.parse().map(AdminAt::Tcp)
    }
}

impl fmt::Display for AdminAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdminAt::Tcp(address) => address.to_reach().fmt(f),
            AdminAt::Socket(path) => path.display().fmt(f),
        }
    }
}

/// Ask, and read the answer. `patience`: with the whole.
pub fn ask(
    args: &ClientArgs,
    method: Method,
    path: &str,
    body: Option<&Value>,
    patience: Option<Duration>,
) -> Result<Value> {
    let mut request = Request::builder().method(method).uri(path);
    request = match &args.admin {
        AdminAt::Tcp(address) => request.header(HOST, address.to_reach().to_string()),
        AdminAt::Socket(_) => request.header(HOST, "localhost"),
    };
    if let Some(token) = token(args.token_file.as_deref())? {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let body = match body {
        Some(body) => {
            request = request.header(CONTENT_TYPE, "application/json");
            Full::from(body.to_string())
        }
        None => Full::default(),
    };
    let wrong = |e: &dyn fmt::Display| Error::new(ErrorKind::Config, "ask the tier:", e.to_string());
    let request = request.body(body).map_err(|e| wrong(&e))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Error::io("start", "the runtime", e))?;
    let answer = runtime.block_on(async {
        match patience {
            Some(patience) => tokio::time::timeout(patience, exchange(&args.admin, request))
                .await
                .unwrap_or_else(|_| Err(format!("no answer in {patience:?}"))),
            None => exchange(&args.admin, request).await,
        }
    });
    let answer = answer.map_err(|e| {
        let hint = "start one with forebay serve, or name it with --admin ADDR";
        refused(format!("no tier answers at {}: {hint} ({e})", args.admin))
    })?;
    serde_json::from_slice(&answer)
        .map_err(|e| refused(format!("what answers at {} is no forebay tier ({e})", args.admin)))
}

pub fn refused(message: String) -> Error {
    Error::new(ErrorKind::Unavailable, "ask", "the tier").with_source(std::io::Error::other(message))
}

fn token(file: Option<&Path>) -> Result<Option<String>> {
    let Some(path) = file else { return Ok(std::env::var(TOKEN_VARIABLE).ok()) };
    let read = std::fs::read_to_string(path);
    read.map(|text| Some(text.trim().to_owned())).map_err(|e| {
        let message = format!("{}: {e}; name the tier's admin.token, or a copy", path.display());
        Error::new(ErrorKind::Config, "--token-file:", message)
    })
}

async fn exchange(at: &AdminAt, request: Request<Full<Bytes>>) -> std::result::Result<Bytes, String> {
    let failed = |e: std::io::Error| e.to_string();
    let socket = match at {
        AdminAt::Socket(path) => Some(door::connect(path).map_err(failed)?),
        AdminAt::Tcp(address) => door::find(*address),
    };
    if let Some(socket) = socket {
        socket.set_nonblocking(true).map_err(failed)?;
        let stream = tokio::net::UnixStream::from_std(socket).map_err(failed)?;
        return Ok(http::exchange(stream, request, ANSWER_MAX).await?.into_body());
    }
    let AdminAt::Tcp(address) = at else { return Err("no socket".to_owned()) };
    let connecting = tokio::net::TcpStream::connect(address.to_reach());
    let stream = tokio::time::timeout(CONNECT, connecting).await;
    let stream = stream.map_err(|_| format!("no connection in {CONNECT:?}"))?.map_err(failed)?;
    Ok(http::exchange(stream, request, ANSWER_MAX).await?.into_body())
}
