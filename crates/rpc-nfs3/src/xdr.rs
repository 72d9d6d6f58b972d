//! XDR: everything is big-endian and padded to four bytes.

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Why bytes could not be understood. The caller answers with its protocol's "garbage" or drops the
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// The message ends before its contents do.
    Truncated,
    /// A length above what this field may have.
    TooLong,
    /// A number that is none of the values this field may have.
    BadValue,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WireError::Truncated => "message is cut short",
            WireError::TooLong => "length is over the limit",
            WireError::BadValue => "value is not one of the defined ones",
        })
    }
}

impl std::error::Error for WireError {}

pub type WireResult<T> = Result<T, WireError>;

/// Takes values off the front of a message. Byte strings come out as slices that share its memory.
#[derive(Clone, Debug)]
pub struct XdrDecoder {
    rest: Bytes,
}

impl XdrDecoder {
    pub fn new(message: Bytes) -> XdrDecoder {
        XdrDecoder { rest: message }
    }

    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The bytes that are left, without taking them.
    pub fn rest(&self) -> &[u8] {
        &self.rest
    }

    pub fn u32(&mut self) -> WireResult<u32> {
        if self.rest.len() < 4 {
            return Err(WireError::Truncated);
        }
        Ok(self.rest.get_u32())
    }

    pub fn i32(&mut self) -> WireResult<i32> {
        self.u32().map(u32::cast_signed)
    }

    pub fn u64(&mut self) -> WireResult<u64> {
        if self.rest.len() < 8 {
            return Err(WireError::Truncated);
        }
        Ok(self.rest.get_u64())
    }

    /// Any value but 0 counts as true, as servers in the field do.
    pub fn bool(&mut self) -> WireResult<bool> {
        Ok(self.u32()? != 0)
    }

    pub fn array<const N: usize>(&mut self) -> WireResult<[u8; N]> {
        let bytes = self.fixed(N)?;
        bytes.as_ref().try_into().map_err(|_| WireError::Truncated)
    }

    /// `length` bytes and their padding.
    pub fn fixed(&mut self, length: usize) -> WireResult<Bytes> {
        let padded = length.checked_next_multiple_of(4).ok_or(WireError::TooLong)?;
        if self.rest.len() < padded {
            return Err(WireError::Truncated);
        }
        let bytes = self.rest.split_to(length);
        self.rest.advance(padded - length);
        Ok(bytes)
    }

    /// A byte string with its length in front, `max` bytes at most.
    pub fn opaque(&mut self, max: usize) -> WireResult<Bytes> {
        let length = self.u32()? as usize;
        if length > max {
            return Err(WireError::TooLong);
        }
        self.fixed(length)
    }

    /// A counted array, `max` items at most. Room is made as items arrive.
    pub fn list<T>(
        &mut self,
        max: usize,
        mut item: impl FnMut(&mut XdrDecoder) -> WireResult<T>,
    ) -> WireResult<Vec<T>> {
        let count = self.u32()? as usize;
        if count > max {
            return Err(WireError::TooLong);
        }
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// A linked list: items, each announced by a true. `max` items at most.
    pub fn chain<T>(
        &mut self,
        max: usize,
        mut item: impl FnMut(&mut XdrDecoder) -> WireResult<T>,
    ) -> WireResult<Vec<T>> {
        let mut items = Vec::new();
        while self.bool()? {
            if items.len() >= max {
                return Err(WireError::TooLong);
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    pub fn option<T>(
        &mut self,
        value: impl FnOnce(&mut XdrDecoder) -> WireResult<T>,
    ) -> WireResult<Option<T>> {
        if self.bool()? { value(self).map(Some) } else { Ok(None) }
    }
}

/// Appends values to a message.
#[derive(Debug, Default)]
pub struct XdrEncoder {
    out: BytesMut,
}

impl XdrEncoder {
    pub fn with_capacity(bytes: usize) -> XdrEncoder {
        XdrEncoder { out: BytesMut::with_capacity(bytes) }
    }

    pub fn len(&self) -> usize {
        self.out.len()
    }

    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    pub fn u32(&mut self, value: u32) {
        self.out.put_u32(value);
    }

    pub fn u64(&mut self, value: u64) {
        self.out.put_u64(value);
    }

    pub fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    pub fn fixed(&mut self, bytes: &[u8]) {
        self.out.put_slice(bytes);
        self.out.put_bytes(0, padding(bytes.len()));
    }

    pub fn opaque(&mut self, bytes: &[u8]) {
        self.u32(length32(bytes.len()));
        self.fixed(bytes);
    }

    pub fn option<T>(&mut self, value: Option<T>, encode: impl FnOnce(&mut XdrEncoder, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            encode(self, value);
        }
    }

    /// Take back everything after the first `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        self.out.truncate(length);
    }

    /// Overwrite four bytes written before, at `at`.
    pub fn patch_u32(&mut self, at: usize, value: u32) {
        if let Some(place) = self.out.get_mut(at..at + 4) {
            place.copy_from_slice(&value.to_be_bytes());
        }
    }

    pub fn finish(self) -> Bytes {
        self.out.freeze()
    }
}

/// Bytes of padding after `length` bytes.
pub fn padding(length: usize) -> usize {
    length.wrapping_neg() % 4
}

/// A length of ours as XDR writes it. Nothing that we send comes near 4 GiB.
pub fn length32(length: usize) -> u32 {
    u32::try_from(length).expect("messages are far below 4 GiB")
}
