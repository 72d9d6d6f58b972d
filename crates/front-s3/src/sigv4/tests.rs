//! Amazon's own examples, and what must not pass.

use http::{HeaderMap, HeaderName, HeaderValue};
use types::Caller;

use super::*;
use crate::access_keys::BucketSet;

fn keys() -> AccessKeys {
    AccessKeys::new(vec![AccessKey {
        id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
        secret: Secret::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned()),
        read: BucketSet::All,
        write: BucketSet::All,
        caller: Caller::root(),
    }])
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pairs = pairs
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a value")));
    pairs.collect()
}

fn check(
    method: Method,
    path: &str,
    query: &str,
    headers: &HeaderMap,
    now: &str,
) -> Result<VerifiedRequest, SignatureError> {
    let head = RequestHead { method: &method, path, query, headers };
    let now = AmzDate::parse(now).expect("a date").seconds();
    verify(&head, &keys(), &ExpectedScope { region: "us-east-1".to_owned() }, now)
}

const DATE: &str = "20130524T000000Z";
const CREDENTIAL: &str =
    "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,";

/// "Example: GET Object", of the Signature Version 4 pages.
fn get_example() -> HeaderMap {
    let authorization = format!(
        "{CREDENTIAL}SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
         Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    );
    headers(&[
        ("host", "examplebucket.s3.amazonaws.com"),
        ("range", "bytes=0-9"),
        ("x-amz-content-sha256", EMPTY_SHA256),
        ("x-amz-date", DATE),
        ("authorization", &authorization),
    ])
}

#[test]
fn amazons_examples_are_verified() {
    let get = check(Method::GET, "/test.txt", "", &get_example(), DATE).expect("right");
    assert!(matches!(get.payload, PayloadSigning::Sha256(_)));
    let put = format!(
        "{CREDENTIAL}SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class,\
         Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
    );
    let put = headers(&[
        ("date", "Fri, 24 May 2013 00:00:00 GMT"),
        ("host", "examplebucket.s3.amazonaws.com"),
        ("x-amz-content-sha256", "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"),
        ("x-amz-date", DATE),
        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ("authorization", &put),
    ]);
    assert!(check(Method::PUT, "/test%24file.text", "", &put, DATE).is_ok());
    let list = format!(
        "{CREDENTIAL}SignedHeaders=host;x-amz-content-sha256;x-amz-date,\
         Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
    );
    let list = headers(&[
        ("host", "examplebucket.s3.amazonaws.com"),
        ("x-amz-content-sha256", EMPTY_SHA256),
        ("x-amz-date", DATE),
        ("authorization", &list),
    ]);
    assert!(check(Method::GET, "/", "max-keys=2&prefix=J", &list, DATE).is_ok());
    assert!(check(Method::GET, "/", "prefix=J&max-keys=2", &list, DATE).is_ok(), "in any order");
}

#[test]
fn amazons_presigned_example_is_verified_until_it_expires() {
    let query = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2F\
        s3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=\
        aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
    let host = headers(&[("host", "examplebucket.s3.amazonaws.com")]);
    let at = |now: &str| check(Method::GET, "/test.txt", query, &host, now).map(|_| ());
    assert_eq!(at(DATE), Ok(()));
    assert_eq!(at("20130524T235959Z"), Ok(()));
    assert_eq!(at("20130525T000001Z"), Err(SignatureError::Expired));
    assert_eq!(at("20130523T230000Z"), Err(SignatureError::Skewed));
    let longer = query.replace("86400", "604801");
    let refused = check(Method::GET, "/test.txt", &longer, &host, DATE).map(|_| ());
    assert_eq!(refused, Err(SignatureError::Malformed("X-Amz-Expires is not between 1 and 604800 seconds")));
}

/// "Example: signature calculations for chunked uploads".
#[test]
fn amazons_chunks_are_verified_in_their_order() {
    let authorization = format!(
        "{CREDENTIAL}SignedHeaders=content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;\
         x-amz-decoded-content-length;x-amz-storage-class,\
         Signature=4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
    );
    let headers = headers(&[
        ("content-encoding", "aws-chunked"),
        ("content-length", "66824"),
        ("host", "s3.amazonaws.com"),
        ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
        ("x-amz-date", DATE),
        ("x-amz-decoded-content-length", "66560"),
        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ("authorization", &authorization),
    ]);
    let verified = check(Method::PUT, "/examplebucket/chunkObject.txt", "", &headers, DATE).expect("right");
    let PayloadSigning::Chunks { signer, trailer: false } = verified.payload else { panic!("in chunks") };
    let chunks = [
        (65536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"),
        (1024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"),
        (0, "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"),
    ];
    let mut in_order = signer.clone();
    for (length, signature) in chunks {
        assert!(in_order.accepts(&Sha256::digest(vec![b'a'; length]), signature));
    }
    let mut late = signer;
    assert!(!late.accepts(&Sha256::digest(vec![b'a'; 1024]), chunks[1].1), "a chunk is left out");
}

#[test]
fn what_is_altered_is_refused() {
    let right = get_example();
    let refused = |method, path, query, headers: &HeaderMap, now| {
        check(method, path, query, headers, now).map(|_| ()).expect_err("refused")
    };
    assert_eq!(refused(Method::HEAD, "/test.txt", "", &right, DATE), SignatureError::WrongSignature);
    assert_eq!(refused(Method::GET, "/test.txt2", "", &right, DATE), SignatureError::WrongSignature);
    assert_eq!(refused(Method::GET, "/./test.txt", "", &right, DATE), SignatureError::WrongSignature);
    assert_eq!(refused(Method::GET, "/test.txt", "acl", &right, DATE), SignatureError::WrongSignature);
    assert_eq!(refused(Method::GET, "/test.txt", "", &right, "20130524T001501Z"), SignatureError::Skewed);
    let with = |name: &'static str, value: &str| {
        let mut headers = right.clone();
        headers.insert(name, HeaderValue::from_str(value).expect("a value"));
        refused(Method::GET, "/test.txt", "", &headers, DATE)
    };
    assert_eq!(with("range", "bytes=0-99"), SignatureError::WrongSignature);
    assert_eq!(with("host", "other.s3.amazonaws.com"), SignatureError::WrongSignature);
    assert_eq!(with("x-amz-date", "20130524T000001Z"), SignatureError::WrongSignature);
    assert_eq!(with("x-amz-copy-source", "/a/b"), SignatureError::UnsignedHeader("x-amz-copy-source".into()));
    assert_eq!(with("authorization", "AWS AKIA:abc"), SignatureError::OldVersion);
    assert_eq!(
        with("authorization", "Bearer x"),
        SignatureError::Malformed("Authorization is not AWS4-HMAC-SHA256")
    );
    let authorization = right["authorization"].to_str().expect("text");
    let other = |from, to| with("authorization", &authorization.replace(from, to));
    assert_eq!(other("us-east-1", "eu-west-1"), SignatureError::WrongRegion { expected: "us-east-1".into() });
    assert_eq!(other("AKIAIO", "AKIAXX"), SignatureError::UnknownKey);
    assert_eq!(other("host;", ""), SignatureError::UnsignedHeader("host".into()));
    assert_eq!(other("range;", ""), SignatureError::WrongSignature);
    assert_eq!(other("/s3/", "/iam/"), SignatureError::Malformed("the credential's service is not s3"));
    assert!(matches!(other("20130524/", "20130525/"), SignatureError::Malformed(_)));
    let nothing = headers(&[("host", "examplebucket.s3.amazonaws.com")]);
    assert_eq!(refused(Method::GET, "/test.txt", "", &nothing, DATE), SignatureError::Anonymous);
    let both = check(Method::GET, "/test.txt", "X-Amz-Signature=1", &right, DATE).map(|_| ());
    assert_eq!(both, Err(SignatureError::Malformed("it is signed more than once")));
}

#[test]
fn dates_are_counted_as_everybody_does() {
    for (text, seconds) in [
        ("19700101T000000Z", 0),
        ("20130524T000000Z", 1_369_353_600),
        ("20240229T235959Z", 1_709_251_199),
        ("20261123T003000Z", 1_795_393_800),
    ] {
        assert_eq!(AmzDate::parse(text).map(|date| date.seconds()), Some(seconds), "{text}");
    }
    for wrong in
        ["", "20130524", "20131324T000000Z", "20130230T000000Z", "2013-05-24T00:00", "20130524T240000Z"]
    {
        assert_eq!(AmzDate::parse(wrong), None, "{wrong}");
    }
}
