//! Listings: S3's order, pages, prefixes and delimiters, against a model that has all keys in a sorted set.

use std::collections::BTreeSet;

use crate::client::Client;
use crate::served::serve_with;
use crate::sign::Request;

const KEYS: [&str; 14] = [
    "a",
    "a-b",
    "a.txt",
    "a0",
    "b/c",
    "b/d/e",
    "b/d/f",
    "b-",
    "b0",
    "c/only",
    "d e/ä ö",
    "z/z/z/z/1",
    "z/z/z/z/2",
    "z+",
];

async fn filled() -> (crate::served::Served, Client) {
    let served = serve_with(
        |origin| {
            origin.mkdir(b"data").expect("made");
            origin.mkdir(b"data/empty").expect("made");
            origin.write_file(b"data/not-\xff-text", b"x").expect("written");
            origin.symlink(b"data/link", b"a").expect("made");
        },
        |_| {},
    )
    .await;
    let client = served.client();
    for key in KEYS {
        client.put(&format!("/data/{key}"), key).await.ok();
    }
    (served, client)
}

/// What a listing tells: keys and common prefixes, in their order.
fn model(keys: &BTreeSet<String>, prefix: &str, delimiter: &str, after: &str) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    for key in keys.iter().filter(|key| key.starts_with(prefix) && key.as_str() > after) {
        let at = if delimiter.is_empty() { None } else { key[prefix.len()..].find(delimiter) };
        let item = at.map_or(key.clone(), |at| key[..prefix.len() + at + delimiter.len()].to_owned());
        if told.last() != Some(&item) {
            told.push(item);
        }
    }
    told
}

async fn pages(client: &Client, version: u8, request: &Request, size: usize) -> Vec<String> {
    let mut told = Vec::new();
    let mut at: Option<String> = None;
    for _ in 0..100 {
        let mut request = request.clone().query("max-keys", &size.to_string());
        if version == 2 {
            request = request.query("list-type", "2");
        }
        if let Some(at) = &at {
            request = request.query(if version == 2 { "continuation-token" } else { "marker" }, at);
        }
        let answer = client.send(request).await.ok();
        let mut page = answer.all("Key");
        page.extend(answer.text().split("<CommonPrefixes>").skip(1).filter_map(|part| {
            let (_, rest) = part.split_once("<Prefix>")?;
            rest.split_once("</Prefix>").map(|(prefix, _)| prefix.to_owned())
        }));
        assert!(page.len() <= size, "{}", answer.text());
        page.sort();
        told.extend(page);
        let next = answer.all(if version == 2 { "NextContinuationToken" } else { "NextMarker" });
        if answer.all("IsTruncated") != ["true"] {
            assert!(next.is_empty());
            return told;
        }
        at = next.into_iter().next();
        assert!(at.is_some(), "{}", answer.text());
    }
    panic!("it does not end");
}

#[tokio::test]
async fn pages_of_any_size_tell_each_key_once_in_order() {
    let (_served, client) = filled().await;
    let mut keys: BTreeSet<String> = KEYS.iter().map(|key| (*key).to_owned()).collect();
    keys.insert("empty/".to_owned());
    for prefix in
        ["", "a", "b", "b/", "b/d", "b/d/", "z/", "z/z/z/z/1", "none/", "empty/", "empty", "d e/", "b//"]
    {
        for delimiter in ["", "/", "-", "z/"] {
            let expected = model(&keys, prefix, delimiter, "");
            for version in [1, 2] {
                for size in [1, 2, 3, 1000] {
                    let mut request = Request::new("GET", "/data").query("prefix", prefix);
                    if !delimiter.is_empty() {
                        request = request.query("delimiter", delimiter);
                    }
                    let told = pages(&client, version, &request, size).await;
                    assert_eq!(
                        told, expected,
                        "prefix {prefix:?}, delimiter {delimiter:?}, v{version}, {size}"
                    );
                }
            }
        }
    }
    for after in ["a", "a.txt", "b/", "b/c", "b/d/", "b/d/e", "zz", "b0", "z/z/z/z/1"] {
        let request = Request::new("GET", "/data").query("start-after", after);
        assert_eq!(pages(&client, 2, &request, 3).await, model(&keys, "", "", after), "after {after:?}");
    }
}

#[tokio::test]
async fn sizes_times_and_etags_are_those_of_the_objects() {
    let (_served, client) = filled().await;
    let answer =
        client.send(Request::new("GET", "/data").query("list-type", "2").query("prefix", "b/d/")).await.ok();
    assert_eq!(answer.all("Key"), ["b/d/e", "b/d/f"]);
    assert_eq!(answer.all("Size"), ["5", "5"]);
    let head = client.send(Request::new("HEAD", "/data/b/d/e")).await.ok();
    assert_eq!(answer.all("ETag")[0].trim_matches('"'), head.etag());
    assert_eq!(answer.all("KeyCount"), ["2"]);
}

#[tokio::test]
async fn encoded_as_a_url_keys_are_told_so() {
    let (_served, client) = filled().await;
    let request = Request::new("GET", "/data").query("encoding-type", "url").query("prefix", "d e/");
    let answer = client.send(request).await.ok();
    assert_eq!(answer.all("Key"), ["d%20e/%C3%A4%20%C3%B6"]);
    assert_eq!(answer.all("EncodingType"), ["url"]);
}

/// XML can carry them; only other control characters it cannot.
#[tokio::test]
async fn keys_with_tabs_and_line_ends_are_listed_and_deleted_by_what_a_listing_tells() {
    let served = serve_with(|_| {}, |_| {}).await;
    let client = served.client();
    let keys = ["a\tb", "c\nd", "e\r\nf", "g\rh/i\tj"];
    for key in keys {
        client.put(&format!("/data/{key}"), "x").await.ok();
    }
    client.put("/data/k\u{1}l", "x").await.ok();
    for request in [
        Request::new("GET", "/data"),
        Request::new("GET", "/data").query("list-type", "2"),
        Request::new("GET", "/data").query("versions", ""),
    ] {
        assert_eq!(client.send(request.clone()).await.ok().all("Key"), keys, "{request:?}");
        let encoded = client.send(request.clone().query("encoding-type", "url")).await.ok().all("Key");
        assert_eq!(encoded.len(), 5, "{request:?}");
        assert_eq!(encoded[2], "e%0D%0Af", "{request:?}");
        for size in ["1", "2"] {
            let page = client.send(request.clone().query("max-keys", size)).await.ok();
            assert_eq!(page.all("Key"), keys[..size.parse::<usize>().expect("a number")], "{request:?}");
        }
    }
    let told = client.send(Request::new("GET", "/data").query("delimiter", "/")).await.ok();
    assert!(told.text().contains("<Prefix>g&#13;h/</Prefix>"), "{}", told.text());
    assert!(!told.text().contains('\r'), "a parser would take it for a line feed");
    let begun = client.send(Request::new("POST", "/data/m\rn").query("uploads", "")).await.ok();
    assert_eq!(begun.all("Key"), ["m\rn"]);
    let uploads = client.send(Request::new("GET", "/data").query("uploads", "")).await.ok();
    assert_eq!(uploads.all("Key"), ["m\rn"]);
    let objects: String = keys
        .iter()
        .map(|key| {
            format!("<Object><Key>{}</Key></Object>", key.replace('\r', "&#13;").replace('\n', "&#10;"))
        })
        .collect();
    let body = format!("<Delete>{objects}</Delete>");
    let answer = client.send(Request::new("POST", "/data").query("delete", "").body(body)).await.ok();
    assert_eq!(answer.all("Key"), keys, "{}", answer.text());
    assert!(client.get("/data").await.ok().all("Key").is_empty());
}

#[tokio::test]
async fn listings_tell_the_owner_where_they_are_asked_to() {
    let (_served, client) = filled().await;
    let owners = async |name: &str, value: &str| {
        let request = Request::new("GET", "/data").query(name, value).query("prefix", "b/");
        let answer = client.send(request).await.ok();
        assert_eq!(answer.all("Key").len(), 3);
        (answer.all("Owner").len(), answer.all("ID"))
    };
    let key = crate::served::KEY.to_owned();
    assert_eq!(owners("list-type", "2").await, (0, Vec::new()));
    assert_eq!(owners("versions", "").await, (3, vec![key.clone(); 3]));
    assert_eq!(owners("marker", "").await, (3, vec![key.clone(); 3]), "the first version always does");
    let request = Request::new("GET", "/data").query("list-type", "2").query("fetch-owner", "true");
    assert_eq!(client.send(request.query("prefix", "b/")).await.ok().all("ID"), vec![key; 3]);
}

/// Tools that clean up ask for it, whether a bucket has versions or not.
#[tokio::test]
async fn each_object_is_listed_as_its_only_version() {
    let (_served, client) = filled().await;
    let mut keys: BTreeSet<String> = KEYS.iter().map(|key| (*key).to_owned()).collect();
    keys.insert("empty/".to_owned());
    for (prefix, delimiter) in [("", ""), ("", "/"), ("b", "/"), ("b/", ""), ("", "-"), ("none", "")] {
        let expected = model(&keys, prefix, delimiter, "");
        for size in [1, 2, 3, 1000] {
            let (mut told, mut marker) = (Vec::new(), None::<(String, String)>);
            loop {
                let mut request = Request::new("GET", "/data").query("versions", "").query("prefix", prefix);
                request = request.query("max-keys", &size.to_string());
                if !delimiter.is_empty() {
                    request = request.query("delimiter", delimiter);
                }
                if let Some((key, version)) = &marker {
                    request = request.query("key-marker", key);
                    if !version.is_empty() {
                        request = request.query("version-id-marker", version);
                    }
                }
                let answer = client.send(request).await.ok();
                let mut page = answer.all("Key");
                assert_eq!(answer.all("VersionId"), vec!["null"; page.len()]);
                assert_eq!(answer.all("IsLatest"), vec!["true"; page.len()]);
                page.extend(answer.text().split("<CommonPrefixes>").skip(1).filter_map(|part| {
                    let (_, rest) = part.split_once("<Prefix>")?;
                    rest.split_once("</Prefix>").map(|(prefix, _)| prefix.to_owned())
                }));
                page.sort();
                told.extend(page);
                if answer.all("IsTruncated") != ["true"] {
                    break;
                }
                let version = answer.all("NextVersionIdMarker").pop().unwrap_or_default();
                marker = Some((answer.all("NextKeyMarker").remove(0), version));
            }
            assert_eq!(told, expected, "prefix {prefix:?}, delimiter {delimiter:?}, {size}");
        }
    }
    let null = Request::new("GET", "/data/a").query("versionId", "null");
    assert_eq!(client.send(null).await.ok().text(), "a");
    let without = Request::new("GET", "/data").query("versions", "").query("version-id-marker", "null");
    assert_eq!(client.send(without).await.code(), "InvalidArgument");
}

#[tokio::test]
async fn a_wrong_question_is_told_so() {
    let (_served, client) = filled().await;
    for (name, value) in [("max-keys", "-1"), ("continuation-token", "xyz"), ("encoding-type", "base64")] {
        let request = Request::new("GET", "/data").query("list-type", "2").query(name, value);
        assert_eq!(client.send(request).await.status, 400, "{name}");
    }
    let none = client.send(Request::new("GET", "/data").query("max-keys", "0")).await.ok();
    assert!(none.all("Key").is_empty() && none.all("IsTruncated") == ["false"]);
}

#[tokio::test]
async fn a_directory_of_many_names_is_listed_page_by_page() {
    let served = serve_with(
        |origin| {
            origin.mkdir(b"data").expect("made");
            for number in 0..5000 {
                origin.write_file(format!("data/{number}").as_bytes(), b"").expect("written");
            }
        },
        |_| {},
    )
    .await;
    let told = pages(&served.client(), 2, &Request::new("GET", "/data"), 1000).await;
    let mut expected: Vec<_> = (0..5000).map(|number| number.to_string()).collect();
    expected.sort();
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_tree_too_deep_for_keys_or_a_name_out_of_reach_keeps_no_other_key_from_being_listed() {
    let served = serve_with(
        |origin| {
            origin.mkdir(b"data").expect("made");
            let mut path = b"data".to_vec();
            for _ in 0..60 {
                path.push(b'/');
                path.extend([b'd'; 100]);
                origin.mkdir(&path).expect("made");
                origin.write_file(&[&path[..], b"/file"].concat(), b"x").expect("written");
            }
            for key in [&b"data/a"[..], b"data/bad", b"data/z"] {
                origin.write_file(key, b"x").expect("written");
            }
        },
        |_| {},
    )
    .await;
    served.far.list_without_object(b"bad");
    served.far.fail("lookup", types::ErrorKind::NameTooLong, u64::MAX);
    let mut expected = vec!["a".to_owned(), "z".to_owned()];
    let names = |depth: usize| vec!["d".repeat(100); depth].join("/");
    // With /file a key of ten names has 1014 bytes, one of eleven 1115.
    expected.extend((1..=10).map(|depth| format!("{}/file", names(depth))));
    expected.sort();
    for version in [1, 2] {
        for size in [1, 5, 1000] {
            let told = pages(&served.client(), version, &Request::new("GET", "/data"), size).await;
            assert_eq!(told, expected, "version {version}, {size} at a time");
        }
    }
    assert!(served.metric("forebay_s3_skipped_names_total") > 0);
}
