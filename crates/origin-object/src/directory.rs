//! Look-ups and listings: which objects and directories exist.

use std::collections::HashSet;

use ::origin::{DirCursor, DirEntry, DirPage, Object, Reference};
use types::{Error, ErrorKind, Name, Result};

use crate::dir_times::{NameFingerprint, now};
use crate::keys::{KeyKind, ListedName, child, what};
use crate::listing_progress::{HIDDEN_MAX, ListingProgress};
use crate::origin::ObjectOrigin;
use crate::store::{ListPage, ListedObject, ObjectStat};
use crate::url::AttributeSource;

/// The keys and prefixes of one page: the most that stores return.
const PAGE: u32 = 1000;
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
