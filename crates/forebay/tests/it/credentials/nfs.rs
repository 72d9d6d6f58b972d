//! A real NFS server, Debian's nfs-ganesha, withdraws its export and squashes us.
//!
//! It needs root and the packages nfs-ganesha, nfs-ganesha-vfs and rpcbind. The server runs in network, mount and process
//! namespaces of its own, together with the test itself, which starts again inside.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{Turn, survives, until};

const TEST: &str = "credentials::nfs::an_nfs_export_is_withdrawn_and_squashes_us_and_admits_us_again";
const INSIDE: &str = "FOREBAY_TEST_INSIDE_NAMESPACE";
const NFS_PORT: u16 = 22_049;
const MOUNT_PORT: u16 = 22_048;

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|dir| dir.join(program)).find(|path| path.exists())
}

/// The directory with ganesha's VFS back end.
fn plugins() -> Option<PathBuf> {
    let below_lib = fs::read_dir("/usr/lib").ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    below_lib.flat_map(|dir| [dir.join("ganesha"), dir]).find(|dir| dir.join("libfsalvfs.so").exists())
}

/// Why the test cannot run here.
fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        return Some("it needs root, and /dev/fuse".to_owned());
    }
    for program in ["ganesha.nfsd", "rpcbind", "unshare", "ip", "mount"] {
        if find(program).is_none() {
            return Some(format!("{program} is not installed"));
        }
    }
    plugins().is_none().then(|| "the package nfs-ganesha-vfs is not installed".to_owned())
}

#[test]
fn an_nfs_export_is_withdrawn_and_squashes_us_and_admits_us_again() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    if let Some(reason) = obstacle() {
        return testkit::lab::not_run(TEST, &reason);
    }
    let script = "ip link set lo up && mount -t tmpfs none /run && exec \"$0\" --exact \"$1\" --nocapture";
    let status = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script])
        .arg(std::env::current_exe().expect("our own path"))
        .arg(TEST)
        .env(INSIDE, "1")
        .status()
        .expect("unshare");
    assert!(status.success(), "the test inside the namespaces failed");
}

/// Ended with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(program: &str, args: &[&str]) -> Process {
    let mut command = Command::new(find(program).expect("checked before"));
    let child = command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    Process(child.expect("started"))
}

struct Server {
    dir: tempfile::TempDir,
    process: Option<Process>,
}

impl Server {
    fn export(&self) -> PathBuf {
        self.dir.path().join("export")
    }

    /// `None`: the export is withdrawn; another one is always there.
    fn configure(&self, squash: Option<&str>) {
        let (plugins, dir) = (plugins().expect("checked before"), self.dir.path());
        let export = |id: u32, path: &Path, squash: &str| {
            format!(
                "EXPORT {{ Export_Id = {id}; Path = {}; Pseudo = /{id}; Protocols = 3; Transports = TCP; Access_Type = RW;\n\
                 Squash = {squash}; SecType = sys; Attr_Expiration_Time = 0; FSAL {{ Name = VFS; }} }}\n",
                path.display()
            )
        };
        let ours = squash.map_or_else(String::new, |squash| export(7, &self.export(), squash));
        let text = format!(
            "NFS_CORE_PARAM {{ NFS_Port = {NFS_PORT}; MNT_Port = {MOUNT_PORT}; Protocols = 3; Enable_NLM = false;\n\
             Enable_RQUOTA = false; mount_path_pseudo = false; Plugins_Dir = {}; }}\n\
             NFSV4 {{ RecoveryRoot = {}; Graceless = true; }}\n{}{ours}",
            plugins.display(),
            dir.join("recovery").display(),
            export(8, &dir.join("other"), "No_Root_Squash"),
        );
        fs::write(dir.join("ganesha.conf"), text).expect("written");
        if let Some(process) = &self.process {
            kill_process(Pid::from_child(&process.0), Signal::HUP).expect("it is running");
        }
    }
}

fn inside() {
    let dir = tempfile::tempdir().expect("a directory");
    for sub in ["export", "other"] {
        fs::create_dir(dir.path().join(sub)).expect("made");
    }
    let mut server = Server { dir, process: None };
    server.configure(Some("No_Root_Squash"));
    let _rpcbind = start("rpcbind", &["-w", "-f"]);
    let place = |name: &str| server.dir.path().join(name).display().to_string();
    let (config, log) = (place("ganesha.conf"), place("ganesha.log"));
    server.process =
        Some(start("ganesha.nfsd", &["-F", "-f", &config, "-L", &log, "-p", "/run/ganesha-test.pid"]));
    until("the server answers", || std::net::TcpStream::connect(("127.0.0.1", MOUNT_PORT)).is_ok());
    let export = server.export();
    let url = format!("nfs://127.0.0.1:{NFS_PORT}{}?mountport={MOUNT_PORT}", export.display());
    survives(
        &url,
        &mut [
            Turn {
                what: "the export is withdrawn, and is there again",
                refuse: &mut || server.configure(None),
                admit: &mut || server.configure(Some("No_Root_Squash")),
            },
            Turn {
                what: "root is squashed, and is not any more",
                refuse: &mut || server.configure(Some("Root_Squash")),
                admit: &mut || server.configure(Some("No_Root_Squash")),
            },
        ],
    );
}
