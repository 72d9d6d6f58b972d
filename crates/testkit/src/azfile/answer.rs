//! Answers: headers of a node, listings and errors in XML.

use std::fmt::Write as _;

use bytes::Bytes;
use http::response::Builder;
use http::{Response, StatusCode};
use http_body_util::Full;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::request::{AzFileRequestSeen, http_time, shown_time};
use super::tree::{AzFileRefused, Kind, ShareNode};

pub type AzFileAnswer = Response<Full<Bytes>>;

pub fn status(code: u16) -> Builder {
    Response::builder().status(StatusCode::from_u16(code).expect("a status of ours"))
}

pub fn empty(builder: Builder) -> AzFileAnswer {
    with_body(builder, Bytes::new())
}

pub fn with_body(builder: Builder, body: Bytes) -> AzFileAnswer {
    builder.body(Full::new(body)).expect("headers of ours")
}

pub fn etag(node: &ShareNode) -> String {
    format!("\"0x8DE{:012X}\"", node.etag)
}

/// What all answers about a node have.
pub fn described(builder: Builder, node: &ShareNode) -> Builder {
    builder
        .header("ETag", etag(node))
        .header("Last-Modified", http_time(node.changed))
        .header("x-ms-file-id", node.id)
        .header("x-ms-file-parent-id", node.parent)
        .header("x-ms-file-attributes", &node.attributes)
        .header("x-ms-file-creation-time", shown_time(node.created))
        .header("x-ms-file-last-write-time", shown_time(node.written))
        .header("x-ms-file-change-time", shown_time(node.changed))
        .header("x-ms-file-permission-key", "0*0")
        .header("x-ms-server-encrypted", "true")
        .header("x-ms-request-server-encrypted", "true")
}

/// That, and what it was told to keep.
pub fn in_full(builder: Builder, node: &ShareNode) -> Builder {
    let mut builder = described(builder, node);
    for (name, value) in &node.metadata {
        builder = builder.header(format!("x-ms-meta-{name}"), value);
    }
    for (name, value) in &node.headers {
        builder = builder.header(name.trim_start_matches("x-ms-"), value);
    }
    builder
}

pub fn refusal((code, word): AzFileRefused) -> AzFileAnswer {
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>{word}</Code><Message>{word}: the stand-in refuses \
         this.</Message></Error>"
    );
    let builder = status(code).header("x-ms-error-code", word).header("Content-Type", "application/xml");
    with_body(builder, text.into())
}

pub fn xml(text: String) -> AzFileAnswer {
    with_body(status(200).header("Content-Type", "application/xml"), text.into())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Names that XML cannot hold are percent-encoded, and say so.
fn name_of(node: &ShareNode) -> String {
    match node.name.chars().any(|c| matches!(c, '\u{fffe}' | '\u{ffff}')) {
        true => {
            format!("<Name Encoded=\"true\">{}</Name>", utf8_percent_encode(&node.name, NON_ALPHANUMERIC))
        }
        false => format!("<Name>{}</Name>", escaped(&node.name)),
    }
}

pub fn listing(
    asked: &AzFileRequestSeen,
    most: usize,
    nodes: &[&ShareNode],
    next: Option<&str>,
) -> AzFileAnswer {
    let included = asked.query.get("include").map_or("", String::as_str).to_lowercase();
    let of = |name: &str| asked.query.get(name).map_or("", String::as_str);
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults ServiceEndpoint=\"http://stand-in/\" \
         ShareName=\"{}\" DirectoryPath=\"{}\"><Prefix>{}</Prefix><Marker>{}</Marker><MaxResults>{most}</MaxResults>\
         <Entries>",
        asked.share,
        escaped(&asked.path),
        escaped(of("prefix")),
        escaped(of("marker"))
    );
    for node in nodes {
        let (tag, size) = match &node.kind {
            Kind::File(content) => ("File", Some(content.size)),
            Kind::Directory(_) => ("Directory", None),
        };
        // Writing to a String cannot fail.
        let _ = write!(text, "<{tag}><FileId>{}</FileId>{}<Properties>", node.id, name_of(node));
        if let Some(size) = size {
            let _ = write!(text, "<Content-Length>{size}</Content-Length>");
        }
        if included.contains("timestamps") {
            let [created, written, changed] = [node.created, node.written, node.changed].map(shown_time);
            let _ = write!(
                text,
                "<CreationTime>{created}</CreationTime><LastAccessTime>{written}</LastAccessTime>\
                 <LastWriteTime>{written}</LastWriteTime><ChangeTime>{changed}</ChangeTime>\
                 <Last-Modified>{}</Last-Modified>",
                http_time(node.changed)
            );
        }
        if included.contains("etag") {
            let _ = write!(text, "<Etag>{}</Etag>", escaped(&etag(node)));
        }
        text.push_str("</Properties>");
        if included.contains("attributes") {
            let _ = write!(text, "<Attributes>{}</Attributes>", node.attributes);
        }
        let _ = write!(text, "</{tag}>");
    }
    let _ = write!(text, "</Entries><NextMarker>{}</NextMarker>", next.unwrap_or_default());
    text.push_str("</EnumerationResults>");
    xml(text)
}
