//! The calls of one connection: which wait to be sent, which wait for a reply, and whether the server can
//! be reached.
//!
//! Pure state under one small lock; `connection.rs` moves the bytes. A call stays here until it is
//! answered, given up by its caller or failed by an outage, so that after a reconnect everything here is
//! sent again, under its old number: a server that remembers its replies knows it by that. How often a call
//! went out is counted, for callers to whom it matters.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rpc_nfs3::rpc::ReplyStatus;
use rpc_nfs3::xdr::padding;
use rpc_nfs3::{XdrDecoder, XdrEncoder};
use tokio::sync::oneshot;
use types::{Error, Result};

use crate::exchange::finish_call;

/// A reply's status and its undecoded results.
pub type CallAnswer = Result<(ReplyStatus, XdrDecoder)>;

/// The outcome of a call.
pub struct DeliveredCall {
    pub answer: CallAnswer,
    /// How often it went out, or at least began to.
    pub sends: u32,
}

/// A call to be sent.
pub struct OutgoingCall {
    /// The encoded header and arguments (`begin_call`).
    pub head: XdrEncoder,
    /// The data of a WRITE, sent behind the head without being copied.
    pub payload: Bytes,
    /// The server may take long over it (a COMMIT waits for a disk): its silence does not count as the connection's.
    pub patient: bool,
}

impl OutgoingCall {
    pub fn small(head: XdrEncoder) -> OutgoingCall {
        OutgoingCall { head, payload: Bytes::new(), patient: false }
    }
}

/// The bytes of one write: messages, and the payload of the last one behind them.
#[derive(Default)]
pub struct Batch {
    pub messages: Vec<u8>,
    pub payload: Bytes,
}

impl Batch {
    pub fn clear(&mut self) {
        self.messages.clear();
        self.payload = Bytes::new();
    }

    /// The XDR padding behind the payload.
    pub fn padding(&self) -> &'static [u8] {
        const ZEROS: &[u8] = &[0; 3];
        ZEROS.get(..padding(self.payload.len())).unwrap_or_default()
    }
}

struct PendingCall {
    message: Bytes,
    payload: Bytes,
    answer: oneshot::Sender<DeliveredCall>,
    patient: bool,
    sent: Option<Instant>,
    sends: u32,
    /// Connections that broke their frame while this call was on them.
    garbled: u32,
}

/// A call on which this many connections in a row answered nonsense is given up.
const GARBLED_MAX: u32 = 3;

#[derive(Clone, Debug)]
pub enum Reachability {
    Up,
    /// Not connected since then; calls wait.
    Lost(Instant),
    /// Out of reach for longer than the grace; calls fail with this.
    Down(Error),
}

pub struct PendingCalls {
    calls: HashMap<u32, PendingCall>,
    unsent: VecDeque<u32>,
    next_xid: u32,
    reach: Reachability,
}

impl PendingCalls {
    pub fn new(first_xid: u32, now: Instant) -> PendingCalls {
        PendingCalls {
            calls: HashMap::new(),
            unsent: VecDeque::new(),
            next_xid: first_xid,
            reach: Reachability::Lost(now),
        }
    }

    pub fn reach(&self) -> &Reachability {
        &self.reach
    }

    /// Takes a call in; fails at once while the server is down. How many may be in here at once is bounded
    /// by the connection's permits.
    pub fn submit(&mut self, call: OutgoingCall) -> Result<(u32, oneshot::Receiver<DeliveredCall>)> {
        if let Reachability::Down(error) = &self.reach {
            return Err(error.clone());
        }
        while self.calls.contains_key(&self.next_xid) {
            self.next_xid = self.next_xid.wrapping_add(1);
        }
        let xid = self.next_xid;
        self.next_xid = xid.wrapping_add(1);
        let (answer, receiver) = oneshot::channel();
        let OutgoingCall { head, payload, patient } = call;
        let message = finish_call(head, xid, payload.len() + padding(payload.len()));
        self.calls
            .insert(xid, PendingCall { message, payload, answer, patient, sent: None, sends: 0, garbled: 0 });
        self.unsent.push_back(xid);
        Ok((xid, receiver))
    }

    /// The caller does not want the answer any more.
    pub fn forget(&mut self, xid: u32) {
        self.calls.remove(&xid);
        // Its xid in `unsent` is skipped when it comes up; while nothing is sent they must not heap up.
        if self.unsent.len() > 2 * self.calls.len() + 64 {
            self.unsent.retain(|xid| self.calls.contains_key(xid));
        }
    }

    /// Fills an empty `out` with about `bytes` of messages, or up to the first that has a payload; false if
    /// there was nothing to send.
    pub fn take_unsent(&mut self, out: &mut Batch, bytes: usize, now: Instant) -> bool {
        while out.messages.len() < bytes && out.payload.is_empty() {
            let Some(xid) = self.unsent.pop_front() else { break };
            if let Some(call) = self.calls.get_mut(&xid) {
                call.sent = Some(now);
                call.sends = call.sends.saturating_add(1);
                out.messages.extend_from_slice(&call.message);
                out.payload = call.payload.clone();
            }
        }
        !out.messages.is_empty()
    }

    /// How often a call went out. `None` if it is not here any more.
    pub fn sends(&self, xid: u32) -> Option<u32> {
        self.calls.get(&xid).map(|call| call.sends)
    }

    /// False for a reply that nobody waits for: a late one, or one to a retransmission.
    pub fn deliver_reply(&mut self, xid: u32, status: ReplyStatus, results: XdrDecoder) -> bool {
        match self.calls.remove(&xid) {
            // The caller may be gone in this very moment.
            Some(call) => {
                call.answer.send(DeliveredCall { answer: Ok((status, results)), sends: call.sends }).is_ok()
            }
            None => false,
        }
    }

    /// Since when the oldest call that was sent, and that a server answers without delay, waits.
    pub fn oldest_sent(&self) -> Option<Instant> {
        self.calls.values().filter(|call| !call.patient).filter_map(|call| call.sent).min()
    }

    /// Since when the oldest call over which the server may take its time waits.
    pub fn oldest_patient(&self) -> Option<Instant> {
        self.calls.values().filter(|call| call.patient).filter_map(|call| call.sent).min()
    }

    /// A new connection: all that is not answered is to be sent again, oldest first.
    pub fn connected(&mut self) {
        self.reach = Reachability::Up;
        let mut xids: Vec<u32> = self.calls.keys().copied().collect();
        let base = self.next_xid;
        // The numbers wrap: order by distance from the next one.
        xids.sort_unstable_by_key(|xid| std::cmp::Reverse(base.wrapping_sub(*xid)));
        self.unsent = xids.into();
        self.calls.values_mut().for_each(|call| call.sent = None);
    }

    /// The connection ended. `garbled` if the server broke the protocol on it: calls that see that again
    /// and again fail.
    pub fn connection_lost(&mut self, error: &Error, garbled: bool, now: Instant) {
        self.reach = Reachability::Lost(now);
        if !garbled {
            return;
        }
        let hopeless: Vec<u32> = self
            .calls
            .iter_mut()
            .filter(|(_, call)| call.sent.is_some())
            .filter_map(|(xid, call)| {
                call.garbled += 1;
                (call.garbled >= GARBLED_MAX).then_some(*xid)
            })
            .collect();
        for xid in hopeless {
            self.fail(xid, error);
        }
    }

    /// An attempt to connect failed. After the grace all calls fail.
    pub fn unreachable(&mut self, error: &Error, grace: Duration, now: Instant) {
        match &self.reach {
            Reachability::Lost(since) if now.saturating_duration_since(*since) < grace => return,
            _ => {}
        }
        self.reach = Reachability::Down(error.clone());
        let all: Vec<u32> = self.calls.keys().copied().collect();
        for xid in all {
            self.fail(xid, error);
        }
        self.unsent.clear();
    }

    fn fail(&mut self, xid: u32, error: &Error) {
        if let Some(call) = self.calls.remove(&xid) {
            // The caller may be gone in this very moment.
            let _ = call.answer.send(DeliveredCall { answer: Err(error.clone()), sends: call.sends });
        }
    }
}

#[cfg(test)]
mod tests {
    use types::ErrorKind;

    use super::*;

    fn call() -> OutgoingCall {
        let mut e = XdrEncoder::default();
        [0, 0, 7].iter().for_each(|w| e.u32(*w));
        OutgoingCall::small(e)
    }

    fn xids(state: &mut PendingCalls) -> Vec<u32> {
        let mut out = Batch::default();
        state.take_unsent(&mut out, usize::MAX, Instant::now());
        out.messages.chunks(12).map(|m| u32::from_be_bytes(m[4..8].try_into().expect("four bytes"))).collect()
    }

    #[test]
    fn after_a_reconnect_the_oldest_unanswered_call_goes_first_even_when_xids_wrap() {
        let mut state = PendingCalls::new(u32::MAX - 1, Instant::now());
        let mut waiting = Vec::new();
        for _ in 0..4 {
            waiting.push(state.submit(call()).expect("not down"));
        }
        assert_eq!(xids(&mut state), [u32::MAX - 1, u32::MAX, 0, 1]);
        assert!(state.deliver_reply(u32::MAX, ReplyStatus::Success, XdrDecoder::new(Bytes::new())));
        state.connected();
        assert_eq!(xids(&mut state), [u32::MAX - 1, 0, 1]);
        assert!(!state.deliver_reply(u32::MAX, ReplyStatus::Success, XdrDecoder::new(Bytes::new())));
    }

    #[test]
    fn calls_wait_through_the_grace_and_fail_after_it() {
        let start = Instant::now();
        let grace = Duration::from_secs(2);
        let gone = Error::new(ErrorKind::Unavailable, "connect to", "x");
        let mut state = PendingCalls::new(1, start);
        let (_, mut answer) = state.submit(call()).expect("not down yet");
        state.unreachable(&gone, grace, start + Duration::from_secs(1));
        assert!(answer.try_recv().is_err());
        state.unreachable(&gone, grace, start + Duration::from_secs(3));
        let failed = answer.try_recv().expect("told");
        assert!(failed.answer.is_err() && failed.sends == 0, "it never went out");
        assert!(state.submit(call()).is_err());
        state.connected();
        assert!(state.submit(call()).is_ok());
    }

    #[test]
    fn forgotten_calls_leave_nothing_behind() {
        let mut state = PendingCalls::new(1, Instant::now());
        for _ in 0..10_000 {
            let (xid, _) = state.submit(call()).expect("not down");
            state.forget(xid);
        }
        assert!(state.calls.is_empty() && state.unsent.len() <= 64);
        assert!(xids(&mut state).is_empty());
    }
}
