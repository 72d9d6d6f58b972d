//! Messages over a connection: one task reads, one writes.
//!
//! Both ends of a link are bounded channels, so that the coordinator treats its own process's rank, which has no
//! socket, and the others alike. When a link is lost its channel of arrivals ends with the reason.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::frame::take_frame;
use crate::protocol::{FRAME_MAX, Message};

/// Messages under way to one peer. A peer has at most a step, its heartbeats and an end under way.
pub const QUEUE: usize = 64;
/// Read at once.
const READ_BYTES: usize = 64 << 10;

/// What a link brings.
#[derive(Debug)]
pub enum Arrival {
    Message(Message, Instant),
    /// Some of a message: the peer is alive.
    Bytes,
    /// Nothing comes after it.
    Lost(String),
}

pub struct MessageReader<R> {
    stream: R,
    arrived: BytesMut,
    message_max: usize,
    payload_max: usize,
}

impl<R: AsyncRead + Unpin> MessageReader<R> {
    /// No payloads, and messages of at most `message_max` bytes, until [`MessageReader::trust`].
    pub fn new(stream: R, message_max: usize) -> MessageReader<R> {
        MessageReader { stream, arrived: BytesMut::new(), message_max, payload_max: 0 }
    }

    /// The peer has proved itself.
    pub fn trust(&mut self, payload_max: usize) {
        self.message_max = FRAME_MAX;
        self.payload_max = payload_max;
    }

    /// The next message with its payload, or why there is none. Safe to cancel: all state is in the reader.
    pub async fn next(&mut self) -> Result<Message, String> {
        loop {
            if let Some(message) = self.advance().await? {
                return Ok(message);
            }
        }
    }

    /// A whole message, or some bytes of one.
    async fn advance(&mut self) -> Result<Option<Message>, String> {
        let frame_max = self.message_max.saturating_add(self.payload_max);
        if let Some((message, payload)) =
            take_frame::<Message>(&mut self.arrived, frame_max).map_err(|e| e.to_string())?
        {
            if payload.len() > self.payload_max {
                return Err(format!("it sent more than {} bytes at once", self.payload_max));
            }
            return message.with(payload).map(Some);
        }
        self.arrived.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.arrived).await {
            Ok(0) => Err("its connection closed".into()),
            Ok(_) => Ok(None),
            Err(e) => Err(format!("its connection failed: {e}")),
        }
    }

    /// Pass on all that comes, until the link or the receiver is gone.
    pub async fn run<T>(mut self, arrivals: mpsc::Sender<T>, wrap: impl Fn(Arrival) -> T) {
        loop {
            let arrival = match self.advance().await {
                Ok(Some(message)) => Arrival::Message(message, Instant::now()),
                // Only a sign of life: where there is no room for it, there are others.
                Ok(None) => {
                    let _ = arrivals.try_send(wrap(Arrival::Bytes));
                    continue;
                }
                Err(reason) => Arrival::Lost(reason),
            };
            let over = matches!(arrival, Arrival::Lost(_));
            if arrivals.send(wrap(arrival)).await.is_err() || over {
                return;
            }
        }
    }
}

/// Write all messages, until there is no sender any more, then say so to the peer. A write that makes no progress for
/// `patience` ends it: the peer is lost, and the reader's side or the heartbeat says so.
pub async fn write_all(
    mut stream: impl AsyncWrite + Unpin,
    mut messages: mpsc::Receiver<Message>,
    patience: Duration,
) {
    while let Some(message) = messages.recv().await {
        let bytes = message.encode();
        for piece in bytes.chunks(FRAME_MAX) {
            match timeout(patience, stream.write_all(piece)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }
    let _ = timeout(patience, stream.shutdown()).await;
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::protocol::Collective;

    fn gather(payload: Vec<u8>) -> Message {
        Message::Enter { round: 1, step: Collective::Gather, round_trip: 0, payload: Bytes::from(payload) }
    }

    /// The other end of a connection on which this is sent, and nothing else.
    fn reader_of(message: Message) -> MessageReader<tokio::io::DuplexStream> {
        let (near, far) = tokio::io::duplex(1000);
        let (sender, receiver) = mpsc::channel(QUEUE);
        sender.try_send(message).unwrap();
        tokio::spawn(write_all(near, receiver, Duration::from_secs(10)));
        MessageReader::new(far, FRAME_MAX)
    }

    #[tokio::test]
    async fn a_long_payload_arrives_whole() {
        let sent = gather((0..2_500_000_u32).map(|i| (i % 253) as u8).collect());
        let mut reader = reader_of(sent.clone());
        reader.trust(2_500_000);
        assert_eq!(reader.next().await.unwrap(), sent);
        assert_eq!(reader.next().await.unwrap_err(), "its connection closed");
    }

    #[tokio::test]
    async fn a_payload_beyond_the_limit_is_refused() {
        let mut reader = reader_of(gather(vec![0; 101]));
        reader.trust(100);
        assert!(reader.next().await.unwrap_err().contains("more than 100 bytes"));
    }

    #[tokio::test]
    async fn a_stranger_can_send_no_payload() {
        assert!(reader_of(gather(vec![0; 1])).next().await.is_err());
    }
}
