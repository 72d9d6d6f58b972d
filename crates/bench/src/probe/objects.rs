//! What there is at the target to try operations on: a small file, a large one, a directory. Found by a walk with
//! bounds, because the target may have a billion files.

use std::collections::VecDeque;

use origin::{DirCursor, Object, Origin, Reference};
use types::{Name, Result};

use super::wrong;

/// Directories that are listed, and names that are looked at, at most.
const DIRECTORIES_MAX: usize = 64;
const NAMES_MAX: usize = 4096;
/// Small enough to come with one READ of any server.
pub const SMALL_MAX: u64 = 64 << 10;
/// Large enough to keep streams busy.
const BIG: u64 = 16 << 20;

pub struct ProbeObjects {
    pub root: Reference,
    /// A file of 1 byte to 64 KiB: its directory, its name, itself.
    pub small: Option<(Reference, Name, Object)>,
    pub big: Option<Object>,
    /// The directory with most names of those listed.
    crowded: Option<Reference>,
    pub names: usize,
    first: Option<(Reference, Name)>,
}

impl ProbeObjects {
    pub fn any_name(&self) -> Option<(&Reference, &Name)> {
        let small = self.small.as_ref().map(|(dir, name, _)| (dir, name));
        small.or(self.first.as_ref().map(|(dir, name)| (dir, name)))
    }

    pub fn with_bytes(&self, bytes: u64) -> Option<&Object> {
        let small = self.small.as_ref().map(|(_, _, file)| file);
        [self.big.as_ref(), small].into_iter().flatten().find(|file| file.attr.size >= bytes)
    }

    pub fn listed(&self) -> &Reference {
        self.crowded.as_ref().unwrap_or(&self.root)
    }

    /// The named files where names are given; the rest is looked for.
    pub async fn find(
        origin: &dyn Origin,
        small_file: Option<&str>,
        big_file: Option<&str>,
    ) -> Result<ProbeObjects> {
        let root = origin.root().await?.reference;
        let mut objects = ProbeObjects { root, small: None, big: None, crowded: None, names: 0, first: None };
        if let Some(path) = small_file {
            let (dir, name, file) = walk(origin, &objects.root, path).await?;
            if !(1..=SMALL_MAX).contains(&file.attr.size) {
                let size = file.attr.size;
                return Err(wrong(format!("{path} has {size} bytes; a small file has 1 byte to 64 KiB")));
            }
            objects.small = Some((dir, name, file));
        }
        if let Some(path) = big_file {
            objects.big = Some(walk(origin, &objects.root, path).await?.2);
        }
        objects.search(origin).await?;
        Ok(objects)
    }

    /// Breadth first, until there is nothing left to find or the bounds are reached.
    async fn search(&mut self, origin: &dyn Origin) -> Result<()> {
        let mut left = VecDeque::from([self.root.clone()]);
        let (mut listed, mut seen) = (0, 0);
        while let Some(dir) = left.pop_front() {
            let complete = self.small.is_some() && self.big.as_ref().is_some_and(|big| big.attr.size >= BIG);
            if listed >= DIRECTORIES_MAX || seen >= NAMES_MAX || complete {
                return Ok(());
            }
            listed += 1;
            let here = match self.look_at(origin, &dir, &mut left).await {
                Ok(here) => here,
                // Some directories may be closed to us; the root must not be.
                Err(error) if dir == self.root => return Err(error),
                Err(_) => continue,
            };
            seen += here;
            if here > self.names {
                (self.names, self.crowded) = (here, Some(dir));
            }
        }
        Ok(())
    }

    async fn look_at(
        &mut self,
        origin: &dyn Origin,
        dir: &Reference,
        left: &mut VecDeque<Reference>,
    ) -> Result<usize> {
        let (mut cursor, mut names) = (DirCursor::default(), 0);
        loop {
            let page = origin.readdir(dir, cursor).await?;
            for entry in page.entries {
                names += 1;
                let object = match entry.object {
                    Some(object) => object,
                    None => match origin.lookup(dir, &entry.name).await {
                        Ok(object) => object,
                        Err(_) => continue,
                    },
                };
                self.consider(dir, entry.name, object, left);
            }
            match page.next {
                Some(next) if names < NAMES_MAX => cursor = next,
                _ => return Ok(names),
            }
        }
    }

    fn consider(&mut self, dir: &Reference, name: Name, object: Object, left: &mut VecDeque<Reference>) {
        if self.first.is_none() {
            self.first = Some((dir.clone(), name.clone()));
        }
        if object.attr.is_dir() {
            if left.len() < DIRECTORIES_MAX {
                left.push_back(object.reference);
            }
            return;
        }
        if !object.attr.is_file() {
            return;
        }
        if self.small.is_none() && (1..=SMALL_MAX).contains(&object.attr.size) {
            self.small = Some((dir.clone(), name, object.clone()));
        }
        // One that was asked for is larger than none, so it is replaced only by what is larger still: no harm, but
        // not what was asked for; hence the test for a file that is large enough already.
        let so_far = self.big.as_ref().map_or(0, |big| big.attr.size);
        if object.attr.size > so_far && so_far < BIG {
            self.big = Some(object);
        }
    }
}

/// A path below the root, component by component.
async fn walk(origin: &dyn Origin, root: &Reference, path: &str) -> Result<(Reference, Name, Object)> {
    let mut dir = root.clone();
    let mut components = path.split('/').filter(|component| !component.is_empty()).peekable();
    while let Some(component) = components.next() {
        let name = Name::new(component.as_bytes().to_vec()).map_err(|e| wrong(format!("{path}: {e}")))?;
        let object = origin.lookup(&dir, &name).await.map_err(|e| wrong(format!("{path}: {e}")))?;
        if components.peek().is_none() {
            if !object.attr.is_file() {
                return Err(wrong(format!("{path} is no regular file")));
            }
            return Ok((dir, name, object));
        }
        dir = object.reference;
    }
    Err(wrong("a file's path is not empty"))
}

#[cfg(test)]
mod tests {
    use origin::memory::MemoryOrigin;
    use types::ErrorKind;

    use super::*;

    #[tokio::test]
    async fn a_small_and_a_large_file_are_found_in_depth() {
        let origin = MemoryOrigin::new();
        origin.mkdir(b"/a").expect("made");
        origin.mkdir(b"/a/b").expect("made");
        origin.write_file(b"/a/empty", b"").expect("written");
        origin.write_file(b"/a/b/small", b"hello").expect("written");
        origin.generate_file(b"/a/b/big", 1, 20 << 20).expect("made");
        let objects = ProbeObjects::find(&*origin, None, None).await.expect("found");
        let (_, name, small) = objects.small.as_ref().expect("found");
        assert_eq!((name.as_bytes(), small.attr.size), (&b"small"[..], 5));
        assert_eq!(objects.big.as_ref().expect("found").attr.size, 20 << 20);
        assert!(objects.with_bytes(1 << 20).is_some() && objects.with_bytes(1 << 30).is_none());
        assert_eq!(objects.names, 2);
    }

    #[tokio::test]
    async fn a_named_file_is_taken_and_a_wrong_name_is_told() {
        let origin = MemoryOrigin::new();
        origin.write_file(b"/one", b"1").expect("written");
        origin.write_file(b"/two", b"22").expect("written");
        let objects = ProbeObjects::find(&*origin, Some("two"), None).await.expect("found");
        assert_eq!(objects.small.expect("found").2.attr.size, 2);
        let error =
            ProbeObjects::find(&*origin, Some("three"), None).await.err().expect("there is no such file");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("three"), "{error}");
    }

    #[tokio::test]
    async fn an_empty_export_has_nothing_to_try() {
        let origin = MemoryOrigin::new();
        let objects = ProbeObjects::find(&*origin, None, None).await.expect("found");
        assert!(objects.any_name().is_none() && objects.small.is_none() && objects.big.is_none());
        assert_eq!(objects.listed(), &objects.root);
    }
}
