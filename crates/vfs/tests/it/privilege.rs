//! Setuid, setgid and capabilities end when somebody else writes, whatever the policy.

use std::sync::Arc;

use bytes::Bytes;
use origin::Origin;
use origin::posix::PosixOrigin;
use rustix::fs::XattrFlags;
use testkit::far_origin::Far;
use types::Timeline;
use types::{ByteRange, Caller, FileId, SetAttr, Stability};
use vfs::Vfs;

use crate::back::{NEVER, back_tier, bytes_of, find};
use crate::writable::{user, writable};

async fn write(vfs: &Vfs, caller: &Caller, id: FileId, stability: Stability) {
    let written = vfs.write(caller, id, 1, Bytes::from_static(b"X"), stability).await;
    written.expect("written");
    vfs.commit(caller, id, ByteRange::new(0, 0)).await.expect("stored");
}

/// Owner 10, group 20.
fn program(far: &Far, mode: u32) {
    far.memory.write_file(b"program", b"bytes").unwrap();
    far.memory.chown(b"program", 10, 20).unwrap();
    far.memory.chmod(b"program", mode).unwrap();
}

/// Mode before, who writes, mode after, as Linux has it.
fn table() -> [(u32, Caller, u32); 7] {
    let member = Caller { uid: 11, gid: 20, ..Caller::root() };
    [
        (0o6777, user(65534), 0o0777),
        (0o6777, user(10), 0o0777),
        (0o6775, member, 0o0775),
        (0o4777, user(65534), 0o0777),
        // Without the right to execute it is no privilege.
        (0o6767, user(65534), 0o2767),
        (0o6777, Caller::root(), 0o6777),
        // A kernel that speaks for its users sees to it, and knows more.
        (0o6777, Caller { trusted: true, ..user(65534) }, 0o6777),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_by_somebody_else_ends_setuid_and_setgid_under_both_policies() {
    for (mode, caller, expected) in table() {
        for stability in [Stability::Unstable, Stability::FileSync] {
            let far = Far::new("far:one");
            program(&far, mode);
            let t = writable(far.clone(), &Timeline::default());
            let id = t.id("/program").await;
            write(&t.vfs, &caller, id, stability).await;
            let (here, there) =
                (t.vfs.getattr(id).await.unwrap(), find(&*far.memory, "/program").await.unwrap());
            let told = format!("{mode:o} written by {caller:?}, through");
            assert_eq!((here.attr.mode, there.attr.mode), (expected, expected), "{told}");
            assert_eq!(bytes_of(&*far.memory, "/program").await, b"bXtes");

            let far = Far::new("far:one");
            program(&far, mode);
            let t = back_tier(far.clone(), NEVER);
            let id = t.id("/program").await;
            write(&t.vfs, &caller, id, stability).await;
            let here = t.vfs.getattr(id).await.unwrap();
            t.flush().await;
            let there = find(&*far.memory, "/program").await.unwrap();
            let told = format!("{mode:o} written by {caller:?}, back");
            assert_eq!((here.attr.mode, there.attr.mode), (expected, expected), "{told}");
            assert_eq!(bytes_of(&*far.memory, "/program").await, b"bXtes");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_to_a_file_without_privileges_costs_no_call_more() {
    let far = Far::new("far:one");
    program(&far, 0o777);
    let t = writable(far.clone(), &Timeline::default());
    let id = t.id("/program").await;
    far.forget_calls();
    write(&t.vfs, &user(65534), id, Stability::FileSync).await;
    let by_user = far.calls_of_all_kinds();
    far.forget_calls();
    write(&t.vfs, &Caller::root(), id, Stability::FileSync).await;
    assert_eq!((by_user, far.calls("set")), (far.calls_of_all_kinds(), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mode_that_is_set_meanwhile_is_not_undone_by_who_ends_a_privilege() {
    let far = Far::new("far:one");
    program(&far, 0o6777);
    let t = writable(far.clone(), &Timeline::default());
    let id = t.id("/program").await;
    far.memory.chmod(b"program", 0o646).unwrap();
    write(&t.vfs, &user(65534), id, Stability::FileSync).await;
    assert_eq!(find(&*far.memory, "/program").await.unwrap().attr.mode, 0o646);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_or_a_cut_ends_the_capabilities_of_a_program_under_both_policies() {
    const NAME: &str = "security.capability";
    // Version 2, effective: CAP_NET_RAW.
    let value = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for policy in ["through", "back"] {
        for cut in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("program");
            std::fs::write(&path, b"bytes").unwrap();
            if let Err(e) = rustix::fs::setxattr(&path, NAME, &value, XattrFlags::empty()) {
                return testkit::lab::not_run("capabilities", &format!("they cannot be set here: {e}"));
            }
            let origin: Arc<dyn Origin> = Arc::new(PosixOrigin::open(dir.path()).unwrap());
            let change = async |vfs: &Vfs, id| match cut {
                true => {
                    let set = SetAttr { size: Some(1), ..SetAttr::default() };
                    vfs.setattr(&Caller::root(), id, set, None).await.expect("cut");
                }
                false => write(vfs, &Caller::root(), id, Stability::FileSync).await,
            };
            if policy == "through" {
                let t = writable(origin, &Timeline::default());
                change(&t.vfs, t.id("/program").await).await;
            } else {
                let t = back_tier(origin, NEVER);
                change(&t.vfs, t.id("/program").await).await;
                t.flush().await;
            }
            let left = rustix::fs::getxattr(&path, NAME, &mut [0; 64]);
            assert_eq!(left, Err(rustix::io::Errno::NODATA), "{policy}, cut: {cut}");
        }
    }
}
