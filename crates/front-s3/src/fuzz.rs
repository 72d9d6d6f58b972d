//! What the fuzzer calls (`fuzz/`): the parts that read what a client sent before, or while, its signature is checked.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use s3s::dto::{CompletedMultipartUpload, Delete, Tagging};
use s3s::xml::{Deserialize, Deserializer};

use crate::access_keys::{AccessKey, AccessKeys, BucketSet, Secret};
use crate::aws_chunked::AwsChunkedDecoder;
use crate::response_xml;
use crate::sigv4::{ExpectedScope, RequestHead, verify};
use crate::zero_copy_get::GetRequest;

/// What the zero-copy path takes for a GET, hyper would take, too, for the same path.
pub fn head(bytes: &[u8]) {
    for domain in [None, Some("s3.example")] {
        if let Some(request) = GetRequest::parse(bytes, domain) {
            let target = match request.query.is_empty() {
                true => request.path.clone(),
                false => format!("{}?{}", request.path, request.query),
            };
            let uri: Uri = target.parse().expect("hyper's parser takes it");
            assert_eq!(uri.path(), request.path);
            assert!(crate::is_bucket_name(&request.bucket) && !request.key.is_empty());
        }
    }
}

/// No bytes but those of somebody who has the secret are verified: the fuzzer has not.
pub fn signature(bytes: &[u8]) {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    if !request.parse(bytes).is_ok_and(|status| status.is_complete()) {
        return;
    }
    let mut map = HeaderMap::new();
    for header in request.headers.iter() {
        if let (Ok(name), Ok(value)) =
            (HeaderName::try_from(header.name), HeaderValue::from_bytes(header.value))
        {
            map.append(name, value);
        }
    }
    let method = request.method.and_then(|method| Method::try_from(method).ok()).unwrap_or(Method::GET);
    let target = request.path.unwrap_or("/");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let key = AccessKey {
        id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
        secret: Secret::new("a secret that is in no corpus".to_owned()),
        caller: types::Caller::root(),
        read: BucketSet::of(vec!["*".to_owned()]),
        write: BucketSet::of(vec!["*".to_owned()]),
    };
    let head = RequestHead { method: &method, path, query, headers: &map };
    let expected = ExpectedScope { region: "us-east-1".to_owned() };
    // The day of Amazon's examples, which the corpus begins with.
    let verified = verify(&head, &AccessKeys::new(vec![key]), &expected, 1_369_353_600);
    assert!(verified.is_err());
}

/// A chunked body means the same in however many pieces it arrives.
pub fn chunked(input: &[u8]) {
    let Some((flags, body)) = input.split_first() else { return };
    let cut = usize::from(*flags) * body.len() / 255;
    let decoded = |pieces: &[&[u8]]| {
        let mut decoder = AwsChunkedDecoder::new(None, flags & 1 == 1);
        let mut data = Vec::new();
        for piece in pieces {
            let mut piece = Bytes::copy_from_slice(piece);
            loop {
                match decoder.next(&mut piece) {
                    Ok(Some(part)) => data.extend_from_slice(&part),
                    Ok(None) => break,
                    Err(_) => return None,
                }
            }
        }
        let at_end = decoder.is_at_end();
        Some((data, at_end, decoder.take_trailer()))
    };
    let whole = decoded(&[body]);
    assert_eq!(whole, decoded(&[&body[..cut], &body[cut..]]));
    if let Some((data, ..)) = whole {
        assert!(data.len() <= body.len());
    }
}

/// The bodies that have XML, and the answers that pass by.
pub fn xml(bytes: &[u8]) {
    let _ = CompletedMultipartUpload::deserialize(&mut Deserializer::new(bytes));
    let _ = Delete::deserialize(&mut Deserializer::new(bytes));
    let _ = Tagging::deserialize(&mut Deserializer::new(bytes));
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = response_xml::complete_error(text, "id");
    }
}
