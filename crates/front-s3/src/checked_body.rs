//! A request's body as its operation reads it: decoded, bounded by the announced length, checked against the
//! signature, and with a time limit. An error may show at the last byte only, so nobody may act on a part of the
//! body.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fair::{MemoryPermit, Offence};
use http_body::{Body, Frame, SizeHint};
use sha2::{Digest, Sha256};

use crate::aws_chunked::AwsChunkedDecoder;
use crate::body_error::BodyError;
use crate::body_intake::BodyIntake;
use crate::sigv4::PayloadSigning;

/// The trailer headers, with names in lower case. They are set when the body has ended.
#[derive(Clone, Debug, Default)]
pub struct Trailer(Arc<Mutex<Vec<(String, String)>>>);

impl Trailer {
    pub fn get(&self, name: &str) -> Option<String> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    /// Whether a name in the trailer satisfies `is`.
    pub fn has(&self, is: impl Fn(&str) -> bool) -> bool {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().any(|(name, _)| is(name))
    }

    fn set(&self, lines: Vec<(String, String)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = lines;
    }
}

pub struct CheckedBody<B> {
    inner: B,
    /// The decoded bytes that are still to arrive.
    left: u64,
    check: Check,
    /// Bytes that have arrived and are not decoded yet.
    raw: Bytes,
    trailer: Trailer,
    intake: BodyIntake,
    /// Bytes that have arrived and wait for a memory permit.
    before_room: Option<Bytes>,
    is_over: bool,
}

enum Check {
    Nothing,
    Sha256 { so_far: Sha256, expected: [u8; 32] },
    Chunks(Box<AwsChunkedDecoder>),
}

impl<B: Body<Data = Bytes> + Unpin> CheckedBody<B> {
    /// `length`: the length of the decoded body.
    pub fn new(
        inner: B,
        length: u64,
        payload: PayloadSigning,
        trailer: Trailer,
        intake: BodyIntake,
    ) -> CheckedBody<B> {
        let check = match payload {
            PayloadSigning::Unsigned => Check::Nothing,
            PayloadSigning::Sha256(expected) => Check::Sha256 { so_far: Sha256::new(), expected },
            PayloadSigning::Chunks { signer, trailer } => {
                Check::Chunks(Box::new(AwsChunkedDecoder::new(Some(signer), trailer)))
            }
            PayloadSigning::UnsignedChunks => Check::Chunks(Box::new(AwsChunkedDecoder::new(None, true))),
        };
        CheckedBody {
            inner,
            left: length,
            check,
            raw: Bytes::new(),
            trailer,
            intake,
            before_room: None,
            is_over: false,
        }
    }

    fn poll_raw(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        loop {
            if let Some(data) = &self.before_room {
                let data = data.clone();
                if let Err(e) = ready!(self.intake.poll_permit(cx)) {
                    return Poll::Ready(Some(Err(e)));
                }
                self.before_room = None;
                return Poll::Ready(Some(Ok(data)));
            }
            match Pin::new(&mut self.inner).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let data = frame.into_data().unwrap_or_default();
                    self.intake.arrived(data.len() as u64);
                    self.before_room = Some(data).filter(|data| !data.is_empty());
                }
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Some(Err(BodyError::Incomplete))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return self.intake.poll_stalled(cx).map(|stalled| Some(Err(stalled))),
            }
        }
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        loop {
            let data = match &mut self.check {
                Check::Chunks(decoder) => match decoder.next(&mut self.raw) {
                    Err(e) => {
                        if e == BodyError::TinyChunks {
                            self.intake.record_offence(Offence::Malformed);
                        }
                        return Poll::Ready(Some(Err(e)));
                    }
                    Ok(Some(data)) => Some(data),
                    Ok(None) => match ready!(self.poll_raw(cx)) {
                        Some(raw) => {
                            self.raw = raw?;
                            continue;
                        }
                        None => None,
                    },
                },
                _ => ready!(self.poll_raw(cx)).transpose()?,
            };
            let Some(data) = data else { return Poll::Ready(self.end().err().map(Err)) };
            self.left = self.left.checked_sub(data.len() as u64).ok_or(BodyError::TooLong)?;
            if let Check::Sha256 { so_far, .. } = &mut self.check {
                so_far.update(&data);
            }
            return Poll::Ready(Some(Ok(data)));
        }
    }

    /// Hands over the memory permit of the bytes that were read.
    pub fn take_permit(&mut self) -> MemoryPermit {
        self.intake.take_permit()
    }

    fn end(&mut self) -> Result<(), BodyError> {
        if self.left > 0 {
            return Err(BodyError::Incomplete);
        }
        match &mut self.check {
            Check::Nothing => Ok(()),
            Check::Sha256 { so_far, expected } => {
                let right = std::mem::take(so_far).finalize().as_slice() == expected;
                if right { Ok(()) } else { Err(BodyError::WrongSha256) }
            }
            Check::Chunks(decoder) if !decoder.is_at_end() => Err(BodyError::Incomplete),
            Check::Chunks(decoder) => {
                self.trailer.set(decoder.take_trailer());
                Ok(())
            }
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for CheckedBody<B> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let data = ready!(self.poll_data(cx));
        // After an error no more data follows; after the end, which is checked once, neither.
        self.is_over = !matches!(data, Some(Ok(_)));
        Poll::Ready(data.map(|data| data.map(Frame::data)))
    }

    /// False until the end has been checked, whatever the inner body says.
    fn is_end_stream(&self) -> bool {
        self.is_over
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
