//! The messages of NFSv3 and its helpers on the wire: XDR (RFC 4506), ONC RPC over TCP (RFC 5531), NFSv3 and MOUNT
//! v3 (RFC 1813), portmap v2 (RFC 1833), and the map of a cluster, which is Forebay's own. Both directions, for our server and for our client.
//!
//! The cast:
//! - [`XdrDecoder`] and [`XdrEncoder`] (`xdr.rs`) read and write the primitive types; [`WireError`] says why bytes
//!   could not be understood.
//! - `record.rs`: a `RecordReader` takes RPC records, in one or more fragments, off a TCP stream.
//! - `rpc.rs`: call and reply headers, AUTH_SYS credentials.
//! - `nfs3.rs` and the files below it: for each procedure its arguments and results, with their encoders and
//!   decoders.
//! - `mount.rs`, `portmap.rs`, `cluster_map.rs`: the same for MOUNT, the portmapper, and the map of a cluster.
//! - `tier_handle.rs`: the layout of the file handles that a tier gives out.
//!
//! A call is a record: the RPC header, then the procedure's arguments in the rest of the decoder; a reply likewise.
//!
//! Invariants: all but the record reader is pure. Decoders read from what has arrived, allocate nothing on the word
//! of a length that they have not checked, and never panic. READ and WRITE payloads are slices of the record, not
//! copies. What a decoder accepts, its encoder writes in the same bytes.
//!
//! Begin with `xdr.rs`, then `rpc.rs`, then `nfs3.rs`.

pub mod cluster_map;
pub mod mount;
pub mod nfs3;
pub mod portmap;
pub mod record;
pub mod rpc;
pub mod tier_handle;
pub mod xdr;

pub use xdr::{WireError, XdrDecoder, XdrEncoder};
