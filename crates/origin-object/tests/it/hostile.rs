//! A store that answers what no real one would, and one with keys that no path can be.

use std::sync::{Arc, Mutex};

use origin::{DirCursor, Origin};
use origin_object::{Config, ObjectOrigin};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use types::{ByteRange, ErrorKind, Stability, Version};

use crate::store::{create, name, root};

pub type Answers = Arc<Mutex<Box<dyn FnMut(&str) -> Vec<u8> + Send>>>;

/// Answers each request (its head is given) with what `answer` says, and closes the connection.
async fn serve(answer: impl FnMut(&str) -> Vec<u8> + Send + 'static) -> (Config, Answers) {
    serve_as("s3://bucket", answer).await
}

pub async fn serve_as(
    place: &str,
    answer: impl FnMut(&str) -> Vec<u8> + Send + 'static,
) -> (Config, Answers) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let answers: Answers = Arc::new(Mutex::new(Box::new(answer)));
    let shared = answers.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answers = shared.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else { return };
                    head.push(byte);
                }
                let answer =
                    (answers.lock().expect("nobody panics with it"))(&String::from_utf8_lossy(&head));
                let _ = stream.write_all(&answer).await;
            });
        }
    });
    let url = format!("{place}?endpoint=http://127.0.0.1:{port}&anonymous=yes");
    (Config::from_url(&url).expect("a URL"), answers)
}

pub fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
        .into_bytes()
}

const EMPTY: &str = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
/// Each dialect's URL, and its listing of nothing.
pub const DIALECTS: [(&str, &str); 3] = [
    ("s3://bucket", EMPTY),
    ("az://account/bucket", "<EnumerationResults><Blobs/><NextMarker/></EnumerationResults>"),
    ("gs://bucket", "{}"),
];

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_no_path_can_be_do_not_hide_the_others() {
    let object = |key: &str| {
        format!(
            "<Contents><Key>{key}</Key><Size>3</Size><LastModified>2026-01-02T03:04:05.678Z</LastModified>\
             <ETag>&quot;e&quot;</ETag></Contents>"
        )
    };
    let objects: String =
        ["good", "..", ".", &"long".repeat(99), "also+good%21", "both"].map(object).concat();
    let prefixes: String = ["/", "../", "both/", "dir/"]
        .map(|prefix| format!("<CommonPrefixes><Prefix>{prefix}</Prefix></CommonPrefixes>"))
        .concat();
    let page = format!(
        "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>{objects}{prefixes}</ListBucketResult>"
    );
    let (config, _) = serve(move |_| ok(&page)).await;
    let origin = ObjectOrigin::connect_as(config, None).await.expect("connected");
    let page = origin.readdir(&root(), DirCursor::default()).await.expect("listed");
    let mut names: Vec<_> = page.entries.iter().map(|entry| entry.name.to_string()).collect();
    names.sort();
    assert_eq!(names, ["also good!", "both", "dir", "good"]);
    let both = page.entries.iter().find(|entry| entry.name == name("both")).expect("listed");
    assert!(both.object.as_ref().expect("with attributes").attr.is_dir());
}

/// A page with a file of each size (as the store spells it), and the token where it goes on.
fn page(place: &str, files: &[(&str, &str)], next: &str) -> String {
    let time = "2026-01-02T03:04:05Z";
    let all = |of: &dyn Fn(&str, &str) -> String, between: &str| {
        files.iter().map(|(name, size)| of(name, size)).collect::<Vec<_>>().join(between)
    };
    if place.starts_with("s3") {
        let files = all(
            &|name, size| {
                format!(
                    "<Contents><Key>{name}</Key><Size>{size}</Size><LastModified>{time}</LastModified><ETag>e</ETag></Contents>"
                )
            },
            "",
        );
        let truncated = !next.is_empty();
        format!(
            "<ListBucketResult><IsTruncated>{truncated}</IsTruncated><NextContinuationToken>{next}\
             </NextContinuationToken>{files}</ListBucketResult>"
        )
    } else if place.starts_with("az") {
        let files = all(
            &|name, size| {
                format!(
                    "<Blob><Name>{name}</Name><Properties><Last-Modified>Fri, 02 Jan 2026 03:04:05 GMT</Last-Modified>\
                     <Etag>e</Etag><Content-Length>{size}</Content-Length></Properties></Blob>"
                )
            },
            "",
        );
        format!(
            "<EnumerationResults><Blobs>{files}</Blobs><NextMarker>{next}</NextMarker></EnumerationResults>"
        )
    } else {
        let files = all(
            &|name, size| {
                format!(
                    "{{\"name\":\"{name}\",\"size\":\"{size}\",\"generation\":\"1\",\"metageneration\":\"1\",\
                     \"updated\":\"{time}\"}}"
                )
            },
            ",",
        );
        format!("{{\"nextPageToken\":\"{next}\",\"items\":[{files}]}}")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_size_that_makes_no_sense_hides_no_name_of_a_listing() {
    for (place, empty) in DIALECTS {
        let (config, answers) = serve_as(place, move |_| ok(empty)).await;
        let origin = ObjectOrigin::connect_as(config, None).await.expect("connected");
        let max = u64::MAX.to_string();
        let files = [("good", "3"), ("neg", "-5"), ("max", &max), ("over", "1000000000000000000000000")];
        let files = [&files[..], &[("float", "1e3"), ("none", ""), ("also", "0")]].concat();
        let listing = page(place, &files, "");
        *answers.lock().expect("free") = Box::new(move |_| ok(&listing));
        let listed = origin.readdir(&root(), DirCursor::default()).await.expect("listed");
        let of =
            |name: &str| listed.entries.iter().find(|entry| entry.name.to_string() == name).expect("shown");
        assert_eq!(listed.entries.len(), files.len(), "{place}");
        assert_eq!(of("good").object.as_ref().expect("known").attr.size, 3, "{place}");
        assert_eq!(of("also").object.as_ref().expect("known").attr.size, 0, "{place}");
        for unclear in ["neg", "max", "over", "float", "none"] {
            assert!(of(unclear).object.is_none(), "{place}: {unclear} is to be looked at");
        }
        assert!(!origin.is_empty().await.expect("told"), "{place}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_does_not_go_on_is_an_error_and_not_asked_for_ever() {
    for (place, empty) in DIALECTS {
        // Where it was; and between two places, with nothing in either.
        for (what, files, tokens) in
            [("one place", &[("k", "1")][..], ["same", "same"]), ("two places", &[], ["one", "two"])]
        {
            let (config, answers) = serve_as(place, move |_| ok(empty)).await;
            let origin = ObjectOrigin::connect_as(config, None).await.expect("connected");
            let asked = Arc::new(Mutex::new(0));
            let count = asked.clone();
            *answers.lock().expect("free") = Box::new(move |_| {
                let mut count = count.lock().expect("free");
                *count += 1;
                ok(&page(place, files, tokens[*count % 2]))
            });
            let mut cursor = DirCursor::default();
            let error = loop {
                match origin.readdir(&root(), cursor).await {
                    Ok(page) => cursor = page.next.expect("it has no end"),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{place}, {what}: {error}");
            let asked = *asked.lock().expect("free");
            assert!(asked <= 4, "{place}, {what}: asked {asked} times");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_make_no_sense_are_errors() {
    let head =
        |more: &str| format!("HTTP/1.1 206 Partial Content\r\nConnection: close\r\n{more}\r\n").into_bytes();
    let etag = "ETag: \"e\"\r\nx-goog-generation: 1\r\nx-goog-metageneration: 1\r\n";
    let with = |more: &[u8], body: &[u8]| {
        [&head(&format!("{etag}{}", String::from_utf8_lossy(more))), body].concat()
    };
    let wrong: Vec<(&str, Vec<u8>)> = vec![
        ("nothing at all", Vec::new()),
        ("no HTTP", b"hello\r\n\r\n".to_vec()),
        ("a huge length", with(b"Content-Range: bytes 0-9/10\r\nContent-Length: 99999999999999\r\n", b"")),
        ("fewer bytes", with(b"Content-Range: bytes 0-9/10\r\nContent-Length: 10\r\n", b"12345")),
        ("more bytes", with(b"Content-Range: bytes 0-9/10\r\nContent-Length: 11\r\n", b"12345678901")),
        ("another range", with(b"Content-Range: bytes 5-14/20\r\nContent-Length: 10\r\n", b"1234567890")),
        ("no range", with(b"Content-Length: 10\r\n", b"1234567890")),
        ("no number", with(b"Content-Range: bytes 0-9/many\r\nContent-Length: 10\r\n", b"1234567890")),
        ("another object", with(b"Content-Range: bytes 0-9/10\r\nContent-Length: 10\r\n", b"1234567890")),
    ];
    let each =
        DIALECTS.into_iter().flat_map(|dialect| wrong.iter().map(move |wrong| (dialect, wrong.clone())));
    for ((place, empty), (what, bytes)) in each {
        let (config, answers) = serve_as(place, move |_| ok(empty)).await;
        let origin = ObjectOrigin::connect_as(config, None).await.expect("connected");
        *answers.lock().expect("free") = Box::new(move |_| bytes.clone());
        let file = origin::Reference(bytes::Bytes::from_static(b"file"));
        let read = origin.read(&file, Version([1; 16]), ByteRange::new(0, 10)).await;
        let error = read.expect_err(what);
        let expected = if what == "another object" { Some(ErrorKind::VersionChanged) } else { None };
        assert!(expected.is_none_or(|kind| error.kind() == kind), "{what}: {error:?}");
        let absent = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale);
        assert!(!absent, "{what} is no proof that it is gone: {error:?}");
    }
    for page in [
        "",
        "<",
        "<ListBucketResult>",
        "<html></html>",
        "<ListBucketResult><Contents><Key>k</Key></Contents></ListBucketResult>",
        "<EnumerationResults><Blobs><Blob><Name>k</Name></Blob></Blobs></EnumerationResults>",
        "<EnumerationResults><Blobs><Blob><Name>k</Name><Properties><Last-Modified>now</Last-Modified><Etag>e</Etag>\
         <Content-Length>1</Content-Length></Properties></Blob></Blobs></EnumerationResults>",
        "[]",
        "{\"items\":[{\"name\":\"k\",\"size\":\"1\"}]}",
        "{\"items\":[{\"name\":\"k\",\"size\":\"-1\",\"generation\":\"1\",\"metageneration\":\"1\"}]}",
        "{\"items\":[{\"name\":\"k\",\"size\":\"1\",\"generation\":\"1\",\"metageneration\":\"1\",\"updated\":\"now\"}]}",
        "<EnumerationResults><Blobs><Odd><Deep>1</Deep></Odd></Blobs></EnumerationResults>",
    ]
    .into_iter()
    .flat_map(|page| DIALECTS.map(|dialect| (dialect, page)))
    {
        let ((place, empty), page) = page;
        let (config, answers) = serve_as(place, move |_| ok(empty)).await;
        let origin = ObjectOrigin::connect_as(config, None).await.expect("connected");
        *answers.lock().expect("free") = Box::new(move |_| ok(page));
        let listed = origin.readdir(&root(), DirCursor::default()).await;
        if let Ok(page) = listed {
            assert!(page.entries.iter().all(|entry| entry.object.is_none()) && page.next.is_none());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_stored_is_not_looked_at_again() {
    for (place, listing) in DIALECTS {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        let (config, _) = serve_as(place, move |head| {
            let request = head.lines().next().unwrap_or_default().to_owned();
            let (method, target) = request.split_once(' ').expect("a request");
            let is_listing = ["list", "prefix"].iter().any(|word| target.contains(word));
            let stores = method == "PUT" || method == "POST";
            if !is_listing {
                log.lock().expect("nobody panics with it").push(request.clone());
            }
            match (is_listing, stores) {
                (true, _) => ok(listing),
                (false, false) => {
                    b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec()
                }
                (false, true) => {
                    let time = "Tue, 24 Nov 2026 01:02:03 GMT";
                    let body = "{\"name\":\"file\",\"size\":\"0\",\"generation\":\"1\",\"metageneration\":\"1\",\
                                \"updated\":\"2026-11-24T01:02:03Z\"}";
                    let length = body.len();
                    format!(
                        "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nDate: {time}\r\nLast-Modified: {time}\r\n\
                         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                    )
                    .into_bytes()
                }
            }
        })
        .await;
        let origin = ObjectOrigin::connect_as(config, None).await.expect("connected");
        let asked_since = || std::mem::take(&mut *asked.lock().expect("nobody panics with it"));
        asked_since();
        let file = create(&origin, &root(), "file").await.expect("made").reference;
        let requests = asked_since();
        let after =
            requests.iter().skip_while(|request| request.starts_with("HEAD") || request.starts_with("GET"));
        assert_eq!(after.count(), 1, "{place}: {requests:?}");
        origin.write(&file, 0, "bytes".into(), Stability::Unstable).await.expect("written");
        origin.commit(&file, ByteRange::new(0, 0)).await.expect("committed");
        let requests = asked_since();
        assert_eq!(requests.len(), 1, "{place}: {requests:?}");
    }
}
