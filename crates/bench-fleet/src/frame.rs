//! Frames of what processes of a run say to each other, as bytes; and one message at a time over a stream.
//!
//! ```text
//! frame:    length u32 BE (of what follows) | message, JSON in one line | line feed | payload, raw bytes
//! ```
//!
//! Nothing is sized from a length before that is checked; a body takes memory as it arrives.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const HEAD: usize = 4;

/// The error for what a peer must not send.
fn malformed(why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("it sent what is not of this protocol: {why}"))
}

/// A message as JSON. The keys of maps in our messages are strings or integers, which JSON can write.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("keys of maps are strings or integers")
}

pub fn frame_of(message: &impl Serialize, payload: &[u8]) -> Bytes {
    let message = encode(message);
    let length = message.len() + 1 + payload.len();
    let mut out = BytesMut::with_capacity(HEAD + length);
    out.put_u32(u32::try_from(length).expect("payloads are bounded"));
    out.put_slice(&message);
    out.put_u8(b'\n');
    out.put_slice(payload);
    out.freeze()
}

/// Take one frame of at most `max` bytes off the front of what has arrived, as its message and payload; none if it is not
/// whole.
pub fn take_frame<T: DeserializeOwned>(arrived: &mut BytesMut, max: usize) -> io::Result<Option<(T, Bytes)>> {
    let Some(head) = arrived.first_chunk::<HEAD>() else { return Ok(None) };
    let length = length_of(*head, max)?;
    if arrived.len() < HEAD + length {
        return Ok(None);
    }
    decode(arrived.split_to(HEAD + length).split_off(HEAD).freeze()).map(Some)
}

fn length_of(head: [u8; HEAD], max: usize) -> io::Result<usize> {
    let length = usize::try_from(u32::from_be_bytes(head)).unwrap_or(usize::MAX);
    match length == 0 || length > max {
        true => Err(malformed(format_args!("a frame of {length} bytes, of at most {max}"))),
        false => Ok(length),
    }
}

/// What stands behind the length.
fn decode<T: DeserializeOwned>(mut body: Bytes) -> io::Result<(T, Bytes)> {
    let end = body.iter().position(|byte| *byte == b'\n').ok_or_else(|| malformed("a message has no end"))?;
    let message = serde_json::from_slice(&body.split_to(end)).map_err(malformed)?;
    Ok((message, body.split_off(1)))
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
    match decode(body.into())? {
        (message, payload) if payload.is_empty() => Ok(message),
        _ => Err(malformed("a payload where there is none")),
    }
}

pub async fn write_message(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &impl Serialize,
) -> io::Result<()> {
    stream.write_all(&frame_of(message, &[])).await
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
        assert_eq!(of(b"\0\0\0\x027\n").await, Ok(7));
        for malformed in [
            &b"GET / HTTP/1.1"[..],
            &[0; 4],
            b"\0\0\0\x02{\n",
            b"\0\0\0\x037\n7",
            b"\0\0\0\x0277",
            b"\0\0\0\x01\n",
        ] {
            assert_eq!(of(malformed).await, Err(io::ErrorKind::InvalidData), "{malformed:?}");
        }
        assert_eq!(of(b"\0\0\0\x027").await, Err(io::ErrorKind::UnexpectedEof));
    }
}
