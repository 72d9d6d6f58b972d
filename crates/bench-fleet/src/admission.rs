//! The handshake: both sides prove that they know the token before anything else is said.
//!
//! A connection that does not do that within its time, or sends anything else, is closed; the run does not notice.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use crate::protocol::{Hello, Message, RankPlace, STRANGER_FRAME_MAX, VERSION};
use crate::token::{Nonce, Proof, RunToken, Side, random_bytes};
use crate::wire::MessageReader;

/// A stranger's connection is closed after this; on any network that a bench runs on, a handshake takes less.
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// Why a side that does not know the token is not let in.
pub const WRONG_TOKEN: &str = "the token is another run's";

/// A connection whose other side is of this run.
pub struct Connection {
    pub reader: MessageReader<OwnedReadHalf>,
    pub writer: OwnedWriteHalf,
}

/// One that has proved itself, and waits for welcome or refusal.
pub struct Applicant {
    pub connection: Connection,
    pub hello: Hello,
    nonce: Nonce,
    token: RunToken,
}

/// Why a member was not let in.
#[derive(Debug)]
pub enum NotIn {
    /// Another address or another moment may be better.
    Try(String),
    /// By the coordinator of this run itself.
    Refused(String),
}

impl Applicant {
    pub fn welcome(&self) -> Message {
        Message::Welcome { proof: self.proof(b"welcome") }
    }

    pub fn refusal(&self, reason: &str) -> Message {
        Message::Refused { reason: reason.to_owned(), proof: self.proof(reason.as_bytes()) }
    }

    fn proof(&self, what: &[u8]) -> Proof {
        self.token.prove(Side::FleetCoordinator, &self.nonce, &self.hello.nonce, what)
    }
}

/// A member, as it must present itself.
pub struct MemberIdentity<'a> {
    pub token: &'a RunToken,
    pub place: &'a RankPlace,
    pub size: u32,
    pub build: &'a str,
}

/// The coordinator's side. An error says why the connection is none of this run's.
pub async fn admit(stream: TcpStream, token: &RunToken) -> Result<Applicant, String> {
    let challenged = timeout(HANDSHAKE_MAX, challenge(stream, token)).await;
    challenged.unwrap_or_else(|_| Err("it said nothing in time".into()))
}

async fn challenge(stream: TcpStream, token: &RunToken) -> Result<Applicant, String> {
    let nonce = random_bytes().map_err(|e| e.to_string())?;
    let mut connection = open(stream)?;
    send(&mut connection, Message::Challenge { version: VERSION, nonce }).await?;
    let Message::Hello(hello) = connection.reader.next().await? else {
        return Err("it did not say who it is".into());
    };
    if !token.is_proven(&hello.proof, Side::Member, &nonce, &hello.nonce, &meant(&hello)) {
        let reason = WRONG_TOKEN.to_owned();
        send(&mut connection, Message::Refused { reason: reason.clone(), proof: [0; 16] }).await?;
        return Err(reason);
    }
    Ok(Applicant { connection, hello, nonce, token: token.clone() })
}

/// The member's side: connect to one address and be let in.
pub async fn enter(address: std::net::SocketAddr, member: &MemberIdentity<'_>) -> Result<Connection, NotIn> {
    let connect = timeout(Duration::from_secs(2), TcpStream::connect(address)).await;
    let stream = connect.map_err(|_| NotIn::Try("no answer".into()))?;
    enter_by(stream.map_err(|e| NotIn::Try(e.to_string()))?, member).await
}

/// The member's side on a connection that is there: be let in.
pub async fn enter_by(stream: TcpStream, member: &MemberIdentity<'_>) -> Result<Connection, NotIn> {
    let answered = timeout(HANDSHAKE_MAX, answer(stream, member)).await;
    answered.unwrap_or_else(|_| Err(NotIn::Try("it does not answer as a coordinator does".into())))
}

async fn answer(stream: TcpStream, member: &MemberIdentity<'_>) -> Result<Connection, NotIn> {
    let &MemberIdentity { token, place, size, build } = member;
    let mut connection = open(stream).map_err(NotIn::Try)?;
    let challenge = connection.reader.next().await.map_err(NotIn::Try)?;
    let Message::Challenge { version, nonce: theirs } = challenge else {
        return Err(NotIn::Try("it is no coordinator".into()));
    };
    if version != VERSION {
        let what = format!(
            "it speaks version {version} of the protocol, this program {VERSION}: use one program on all"
        );
        return Err(NotIn::Try(what));
    }
    let nonce = random_bytes().map_err(|e| NotIn::Try(e.to_string()))?;
    let mut hello = Hello { build: build.into(), place: place.clone(), size, nonce, proof: [0; 16] };
    hello.proof = token.prove(Side::Member, &theirs, &nonce, &meant(&hello));
    send(&mut connection, Message::Hello(hello)).await.map_err(NotIn::Try)?;
    let proven = |proof, what: &[u8]| token.is_proven(&proof, Side::FleetCoordinator, &theirs, &nonce, what);
    match connection.reader.next().await.map_err(NotIn::Try)? {
        Message::Welcome { proof } if proven(proof, b"welcome") => Ok(connection),
        Message::Refused { reason, proof } if proven(proof, reason.as_bytes()) => Err(NotIn::Refused(reason)),
        Message::Refused { reason, .. } => Err(NotIn::Try(reason)),
        _ => Err(NotIn::Try("it does not know this run's token".into())),
    }
}

/// The bytes that a member's proof covers, so that nobody changes them on their way.
fn meant(hello: &Hello) -> Vec<u8> {
    let what = (&hello.place, hello.size, &hello.build);
    serde_json::to_vec(&what).expect("strings and numbers are always JSON")
}

fn open(stream: TcpStream) -> Result<Connection, String> {
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    let (reader, writer) = stream.into_split();
    Ok(Connection { reader: MessageReader::new(reader, STRANGER_FRAME_MAX), writer })
}

async fn send(connection: &mut Connection, message: Message) -> Result<(), String> {
    connection.writer.write_all(&message.encode()).await.map_err(|e| e.to_string())
}
