//! Portmap v2: which port does a program listen on?

use crate::xdr::{WireResult, XdrDecoder, XdrEncoder};

pub const PROGRAM: u32 = 100_000;
pub const VERSION: u32 = 2;
pub const PORT: u16 = 111;
pub const SET: u32 = 1;
pub const UNSET: u32 = 2;
pub const GETPORT: u32 = 3;
const TCP: u32 = 6;

/// A program and the TCP port it listens on (0 where it is asked for).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub program: u32,
    pub version: u32,
    pub port: u32,
}

impl Mapping {
    pub fn encode(&self, e: &mut XdrEncoder) {
        [self.program, self.version, TCP, self.port].into_iter().for_each(|w| e.u32(w));
    }

    pub fn decode(d: &mut XdrDecoder) -> WireResult<Mapping> {
        let (program, version, _protocol, port) = (d.u32()?, d.u32()?, d.u32()?, d.u32()?);
        Ok(Mapping { program, version, port })
    }
}
