//! A real NFS server: Debian's nfs-ganesha with its VFS back end, in user space.
//!
//! It needs root and the packages nfs-ganesha, nfs-ganesha-vfs, rpcbind, iproute2; otherwise the test says "not run". The
//! server and the portmapper run in network, mount and process namespaces of their own, together with the test itself, which
//! starts again inside: nothing is left behind and no port of the machine is taken.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::lab::not_run;

pub const NFS_PORT: u16 = 22_049;
pub const MOUNT_PORT: u16 = 22_048;
const INSIDE: &str = "FOREBAY_TEST_INSIDE_NAMESPACE";

/// Runs `scenario` in the namespaces. `test` is the full name of the test that calls this, which has nothing else to do.
pub fn with_ganesha(test: &str, scenario: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return scenario();
    }
    if let Some(reason) = obstacle() {
        return not_run(test, &reason);
    }
    let script = "ip link set lo up && mount -t tmpfs none /run && exec \"$0\" --exact \"$1\" --nocapture";
    let status = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script])
        .arg(std::env::current_exe().expect("our own path"))
        .arg(test)
        .env(INSIDE, "1")
        .status()
        .expect("unshare");
    assert!(status.success(), "the test inside the namespaces failed");
}

/// Why the test cannot run here.
fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it needs root".to_owned());
    }
    for program in ["ganesha.nfsd", "rpcbind", "unshare", "ip", "mount"] {
        if find(program).is_none() {
            return Some(format!("{program} is not installed"));
        }
    }
    if plugins().is_none() {
        return Some("the package nfs-ganesha-vfs is not installed".to_owned());
    }
    let unshare = Command::new("unshare").args(["--net", "--mount", "--pid", "--fork", "true"]).status();
    match unshare {
        Ok(status) if status.success() => None,
        _ => Some("namespaces are not allowed here".to_owned()),
    }
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|dir| dir.join(program)).find(|p| p.exists())
}

/// The directory with ganesha's VFS back end.
fn plugins() -> Option<PathBuf> {
    let below_lib = fs::read_dir("/usr/lib").ok()?.filter_map(|e| Some(e.ok()?.path()));
    below_lib.flat_map(|dir| [dir.join("ganesha"), dir]).find(|dir| dir.join("libfsalvfs.so").exists())
}

/// A process that ends with the test.
struct HelperProcess(Child);

impl HelperProcess {
    fn start(program: &str, args: &[&str]) -> HelperProcess {
        let mut command = Command::new(find(program).expect("checked before"));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        HelperProcess(command.spawn().expect("start"))
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The server with its portmapper, inside the namespaces.
pub struct Ganesha {
    _rpcbind: HelperProcess,
    server: Option<HelperProcess>,
    dir: PathBuf,
}

impl Ganesha {
    /// Exports these directories with what may be done to them: RW or RO. `ganesha.conf` and `ganesha.log` are
    /// put into `dir`.
    pub fn start(dir: &Path, exports: &[(&Path, &str)]) -> Ganesha {
        fs::write(dir.join("ganesha.conf"), configuration(dir, exports)).expect("write");
        let rpcbind = HelperProcess::start("rpcbind", &["-w", "-f"]);
        let mut ganesha = Ganesha { _rpcbind: rpcbind, server: None, dir: dir.to_owned() };
        ganesha.start_again();
        ganesha
    }

    pub fn stop(&mut self) {
        self.server = None;
    }

    pub fn start_again(&mut self) {
        let [config, log] = ["ganesha.conf", "ganesha.log"].map(|name| self.dir.join(name));
        let (config, log) = (config.to_str().expect("a path"), log.to_str().expect("a path"));
        let args = ["-F", "-f", config, "-L", log, "-p", "/run/ganesha-test.pid"];
        self.server = Some(HelperProcess::start("ganesha.nfsd", &args));
    }
}

/// The URL of an export, or of a directory below one, with its ports.
pub fn url(path: &Path) -> String {
    format!("nfs://127.0.0.1:{NFS_PORT}{}?mountport={MOUNT_PORT}", path.display())
}

fn configuration(dir: &Path, exports: &[(&Path, &str)]) -> String {
    let plugins = plugins().expect("checked before");
    let mut text = format!(
        "NFS_CORE_PARAM {{ NFS_Port = {NFS_PORT}; MNT_Port = {MOUNT_PORT}; Protocols = 3; Enable_NLM = false;\n\
         Enable_RQUOTA = false; mount_path_pseudo = false; Plugins_Dir = {}; }}\n\
         NFSV4 {{ RecoveryRoot = {}; Graceless = true; }}\n",
        plugins.display(),
        dir.join("recovery").display(),
    );
    for (id, (export, access)) in exports.iter().enumerate() {
        text += &format!(
            "EXPORT {{ Export_Id = {}; Path = {}; Pseudo = /{id}; Protocols = 3; Transports = TCP; Access_Type = {access};\n\
             Squash = No_Root_Squash; SecType = sys; Attr_Expiration_Time = 0; FSAL {{ Name = VFS; }} }}\n",
            id + 7,
            export.display(),
        );
    }
    text
}
