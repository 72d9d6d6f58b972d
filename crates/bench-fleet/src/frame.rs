//! Frames of what processes of a run say to each other, as bytes; and one message at a time over a stream.
//!
//! ```text
//! frame:    length u32 BE (of what follows) | kind u8 | body
//! kind 0:   a message, JSON
//! kind 1:   a piece of the payload of the message that comes next, raw bytes
//! ```
//!
//! Nothing is sized from a length before that is checked; a body takes memory as it arrives.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const HEAD: usize = 4;

#[derive(Debug, PartialEq)]
pub enum WireFrame<T> {
    Message(Box<T>),
    Piece(Bytes),
}

/// The error for what a peer must not send.
fn malformed(why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("it sent what is not of this protocol: {why}"))
}

/// The body of a message's frame. The keys of maps in our messages are strings or integers, which JSON can write.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("keys of maps are strings or integers")
}

/// The kinds of frames.
pub const MESSAGE: u8 = 0;
pub const PIECE: u8 = 1;

pub fn put_frame(out: &mut BytesMut, kind: u8, body: &[u8]) {
    let length = u32::try_from(body.len() + 1).expect("we cut longer ones in pieces");
    out.put_u32(length);
    out.put_u8(kind);
    out.put_slice(body);
}

/// Take one frame of at most `max` bytes off the front of what has arrived; none if it is not whole.
pub fn take_frame<T: DeserializeOwned>(
    arrived: &mut BytesMut,
    max: usize,
) -> io::Result<Option<WireFrame<T>>> {
    let Some(head) = arrived.first_chunk::<HEAD>() else { return Ok(None) };
    let length = length_of(*head, max)?;
    if arrived.len() < HEAD + length {
        return Ok(None);
    }
    decode(arrived.split_to(HEAD + length).split_off(HEAD)).map(Some)
}

fn length_of(head: [u8; HEAD], max: usize) -> io::Result<usize> {
    let length = usize::try_from(u32::from_be_bytes(head)).unwrap_or(usize::MAX);
    match length == 0 || length > max {
        true => Err(malformed(format_args!("a frame of {length} bytes, of at most {max}"))),
        false => Ok(length),
    }
}

/// What stands behind the length.
fn decode<T: DeserializeOwned>(mut body: BytesMut) -> io::Result<WireFrame<T>> {
    match body.split_to(1).first() {
        Some(&MESSAGE) => Ok(WireFrame::Message(serde_json::from_slice(&body).map_err(malformed)?)),
        Some(&PIECE) => Ok(WireFrame::Piece(body.freeze())),
        kind => Err(malformed(format_args!("a frame of kind {kind:?}"))),
    }
}

/// One message of at most `max` bytes, and nothing that comes after it.
pub async fn read_message<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
    max: usize,
) -> io::Result<T> {
    let mut head = [0; HEAD];
    stream.read_exact(&mut head).await?;
    let length = length_of(head, max)?;
    let mut body = Vec::new();
    (&mut *stream).take(length as u64).read_to_end(&mut body).await?;
    if body.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match decode(BytesMut::from(Bytes::from(body)))? {
        WireFrame::Message(message) => Ok(*message),
        WireFrame::Piece(_) => Err(malformed("a piece without its message")),
    }
}

pub async fn write_message(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &impl Serialize,
) -> io::Result<()> {
    let mut out = BytesMut::new();
    put_frame(&mut out, MESSAGE, &encode(message));
    stream.write_all(&out).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_message_is_read_and_not_a_byte_behind_it() {
        let (mut near, mut far) = tokio::io::duplex(1 << 10);
        write_message(&mut near, &vec!["a", "b"]).await.expect("sent");
        near.write_all(b"data").await.expect("sent");
        drop(near);
        assert_eq!(read_message::<Vec<String>>(&mut far, 100).await.expect("a message"), ["a", "b"]);
        let mut rest = Vec::new();
        far.read_to_end(&mut rest).await.expect("the rest");
        assert_eq!(rest, b"data");
    }

    #[tokio::test]
    async fn what_is_no_message_is_refused() {
        let of =
            async |mut bytes: &'static [u8]| read_message::<u32>(&mut bytes, 100).await.map_err(|e| e.kind());
        assert_eq!(of(&[0, 0, 0, 2, 0, b'7']).await, Ok(7));
        for malformed in [
            &b"GET / HTTP/1.1"[..],
            &[0; 4],
            &[0, 0, 0, 2, 0, b'{'],
            &[0, 0, 0, 2, 1, b'7'],
            &[0, 0, 0, 1, 9],
        ] {
            assert_eq!(of(malformed).await, Err(io::ErrorKind::InvalidData), "{malformed:?}");
        }
        assert_eq!(of(&[0, 0, 0, 2, 0]).await, Err(io::ErrorKind::UnexpectedEof));
    }
}
