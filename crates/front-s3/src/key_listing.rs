//! Keys of a bucket in S3's order, which is that of their bytes, page by page.
//!
//! A directory is listed in the order of its cookies, which are hashes. So each page takes the smallest names that
//! come next out of a pass over the directory: memory is bounded by the page and the depth of the tree, whatever
//! the directory holds. A directory sorts by its name with the slash: between `a-b` and `a0` lies all that is below `a/`.

use std::collections::{BinaryHeap, VecDeque};

use types::{Caller, Error, ErrorKind, FileId, Name};
use vfs::{Node, Vfs};

use crate::object_key::{KEY_MAX, is_hidden};
use crate::resolve::is_gone;

/// Names taken from a directory in one pass, at most.
const BATCH_MAX: usize = 1024;
/// Items asked for at once.
const ITEMS: usize = 1024;

/// What is to be listed.
#[derive(Clone, Debug, Default)]
pub struct KeyQuery {
    pub prefix: Vec<u8>,
    /// Empty: none.
    pub delimiter: Vec<u8>,
    /// The first key or common prefix that may be told.
    pub from: Vec<u8>,
    pub max: usize,
    /// Keys that XML has no way to write are left out.
    pub as_xml: bool,
}

#[derive(Clone, Debug)]
pub enum ListedKey {
    Object { key: String, node: Node },
    CommonPrefix(String),
}

impl ListedKey {
    pub fn text(&self) -> &str {
        match self {
            ListedKey::Object { key, .. } => key,
            ListedKey::CommonPrefix(prefix) => prefix,
        }
    }
}

#[derive(Debug, Default)]
pub struct KeyPage {
    pub items: Vec<ListedKey>,
    /// Where the next page begins; absent at the end.
    pub next: Option<Vec<u8>>,
    /// Names that cannot be told as keys, or never be reached.
    pub skipped: u64,
}

/// One name of a directory; ordered by how its keys are.
#[derive(Clone, Debug)]
struct SortedName {
    /// The name, of a directory with the slash.
    sort: Vec<u8>,
    node: Node,
}

impl PartialEq for SortedName {
    fn eq(&self, other: &SortedName) -> bool {
        self.sort == other.sort
    }
}
impl Eq for SortedName {}
impl PartialOrd for SortedName {
    fn partial_cmp(&self, other: &SortedName) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for SortedName {
    fn cmp(&self, other: &SortedName) -> std::cmp::Ordering {
        self.sort.cmp(&other.sort)
    }
}

/// A directory that is being walked.
struct DirFrame {
    node: Node,
    /// Of all keys in it, with the slash at its end.
    path: Vec<u8>,
    /// Only names that begin so.
    filter: Vec<u8>,
    batch: VecDeque<SortedName>,
    /// Where the next batch begins.
    from: Vec<u8>,
    is_over: bool,
    /// It has names that can be told, or may have.
    has_names: bool,
}

pub struct KeyListing<'a> {
    pub vfs: &'a Vfs,
    pub caller: &'a Caller,
    pub query: KeyQuery,
}

impl KeyListing<'_> {
    /// `root`: the bucket's directory.
    pub async fn page(&self, root: &Node) -> types::Result<KeyPage> {
        let mut page = KeyPage::default();
        if self.query.max == 0 {
            return Ok(page);
        }
        let Some(top) = self.top(root).await? else { return Ok(page) };
        let mut frames = vec![top];
        loop {
            let is_top = frames.len() == 1;
            let Some(frame) = frames.last_mut() else { break };
            if frame.batch.is_empty() && !frame.is_over {
                let capacity = self.query.max + 1 - page.items.len();
                match self.fill(frame, capacity.min(BATCH_MAX), &mut page.skipped).await {
                    // Removed while we walk.
                    Err(e) if is_gone(&e) && !is_top => {
                        frames.pop();
                        continue;
                    }
                    other => other?,
                }
            }
            let next = match frame.batch.pop_front() {
                Some(entry) => self.enter(frame, entry),
                None => {
                    let done = frames.pop();
                    done.and_then(|frame| self.empty_directory_key(frame)).map(ListingStep::Tell)
                }
            };
            let is_full = match next {
                Some(ListingStep::Descend(frame)) => {
                    frames.push(frame);
                    false
                }
                Some(ListingStep::Tell(item)) => self.emit(&mut page, item),
                None => false,
            };
            if is_full {
                break;
            }
        }
        Ok(page)
    }

    /// The directory that the prefix leads to.
    async fn top(&self, root: &Node) -> types::Result<Option<DirFrame>> {
        let prefix = &self.query.prefix;
        let split = prefix.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let (path, filter) = prefix.split_at(split);
        let mut node = root.clone();
        for part in path.split(|byte| *byte == b'/').take(path.iter().filter(|byte| **byte == b'/').count()) {
            // No key has such a part.
            let Ok(name) = Name::new(part.to_vec()) else { return Ok(None) };
            if is_hidden(part) {
                return Ok(None);
            }
            node = match self.vfs.lookup(self.caller, node.id, &name).await {
                Ok(node) if node.attr.is_dir() => node,
                Ok(_) => return Ok(None),
                Err(e) if is_gone(&e) => return Ok(None),
                Err(e) => return Err(e),
            };
        }
        Ok(Some(self.frame(node, path.to_vec(), filter.to_vec())))
    }

    fn frame(&self, node: Node, path: Vec<u8>, filter: Vec<u8>) -> DirFrame {
        // Below this directory the walk begins where `from` says, if that is a place in it.
        let from = self.query.from.strip_prefix(path.as_slice()).unwrap_or_default().to_vec();
        let is_over = self.query.from > path && !self.query.from.starts_with(&path);
        DirFrame { node, path, filter, batch: VecDeque::new(), from, is_over, has_names: is_over }
    }

    /// The next names, in order.
    async fn fill(&self, frame: &mut DirFrame, capacity: usize, skipped: &mut u64) -> types::Result<()> {
        let mut smallest: BinaryHeap<SortedName> = BinaryHeap::with_capacity(capacity + 1);
        let mut is_whole = true;
        let mut cookie = 0;
        loop {
            let listing = self.vfs.readdir(self.caller, frame.node.id, cookie, ITEMS).await?;
            for item in listing.items {
                cookie = item.cookie;
                if matches!(item.name.as_ref(), b"." | b"..") || is_hidden(&item.name) {
                    continue;
                }
                let Some(node) = self.node_of(frame.node.id, item.name.clone(), item.node).await? else {
                    frame.has_names = true;
                    *skipped += 1;
                    continue;
                };
                if !node.attr.is_dir() && !node.attr.is_file() {
                    continue;
                }
                frame.has_names = true;
                if !can_be_listed(&item.name, self.query.as_xml) {
                    *skipped += 1;
                    continue;
                }
                let mut sort = item.name.to_vec();
                if node.attr.is_dir() {
                    sort.push(b'/');
                }
                // No request could name it, and none could go on from it.
                if frame.path.len() + sort.len() > KEY_MAX {
                    *skipped += 1;
                    continue;
                }
                // All below a directory counts as one, and `from` may lie in it.
                let is_before = sort < frame.from && !(node.attr.is_dir() && frame.from.starts_with(&sort));
                if is_before || !sort.starts_with(&frame.filter) {
                    continue;
                }
                smallest.push(SortedName { sort, node });
                if smallest.len() > capacity {
                    smallest.pop();
                    is_whole = false;
                }
            }
            if listing.eof {
                break;
            }
        }
        frame.batch = smallest.into_sorted_vec().into();
        frame.is_over = is_whole;
        if let Some(last) = frame.batch.back() {
            frame.from = after_prefix(&last.sort).unwrap_or_default();
            if !last.node.attr.is_dir() {
                frame.from = [last.sort.as_slice(), b"\0"].concat();
            }
        }
        Ok(())
    }

    /// What was listed without its attributes is asked for by itself. A listing that leaves out what cannot be reached
    /// now would have clients remove their copies of it, so that is an error; `None`: it can never be reached, and must
    /// not keep the rest of the bucket from being told.
    async fn node_of(
        &self,
        dir: FileId,
        name: bytes::Bytes,
        listed: Option<Node>,
    ) -> types::Result<Option<Node>> {
        if listed.is_some() {
            return Ok(listed);
        }
        let shown = name.escape_ascii().to_string();
        let found = match Name::new(name) {
            Ok(name) => self.vfs.lookup(self.caller, dir, &name).await,
            Err(e) => Err(e),
        };
        match found {
            Ok(node) => Ok(Some(node)),
            Err(e) if is_never_reached(e.kind()) => {
                tracing::warn!("left out of a listing: {e}");
                Ok(None)
            }
            Err(e) => Err(Error::new(ErrorKind::Unavailable, "list", shown).with_source(e)),
        }
    }

    fn enter(&self, frame: &DirFrame, entry: SortedName) -> Option<ListingStep> {
        let path = [frame.path.as_slice(), &entry.sort].concat();
        if let Some(common) = self.rolled_up_prefix(&path) {
            return Some(ListingStep::Tell((common, None)));
        }
        if entry.node.attr.is_dir() {
            return Some(ListingStep::Descend(self.frame(entry.node, path, Vec::new())));
        }
        Some(ListingStep::Tell((path, Some(entry.node))))
    }

    /// An empty directory is an object of no bytes, with a slash at the end of its key.
    fn empty_directory_key(&self, frame: DirFrame) -> Option<Item> {
        let is_key = !frame.path.is_empty() && !frame.has_names && frame.path.starts_with(&self.query.prefix);
        is_key.then_some((frame.path, Some(frame.node)))
    }

    /// The common prefix that stands for this key.
    fn rolled_up_prefix(&self, key: &[u8]) -> Option<Vec<u8>> {
        common_prefix(key, &self.query.prefix, &self.query.delimiter)
    }

    /// True when the page is full.
    fn emit(&self, page: &mut KeyPage, (path, node): Item) -> bool {
        let from = &self.query.from;
        // A common prefix stands also for the keys that come after a place in it.
        let reaches_on = node.is_none() && from.starts_with(&path);
        if path < *from && !reaches_on {
            return false;
        }
        let text = String::from_utf8(path).expect("every name in it was looked at");
        let is_repeated = matches!((page.items.last(), &node), (Some(ListedKey::CommonPrefix(last)), None) if *last == text);
        if is_repeated {
            return false;
        }
        if page.items.len() == self.query.max {
            page.next = Some(text.into_bytes());
            return true;
        }
        page.items.push(match node {
            Some(node) => ListedKey::Object { key: text, node },
            None => ListedKey::CommonPrefix(text),
        });
        false
    }
}

/// A key with its file, or a common prefix.
type Item = (Vec<u8>, Option<Node>);

enum ListingStep {
    Tell(Item),
    Descend(DirFrame),
}

/// What stands for `key` in a listing with a delimiter.
pub fn common_prefix(key: &[u8], prefix: &[u8], delimiter: &[u8]) -> Option<Vec<u8>> {
    let rest = key.strip_prefix(prefix)?;
    if delimiter.is_empty() {
        return None;
    }
    let at = rest.windows(delimiter.len()).position(|window| window == delimiter)?;
    Some(key[..prefix.len() + at + delimiter.len()].to_vec())
}

/// The first text after all that begin so; none after a text of the last byte alone.
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let end = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut after = prefix[..=end].to_vec();
    if let Some(last) = after.last_mut() {
        *last += 1;
    }
    Some(after)
}

/// Whatever is waited for. (Gone since it was listed: there is nothing to tell.)
fn is_never_reached(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NameTooLong
            | ErrorKind::InvalidArgument
            | ErrorKind::NotFound
            | ErrorKind::AccessDenied
            | ErrorKind::NotPermitted
    )
}

/// Keys are UTF-8, and in XML without control characters, but for tab, line feed and carriage return.
fn can_be_listed(name: &[u8], as_xml: bool) -> bool {
    let has_no_way =
        |c: char| matches!(c, '\0'..='\x1f' | '\u{fffe}' | '\u{ffff}') && !matches!(c, '\t' | '\n' | '\r');
    std::str::from_utf8(name).is_ok_and(|name| !as_xml || !name.contains(has_no_way))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tabs_and_line_ends_can_be_told_in_xml_and_other_control_characters_in_urls_alone() {
        for (name, in_xml) in
            [("a\tb\nc\rd", true), ("a\x1fb", false), ("a\x0bb", false), ("a\u{ffff}", false)]
        {
            assert_eq!(can_be_listed(name.as_bytes(), true), in_xml, "{name:?}");
            assert!(can_be_listed(name.as_bytes(), false), "{name:?}");
        }
        assert!(!can_be_listed(b"\xff", false));
    }

    #[test]
    fn what_comes_after_all_that_begin_so() {
        assert_eq!(after_prefix(b"a/"), Some(b"a0".to_vec()));
        assert_eq!(after_prefix(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(after_prefix(b"\xff"), None);
        assert_eq!(after_prefix(b""), None);
    }

    #[test]
    fn keys_are_rolled_up_at_the_first_delimiter_after_the_prefix() {
        assert_eq!(common_prefix(b"a/b/c", b"", b"/"), Some(b"a/".to_vec()));
        assert_eq!(common_prefix(b"a/b/c", b"a/", b"/"), Some(b"a/b/".to_vec()));
        assert_eq!(common_prefix(b"a/b", b"a/", b"/"), None);
        assert_eq!(common_prefix(b"a--b", b"a", b"--"), Some(b"a--".to_vec()));
        assert_eq!(common_prefix(b"a/b", b"", b""), None);
    }
}
