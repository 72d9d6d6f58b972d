//! The `aws-chunked` encoding: bodies in signed or unsigned chunks, decoded as they arrive. Pure: bytes in, bytes
//! out.
//!
//! A chunk's signature stands before its data but covers all of it, and decoded data is passed on before it can be
//! checked. So nobody may act on the data before the end of the body: a PUT publishes only then.

use bytes::{Buf, Bytes, BytesMut};
use sha2::{Digest, Sha256};

use crate::body_error::BodyError;
use crate::sigv4::ChunkSigner;

/// The longest head of a chunk, or line of the trailer.
const LINE_MAX: usize = 1024;
const TRAILER_LINES_MAX: usize = 16;
/// The largest chunk. Clients send 64 KiB to some MiB.
const CHUNK_MAX: u64 = 5 << 30;
/// The size below which a chunk is small. A small chunk costs as much work as a large one, so a body may have only
/// [`CHUNKS_SMALL_MAX`] of them. S3 takes none below 8 KiB but the last one.
const CHUNK_SMALL: u64 = 1 << 10;
const CHUNKS_SMALL_MAX: u32 = 1024;

pub struct AwsChunkedDecoder {
    /// `None`: the chunks are not signed.
    signer: Option<ChunkSigner>,
    has_trailer: bool,
    state: State,
    line: BytesMut,
    /// The hash of the chunk so far, if chunks are signed.
    hash: Sha256,
    signature: String,
    trailer: Vec<(String, String)>,
    /// The number of small chunks so far.
    small: u32,
    /// The last line ended without a carriage return.
    is_bare: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Data {
        left: u64,
    },
    /// The line end after a chunk's data.
    DataEnd,
    Trailer,
    /// After `name:value`, LF, CR LF, as MinIO's SDK for Go frames a trailer: another empty line or the signature
    /// follows.
    BareTrailer,
    End,
}

impl AwsChunkedDecoder {
    pub fn new(signer: Option<ChunkSigner>, has_trailer: bool) -> AwsChunkedDecoder {
        AwsChunkedDecoder {
            signer,
            has_trailer,
            state: State::Head,
            line: BytesMut::new(),
            hash: Sha256::new(),
            signature: String::new(),
            trailer: Vec::new(),
            small: 0,
            is_bare: false,
        }
    }

    /// Whether the last chunk and the trailer have arrived.
    pub fn is_at_end(&self) -> bool {
        match self.state {
            State::End => true,
            State::BareTrailer => self.signer.is_none() && self.line.is_empty(),
            _ => false,
        }
    }

    /// The trailer's headers, without its signature.
    pub fn take_trailer(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.trailer)
    }

    /// Decodes from the front of `input`. `None`: all of `input` is consumed.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, BodyError> {
        while !input.is_empty() {
            match self.state {
                State::Head => {
                    let Some(line) = self.take_line(input)? else { break };
                    self.begin_chunk(&line)?;
                }
                State::Data { left } => {
                    let length = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    let data = input.split_to(length);
                    if self.signer.is_some() {
                        self.hash.update(&data);
                    }
                    let left = left - length as u64;
                    self.state = if left == 0 { State::DataEnd } else { State::Data { left } };
                    if left == 0 {
                        self.check_chunk()?;
                    }
                    return Ok(Some(data));
                }
                State::DataEnd => {
                    let Some(line) = self.take_line(input)? else { break };
                    if !line.is_empty() {
                        return Err(BodyError::Malformed("a chunk is longer than it says"));
                    }
                    self.state = State::Head;
                }
                State::Trailer | State::BareTrailer => {
                    let was_bare = self.is_bare && self.state == State::Trailer;
                    let Some(line) = self.take_line(input)? else { break };
                    let is_second_end = line.is_empty() && was_bare && !self.is_bare;
                    if is_second_end && !self.trailer.is_empty() {
                        self.state = State::BareTrailer;
                    } else {
                        self.state = State::Trailer;
                        self.trailer_line(&line)?;
                    }
                }
                State::End => return Err(BodyError::Malformed("something follows the last chunk")),
            }
        }
        Ok(None)
    }

    fn begin_chunk(&mut self, line: &[u8]) -> Result<(), BodyError> {
        let wrong = BodyError::Malformed("a chunk's head is not understood");
        let line = std::str::from_utf8(line).map_err(|_| wrong)?;
        let (size, rest) = line.split_once(';').map_or((line, None), |(size, rest)| (size, Some(rest)));
        if size.is_empty() || size.len() > 16 || !size.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong);
        }
        let size = u64::from_str_radix(size, 16).map_err(|_| wrong)?;
        if size > CHUNK_MAX {
            return Err(BodyError::TooLong);
        }
        if size < CHUNK_SMALL {
            self.small += 1;
            if self.small > CHUNKS_SMALL_MAX {
                return Err(BodyError::TinyChunks);
            }
        }
        if self.signer.is_some() {
            let signature = rest.and_then(|rest| rest.strip_prefix("chunk-signature="));
            self.signature = signature.ok_or(BodyError::ChunkSignature)?.to_owned();
            self.hash = Sha256::new();
        }
        if size > 0 {
            self.state = State::Data { left: size };
            return Ok(());
        }
        self.check_chunk()?;
        // Without a trailer an empty line ends it, as with one.
        self.state = State::Trailer;
        Ok(())
    }

    fn check_chunk(&mut self) -> Result<(), BodyError> {
        let Some(signer) = &mut self.signer else { return Ok(()) };
        let hash = std::mem::take(&mut self.hash).finalize();
        if signer.accepts(&hash, &self.signature) { Ok(()) } else { Err(BodyError::ChunkSignature) }
    }

    fn trailer_line(&mut self, line: &[u8]) -> Result<(), BodyError> {
        if line.is_empty() {
            return self.end();
        }
        if !self.has_trailer || self.trailer.len() >= TRAILER_LINES_MAX {
            return Err(BodyError::Malformed("a trailer that was not announced"));
        }
        let wrong = BodyError::Malformed("a line of the trailer is not understood");
        let line = std::str::from_utf8(line).map_err(|_| wrong)?;
        let (name, value) = line.split_once(':').ok_or(wrong)?;
        self.trailer.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        Ok(())
    }

    fn end(&mut self) -> Result<(), BodyError> {
        self.state = State::End;
        let (Some(signer), true) = (&mut self.signer, self.has_trailer) else { return Ok(()) };
        let at = self.trailer.iter().position(|(name, _)| name == "x-amz-trailer-signature");
        let (_, signature) = self.trailer.remove(at.ok_or(BodyError::ChunkSignature)?);
        let text: String = self.trailer.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let right = signer.accepts_trailer(&Sha256::digest(text), &signature);
        if right { Ok(()) } else { Err(BodyError::ChunkSignature) }
    }

    /// The next line without its line end; `None` while it is incomplete.
    fn take_line(&mut self, input: &mut Bytes) -> Result<Option<BytesMut>, BodyError> {
        let end = input.iter().position(|byte| *byte == b'\n');
        let part = end.map_or(input.len(), |end| end + 1);
        if self.line.len() + part > LINE_MAX {
            return Err(BodyError::Malformed("a line is too long"));
        }
        self.line.extend_from_slice(&input[..part]);
        input.advance(part);
        if end.is_none() {
            return Ok(None);
        }
        let mut line = std::mem::take(&mut self.line);
        line.truncate(line.len() - 1);
        self.is_bare = line.last() != Some(&b'\r');
        if !self.is_bare {
            line.truncate(line.len() - 1);
        }
        Ok(Some(line))
    }
}
