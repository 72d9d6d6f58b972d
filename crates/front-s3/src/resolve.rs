//! Resolves buckets and keys to files of the served tree.

use std::collections::BTreeMap;

use bytes::Bytes;
use s3s::{S3Error, S3ErrorCode};
use types::{Caller, ErrorKind, FileId, Name, SetAttr};
use vfs::{Node, Vfs};

use crate::access_keys::{AccessKey, Right};
use crate::errors::{self, S3Result, s3_error};
use crate::object_key::ObjectKey;

/// The attempts to create a key's directories while others remove them.
pub const TRIES_MAX: usize = 4;

/// Where buckets lie in the tree.
#[derive(Clone, Debug)]
pub enum BucketMap {
    /// Every directory at the top of the tree whose name is a valid bucket name.
    Top,
    /// Only these: the path in the tree for each name.
    Named(BTreeMap<String, String>),
}

#[derive(Clone, Debug)]
pub struct OpenBucket {
    pub name: String,
    pub root: Node,
}

/// S3's own rules. (The protocol crate overlooks hyphens beside periods.)
pub fn is_bucket_name(name: &str) -> bool {
    s3s::path::check_bucket_name(name) && !name.contains(".-") && !name.contains("-.")
}

/// Opens a bucket, if `key` has the right to it.
pub async fn bucket(
    vfs: &Vfs,
    map: &BucketMap,
    key: &AccessKey,
    name: &str,
    right: Right,
) -> S3Result<OpenBucket> {
    if !is_bucket_name(name) {
        return Err(S3ErrorCode::InvalidBucketName.into());
    }
    if !key.may(right, name) {
        return Err(S3ErrorCode::AccessDenied.into());
    }
    let path = match map {
        BucketMap::Top => name,
        BucketMap::Named(named) => named.get(name).ok_or(S3ErrorCode::NoSuchBucket)?,
    };
    let root = vfs.resolve(path.as_bytes()).await.map_err(bucket_error)?;
    if !root.attr.is_dir() {
        return Err(S3ErrorCode::NoSuchBucket.into());
    }
    Ok(OpenBucket { name: name.to_owned(), root })
}

fn bucket_error(error: types::Error) -> S3Error {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::Stale | ErrorKind::NotADirectory => S3ErrorCode::NoSuchBucket.into(),
        _ => s3_error(error),
    }
}

/// The filter of a listing of buckets.
#[derive(Clone, Debug)]
pub struct BucketQuery {
    pub prefix: String,
    /// The first name that may be listed.
    pub from: Vec<u8>,
    pub max: usize,
}

impl BucketQuery {
    fn has(&self, name: &str) -> bool {
        name.starts_with(&self.prefix) && name.as_bytes() >= self.from.as_slice()
    }
}

/// The first buckets in order that match `wanted` and that `key` may see; one more than `max` if there are more.
pub async fn buckets(
    vfs: &Vfs,
    map: &BucketMap,
    key: &AccessKey,
    wanted: &BucketQuery,
) -> S3Result<Vec<OpenBucket>> {
    let mut found = BTreeMap::new();
    match map {
        BucketMap::Named(named) => {
            for (name, path) in named.iter().filter(|(name, _)| key.sees(name) && wanted.has(name)) {
                if found.len() > wanted.max {
                    break;
                }
                match vfs.resolve(path.as_bytes()).await {
                    Ok(root) => drop(found.insert(name.clone(), root)),
                    // The other buckets are listed all the same.
                    Err(e) => tracing::warn!("bucket {name}: {e}"),
                }
            }
        }
        BucketMap::Top => {
            let mut cookie = 0;
            loop {
                let listing =
                    vfs.readdir(&Caller::root(), vfs.root(), cookie, 1024).await.map_err(s3_error)?;
                for item in &listing.items {
                    cookie = item.cookie;
                    if let Ok(name) = std::str::from_utf8(&item.name)
                        && let Some(root) = &item.node
                        && root.attr.is_dir()
                        && is_bucket_name(name)
                        && key.sees(name)
                        && wanted.has(name)
                    {
                        found.insert(name.to_owned(), root.clone());
                    }
                    // Names arrive in any order.
                    if found.len() > wanted.max + 1 {
                        found.pop_last();
                    }
                }
                if listing.eof {
                    break;
                }
            }
        }
    }
    Ok(found.into_iter().map(|(name, root)| OpenBucket { name, root }).collect())
}

pub fn parse_key(text: &str) -> S3Result<ObjectKey> {
    ObjectKey::parse(text.as_bytes()).map_err(errors::key_error)
}

/// The file or directory that `key` names; `NoSuchKey` for what is no object: a directory without the slash, a link,
/// a device.
pub async fn find(vfs: &Vfs, caller: &Caller, bucket: &OpenBucket, key: &ObjectKey) -> S3Result<Node> {
    let found = match find_dir(vfs, caller, bucket.root.id, &key.dirs).await {
        Ok(dir) => vfs.lookup(caller, dir, &key.name).await,
        Err(e) => Err(e),
    };
    let node = match found {
        // The key has a directory where a file is: nothing is below it.
        Err(e) if e.kind() == ErrorKind::NotADirectory => return Err(S3ErrorCode::NoSuchKey.into()),
        other => other.map_err(s3_error)?,
    };
    let fits = if key.is_dir { node.attr.is_dir() } else { node.attr.is_file() };
    if fits { Ok(node) } else { Err(S3ErrorCode::NoSuchKey.into()) }
}

pub async fn find_dir(vfs: &Vfs, caller: &Caller, root: FileId, names: &[Name]) -> types::Result<FileId> {
    let mut at = root;
    for name in names {
        at = vfs.lookup(caller, at, name).await?.id;
    }
    Ok(at)
}

/// The directory at the end of `names`; missing ones are created.
pub async fn make_dirs(vfs: &Vfs, caller: &Caller, root: FileId, names: &[Name]) -> types::Result<FileId> {
    let mut tries = 0;
    'again: loop {
        tries += 1;
        let mut at = root;
        for name in names {
            match make_dir(vfs, caller, at, name).await {
                Ok(dir) => at = dir,
                // Removed since: an empty directory is removed with its last object.
                Err(e) if is_gone(&e) && tries < TRIES_MAX => continue 'again,
                Err(e) => return Err(e),
            }
        }
        return Ok(at);
    }
}

async fn make_dir(vfs: &Vfs, caller: &Caller, dir: FileId, name: &Name) -> types::Result<FileId> {
    match vfs.lookup(caller, dir, name).await {
        Ok(node) if node.attr.is_dir() => return Ok(node.id),
        Ok(_) => return Err(types::Error::new(ErrorKind::NotADirectory, "put a key below", name)),
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let set = SetAttr { mode: Some(0o755), ..SetAttr::default() };
    match vfs.mkdir(caller, dir, name, set).await {
        Ok(made) => Ok(made.node.id),
        Err(e) if e.kind() == ErrorKind::Exists => Ok(vfs.lookup(caller, dir, name).await?.id),
        Err(e) => Err(e),
    }
}

pub fn is_gone(error: &types::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale)
}

/// Removes the directories of a key that have become empty, up to the bucket: S3 has no empty directories.
pub async fn remove_empty(vfs: &Vfs, caller: &Caller, root: FileId, names: &[Name]) {
    for depth in (1..=names.len()).rev() {
        let Some((name, above)) = names[..depth].split_last() else { return };
        let Ok(dir) = find_dir(vfs, caller, root, above).await else { return };
        // Not empty, or not ours to remove.
        if vfs.rmdir(caller, dir, name).await.is_err() {
            return;
        }
    }
}

pub fn name_of(text: String) -> Name {
    Name::new(Bytes::from(text)).expect("made of hexadecimal digits and letters")
}
