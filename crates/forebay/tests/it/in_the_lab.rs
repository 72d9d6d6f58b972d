//! A real kernel NFS client, Forebay on this machine, and a real knfsd that is far away, in User-Mode Linux (`testkit::lab`). Only
//! one lab runs at a time, and each test is one.

mod figures;
mod reads;
mod writes;

use std::path::Path;
use std::time::{Duration, Instant};

use testkit::lab::{EXPORT, Lab};

use crate::tier::Tier;

const FAR: Duration = Duration::from_micros(69_500);

fn tier_over(lab: &Lab, dir: &Path, more: &str) -> Tier {
    let url = lab.nas_url();
    Tier::start(dir, &format!("[[junction]]\npath = \"/\"\norigin = \"{url}\"\n{more}\n"))
}

fn mount_tier(lab: &Lab, tier: &Tier, dir: &str, options: &str) {
    lab.client.mount(lab.host(), tier.nfs_port, tier.nfs_port, "/", dir, options);
}

fn mount_nas(lab: &Lab, dir: &str) {
    lab.client.mount(lab.nas.address(), 2049, 20048, EXPORT, dir, "ro");
}

/// Forget what the client has cached, so that it asks.
fn drop_client_caches(lab: &Lab) {
    lab.client.must("sync; echo 3 > /proc/sys/vm/drop_caches");
}

/// Bytes of a repeating but position-dependent pattern, made in the NAS.
fn make_file(lab: &Lab, path: &str, mib: u32, key: &str) {
    lab.nas.must(&format!(
        "head -c {mib}M /dev/zero | openssl enc -aes-128-ctr -nosalt -pass pass:{key} -md sha256 -pbkdf2 -iter 1 2>/dev/null > {path}; sync"
    ));
}

fn sum_at_nas(lab: &Lab, path: &str) -> String {
    lab.nas.must(&format!("md5sum < {path}")).stdout
}

/// Read a file through the client; seconds, and its checksum.
fn timed_read(lab: &Lab, path: &str) -> (f64, String) {
    let start = Instant::now();
    let sum = lab.client.must(&format!("dd if={path} bs=1M 2>/dev/null | md5sum")).stdout;
    (start.elapsed().as_secs_f64(), sum)
}
