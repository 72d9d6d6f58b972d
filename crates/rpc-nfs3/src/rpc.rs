//! ONC RPC version 2: calls, replies and AUTH_SYS credentials.

use bytes::Bytes;

use crate::xdr::{WireError, WireResult, XdrDecoder, XdrEncoder};

pub const RPC_VERSION: u32 = 2;
const CALL: u32 = 0;
const REPLY: u32 = 1;

/// Longest body of credentials or verifier (RFC 5531).
const AUTH_BODY_MAX: usize = 400;
/// Longer ones are read over up to this length, so that the call can be told what is wrong with it.
const AUTH_BODY_READ_MAX: usize = 4096;
const MACHINE_NAME_MAX: usize = 255;
/// Supplementary groups that fit AUTH_SYS.
pub const AUTH_GROUPS_MAX: usize = 16;

const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;

/// The caller, as far as the call says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    None,
    Sys(AuthSys),
    /// A flavor that we do not speak.
    Other(u32),
    /// AUTH_SYS with a body that it cannot have, or a body longer than any. The call has an answer: AUTH_BADCRED.
    Malformed,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthSys {
    pub stamp: u32,
    pub machine_name: Bytes,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallHeader {
    pub xid: u32,
    pub rpc_version: u32,
    pub program: u32,
    pub version: u32,
    pub procedure: u32,
    pub credentials: Credentials,
}

impl CallHeader {
    /// The header; the arguments are what is left in the decoder.
    pub fn decode(d: &mut XdrDecoder) -> WireResult<CallHeader> {
        let xid = d.u32()?;
        if d.u32()? != CALL {
            return Err(WireError::BadValue);
        }
        let (rpc_version, program, version, procedure) = (d.u32()?, d.u32()?, d.u32()?, d.u32()?);
        let credentials = Credentials::decode(d)?;
        let _verifier_flavor = d.u32()?;
        let _verifier = d.opaque(AUTH_BODY_MAX)?;
        Ok(CallHeader { xid, rpc_version, program, version, procedure, credentials })
    }

    pub fn encode(&self, e: &mut XdrEncoder) {
        for word in [self.xid, CALL, self.rpc_version, self.program, self.version, self.procedure] {
            e.u32(word);
        }
        self.credentials.encode(e);
        encode_null_verifier(e);
    }
}

impl Credentials {
    fn decode(d: &mut XdrDecoder) -> WireResult<Credentials> {
        let flavor = d.u32()?;
        let body = d.opaque(AUTH_BODY_READ_MAX)?;
        Ok(match flavor {
            _ if body.len() > AUTH_BODY_MAX => Credentials::Malformed,
            AUTH_NONE => Credentials::None,
            AUTH_SYS => {
                AuthSys::decode(&mut XdrDecoder::new(body)).map_or(Credentials::Malformed, Credentials::Sys)
            }
            other => Credentials::Other(other),
        })
    }

    fn encode(&self, e: &mut XdrEncoder) {
        match self {
            Credentials::None => encode_null_verifier(e),
            Credentials::Sys(sys) => {
                let mut body = XdrEncoder::default();
                sys.encode(&mut body);
                e.u32(AUTH_SYS);
                e.opaque(&body.finish());
            }
            Credentials::Other(flavor) => {
                e.u32(*flavor);
                e.u32(0);
            }
            Credentials::Malformed => {
                e.u32(AUTH_SYS);
                e.u32(0);
            }
        }
    }
}

impl AuthSys {
    fn decode(d: &mut XdrDecoder) -> WireResult<AuthSys> {
        Ok(AuthSys {
            stamp: d.u32()?,
            machine_name: d.opaque(MACHINE_NAME_MAX)?,
            uid: d.u32()?,
            gid: d.u32()?,
            groups: d.list(AUTH_GROUPS_MAX, XdrDecoder::u32)?,
        })
    }

    fn encode(&self, e: &mut XdrEncoder) {
        e.u32(self.stamp);
        e.opaque(&self.machine_name);
        e.u32(self.uid);
        e.u32(self.gid);
        let groups = self.groups.get(..AUTH_GROUPS_MAX).unwrap_or(&self.groups);
        e.u32(crate::xdr::length32(groups.len()));
        groups.iter().for_each(|g| e.u32(*g));
    }
}

/// AUTH_NONE and no body: also the verifier of every call and reply of ours.
fn encode_null_verifier(e: &mut XdrEncoder) {
    e.u32(AUTH_NONE);
    e.u32(0);
}

/// Why credentials were refused (auth_stat).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthProblem {
    BadCredentials = 1,
    TooWeak = 5,
}

/// How a call ended at the RPC level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyStatus {
    /// The results follow.
    Success,
    ProgramUnavailable,
    ProgramMismatch {
        low: u32,
        high: u32,
    },
    ProcedureUnavailable,
    GarbageArguments,
    SystemError,
    RpcMismatch {
        low: u32,
        high: u32,
    },
    AuthError(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    pub xid: u32,
    pub status: ReplyStatus,
}

impl ReplyHeader {
    pub fn encode(&self, e: &mut XdrEncoder) {
        e.u32(self.xid);
        e.u32(REPLY);
        let accepted = |e: &mut XdrEncoder, stat: u32| {
            e.u32(0);
            encode_null_verifier(e);
            e.u32(stat);
        };
        match self.status {
            ReplyStatus::Success => accepted(e, 0),
            ReplyStatus::ProgramUnavailable => accepted(e, 1),
            ReplyStatus::ProgramMismatch { low, high } => {
                accepted(e, 2);
                e.u32(low);
                e.u32(high);
            }
            ReplyStatus::ProcedureUnavailable => accepted(e, 3),
            ReplyStatus::GarbageArguments => accepted(e, 4),
            ReplyStatus::SystemError => accepted(e, 5),
            ReplyStatus::RpcMismatch { low, high } => [1, 0, low, high].into_iter().for_each(|w| e.u32(w)),
            ReplyStatus::AuthError(stat) => [1, 1, stat].into_iter().for_each(|w| e.u32(w)),
        }
    }

    /// The header; the results are what is left in the decoder.
    pub fn decode(d: &mut XdrDecoder) -> WireResult<ReplyHeader> {
        let xid = d.u32()?;
        if d.u32()? != REPLY {
            return Err(WireError::BadValue);
        }
        let status = match d.u32()? {
            0 => {
                let _flavor = d.u32()?;
                let _verifier = d.opaque(AUTH_BODY_MAX)?;
                match d.u32()? {
                    0 => ReplyStatus::Success,
                    1 => ReplyStatus::ProgramUnavailable,
                    2 => ReplyStatus::ProgramMismatch { low: d.u32()?, high: d.u32()? },
                    3 => ReplyStatus::ProcedureUnavailable,
                    4 => ReplyStatus::GarbageArguments,
                    5 => ReplyStatus::SystemError,
                    _ => return Err(WireError::BadValue),
                }
            }
            1 => match d.u32()? {
                0 => ReplyStatus::RpcMismatch { low: d.u32()?, high: d.u32()? },
                1 => ReplyStatus::AuthError(d.u32()?),
                _ => return Err(WireError::BadValue),
            },
            _ => return Err(WireError::BadValue),
        };
        Ok(ReplyHeader { xid, status })
    }
}
