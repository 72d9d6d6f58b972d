//! An origin that is another one at times: its directory is not there, or a bare one is in its place, as below a mount
//! that is missing. Nothing may come into that.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::crash::chance::Chance;
use crate::crash::look;

pub struct Swapper {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<u32, String>>,
}

impl Swapper {
    /// Swaps the directory `origin`; `away` beside it is where it is meanwhile.
    pub fn start(origin: PathBuf, away: PathBuf, mut chance: Chance) -> Swapper {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut swaps = 0;
            while !stopped.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(chance.below(400)));
                std::fs::rename(&origin, &away).expect("it is there");
                if !chance.one_in(4) {
                    std::fs::create_dir(&origin).expect("nothing is there");
                }
                swaps += 1;
                std::thread::sleep(Duration::from_millis(chance.below(1_500)));
                // It takes the place of a bare directory, and of no other.
                std::fs::rename(&away, &origin).map_err(|e| {
                    let there =
                        look::in_directory(&origin).map(|sight| sight.into_keys().collect::<Vec<_>>());
                    format!("something came into another origin ({e}): {there:?}")
                })?;
            }
            Ok(swaps)
        });
        Swapper { stop, thread }
    }

    /// The right one is there, and stays. How often another was.
    pub fn stop(self) -> Result<u32, String> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().expect("no panic")
    }
}
