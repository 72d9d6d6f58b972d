//! What stores say of credentials that they do not take, and of one object that is denied: told apart in every dialect.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use origin::{DirCursor, Origin, Reference};
use origin_object::ObjectOrigin;
use types::{ByteRange, Error, ErrorKind, OutageReason, Version};

use crate::hostile::{DIALECTS, ok, serve_as};
use crate::store::root;

fn no(status: u16, code: &str, place: &str) -> Vec<u8> {
    let (header, body) = if place.starts_with("s3") {
        (String::new(), format!("<Error><Code>{code}</Code><Message>no.</Message></Error>"))
    } else if place.starts_with("az") {
        (format!("x-ms-error-code: {code}\r\n"), format!("<Error><Code>{code}</Code></Error>"))
    } else {
        let error =
            format!("{{\"code\":{status},\"message\":\"no.\",\"errors\":[{{\"reason\":\"{code}\"}}]}}");
        (String::new(), format!("{{\"error\":{error}}}"))
    };
    let length = body.len();
    format!("HTTP/1.1 {status} No\r\n{header}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        .into_bytes()
}

fn is_listing(head: &str) -> bool {
    let line = head.lines().next().unwrap_or_default();
    ["list-type=", "comp=list", "/o?"].iter().any(|word| line.contains(word))
}

/// What a listing and a read of a file say to a tier that is refused so; `all`: for listings too.
async fn refused(
    place: &'static str,
    empty: &'static str,
    status: u16,
    code: &str,
    all: bool,
) -> [Option<Error>; 2] {
    let (config, answers) = serve_as(place, move |_| ok(empty)).await;
    let origin = ObjectOrigin::connect_as(config, None).await.expect("connected");
    let refusal = no(status, code, place);
    *answers.lock().expect("free") = Box::new(move |head| match is_listing(head) && !all {
        true => ok(empty),
        false => refusal.clone(),
    });
    let file = Reference(Bytes::from_static(b"file"));
    let read = origin.read(&file, Version([1; 16]), ByteRange::new(0, 10)).await;
    let listed = origin.readdir(&root(), DirCursor::default()).await;
    [listed.err(), read.err()]
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_a_store_does_not_take_are_an_outage_and_no_answer_about_a_file() {
    let codes: [(&str, &[(u16, &str)]); 3] = [
        (
            "s3",
            &[
                (403, "InvalidAccessKeyId"),
                (403, "SignatureDoesNotMatch"),
                (400, "ExpiredToken"),
                (403, "ExpiredToken"),
                (400, "InvalidToken"),
                (403, "RequestTimeTooSkewed"),
                (403, "RequestExpired"),
                (403, "AccessDenied"),
                (403, "AllAccessDisabled"),
                (401, ""),
                (403, ""),
            ],
        ),
        (
            "az",
            &[
                (403, "AuthenticationFailed"),
                (403, "AuthorizationFailure"),
                (403, "AuthorizationPermissionMismatch"),
                (403, "AccountIsDisabled"),
                (401, "NoAuthenticationInformation"),
                (401, "InvalidAuthenticationInfo"),
            ],
        ),
        (
            "gs",
            &[
                (401, "authError"),
                (401, "required"),
                (403, "forbidden"),
                (403, "insufficientPermissions"),
                (403, "accountDisabled"),
            ],
        ),
    ];
    for (scheme, codes) in codes {
        let (place, empty) =
            DIALECTS.into_iter().find(|(place, _)| place.starts_with(scheme)).expect("a dialect");
        for (status, code) in codes {
            for error in refused(place, empty, *status, code, true).await {
                let error = error.expect("refused");
                assert_eq!(
                    error.outage_reason(),
                    Some(OutageReason::Credentials),
                    "{place} {status} {code}: {error:?}"
                );
                assert!(error.is_retryable(), "{place} {status} {code}: {error:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_denied_where_the_bucket_may_be_listed_is_denied_alone() {
    for (scheme, code) in
        [("s3", "AccessDenied"), ("az", "AuthorizationPermissionMismatch"), ("gs", "forbidden")]
    {
        let (place, empty) =
            DIALECTS.into_iter().find(|(place, _)| place.starts_with(scheme)).expect("a dialect");
        let [listed, read] = refused(place, empty, 403, code, false).await;
        assert!(listed.is_none(), "{place}: {listed:?}");
        let read = read.expect("denied");
        assert_eq!((read.kind(), read.outage_reason()), (ErrorKind::AccessDenied, None), "{place}: {read:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_refuses_everything_is_asked_for_proof_once_in_a_while() {
    let (place, empty) = DIALECTS[0];
    let (config, answers) = serve_as(place, move |_| ok(empty)).await;
    let origin = Arc::new(ObjectOrigin::connect_as(config, None).await.expect("connected"));
    let listings = Arc::new(AtomicU64::new(0));
    let count = listings.clone();
    *answers.lock().expect("free") = Box::new(move |head| {
        count.fetch_add(u64::from(is_listing(head)), Ordering::SeqCst);
        no(403, "AccessDenied", place)
    });
    let begun = std::time::Instant::now();
    for number in 0..100 {
        let file = Reference(Bytes::from(format!("file{number}")));
        let error = origin.read(&file, Version([1; 16]), ByteRange::new(0, 10)).await.expect_err("refused");
        assert_eq!(error.outage_reason(), Some(OutageReason::Credentials), "{error:?}");
    }
    let allowed = 2 + begun.elapsed().as_secs();
    assert!(listings.load(Ordering::SeqCst) <= allowed, "{listings:?} in {:?}", begun.elapsed());
}
