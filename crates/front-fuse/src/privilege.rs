//! Setuid and setgid of a program end when somebody changes its bytes who may not keep them, or when it is given away.
//! The kernel leaves that to us (FUSE_HANDLE_KILLPRIV_V2); else it would ask for the file's capabilities before each write.
//!
//! Of a WRITE it says whether they end. Of a SETATTR that cuts it says so in a flag that fuser does not pass on, and of a
//! FALLOCATE not at all: so the thread that asks is looked at. It waits for our answer meanwhile, and cannot change.

use std::fs;

use types::{FileId, Result, SetAttr};

use crate::FuseState;
use crate::asker::{Asker, Thread};
use crate::change::trusted_root;

/// CAP_FSETID, as a bit of the sets in `/proc`.
const FSETID: u64 = 1 << 4;
/// The first namespace of users: of a right in another one the kernel takes no notice here.
const FIRST_USERS: &str = "user:[4026531837]";

/// Whether the thread may change a program and leave its setuid and setgid. One that cannot be looked at may not.
fn may_keep(thread: Thread) -> bool {
    let Thread(number @ 1..) = thread else { return false };
    let users = fs::read_link(format!("/proc/{number}/ns/user"));
    let status = fs::read_to_string(format!("/proc/{number}/status"));
    let (Ok(users), Ok(status)) = (users, status) else { return false };
    users.as_os_str() == FIRST_USERS && has_fsetid(&status)
}

fn has_fsetid(status: &str) -> bool {
    let digits = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = digits.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    rights.is_some_and(|rights| rights & FSETID != 0)
}

impl FuseState {
    /// The mode that a program has without setuid and setgid. `None`: it has neither, or is none.
    async fn mode_without_privilege(&self, id: FileId) -> Result<Option<u32>> {
        let node = self.retry_read(|| self.vfs.getattr_in_use(id)).await?;
        let mode = vfs::without_privilege(node.attr.mode);
        Ok((node.attr.is_file() && mode != node.attr.mode).then_some(mode))
    }

    /// What is set when a file is given away or cut.
    pub async fn set_without_privilege(&self, asker: &Asker, id: FileId, set: SetAttr) -> Result<SetAttr> {
        let is_given = set.uid.is_some() || set.gid.is_some();
        if set.mode.is_some() || !is_given && set.size.is_none() {
            return Ok(set);
        }
        let mode = self.mode_without_privilege(id).await?;
        let ends = mode.is_some() && (is_given || !may_keep(asker.thread));
        Ok(if ends { SetAttr { mode, ..set } } else { set })
    }

    /// Before bytes are changed by a request that does not say whether setuid and setgid end.
    pub async fn end_privilege_of(&self, asker: &Asker, number: u64) -> Result<()> {
        match self.mode_without_privilege(self.file(number)?).await? {
            Some(_) if !may_keep(asker.thread) => self.end_privilege(number).await,
            _ => Ok(()),
        }
    }

    /// Before bytes are changed. The answer to such a request does not make the kernel forget the mode.
    pub async fn end_privilege(&self, number: u64) -> Result<()> {
        let id = self.file(number)?;
        let Some(mode) = self.mode_without_privilege(id).await? else { return Ok(()) };
        let (set, caller) = (SetAttr { mode: Some(mode), ..SetAttr::default() }, trusted_root());
        let altered = self.retry_change(|| self.vfs.setattr(&caller, id, set, None)).await?;
        self.changed(altered.before, &altered.node);
        self.invalidations.attributes_now(number).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_is_read_from_the_effective_set() {
        assert!(has_fsetid("Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t000001ffffffffff\n"));
        assert!(!has_fsetid("CapPrm:\t000001ffffffffff\nCapEff:\t000001ffffffffef\n"));
        for status in ["", "CapEff:", "CapEff:\tzz", "CapPrm:\t10\n"] {
            assert!(!has_fsetid(status), "{status}");
        }
        assert!(!may_keep(Thread(0)) && !may_keep(Thread(u32::MAX)));
    }
}
