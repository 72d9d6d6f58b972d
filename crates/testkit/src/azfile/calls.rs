//! The calls: each looks at a request and at the share, and answers.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, Method};

use super::answer::{AzFileAnswer, described, empty, in_full, listing, status, with_body, xml};
use super::request::{
    AzFileRequestSeen, BAD_HEADER, MISSING, header, is_metadata_name, metadata, number, range, rename_source,
    time,
};
use super::signature::Needs;
use super::tree::{AzFileRefused, BAD_INPUT, BAD_RANGE, Kind, MISMATCH, NO_RESOURCE, Share, now};

/// What one Put Range carries at most.
pub const RANGE_MAX: u64 = 4 << 20;
const FILE_MAX: u64 = 4 << 40;
const PAGE_MAX: usize = 5000;
/// That Create File and Set File Properties keep with a file.
const KEPT: [&str; 5] = [
    "x-ms-content-type",
    "x-ms-content-encoding",
    "x-ms-content-language",
    "x-ms-cache-control",
    "x-ms-content-disposition",
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AzFileCall {
    ShareProperties,
    ShareStats,
    List,
    MakeDirectory,
    Directory,
    RemoveDirectory,
    RenameDirectory,
    DirectoryProperties,
    DirectoryMetadata,
    MakeFile,
    Get,
    Head,
    RemoveFile,
    RenameFile,
    FileProperties,
    FileMetadata,
    PutRange,
    Ranges,
}

pub fn call_of(method: &Method, asked: &AzFileRequestSeen) -> Result<AzFileCall, AzFileRefused> {
    let put = method == Method::PUT;
    let look = method == Method::GET || method == Method::HEAD;
    let call = if asked.is("share", "") && look {
        AzFileCall::ShareProperties
    } else if asked.is("share", "stats") && look {
        AzFileCall::ShareStats
    } else if asked.is("directory", "list") && method == Method::GET {
        AzFileCall::List
    } else if asked.is("directory", "") {
        match *method {
            Method::PUT => AzFileCall::MakeDirectory,
            Method::DELETE => AzFileCall::RemoveDirectory,
            _ if look => AzFileCall::Directory,
            _ => return Err((405, "UnsupportedHttpVerb")),
        }
    } else if asked.is("directory", "rename") && put {
        AzFileCall::RenameDirectory
    } else if asked.is("directory", "properties") && put {
        AzFileCall::DirectoryProperties
    } else if asked.is("directory", "metadata") && put {
        AzFileCall::DirectoryMetadata
    } else if asked.is("", "rename") && put {
        AzFileCall::RenameFile
    } else if asked.is("", "properties") && put {
        AzFileCall::FileProperties
    } else if asked.is("", "metadata") && put {
        AzFileCall::FileMetadata
    } else if asked.is("", "range") && put {
        AzFileCall::PutRange
    } else if asked.is("", "rangelist") && look {
        AzFileCall::Ranges
    } else if asked.is("", "") {
        match *method {
            Method::PUT => AzFileCall::MakeFile,
            Method::GET => AzFileCall::Get,
            Method::HEAD => AzFileCall::Head,
            Method::DELETE => AzFileCall::RemoveFile,
            _ => return Err((405, "UnsupportedHttpVerb")),
        }
    } else {
        return Err((400, "InvalidQueryParameterValue"));
    };
    Ok(call)
}

impl AzFileCall {
    pub fn needs(self) -> Needs {
        let (permissions, resource) = match self {
            AzFileCall::ShareProperties | AzFileCall::ShareStats => ("r", 'c'),
            AzFileCall::List => ("l", 'c'),
            AzFileCall::MakeDirectory | AzFileCall::MakeFile => ("cw", 'o'),
            AzFileCall::Directory | AzFileCall::Get | AzFileCall::Head | AzFileCall::Ranges => ("r", 'o'),
            AzFileCall::RemoveDirectory | AzFileCall::RemoveFile => ("d", 'o'),
            _ => ("w", 'o'),
        };
        Needs { permissions, resource }
    }

    pub fn answer(
        self,
        share: &mut Share,
        asked: &AzFileRequestSeen,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<AzFileAnswer, AzFileRefused> {
        let path = asked.path.as_str();
        match self {
            AzFileCall::ShareProperties => {
                let builder = status(200).header("x-ms-share-quota", share.quota_gib);
                Ok(empty(described(builder, share.node(super::tree::ROOT))))
            }
            AzFileCall::ShareStats => {
                let used = share.used();
                let text = format!("<ShareStats><ShareUsageBytes>{used}</ShareUsageBytes></ShareStats>");
                Ok(xml(format!("<?xml version=\"1.0\" encoding=\"utf-8\"?>{text}")))
            }
            AzFileCall::List => list(share, asked),
            AzFileCall::MakeDirectory => {
                check_metadata(headers)?;
                let id = share.make_directory(path)?;
                share.node(id).attributes = "Directory".into();
                set_properties(share, id, headers)?;
                share.node(id).metadata = metadata(headers);
                Ok(empty(described(status(201), share.node(id))))
            }
            AzFileCall::Directory => {
                let id = share.directory(path).map_err(not_there)?;
                Ok(empty(in_full(status(200), share.node(id))))
            }
            AzFileCall::RemoveDirectory => {
                share.directory(path).and_then(|id| share.remove(id)).map(|()| empty(status(202)))
            }
            AzFileCall::RemoveFile => {
                share.file(path).and_then(|id| share.remove(id)).map(|()| empty(status(202)))
            }
            AzFileCall::RenameDirectory | AzFileCall::RenameFile => self.rename(share, asked, headers),
            AzFileCall::DirectoryProperties => {
                let id = share.directory(path)?;
                set_properties(share, id, headers)?;
                Ok(empty(described(status(200), share.node(id))))
            }
            AzFileCall::DirectoryMetadata | AzFileCall::FileMetadata => {
                let of_file = self == AzFileCall::FileMetadata;
                let id = if of_file { share.file(path) } else { share.directory(path) }?;
                check_metadata(headers)?;
                share.node(id).metadata = metadata(headers);
                share.touch(id, None);
                Ok(empty(described(status(200), share.node(id))))
            }
            AzFileCall::MakeFile => make_file(share, path, headers),
            AzFileCall::Get => get(share, path, headers),
            AzFileCall::Head => {
                let id = share.file(path).map_err(not_there)?;
                let node = share.node(id);
                let size = content(node)?.size;
                let builder = status(200).header("Content-Length", size).header("x-ms-type", "File");
                Ok(empty(in_full(builder, node)))
            }
            AzFileCall::FileProperties => {
                let id = share.file(path)?;
                if let Some(size) = number(headers, "x-ms-content-length")? {
                    if size > FILE_MAX {
                        return Err((400, "OutOfRangeInput"));
                    }
                    content(share.node(id))?.resize(size);
                }
                // What is not said is gone.
                share.node(id).headers = kept(headers);
                set_properties(share, id, headers)?;
                Ok(empty(described(status(200), share.node(id))))
            }
            AzFileCall::PutRange => put_range(share, path, headers, body),
            AzFileCall::Ranges => {
                let id = share.file(path)?;
                let node = share.node(id);
                let size = content(node)?.size;
                let ranges = match size {
                    0 => String::new(),
                    _ => format!("<Range><Start>0</Start><End>{}</End></Range>", size - 1),
                };
                Ok(xml(format!("<?xml version=\"1.0\" encoding=\"utf-8\"?><Ranges>{ranges}</Ranges>")))
            }
        }
    }

    fn rename(
        self,
        share: &mut Share,
        asked: &AzFileRequestSeen,
        headers: &HeaderMap,
    ) -> Result<AzFileAnswer, AzFileRefused> {
        let source = rename_source(headers, &asked.share)?;
        let of_file = self == AzFileCall::RenameFile;
        let id = if of_file { share.file(&source) } else { share.directory(&source) }?;
        let replace = header(headers, "x-ms-file-rename-replace-if-exists");
        let replace = replace.is_some_and(|value| value.eq_ignore_ascii_case("true"));
        share.rename(id, &asked.path, replace)?;
        if headers.keys().any(|name| name.as_str().starts_with("x-ms-meta-")) {
            check_metadata(headers)?;
            share.node(id).metadata = metadata(headers);
        }
        set_properties(share, id, headers)?;
        Ok(empty(described(status(200), share.node(id))))
    }
}

/// Who looks at the other kind finds nothing.
fn not_there(refused: AzFileRefused) -> AzFileRefused {
    if refused == MISMATCH { NO_RESOURCE } else { refused }
}

fn content(node: &mut super::tree::ShareNode) -> Result<&mut super::tree::Content, AzFileRefused> {
    match &mut node.kind {
        Kind::File(content) => Ok(content),
        Kind::Directory(_) => Err(MISMATCH),
    }
}

fn kept(headers: &HeaderMap) -> std::collections::BTreeMap<String, String> {
    let given = KEPT.iter().filter_map(|name| Some(((*name).to_owned(), header(headers, name)?.to_owned())));
    given.collect()
}

fn check_metadata(headers: &HeaderMap) -> Result<(), AzFileRefused> {
    match metadata(headers).keys().all(|name| is_metadata_name(name)) {
        true => Ok(()),
        false => Err((400, "InvalidMetadata")),
    }
}

fn set_properties(share: &mut Share, id: u64, headers: &HeaderMap) -> Result<(), AzFileRefused> {
    let created = time(headers, "x-ms-file-creation-time")?;
    let written = time(headers, "x-ms-file-last-write-time")?;
    let changed = time(headers, "x-ms-file-change-time")?;
    let node = share.node(id);
    node.created = created.unwrap_or(node.created);
    node.written = written.unwrap_or(node.written);
    match header(headers, "x-ms-file-attributes") {
        None | Some("preserve") => {}
        Some(attributes) => node.attributes = attributes.to_owned(),
    }
    share.touch(id, changed);
    Ok(())
}

fn list(share: &Share, asked: &AzFileRequestSeen) -> Result<AzFileAnswer, AzFileRefused> {
    let id = share.directory(&asked.path).map_err(not_there)?;
    let of = |name: &str| asked.query.get(name).filter(|value| !value.is_empty());
    let most = of("maxresults").map(|text| text.parse::<usize>()).transpose().map_err(|_| BAD_INPUT)?;
    let most = most.unwrap_or(PAGE_MAX);
    if !(1..=PAGE_MAX).contains(&most) {
        return Err((400, "OutOfRangeQueryParameterValue"));
    }
    let marker = of("marker").map(|marker| {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(marker).ok()?;
        String::from_utf8(bytes).ok()
    });
    if marker == Some(None) {
        return Err((400, "InvalidContinuationToken"));
    }
    let prefix = of("prefix").map_or("", String::as_str);
    let (nodes, next) = share.list(id, prefix, marker.flatten().as_deref(), most);
    let next = next.map(|name| BASE64_URL_SAFE_NO_PAD.encode(name));
    Ok(listing(asked, most, &nodes, next.as_deref()))
}

fn make_file(share: &mut Share, path: &str, headers: &HeaderMap) -> Result<AzFileAnswer, AzFileRefused> {
    if header(headers, "x-ms-type").is_none_or(|kind| !kind.eq_ignore_ascii_case("file")) {
        return Err(MISSING);
    }
    let size = number(headers, "x-ms-content-length")?.ok_or(MISSING)?;
    if size > FILE_MAX {
        return Err((400, "OutOfRangeInput"));
    }
    check_metadata(headers)?;
    let id = share.make_file(path, size)?;
    let node = share.node(id);
    (node.attributes, node.metadata, node.headers) = ("Archive".into(), metadata(headers), kept(headers));
    set_properties(share, id, headers)?;
    Ok(empty(described(status(201), share.node(id))))
}

fn get(share: &mut Share, path: &str, headers: &HeaderMap) -> Result<AzFileAnswer, AzFileRefused> {
    let id = share.file(path).map_err(not_there)?;
    let asked = range(headers)?;
    let node = share.node(id);
    let content = content(node)?;
    let size = content.size;
    let (first, last) = match asked {
        None => (0, size.saturating_sub(1)),
        Some((first, _)) if first >= size => return Err(BAD_RANGE),
        Some((first, last)) => (first, last.unwrap_or(u64::MAX).min(size - 1)),
    };
    let length = if size == 0 { 0 } else { last - first + 1 };
    let data = content.read(first, length);
    let builder = match asked {
        None => status(200),
        Some(_) => status(206).header("Content-Range", format!("bytes {first}-{last}/{size}")),
    };
    let builder = builder.header("Accept-Ranges", "bytes").header("x-ms-type", "File");
    Ok(with_body(in_full(builder, node), data))
}

fn put_range(
    share: &mut Share,
    path: &str,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<AzFileAnswer, AzFileRefused> {
    let id = share.file(path)?;
    let (first, last) = range(headers)?.ok_or(MISSING)?;
    let end = last.ok_or(BAD_HEADER)?.checked_add(1).ok_or(BAD_RANGE)?;
    let written = match header(headers, "x-ms-file-last-write-time") {
        None | Some("now") => Some(now()),
        Some("preserve") => None,
        Some(_) => return Err(BAD_HEADER),
    };
    let clear = match header(headers, "x-ms-write").map(str::to_lowercase).as_deref() {
        Some("update") => false,
        Some("clear") => true,
        _ => return Err(MISSING),
    };
    let content = content(share.node(id))?;
    if end > content.size {
        return Err(BAD_RANGE);
    }
    if clear {
        if !body.is_empty() {
            return Err(BAD_HEADER);
        }
        content.clear(first, end);
    } else {
        if body.len() as u64 != end - first {
            return Err(BAD_HEADER);
        }
        content.write(first, body);
    }
    let node = share.node(id);
    node.written = written.unwrap_or(node.written);
    share.touch(id, None);
    Ok(empty(described(status(201), share.node(id))))
}
