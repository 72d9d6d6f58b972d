//! What the answer to a change proves.
//!
//! A call whose connection is lost is sent again under its old xid. Servers with a duplicate request cache then
//! answer as the first time, but none has to: they may execute the call twice. To a REMOVE the second answer is then
//! "no such name", to a MKDIR "exists", though the change was made. Nothing here guesses which it was: a failure of
//! a call that was sent more than once, and silence after a call was sent at all, are `ErrorKind::OutcomeUnknown`,
//! with the failure as the source. Only calls that are idempotent (WRITE, COMMIT, and others where it is said) keep
//! their errors as they are, and may simply be repeated.

use bytes::Bytes;
use rpc_nfs3::nfs3::NfsResult;
use rpc_nfs3::xdr::WireResult;
use rpc_nfs3::{XdrDecoder, XdrEncoder};
use types::{Error, Result};

use crate::connection_pool::{CallReply, Lane};
use crate::origin::{NfsOrigin, ok_or_status};

/// A change that succeeded.
#[derive(Clone, Debug)]
pub struct ChangeDone<T> {
    pub value: T,
    /// The call went out more than once, so the server may have carried it out more than once, the last time
    /// after changes that others made meanwhile.
    pub resent: bool,
}

/// Whether a change carried out twice leaves the same as once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    Harmless,
    Matters,
}

/// A procedure that changes something.
#[derive(Clone, Copy, Debug)]
pub struct Procedure {
    /// A verb phrase, for messages.
    pub what: &'static str,
    pub number: u32,
    pub lane: Lane,
    pub twice: Repetition,
}

impl NfsOrigin {
    /// `payload` is sent behind what `encode` appends.
    pub(crate) async fn deliver<T, F>(
        &self,
        procedure: Procedure,
        encode: impl FnOnce(&mut XdrEncoder),
        payload: Bytes,
        decode: impl FnOnce(&mut XdrDecoder) -> WireResult<NfsResult<T, F>>,
    ) -> Result<ChangeDone<T>> {
        let Procedure { what, number, lane, twice } = procedure;
        let CallReply { answer, sends } = self.pool.change(lane, what, number, encode, payload, decode).await;
        let answer = answer.map(|reply| reply.and_then(|outcome| ok_or_status(what, self.place(), outcome)));
        judge(twice, what, &self.place(), CallReply { answer, sends })
    }
}

/// `reply` with the server's own refusals already among its errors.
fn judge<T>(
    twice: Repetition,
    operation: &'static str,
    place: &str,
    reply: CallReply<T>,
) -> Result<ChangeDone<T>> {
    let CallReply { answer, sends } = reply;
    let (error, certain) = match answer {
        Ok(Ok(value)) => return Ok(ChangeDone { value, resent: sends > 1 }),
        Ok(Err(refusal)) => (refusal, sends <= 1),
        Err(silence) => (silence, sends == 0),
    };
    if certain || twice == Repetition::Harmless {
        return Err(error);
    }
    Err(Error::doubtful(operation, place, error))
}

#[cfg(test)]
mod tests {
    use types::ErrorKind;

    use super::*;

    fn judged(twice: Repetition, answer: Result<Result<()>>, sends: u32) -> Result<ChangeDone<()>> {
        judge(twice, "remove", "nas:/export", CallReply { answer, sends })
    }

    fn error(kind: ErrorKind) -> Error {
        Error::new(kind, "remove", "nas:/export")
    }

    #[test]
    fn a_refusal_stands_only_if_the_call_went_out_once() {
        let refusal = || Ok(Err(error(ErrorKind::NotFound)));
        let once = judged(Repetition::Matters, refusal(), 1).expect_err("refused");
        assert_eq!(once.kind(), ErrorKind::NotFound);
        assert!(once.doubtful_answer().is_none());
        let again = judged(Repetition::Matters, refusal(), 2).expect_err("refused, perhaps");
        assert_eq!(again.kind(), ErrorKind::OutcomeUnknown);
        assert!(!again.is_retryable());
        assert_eq!(again.doubtful_answer().map(Error::kind), Some(ErrorKind::NotFound));
        let harmless = judged(Repetition::Harmless, refusal(), 2).expect_err("refused");
        assert_eq!(harmless.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn silence_is_doubtful_as_soon_as_the_call_went_out() {
        let silence = || Err(error(ErrorKind::Unavailable));
        for (sends, kind) in [(0, ErrorKind::Unavailable), (1, ErrorKind::OutcomeUnknown)] {
            assert_eq!(judged(Repetition::Matters, silence(), sends).expect_err("silence").kind(), kind);
        }
        let harmless = judged(Repetition::Harmless, silence(), 1).expect_err("silence");
        assert!(harmless.is_retryable());
    }

    #[test]
    fn success_is_success_and_tells_how_it_came() {
        for (sends, resent) in [(1, false), (2, true)] {
            assert_eq!(
                judged(Repetition::Matters, Ok(Ok(())), sends).map(|done| done.resent).ok(),
                Some(resent)
            );
        }
    }
}
