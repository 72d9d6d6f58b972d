//! Lists the keys of a bucket in S3's order, that of their bytes, page by page.
//!
//! `vfs` lists a directory in the order of its cookies, which are hashes. So each batch takes the smallest names
//! that come next out of a pass over the directory: memory is bounded by the page and the depth of the tree,
//! whatever the directory holds. A directory sorts by its name with a slash: all below `a/` lies between `a-b` and
//! `a0`.

use std::collections::{BinaryHeap, VecDeque};

use types::{Caller, Error, ErrorKind, FileId, Name};
use vfs::{Node, Vfs};

use crate::object_key::{KEY_MAX, is_hidden};
use crate::resolve::is_gone;

/// The most names that one pass over a directory takes.
const BATCH_MAX: usize = 1024;
/// The items of one `readdir`.
const ITEMS: usize = 1024;

/// What is to be listed.
#[derive(Clone, Debug, Default)]
pub struct KeyQuery {
    pub prefix: Vec<u8>,
    /// Empty: no delimiter.
    pub delimiter: Vec<u8>,
    /// The first key or common prefix that may be listed.
    pub from: Vec<u8>,
    pub max: usize,
    /// Leaves out keys that XML cannot express.
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
    /// Where the next page begins; `None` at the end.
    pub next: Option<Vec<u8>>,
    /// Names that cannot be keys, or whose files cannot be reached.
    pub skipped: u64,
}

/// One name of a directory, in the order of its keys.
#[derive(Clone, Debug)]
struct SortedName {
    /// The name; that of a directory ends with a slash.
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

/// A directory of the path that is being walked.
struct DirFrame {
    node: Node,
    /// The common prefix of its keys, with the slash at its end.
    path: Vec<u8>,
    /// Only names with this prefix are listed.
    filter: Vec<u8>,
    batch: VecDeque<SortedName>,
    /// Where the next batch begins.
    from: Vec<u8>,
    is_over: bool,
    /// It has names that can be listed, or may have.
    has_names: bool,
}

pub struct KeyListing<'a> {
    pub vfs: &'a Vfs,
    pub caller: &'a Caller,
    pub query: KeyQuery,
}

impl KeyListing<'_> {
    /// Lists one page. `root`: the bucket's directory.
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
                    // Removed meanwhile.
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
            // No key has such a name.
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
        // Within this directory the listing begins at `from`, if that lies in it.
        let from = self.query.from.strip_prefix(path.as_slice()).unwrap_or_default().to_vec();
        let is_over = self.query.from > path && !self.query.from.starts_with(&path);
        DirFrame { node, path, filter, batch: VecDeque::new(), from, is_over, has_names: is_over }
    }

    /// Fills the batch with the next names in order.
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
                // Too long for a key: no request could name it or continue from it.
                if frame.path.len() + sort.len() > KEY_MAX {
                    *skipped += 1;
                    continue;
                }
                // A directory stands for all keys below it, and `from` may be one of them.
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

    /// Looks up a name that was listed without attributes. A failure is an error of the listing: clients would
    /// remove their copies of a key that is left out. `None`: the name can never be reached, and must not keep the
    /// rest from being listed.
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

    /// The key of an empty directory: it is an object without bytes, whose key ends with a slash.
    fn empty_directory_key(&self, frame: DirFrame) -> Option<Item> {
        let is_key = !frame.path.is_empty() && !frame.has_names && frame.path.starts_with(&self.query.prefix);
        is_key.then_some((frame.path, Some(frame.node)))
    }

    /// The common prefix that replaces this key.
    fn rolled_up_prefix(&self, key: &[u8]) -> Option<Vec<u8>> {
        common_prefix(key, &self.query.prefix, &self.query.delimiter)
    }

    /// Adds an item to the page; true when the page was full.
    fn emit(&self, page: &mut KeyPage, (path, node): Item) -> bool {
        let from = &self.query.from;
        // A common prefix also stands for keys behind `from`.
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

/// The common prefix of `key` in a listing with a delimiter.
pub fn common_prefix(key: &[u8], prefix: &[u8], delimiter: &[u8]) -> Option<Vec<u8>> {
    let rest = key.strip_prefix(prefix)?;
    if delimiter.is_empty() {
        return None;
    }
    let at = rest.windows(delimiter.len()).position(|window| window == delimiter)?;
    Some(key[..prefix.len() + at + delimiter.len()].to_vec())
}

/// The first key after all keys with this prefix; `None` after one of 0xff bytes alone.
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let end = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut after = prefix[..=end].to_vec();
    if let Some(last) = after.last_mut() {
        *last += 1;
    }
    Some(after)
}

/// Errors that no retry cures. (NotFound: removed since it was listed.)
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

/// Whether a name can be part of a key: UTF-8, and in XML without control characters but tab, line feed and carriage
/// return.
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
