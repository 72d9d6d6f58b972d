//! The tier's time line, continued by each process of one boot of the machine.
//!
//! Ages of what is kept on the disk (when the origin vouched for a file, since when a change waits) must not depend on what
//! was done to the wall clock since. So the first process writes down, beside the cache, what its time line was when the
//! machine booted, and those after it go on from there. At another boot nothing but the wall clock tells how long the
//! machine was off; where that is behind what was stamped already, nobody knows it, and the time line says so. So it does
//! where what was written down is gone or is not what was written.

use std::path::Path;
use std::time::Duration;

use tracing::warn;
use types::timeline::wall_clock;
use types::{Error, Result, Timeline};

const FILE: &str = "clock";

/// What is kept, as one line of text: the boot, the time line at it, the time line when this was written, and a checksum of
/// what is before it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    boot: String,
    at_boot: Duration,
    written: Duration,
}

impl Kept {
    fn decode(text: &str) -> Option<Kept> {
        let (known, sum) = text.strip_suffix('\n')?.rsplit_once(' ')?;
        if format!("{:08x}", crc32c::crc32c(known.as_bytes())) != sum {
            return None;
        }
        let mut words = known.split(' ');
        let (boot, at_boot, written) = (words.next()?, words.next()?, words.next()?);
        let millis = |word: &str| word.parse().ok().map(Duration::from_millis);
        let kept = Kept { boot: boot.to_owned(), at_boot: millis(at_boot)?, written: millis(written)? };
        (words.next().is_none() && !boot.is_empty()).then_some(kept)
    }

    fn encode(&self) -> String {
        let known = format!("{} {} {}", self.boot, self.at_boot.as_millis(), self.written.as_millis());
        format!("{known} {:08x}\n", crc32c::crc32c(known.as_bytes()))
    }
}

/// `used`: a tier was here before, so that there must be something.
pub fn open(dir: &Path, used: bool) -> Result<Timeline> {
    let path = dir.join(FILE);
    let kept = std::fs::read_to_string(&path).ok().and_then(|text| Kept::decode(&text));
    let is_lost = kept.is_none() && (used || path.exists());
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot = boot.trim().to_owned();
    let timeline = line(kept.as_ref(), &boot, wall_clock());
    let timeline = if is_lost { timeline.broken() } else { timeline };
    if is_lost {
        warn!("{} is gone or damaged; what is cached is asked for anew", path.display());
    } else if timeline.is_broken() {
        warn!(
            "the clock of this machine is behind what was stamped before it was started; what is cached is asked for anew"
        );
    }
    keep(&path, boot, &timeline).map_err(|e| Error::io("write", path.display(), e))?;
    Ok(timeline)
}

fn line(kept: Option<&Kept>, boot: &str, wall: Duration) -> Timeline {
    match kept {
        Some(kept) if kept.boot == boot && !boot.is_empty() => Timeline::continued(kept.at_boot),
        Some(kept) if kept.written > wall => Timeline::starting(kept.written).broken(),
        _ => Timeline::starting(wall),
    }
}

fn keep(path: &Path, boot: String, timeline: &Timeline) -> std::io::Result<()> {
    let kept = Kept { boot, at_boot: timeline.at_boot(), written: timeline.now() };
    // Whole or not at all.
    let unfinished = path.with_extension("unfinished");
    std::fs::write(&unfinished, kept.encode())?;
    std::fs::rename(&unfinished, path)
}

/// At the end of a tier: so late it was.
pub fn close(dir: &Path, timeline: &Timeline) {
    let path = dir.join(FILE);
    let kept = std::fs::read_to_string(&path).ok().and_then(|text| Kept::decode(&text));
    let Some(kept) = kept else { return };
    if let Err(e) = keep(&path, kept.boot, timeline) {
        warn!("cannot write {}: {e}; the next start may have to ask for everything anew", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn is_about(line: &Timeline, time: Duration) -> bool {
        line.now().abs_diff(time) < HOUR / 60
    }

    #[test]
    fn processes_of_one_boot_have_one_time_line_whatever_the_wall_clock_says() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(dir.path(), false).unwrap();
        assert!(is_about(&first, wall_clock()) && !first.is_broken());
        close(dir.path(), &first);
        let kept = Kept::decode(&std::fs::read_to_string(dir.path().join(FILE)).unwrap()).unwrap();
        for wall in [Duration::ZERO, wall_clock() - HOUR, wall_clock() + 87_660 * HOUR] {
            let again = line(Some(&kept), &kept.boot, wall);
            assert!(is_about(&again, first.now()) && !again.is_broken(), "{wall:?}");
        }
    }

    #[test]
    fn a_clock_that_is_gone_or_not_what_was_written_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path(), false).unwrap();
        let path = dir.path().join(FILE);
        let whole = std::fs::read(&path).unwrap();
        assert!(!open(dir.path(), true).unwrap().is_broken());
        for bit in 0..whole.len() * 8 {
            let mut other = whole.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, other).unwrap();
            assert!(open(dir.path(), false).unwrap().is_broken(), "bit {bit}");
        }
        for end in 0..whole.len() {
            std::fs::write(&path, &whole[..end]).unwrap();
            assert!(open(dir.path(), false).unwrap().is_broken(), "cut to {end}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(open(dir.path(), true).unwrap().is_broken(), "it was there");
    }

    #[test]
    fn after_another_boot_the_wall_clock_counts_unless_it_is_behind() {
        let written = 400_000 * HOUR;
        let kept = Kept { boot: "then".into(), at_boot: written - HOUR, written };
        let line_at = |wall| line(Some(&kept), "now", wall);
        let later = line_at(written + 8 * HOUR);
        assert!(is_about(&later, written + 8 * HOUR) && !later.is_broken());
        let behind = line_at(written - 8 * HOUR);
        assert!(is_about(&behind, written) && behind.is_broken());
        assert!(!line(None, "now", Duration::ZERO).is_broken(), "the first of all");
        assert_eq!(Kept::decode(&kept.encode()), Some(kept));
        for text in ["", "x", "boot 1", "boot 1 x", "boot 1 2 3", " 1 2"] {
            assert_eq!(Kept::decode(text), None, "{text:?}");
        }
    }
}
