//! Against Linux's own server, in the lab: knfsd over ext4, as most NAS are.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use origin::Origin;
use origin_nfs::{Config, NfsOrigin};
use testkit::lab::{EXPORT, Lab, with_lab};
use testkit::origin_contract::{Change, Subject};

/// Near enough to be quick, far enough to be no loopback.
const RTT: Duration = Duration::from_millis(5);

/// A directory of the NAS, changed by the NAS itself.
struct AtTheNas<'a> {
    lab: &'a Lab,
    dir: String,
    origin: Arc<NfsOrigin>,
}

/// Does what the lines of its input say, in one process: a guest starts processes slowly. Words are in
/// hexadecimal, because paths and contents are bytes.
const CHANGER: &str = r#"
use strict;
while (my $line = <STDIN>) {
    chomp($line);
    my ($what, @words) = split(/ /, $line, -1);
    my ($one, $two) = map { pack("H*", $_) } @words;
    my $file;
    my $done =
        $what eq "mkdir"   ? mkdir($one)
      : $what eq "write"   ? open($file, ">", $one) && (print $file $two) && close($file)
      : $what eq "remove"  ? (-d $one && !-l $one ? rmdir($one) : unlink($one))
      : $what eq "rename"  ? rename($one, $two)
      : $what eq "symlink" ? symlink($two, $one)
      : $what eq "link"    ? link($one, $two)
      : 0;
    $done or die "$line: $!";
}
"#;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

fn line(change: &Change<'_>) -> String {
    match change {
        Change::Mkdir(path) => format!("mkdir {}", hex(path)),
        Change::Write(path, bytes) => format!("write {} {}", hex(path), hex(bytes)),
        Change::Remove(path) => format!("remove {}", hex(path)),
        Change::Rename(from, to) => format!("rename {} {}", hex(from), hex(to)),
        Change::Symlink(path, target) => format!("symlink {} {}", hex(path), hex(target)),
        Change::Link(from, to) => format!("link {} {}", hex(from), hex(to)),
    }
}

#[async_trait]
impl Subject for AtTheNas<'_> {
    fn origin(&self) -> Arc<dyn Origin> {
        self.origin.clone()
    }

    async fn change(&self, change: Change<'_>) {
        self.change_all(&[change]).await;
    }

    async fn change_all(&self, changes: &[Change<'_>]) {
        let lines: Vec<String> = changes.iter().map(line).collect();
        let (dir, lines) = (&self.dir, lines.join("\n"));
        let script = format!("cd {dir} && perl -e '{CHANGER}' <<'END'\n{lines}\nEND\n");
        tokio::task::block_in_place(|| self.lab.nas.must(&script));
    }
}

fn of(lab: &Lab, path: &str) -> Config {
    let url = format!("nfs://{}{path}?mountport=20048", lab.nas.address());
    Config { call_timeout: Duration::from_secs(60), ..Config::from_url(&url).expect("URL") }
}

async fn connect(config: Config) -> Arc<NfsOrigin> {
    NfsOrigin::connect(config).await.expect("connect")
}

/// An empty directory on the NAS's ext4.
fn directory(lab: &Lab, name: &str) -> String {
    let dir = format!("{EXPORT}/{name}");
    lab.nas.must(&format!("mkdir {dir}"));
    dir
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("runtime")
}

#[test]
fn the_linux_server_keeps_the_contract_and_takes_changes() {
    with_lab("the_linux_server_keeps_the_contract_and_takes_changes", RTT, |lab| {
        runtime().block_on(async {
            let dir = directory(lab, "contract");
            let origin = connect(of(lab, &dir)).await;
            testkit::origin_contract::run(&AtTheNas { lab, dir, origin }).await;
            let dir = directory(lab, "changed");
            let origin = connect(of(lab, &dir)).await;
            crate::changes::all(&origin).await;
            crate::changes::at_random(&origin).await;
            lab.nas.must(OTHER_EXPORTS);
            crate::changes::a_full_disk_is_told(&*connect(of(lab, "/mnt/small")).await).await;
            crate::changes::a_read_only_export_is_told(&*connect(of(lab, "/mnt/frozen")).await).await;
        });
    });
}

const OTHER_EXPORTS: &str = "\
set -e
mkdir /mnt/small /mnt/frozen
mount -t tmpfs -o size=1m none /mnt/small
mount -t tmpfs none /mnt/frozen
mkdir /mnt/frozen/full
exportfs -o rw,async,no_root_squash,insecure,no_subtree_check,fsid=71 '*:/mnt/small'
exportfs -o ro,async,no_root_squash,insecure,no_subtree_check,fsid=72 '*:/mnt/frozen'
";

/// The line carries calls but no replies, until the server has carried the call out and the client has given
/// the connection up.
#[test]
fn the_linux_server_knows_a_removal_that_is_sent_again() {
    with_lab("the_linux_server_knows_a_removal_that_is_sent_again", RTT, |lab| {
        runtime().block_on(async {
            let dir = directory(lab, "lost");
            lab.nas.must(&format!("touch {dir}/x"));
            let (second, long) = (Duration::from_secs(1), Duration::from_secs(60));
            let config = Config { stall_timeout: second, connect_timeout: 5 * second, ..of(lab, &dir) };
            let origin = connect(Config { outage_grace: long, nconnect: 1, ..config }).await;
            let root = origin.root().await.expect("root").reference;
            lab.nas.must("tc qdisc replace dev vec0 root netem loss 100%");
            let removal = origin::Change::Remove { dir: root, name: types::Name::new("x").expect("name") };
            let removing = {
                let (origin, removal) = (Arc::clone(&origin), removal.clone());
                tokio::spawn(async move { origin.change(&removal).await })
            };
            let connected = "ss -Htn state established '( sport = :2049 )' | wc -l";
            tokio::task::block_in_place(|| {
                lab.nas.must(&format!("while [ -e {dir}/x ]; do sleep 0.1; done"));
                lab.nas.must(&format!("while [ $({connected}) != 0 ]; do sleep 0.1; done"));
                lab.set_rtt(RTT);
            });
            let done = removing.await.expect("no panic").expect("the server answered as the first time");
            assert!(done.resent);
            let again = origin.change(&removal).await.expect_err("it is gone");
            assert_eq!(again.kind(), types::ErrorKind::NotFound, "a new call is answered anew");
        });
    });
}
