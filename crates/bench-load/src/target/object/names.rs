//! What a client knows of the names in a bucket: a directory is listed when the first of its objects is opened, as
//! programs do that read a bucket through, so that opening the others costs nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::OnceCell;
use types::Result;

use crate::locked;

/// Names that one client remembers, about 25 MB; those of further directories it asks for one by one.
const NAMES_MAX: usize = 256 << 10;

/// Sizes of the objects of one directory by name. `None`: too many to be remembered.
type DirectoryNames = Option<Mutex<HashMap<String, u64>>>;

#[derive(Default)]
pub struct NameCache {
    directories: Mutex<HashMap<String, Arc<OnceCell<DirectoryNames>>>>,
}

impl NameCache {
    /// The size of an object in the directory; `None` if it is not known to be there. Of several who want to know one
    /// lists, with `list`, which gets the most names that can be remembered and returns nothing if there are more.
    pub async fn size_of(
        &self,
        directory: &str,
        name: &str,
        list: impl AsyncFnOnce(usize) -> Result<Option<HashMap<String, u64>>>,
    ) -> Result<Option<u64>> {
        let (cell, room) = {
            let mut directories = locked(&self.directories);
            let known: usize = directories.values().filter_map(|cell| cell.get()).map(count).sum();
            (directories.entry(directory.to_owned()).or_default().clone(), NAMES_MAX.saturating_sub(known))
        };
        let listing: Result<&DirectoryNames> =
            cell.get_or_try_init(async || Ok(list(room).await?.map(Mutex::new))).await;
        let names = listing?.as_ref().map(locked);
        Ok(names.and_then(|names| names.get(name).copied()))
    }

    /// What this client itself stored or removed.
    pub fn changed(&self, directory: &str, name: &str, size: Option<u64>) {
        let cell = locked(&self.directories).get(directory).cloned();
        let Some(names) = cell.as_ref().and_then(|cell| cell.get()).and_then(Option::as_ref) else { return };
        let mut names = locked(names);
        match size {
            Some(size) => names.insert(name.to_owned(), size),
            None => names.remove(name),
        };
    }

    pub fn forget(&self) {
        locked(&self.directories).clear();
    }
}

fn count(listing: &DirectoryNames) -> usize {
    listing.as_ref().map_or(0, |names| locked(names).len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_directory_is_listed_once_and_changes_of_ones_own_are_known() {
        let names = NameCache::default();
        let lists = Mutex::new(0);
        let list = async |_| {
            *lists.lock().expect("counted") += 1;
            Ok(Some(HashMap::from([("a".to_owned(), 7)])))
        };
        for (name, size) in [("a", Some(7)), ("b", None)] {
            assert_eq!(names.size_of("d", name, list).await.expect("listed"), size);
        }
        names.changed("d", "b", Some(9));
        names.changed("d", "a", None);
        names.changed("unknown", "a", Some(1));
        assert_eq!(names.size_of("d", "b", list).await.expect("listed"), Some(9));
        assert_eq!(names.size_of("d", "a", list).await.expect("listed"), None);
        assert_eq!(*lists.lock().expect("counted"), 1);
        names.forget();
        assert_eq!(names.size_of("d", "a", list).await.expect("listed"), Some(7));
    }

    #[tokio::test]
    async fn a_directory_that_is_too_large_is_not_listed_again_and_again() {
        let names = NameCache::default();
        let mut lists = 0;
        for _ in 0..3 {
            let list = async |_| {
                lists += 1;
                Ok(None)
            };
            assert_eq!(names.size_of("d", "a", list).await.expect("listed"), None);
        }
        assert_eq!(lists, 1);
    }
}
