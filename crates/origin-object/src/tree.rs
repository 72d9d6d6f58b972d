//! Names and listings: which objects and directories there are.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use ::origin::{DirCursor, DirEntry, DirPage, Object, Reference};
use bytes::Bytes;
use types::{Error, ErrorKind, Name, Result};

use crate::keys::{Shown, What, child, what};
use crate::listings::{Course, HIDDEN_MAX};
use crate::origin::ObjectOrigin;
use crate::store::{Listed, Page, Stat};
use crate::times::{Names, now};
use crate::url::Attributes;

/// Keys and directories of one page: what stores give at most.
const PAGE: u32 = 1000;
/// Listings that may be under way; of older ones the page that comes next is forgotten.
const TOKENS_MAX: usize = 1024;
/// Directories with keys that cannot be paths that are told of once; when there are more, all are told of again.
const TOLD_MAX: usize = 4096;

/// Where listings go on: the store's own words, by a number that fits into a cursor.
#[derive(Default)]
pub struct Tokens {
    state: Mutex<TokenState>,
}

#[derive(Default)]
struct TokenState {
    last: u64,
    tokens: VecDeque<Kept>,
    /// Of which it was told that they have keys which cannot be shown.
    told: HashSet<Bytes>,
}

/// A listing that is under way.
#[derive(Clone)]
struct Kept {
    cookie: u64,
    dir: Bytes,
    token: String,
    /// Of the names so far.
    names: Names,
}

impl Tokens {
    fn state(&self) -> std::sync::MutexGuard<'_, TokenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn keep(&self, dir: &Reference, token: String, names: Names) -> DirCursor {
        let mut state = self.state();
        state.last += 1;
        let cookie = state.last;
        state.tokens.push_back(Kept { cookie, dir: dir.0.clone(), token, names });
        if state.tokens.len() > TOKENS_MAX {
            state.tokens.pop_front();
        }
        DirCursor { cookie, verifier: [0; 8] }
    }

    pub fn find(&self, dir: &Reference, cursor: DirCursor) -> Option<(String, Names)> {
        let state = self.state();
        let found = state.tokens.iter().find(|kept| kept.cookie == cursor.cookie && kept.dir == dir.0);
        found.map(|kept| (kept.token.clone(), kept.names))
    }

    /// True the first time.
    pub fn tell_of(&self, dir: &Reference) -> bool {
        let mut state = self.state();
        if state.told.len() >= TOLD_MAX {
            state.told.clear();
        }
        state.told.insert(dir.0.clone())
    }
}

impl ObjectOrigin {
    /// A file and a directory of that name are asked for side by side: one round trip. Where both are there, it is the
    /// directory, as in a listing; the object with that very key cannot be reached then.
    pub(crate) async fn find(&self, dir: &Reference, name: &Name) -> Result<Object> {
        let absent =
            || Error::new(ErrorKind::NotFound, "look up", format!("{name} in {}", self.config.url()));
        let references = child(&self.base, dir, name, What::File)
            .and_then(|file| Ok((file, child(&self.base, dir, name, What::Directory)?)));
        let (file, directory) = match references {
            // What no key can be is in no bucket.
            Err(e) if e.kind() != ErrorKind::NotADirectory => return Err(absent()),
            references => references?,
        };
        let (file, directory) = tokio::join!(self.look_at_file(&file), self.look_at_directory(&directory));
        directory?.map_or_else(|| file?.ok_or_else(absent), Ok)
    }

    /// A directory is there as long as any key begins with it.
    pub(crate) async fn look_at_directory(&self, reference: &Reference) -> Result<Option<Object>> {
        let key = self.base.key(reference)?;
        let page = self.keys(&key, None, 1).await?;
        let Some(first) = page.objects.first() else {
            return Ok((!page.is_empty()).then(|| self.directory(reference, None)));
        };
        if first.key != key || self.config.attributes == Attributes::Listed {
            return Ok(Some(self.directory(reference, None)));
        }
        let marker = self.store.head(&key).await?;
        Ok(Some(self.directory(reference, marker.as_ref())))
    }

    /// The keys that begin with this one, itself among them.
    pub(crate) async fn keys(&self, key: &str, after: Option<&str>, most: u32) -> Result<Page> {
        self.page(key, false, after, most).await
    }

    /// Empty only where nothing is left: a store may have looked at many keys that are not there any more and tell of
    /// none of them, but where to go on.
    async fn page(&self, key: &str, by_directory: bool, after: Option<&str>, most: u32) -> Result<Page> {
        let mut page = self.store.list(key, by_directory, after, most).await?;
        let mut course = Course::new(HIDDEN_MAX);
        while page.is_empty()
            && let Some(after) = course.after(&page, || format!("{key} in {}", self.config.url()))?
        {
            page = self.store.list(key, by_directory, Some(&after), most).await?;
        }
        Ok(page)
    }

    pub(crate) async fn list_page(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
        if what(dir) != What::Directory {
            return Err(Error::new(ErrorKind::NotADirectory, "list", self.place(dir)));
        }
        let (token, mut names) = match cursor.cookie {
            0 => (None, Names::default()),
            _ => {
                let kept = self.tokens.find(dir, cursor).ok_or_else(|| self.gone("go on listing", dir))?;
                (Some(kept.0), kept.1)
            }
        };
        let dir_key = self.base.key(dir)?;
        let page = self.page(&dir_key, true, token.as_deref(), PAGE).await?;
        if page.is_empty() && token.is_none() && !dir.0.is_empty() {
            return Err(self.gone("list", dir));
        }
        let mut odd = Vec::new();
        let mut entries = Vec::with_capacity(page.objects.len() + page.prefixes.len() + page.unclear.len());
        let mut directories = HashSet::with_capacity(page.prefixes.len());
        for prefix in &page.prefixes {
            match self.base.shown(&dir_key, prefix) {
                Shown::Name(name) => {
                    let reference = child(&self.base, dir, &name, What::Directory)?;
                    let object = match self.config.attributes {
                        Attributes::Listed => Some(self.directory(&reference, None)),
                        Attributes::Stored => None,
                    };
                    directories.insert(name.clone());
                    entries.push(DirEntry { name, object });
                }
                Shown::Itself => {}
                Shown::NoPath(why) => odd.push((prefix.as_str(), why)),
            }
        }
        for object in &page.objects {
            match self.base.shown(&dir_key, &object.key) {
                Shown::Name(name) if directories.contains(&name) => {
                    odd.push((object.key.as_str(), "a directory has the same name"));
                }
                Shown::Name(name) => {
                    let reference = child(&self.base, dir, &name, What::File)?;
                    let object = match self.config.attributes {
                        Attributes::Stored if object.metadata.is_none() => None,
                        Attributes::Listed | Attributes::Stored => Some(self.listed(&reference, object)),
                    };
                    entries.push(DirEntry { name, object });
                }
                Shown::Itself if object.size > 0 => {
                    odd.push((object.key.as_str(), "a directory has no bytes"))
                }
                Shown::Itself => {}
                Shown::NoPath(why) => odd.push((object.key.as_str(), why)),
            }
        }
        for key in &page.unclear {
            match self.base.shown(&dir_key, key) {
                Shown::Name(name) if directories.contains(&name) => {
                    odd.push((key.as_str(), "a directory has the same name"));
                }
                Shown::Name(name) => entries.push(DirEntry { name, object: None }),
                Shown::Itself => {}
                Shown::NoPath(why) => odd.push((key.as_str(), why)),
            }
        }
        if let Some((key, why)) = odd.first()
            && self.tokens.tell_of(dir)
        {
            let more = odd.len() - 1;
            tracing::warn!(key, "not shown: {why}; {more} more in this part of {}", self.place(dir));
        }
        entries.iter().for_each(|entry| names.add(&entry.name));
        if page.next.is_none() {
            self.times.listed(dir, names, now());
        }
        let next = page.next.map(|token| self.tokens.keep(dir, token, names));
        Ok(DirPage { entries, next })
    }

    /// What is stored with it is known where the listing tells it, or where it was looked at singly.
    fn listed(&self, reference: &Reference, listed: &Listed) -> Object {
        if listed.metadata.is_none()
            && let Some(known) = self.known.get(&reference.0)
            && (&known.etag, known.size) == (&listed.etag, listed.size)
        {
            return self.file(reference, &known);
        }
        let (size, etag, modified) = (listed.size, listed.etag.clone(), listed.modified);
        let metadata = listed.metadata.clone().unwrap_or_default();
        self.file(reference, &Stat { size, etag, modified, metadata })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_finds_its_own_listing_only() {
        let (a, b) = (Reference(Bytes::from_static(b"a/")), Reference(Bytes::from_static(b"b/")));
        let tokens = Tokens::default();
        let first = tokens.keep(&a, "one".into(), Names::default());
        assert_eq!(tokens.find(&a, first).map(|(token, _)| token).as_deref(), Some("one"));
        assert!(tokens.find(&b, first).is_none());
        for _ in 0..TOKENS_MAX {
            tokens.keep(&b, "more".into(), Names::default());
        }
        assert!(tokens.find(&a, first).is_none());
    }
}
