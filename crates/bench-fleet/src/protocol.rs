//! What the members and the coordinator say to each other, as bytes (`frame.rs`). Pure: no sockets, no clocks.
//!
//! ```text
//! member                                   coordinator
//!                                <--       Challenge { version, nonce }
//! Hello { rank, proof, nonce }   -->
//!                                <--       Welcome { proof }    or Refused { reason, proof }
//! Ping                           -->  <--  Pong                 from now on; it is the heartbeat too
//!                                <--       Roster               all ranks are here
//! Enter { round, step }          -->
//!                                <--       Done                 when all ranks are in the same step
//! Abort { reason }               -->  <--  Ended { reason }     at any time
//! ```

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::frame::frame_of;
use crate::token::{Nonce, Proof};

/// The version of this protocol. Both sides must speak the same.
pub const VERSION: u32 = 2;
/// The longest frame of a side that has not proved itself.
pub const STRANGER_FRAME_MAX: usize = 4 << 10;
/// The longest frame without its payload: the places of 4096 ranks fit.
pub const FRAME_MAX: usize = 1 << 20;
/// The most bytes that a rank may give to a gather, or rank 0 to a broadcast. Rank 0 holds a gather whole.
pub const PAYLOAD_MAX: usize = 64 << 20;
/// Between heartbeats, which are also what clocks are compared by: clocks drift 0.1 ms in that.
pub const HEARTBEAT: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// The coordinator's first word to whoever connects.
    Challenge { version: u32, nonce: Nonce },
    /// The answer to it.
    Hello(Hello),
    /// The member is in.
    Welcome { proof: Proof },
    /// Proven only if the member was: then there is no use in trying again.
    Refused { reason: String, proof: Proof },
    /// All ranks, in order.
    Roster(Vec<RankPlace>),
    /// Member's nanoseconds.
    Ping { sent: u64 },
    /// The same, with the coordinator's nanoseconds.
    Pong { sent: u64, received: u64, answered: u64 },
    /// A rank begins a step.
    Enter {
        round: u64,
        step: Collective,
        /// The member's shortest round trip, nanoseconds.
        round_trip: u64,
        #[serde(skip)]
        payload: Bytes,
    },
    /// All ranks have entered the step.
    Done {
        round: u64,
        /// When a barrier ends, of the coordinator's clock, nanoseconds; 0 after other steps.
        start: u64,
        /// On rank 0, which is in the coordinator's process, what all gave to a gather. One at most goes over the wire.
        #[serde(skip)]
        parts: Vec<Bytes>,
    },
    /// A member ends the run.
    Abort { reason: String },
    /// The run has ended early.
    Ended { reason: String },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// Of the program; all ranks must run the same.
    pub build: String,
    pub place: RankPlace,
    /// How many ranks the member believes there are.
    pub size: u32,
    pub nonce: Nonce,
    pub proof: Proof,
}

/// A rank, with its host and process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankPlace {
    pub rank: u32,
    pub host: String,
    pub process: u32,
}

impl std::fmt::Display for RankPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} (host {}, process {})", self.rank, self.host, self.process)
    }
}

/// A step that all ranks take together. They must be in the same step of the same round.
#[derive(Clone, Debug, strum::Display, PartialEq, Eq, Serialize, Deserialize)]
pub enum Collective {
    #[strum(to_string = "the barrier \"{name}\"")]
    Barrier { name: String },
    #[strum(to_string = "a gather")]
    Gather,
    #[strum(to_string = "a broadcast")]
    Broadcast,
    #[strum(to_string = "the end")]
    Finish,
}

impl Message {
    pub fn encode(&self) -> Bytes {
        frame_of(
            self,
            match self {
                Message::Enter { payload, .. } => payload,
                Message::Done { parts, .. } => parts.first().map_or(&[], |part| part),
                _ => &[],
            },
        )
    }

    /// The message with its payload; an error for a payload of a message that has none.
    pub fn with(mut self, payload: Bytes) -> Result<Message, String> {
        match &mut self {
            Message::Enter { payload: place, .. } => *place = payload,
            Message::Done { parts, .. } => parts.push(payload),
            _ if payload.is_empty() => {}
            _ => return Err("it sent a payload with a message that has none".into()),
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};

    use super::*;
    use crate::frame::take_frame;

    fn step(payload: Bytes) -> Message {
        Message::Enter { round: 7, step: Collective::Gather, round_trip: 1000, payload }
    }

    fn frames(bytes: &[u8]) -> std::io::Result<Vec<(Message, Bytes)>> {
        let mut arrived = BytesMut::from(bytes);
        let mut found = Vec::new();
        while let Some(frame) = take_frame(&mut arrived, 4 * FRAME_MAX)? {
            found.push(frame);
        }
        Ok(found)
    }

    #[test]
    fn a_message_comes_back_whatever_its_payload() {
        for length in [0, 1, FRAME_MAX - 2, FRAME_MAX - 1, FRAME_MAX, 3 * FRAME_MAX + 5] {
            let message = step((0..length).map(|i| (i % 251) as u8).collect());
            let mut found = frames(&[message.encode(), message.encode()].concat()).unwrap();
            let (found_last, payload) = found.pop().unwrap();
            assert_eq!(found_last.with(payload).unwrap(), message);
            assert_eq!(found.len(), 1);
        }
    }

    #[test]
    fn half_a_frame_waits_for_the_rest() {
        let bytes = step(Bytes::from_static(b"payload")).encode();
        for cut in 0..bytes.len() {
            let mut half = BytesMut::from(&bytes[..cut]);
            assert_eq!(take_frame::<Message>(&mut half, FRAME_MAX).unwrap(), None);
        }
    }

    #[test]
    fn what_is_too_long_or_unknown_is_malformed() {
        let mut long = BytesMut::new();
        long.put_u32(u32::MAX);
        assert!(take_frame::<Message>(&mut long, FRAME_MAX).is_err());
        assert!(frames(&[0, 0, 0, 0]).is_err());
        assert!(frames(&[0, 0, 0, 1, 9]).is_err());
        assert!(frames(&[0, 0, 0, 3, b'{', b'}', b'\n']).is_err());
        assert!(frames(b"GET / HTTP/1.1\r\n\r\n").is_err());
        assert!(take_frame::<Message>(&mut BytesMut::from(&[0, 0, 32, 0][..]), STRANGER_FRAME_MAX).is_err());
    }

    #[test]
    fn damaged_messages_never_panic() {
        let good = Message::Roster(vec![RankPlace { rank: 1, host: "a".into(), process: 4 }]).encode();
        let mut random = relay::SplitMix::new(1);
        for _ in 0..20_000 {
            let mut bytes = good.to_vec();
            for _ in 0..3 {
                let place = random.draw() as usize % bytes.len();
                bytes[place] = random.draw() as u8;
            }
            let _ = frames(&bytes);
        }
    }
}
