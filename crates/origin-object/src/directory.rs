//! Look-ups and listings: which objects and directories exist.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use ::origin::{DirCursor, DirEntry, DirPage, Object, Reference};
use bytes::Bytes;
use types::{Error, ErrorKind, Name, Result};

use crate::dir_times::{NameFingerprint, now};
use crate::keys::{KeyKind, ListedName, child, what};
use crate::listing_progress::{HIDDEN_MAX, ListingProgress};
use crate::origin::ObjectOrigin;
use crate::store::{ListPage, ListedObject, ObjectStat};
use crate::url::AttributeSource;

/// The keys and prefixes of one page: the most that stores return.
const PAGE: u32 = 1000;
/// The most ongoing listings; an older one loses its token.
const TOKENS_MAX: usize = 1024;
/// The most directories whose keys were reported as no paths; when there are more, all are reported again.
const TOLD_MAX: usize = 4096;

/// The continuation tokens of ongoing listings, by a number that fits into a cursor.
#[derive(Default)]
pub struct ListingTokens {
    state: Mutex<TokenState>,
}

#[derive(Default)]
struct TokenState {
    last: u64,
    tokens: VecDeque<OpenListing>,
    /// Directories that were reported to have keys which cannot be shown.
    told: HashSet<Bytes>,
}

/// An ongoing listing.
#[derive(Clone)]
struct OpenListing {
    cookie: u64,
    dir: Bytes,
    token: String,
    /// The fingerprint of the names so far.
    names: NameFingerprint,
}

impl ListingTokens {
    fn state(&self) -> std::sync::MutexGuard<'_, TokenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn store(&self, dir: &Reference, token: String, names: NameFingerprint) -> DirCursor {
        let mut state = self.state();
        state.last += 1;
        let cookie = state.last;
        state.tokens.push_back(OpenListing { cookie, dir: dir.0.clone(), token, names });
        if state.tokens.len() > TOKENS_MAX {
            state.tokens.pop_front();
        }
        DirCursor { cookie, verifier: [0; 8] }
    }

    pub fn find(&self, dir: &Reference, cursor: DirCursor) -> Option<(String, NameFingerprint)> {
        let state = self.state();
        let found = state.tokens.iter().find(|kept| kept.cookie == cursor.cookie && kept.dir == dir.0);
        found.map(|kept| (kept.token.clone(), kept.names))
    }

    /// True the first time that a directory is reported.
    pub fn first_report(&self, dir: &Reference) -> bool {
        let mut state = self.state();
        if state.told.len() >= TOLD_MAX {
            state.told.clear();
        }
        state.told.insert(dir.0.clone())
    }
}

impl ObjectOrigin {
    /// Asks for a file and a directory of this name in parallel: one round trip. If both exist, it is the directory,
    /// as in a listing; the object with that very key cannot be reached then.
    pub(crate) async fn find(&self, dir: &Reference, name: &Name) -> Result<Object> {
        let absent =
            || Error::new(ErrorKind::NotFound, "look up", format!("{name} in {}", self.config.url()));
        let references = child(&self.base, dir, name, KeyKind::File)
            .and_then(|file| Ok((file, child(&self.base, dir, name, KeyKind::Directory)?)));
        let (file, directory) = match references {
            // A name that no key can have does not exist.
            Err(e) if e.kind() != ErrorKind::NotADirectory => return Err(absent()),
            references => references?,
        };
        let (file, directory) = tokio::join!(self.stat_file(&file), self.stat_directory(&directory));
        directory?.map_or_else(|| file?.ok_or_else(absent), Ok)
    }

    /// A directory exists as long as any key begins with it.
    pub(crate) async fn stat_directory(&self, reference: &Reference) -> Result<Option<Object>> {
        let key = self.base.key(reference)?;
        let page = self.keys(&key, None, 1).await?;
        let Some(first) = page.objects.first() else {
            return Ok((!page.is_empty()).then(|| self.directory(reference, None)));
        };
        if first.key != key || self.config.attributes == AttributeSource::Listed {
            return Ok(Some(self.directory(reference, None)));
        }
        let marker = self.store.head(&key).await?;
        Ok(Some(self.directory(reference, marker.as_ref())))
    }

    /// The keys that begin with this one, including itself.
    pub(crate) async fn keys(&self, key: &str, after: Option<&str>, most: u32) -> Result<ListPage> {
        self.page(key, false, after, most).await
    }

    /// One page, empty only at the end: a store may skip many deleted keys and return nothing but a token.
    async fn page(&self, key: &str, by_directory: bool, after: Option<&str>, most: u32) -> Result<ListPage> {
        let mut page = self.store.list(key, by_directory, after, most).await?;
        let mut course = ListingProgress::new(HIDDEN_MAX);
        while page.is_empty()
            && let Some(after) = course.after(&page, || format!("{key} in {}", self.config.url()))?
        {
            page = self.store.list(key, by_directory, Some(&after), most).await?;
        }
        Ok(page)
    }

    pub(crate) async fn list_page(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
        if what(dir) != KeyKind::Directory {
            return Err(Error::new(ErrorKind::NotADirectory, "list", self.place(dir)));
        }
        let (token, mut names) = match cursor.cookie {
            0 => (None, NameFingerprint::default()),
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
            match self.base.classify(&dir_key, prefix) {
                ListedName::Name(name) => {
                    let reference = child(&self.base, dir, &name, KeyKind::Directory)?;
                    let object = match self.config.attributes {
                        AttributeSource::Listed => Some(self.directory(&reference, None)),
                        AttributeSource::Stored => None,
                    };
                    directories.insert(name.clone());
                    entries.push(DirEntry { name, object });
                }
                ListedName::Itself => {}
                ListedName::NoPath(why) => odd.push((prefix.as_str(), why)),
            }
        }
        for object in &page.objects {
            match self.base.classify(&dir_key, &object.key) {
                ListedName::Name(name) if directories.contains(&name) => {
                    odd.push((object.key.as_str(), "a directory has the same name"));
                }
                ListedName::Name(name) => {
                    let reference = child(&self.base, dir, &name, KeyKind::File)?;
                    let object = match self.config.attributes {
                        AttributeSource::Stored if object.metadata.is_none() => None,
                        AttributeSource::Listed | AttributeSource::Stored => {
                            Some(self.listed_object(&reference, object))
                        }
                    };
                    entries.push(DirEntry { name, object });
                }
                ListedName::Itself if object.size > 0 => {
                    odd.push((object.key.as_str(), "a directory has no bytes"))
                }
                ListedName::Itself => {}
                ListedName::NoPath(why) => odd.push((object.key.as_str(), why)),
            }
        }
        for key in &page.unclear {
            match self.base.classify(&dir_key, key) {
                ListedName::Name(name) if directories.contains(&name) => {
                    odd.push((key.as_str(), "a directory has the same name"));
                }
                ListedName::Name(name) => entries.push(DirEntry { name, object: None }),
                ListedName::Itself => {}
                ListedName::NoPath(why) => odd.push((key.as_str(), why)),
            }
        }
        if let Some((key, why)) = odd.first()
            && self.tokens.first_report(dir)
        {
            let more = odd.len() - 1;
            tracing::warn!(key, "not shown: {why}; {more} more in this part of {}", self.place(dir));
        }
        entries.iter().for_each(|entry| names.add(&entry.name));
        if page.next.is_none() {
            self.dir_times.record_listing(dir, names, now());
        }
        let next = page.next.map(|token| self.tokens.store(dir, token, names));
        Ok(DirPage { entries, next })
    }

    /// The metadata is known if the listing has it, or if the object was looked at before.
    fn listed_object(&self, reference: &Reference, listed: &ListedObject) -> Object {
        if listed.metadata.is_none()
            && let Some(cached) = self.stat_cache.get(&reference.0)
            && (&cached.etag, cached.size) == (&listed.etag, listed.size)
        {
            return self.file(reference, &cached);
        }
        let (size, etag, modified) = (listed.size, listed.etag.clone(), listed.modified);
        let metadata = listed.metadata.clone().unwrap_or_default();
        self.file(reference, &ObjectStat { size, etag, modified, metadata })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_finds_its_own_listing_only() {
        let (a, b) = (Reference(Bytes::from_static(b"a/")), Reference(Bytes::from_static(b"b/")));
        let tokens = ListingTokens::default();
        let first = tokens.store(&a, "one".into(), NameFingerprint::default());
        assert_eq!(tokens.find(&a, first).map(|(token, _)| token).as_deref(), Some("one"));
        assert!(tokens.find(&b, first).is_none());
        for _ in 0..TOKENS_MAX {
            tokens.store(&b, "more".into(), NameFingerprint::default());
        }
        assert!(tokens.find(&a, first).is_none());
    }
}
