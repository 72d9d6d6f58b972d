//! Every decoder over the same bytes, for the tests and for the fuzzer.

use bytes::Bytes;
use rpc_nfs3::cluster_map::{self, MapAnswer};
use rpc_nfs3::nfs3::create::{self, CreateArgs, MkdirArgs, MknodArgs, SymlinkArgs};
use rpc_nfs3::nfs3::file::{self, AccessArgs, ReadArgs};
use rpc_nfs3::nfs3::names::{self, LinkArgs, RenameArgs};
use rpc_nfs3::nfs3::readdir::{self, ReaddirArgs};
use rpc_nfs3::nfs3::setattr::SetattrArgs;
use rpc_nfs3::nfs3::wcc;
use rpc_nfs3::nfs3::write::{self, CommitArgs, WriteArgs};
use rpc_nfs3::nfs3::{DirOp, FileHandle, HANDLE_MAX, NAME_MAX, fs};
use rpc_nfs3::portmap::Mapping;
use rpc_nfs3::rpc::{CallHeader, ReplyHeader};
use rpc_nfs3::{XdrDecoder, mount, tier_handle};

/// An error or a value, never a panic, never more memory than the message warrants.
pub fn decode_all(message: &Bytes) {
    let d = || XdrDecoder::new(message.clone());
    let _ = CallHeader::decode(&mut d());
    let _ = ReplyHeader::decode(&mut d());
    let _ = Mapping::decode(&mut d());
    let _ = mount::decode_path(&mut d()).map(|path| assert!(path.len() <= mount::PATH_MAX));
    let _ = mount::decode_mount_result(&mut d());
    let _ = mount::decode_exports(&mut d());
    let _ = mount::decode_mounts(&mut d());
    let _ = cluster_map::decode_known(&mut d());
    if let Ok(MapAnswer::Document { json, .. }) = MapAnswer::decode(&mut d()) {
        assert!(json.len() <= cluster_map::DOCUMENT_MAX);
    }
    let _ = tier_handle::named_by(message);
    let _ = FileHandle::decode(&mut d()).map(|handle| assert!(handle.0.len() <= HANDLE_MAX));
    let _ = DirOp::decode(&mut d()).map(|op| assert!(op.name.len() <= NAME_MAX));
    let _ = AccessArgs::decode(&mut d());
    let _ = ReadArgs::decode(&mut d());
    let _ = file::decode_getattr(&mut d());
    let _ = file::decode_lookup(&mut d());
    let _ = file::decode_access(&mut d());
    let _ = file::decode_readlink(&mut d());
    let _ = file::decode_read(&mut d(), 1 << 20).map(|r| r.map(|r| assert!(r.data.len() <= message.len())));
    let _ = fs::decode_fsstat(&mut d());
    let _ = fs::decode_fsinfo(&mut d());
    let _ = fs::decode_pathconf(&mut d());
    mutation_decoders(message);
    for plus in [false, true] {
        let _ = ReaddirArgs::decode(&mut d(), plus);
        // An entry takes at least 24 bytes on the wire: a list cannot be longer than the message allows.
        let _ = readdir::decode_readdir(&mut d(), plus)
            .map(|r| r.map(|ok| assert!(ok.entries.len() <= message.len() / 24)));
    }
}

/// Of the procedures that change something. Byte strings are slices of the message, within their caps.
fn mutation_decoders(message: &Bytes) {
    let d = || XdrDecoder::new(message.clone());
    let within = |bytes: &Bytes, max: usize| {
        let inside = bytes.is_empty() || message.as_ptr_range().contains(&bytes.as_ptr());
        assert!(inside && bytes.len() <= max, "{} bytes", bytes.len());
    };
    let _ = SetattrArgs::decode(&mut d());
    let _ = WriteArgs::decode(&mut d(), 100).map(|args| within(&args.data, 100));
    let _ = CommitArgs::decode(&mut d());
    let _ = CreateArgs::decode(&mut d()).map(|args| within(&args.place.name, NAME_MAX));
    let _ = MkdirArgs::decode(&mut d()).map(|args| within(&args.place.name, NAME_MAX));
    let _ = SymlinkArgs::decode(&mut d()).map(|args| within(&args.target, file::TARGET_MAX));
    let _ = MknodArgs::decode(&mut d()).map(|args| within(&args.place.name, NAME_MAX));
    let _ = RenameArgs::decode(&mut d()).map(|args| within(&args.to.name, NAME_MAX));
    let _ = LinkArgs::decode(&mut d()).map(|args| within(&args.object.0, HANDLE_MAX));
    let _ = wcc::decode_wcc_result(&mut d());
    if let Ok(Ok(ok)) = write::decode_write(&mut d(), 100) {
        assert!(ok.count <= 100);
    }
    let _ = write::decode_commit(&mut d());
    let _ = create::decode_create(&mut d());
    let _ = names::decode_rename(&mut d());
    let _ = names::decode_link(&mut d());
}
