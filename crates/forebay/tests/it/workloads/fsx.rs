//! fsx through the kernel NFS client: one file, random reads, writes, mappings and cuts, each read compared.
//! scripts/posix-suites.sh brings it and its settings.

use std::path::PathBuf;
use std::time::Duration;

use testkit::lab::{not_run, with_client};

use super::{Bed, ByNfs, CLIENT_INPUT, CLIENT_ROOT, Policy};

const DEADLINE: Duration = Duration::from_secs(24 * 3600);

#[test]
#[ignore = "as long as it is asked to be: scripts/posix-suites.sh"]
fn fsx_through_the_kernel_nfs_client() {
    let name = "fsx_through_the_kernel_nfs_client";
    let given = |name: &str| std::env::var(name).ok();
    let Some(tools) = given("FOREBAY_FSX_DIR").map(PathBuf::from) else {
        return not_run(name, "FOREBAY_FSX_DIR names no directory with fsx and fsx.toml");
    };
    let number = |name: &str, default: u64| given(name).map_or(default, |it| it.parse().expect(name));
    let mut left = number("FOREBAY_FSX_OPERATIONS", 10_000);
    let mut seed = number("FOREBAY_FSX_SEED", 1);
    let turn = number("FOREBAY_FSX_TURN", 100_000);
    let policy = given("FOREBAY_FSX_POLICY").unwrap_or_else(|| "through".to_owned());
    let policy = Policy { name: policy.leak(), flush: None };
    with_client(name, |client| {
        let bed = Bed::new();
        let _front = ByNfs::mounted(bed.tier(&policy, None), client, &tools);
        while left > 0 {
            let count = left.min(turn);
            eprintln!("fsx: {count} operations, seed {seed}, policy {}", policy.name);
            let command = format!(
                "{CLIENT_INPUT}/fsx -q -f {CLIENT_INPUT}/fsx.toml -P /tmp -N {count} -S {seed} {CLIENT_ROOT}/fsx-{seed}"
            );
            let output = client.start(&command).wait(DEADLINE).expect("it ends");
            assert_eq!(output.status, 0, "{}{}", output.stdout, output.stderr);
            (left, seed) = (left - count, seed + 1);
        }
    });
}
