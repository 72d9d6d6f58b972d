//! The messages of NFSv3 and its helpers on the wire: XDR (RFC 4506), ONC RPC over TCP (RFC 5531), NFSv3 and
//! MOUNT v3 (RFC 1813), portmap v2 (RFC 1833). Both directions, for our server and for our client.
//!
//! Pure but for the record reader. Decoders read from what has arrived and allocate nothing on the word of a
//! length that they have not checked; they never panic. READ and WRITE payloads are slices of the record, not copies.
//! Start with `xdr`, then `rpc`, then `nfs3`.

pub mod mount;
pub mod nfs3;
pub mod portmap;
pub mod record;
pub mod rpc;
pub mod xdr;

pub use xdr::{Decoder, Encoder, WireError};
