//! One page of a listing, parsed from its XML.

use origin_object::store::Metadata;
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use crate::attributes::{FileStat, is_read_only, ticks};
use crate::names::FileKey;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct EntryPage {
    #[serde(default)]
    entries: EntriesXml,
    #[serde(default)]
    next_marker: Option<String>,
}

#[derive(Deserialize, Default)]
struct EntriesXml {
    #[serde(default, rename = "$value")]
    all: Vec<EntryXml>,
}

#[derive(Deserialize)]
enum EntryXml {
    File(ListedEntryXml),
    Directory(ListedEntryXml),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListedEntryXml {
    name: Option<EncodedText>,
    file_id: Option<String>,
    #[serde(default)]
    properties: EntryProperties,
    #[serde(default)]
    attributes: Option<String>,
}

/// Text that is percent-encoded where XML cannot hold it.
#[derive(Deserialize)]
struct EncodedText {
    #[serde(default, rename = "@Encoded")]
    encoded: Option<String>,
    #[serde(default, rename = "$text")]
    text: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase")]
struct EntryProperties {
    #[serde(default, rename = "Content-Length")]
    size: Option<String>,
    creation_time: Option<String>,
    last_write_time: Option<String>,
    change_time: Option<String>,
    etag: Option<String>,
}

/// A file's size has 63 bits.
fn size(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|size| i64::try_from(*size).is_ok())
}

/// A name, and its stat; `None`: the listing has not all of it.
pub struct NamedEntry {
    pub name: String,
    pub stat: Option<FileStat>,
}

impl EntryPage {
    pub fn next(&mut self) -> Option<String> {
        self.next_marker.take().filter(|marker| !marker.is_empty())
    }

    /// The entries, and the number of those whose name makes no sense.
    pub fn into_entries(self) -> (Vec<NamedEntry>, usize) {
        let (mut shown, mut nameless) = (Vec::with_capacity(self.entries.all.len()), 0);
        for entry in self.entries.all {
            let (mut listed, is_dir) = match entry {
                EntryXml::File(listed) => (listed, false),
                EntryXml::Directory(listed) => (listed, true),
                EntryXml::Other => continue,
            };
            match listed.name.take().and_then(EncodedText::text) {
                Some(name) => shown.push(NamedEntry { name, stat: listed.stat(is_dir) }),
                None => nameless += 1,
            }
        }
        (shown, nameless)
    }
}

impl EncodedText {
    fn text(self) -> Option<String> {
        match self.encoded.as_deref() {
            Some("true") => Some(percent_decode_str(&self.text).decode_utf8().ok()?.into_owned()),
            _ => Some(self.text),
        }
    }
}

impl ListedEntryXml {
    fn stat(self, is_dir: bool) -> Option<FileStat> {
        let told = self.properties;
        let time = |text: Option<String>| ticks(&text?);
        Some(FileStat {
            is_dir,
            key: FileKey { id: self.file_id?.parse().ok()?, created: time(told.creation_time)? },
            parent: None,
            size: if is_dir { 0 } else { size(&told.size?)? },
            etag: told.etag?.trim_matches('"').to_owned(),
            written: time(told.last_write_time)?,
            changed: time(told.change_time)?,
            read_only: self.attributes.as_deref().is_some_and(is_read_only),
            metadata: None::<Metadata>,
            kept: ::http::HeaderMap::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_read() {
        let times = "<CreationTime>2026-01-02T03:04:05.1234567Z</CreationTime><LastWriteTime>2026-01-02T03:04:05.1234567Z\
                     </LastWriteTime><ChangeTime>2026-01-02T03:04:05.1234567Z</ChangeTime>";
        let text = format!(
            "<EnumerationResults><Marker/><Entries><File><FileId>5</FileId><Name>a &amp; b</Name><Properties>\
             <Content-Length>7</Content-Length>{times}<Etag>\"0x1\"</Etag></Properties><Attributes>ReadOnly | Archive\
             </Attributes></File><Directory><Name Encoded=\"true\">d%EF%BF%BF</Name><FileId>6</FileId><Properties/>\
             </Directory><File><FileId>8</FileId><Name> c </Name><Properties><Content-Length>1</Content-Length>\
             </Properties></File></Entries><NextMarker>more</NextMarker></EnumerationResults>"
        );
        let mut page: EntryPage = quick_xml::de::from_str(&text).unwrap();
        assert_eq!(page.next().as_deref(), Some("more"));
        let (shown, nameless) = page.into_entries();
        assert_eq!(nameless, 0);
        let names: Vec<_> = shown.iter().map(|shown| shown.name.as_str()).collect();
        assert_eq!(names, ["a & b", "d\u{ffff}", " c "]);
        let first = shown[0].stat.as_ref().unwrap();
        assert_eq!((first.size, first.key.id, first.etag.as_str(), first.read_only), (7, 5, "0x1", true));
        assert!(shown[1].stat.is_none() && shown[2].stat.is_none());
        let mut last: EntryPage =
            quick_xml::de::from_str("<EnumerationResults><Entries/><NextMarker/></EnumerationResults>")
                .unwrap();
        assert_eq!((last.next(), last.into_entries().0.len()), (None, 0));
    }
}
