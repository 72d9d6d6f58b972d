//! A disk whose power is cut: a file system in an image file. What was not synced is not in the image, and the image as
//! it is when the process was killed is what a machine finds that is switched on again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use rustix::mount::UnmountFlags;

/// Of the image; it is sparse.
const BYTES: u64 = 2 << 30;

pub struct Disk {
    image: PathBuf,
    mounted: PathBuf,
    options: String,
}

impl Disk {
    /// An empty file system, mounted at `mounted`; the reason where this machine cannot do that. `commit`: seconds after
    /// which it stores by itself what nobody has synced.
    pub fn new(image: PathBuf, mounted: PathBuf, commit: u64) -> Result<Disk, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("it needs root to mount an image file".to_owned());
        }
        let made = std::fs::File::create_new(&image).and_then(|file| file.set_len(BYTES));
        made.map_err(|e| format!("{}: {e}", image.display()))?;
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-E", "lazy_itable_init=1"]).arg(&image))?;
        let disk = Disk { image, mounted, options: format!("loop,commit={commit}") };
        disk.mount()?;
        Ok(disk)
    }

    fn mount(&self) -> Result<(), String> {
        run(Command::new("mount").args(["-o", &self.options]).arg(&self.image).arg(&self.mounted))
    }

    /// Nobody uses it any more. What was not synced is gone.
    pub fn cut(&self) {
        let copy = self.image.with_extension("copy");
        loop {
            let before = changed(&self.image);
            run(Command::new("cp").arg("--sparse=always").arg(&self.image).arg(&copy)).expect("copied");
            // Somebody in the kernel may have stored something meanwhile: that is no one moment.
            if changed(&self.image) == before {
                break;
            }
        }
        // Programs may have files of the mount open still that the kernel reads from here. What it does to this image now,
        // nobody sees.
        rustix::mount::unmount(&self.mounted, UnmountFlags::DETACH).expect("it is mounted");
        std::fs::rename(&copy, &self.image).expect("renamed");
        self.mount().expect("mounted");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // After a failed test somebody may still be in it.
        let _ = rustix::mount::unmount(&self.mounted, UnmountFlags::DETACH);
    }
}

fn changed(path: &Path) -> SystemTime {
    path.metadata().and_then(|meta| meta.modified()).expect("it is there")
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(e) => Err(format!("{name}: {e}")),
    }
}
