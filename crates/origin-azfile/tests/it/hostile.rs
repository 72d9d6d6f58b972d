//! A service that answers what no real one would.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use origin::{Change, DirCursor, Origin};
use origin_azfile::{AzFileOrigin, Config};
use testkit::azfile::ACCOUNT;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use types::{ByteRange, CreateHow, ErrorKind, SetAttr, Stability, Version};

use crate::share::{name, variables};

type Answers = Arc<Mutex<Box<dyn FnMut(&str) -> Vec<u8> + Send>>>;

/// Answers each request (its head is given) with what `answers` says, and closes the connection.
async fn serve() -> (Arc<AzFileOrigin>, Answers) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let answers: Answers = Arc::new(Mutex::new(Box::new(|_: &str| described(1, ""))));
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
    let url = format!("azfile://{ACCOUNT}/share?endpoint=http://127.0.0.1:{port}");
    let config = Config::from_url(&url).expect("a URL");
    (AzFileOrigin::connect_as(config, Some(variables())).await.expect("connected"), answers)
}

const TIME: &str = "2026-01-02T03:04:05.1234567Z";

/// A look at something with this id that makes sense.
fn described(id: u64, more: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\nETag: \"e\"\r\nx-ms-file-id: {id}\r\n\
         x-ms-file-creation-time: {TIME}\r\nx-ms-file-last-write-time: {TIME}\r\nx-ms-file-change-time: {TIME}\r\n{more}\r\n"
    )
    .into_bytes()
}

fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
        .into_bytes()
}

fn say(answers: &Answers, answer: Vec<u8>) {
    *answers.lock().expect("free") = Box::new(move |_| answer.clone());
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_make_no_sense_are_errors() {
    let (origin, answers) = serve().await;
    let root = origin.root().await.expect("there").reference;
    // As the reference of a file with the same id.
    let mut file = root.0.to_vec();
    file[0] = b'f';
    file.extend_from_slice(b"file");
    let file = origin::Reference(Bytes::from(file));
    let part = |more: &str, body: &str| {
        format!(
            "HTTP/1.1 206 Partial Content\r\nConnection: close\r\nETag: \"e\"\r\nx-ms-file-last-write-time: {TIME}\r\n\
             {more}\r\n{body}"
        )
        .into_bytes()
    };
    let wrong: Vec<(&str, Vec<u8>)> = vec![
        ("nothing at all", Vec::new()),
        ("no HTTP", b"hello\r\n\r\n".to_vec()),
        ("no ETag", ok("1234567890")),
        ("a huge length", part("Content-Range: bytes 0-9/10\r\nContent-Length: 99999999999999\r\n", "")),
        ("fewer bytes", part("Content-Range: bytes 0-9/10\r\nContent-Length: 10\r\n", "12345")),
        ("more bytes", part("Content-Range: bytes 0-9/10\r\nContent-Length: 11\r\n", "12345678901")),
        ("another range", part("Content-Range: bytes 5-14/20\r\nContent-Length: 10\r\n", "1234567890")),
        ("no range", part("Content-Length: 10\r\n", "1234567890")),
        ("no number", part("Content-Range: bytes 0-9/many\r\nContent-Length: 10\r\n", "1234567890")),
    ];
    for (what, bytes) in wrong {
        say(&answers, bytes);
        let error = origin.read(&file, Version([1; 16]), ByteRange::new(0, 10)).await.expect_err(what);
        let absent =
            matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale | ErrorKind::VersionChanged);
        assert!(!absent, "{what} is no proof that it is gone: {error:?}");
    }
    for page in [
        "",
        "<",
        "<EnumerationResults>",
        "<html></html>",
        "<EnumerationResults><Entries><File><FileId>1</FileId></File></Entries></EnumerationResults>",
        "<EnumerationResults><Entries><File><Name Encoded=\"true\">%ff</Name></File></Entries></EnumerationResults>",
        "<EnumerationResults><Entries><Pipe><Name>x</Name></Pipe></Entries></EnumerationResults>",
    ] {
        *answers.lock().expect("free") =
            Box::new(move |head| if head.starts_with("HEAD") { described(1, "") } else { ok(page) });
        if let Ok(page) = origin.readdir(&root, DirCursor::default()).await {
            assert!(page.entries.is_empty() && page.next.is_none(), "{page:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_no_path_can_be_do_not_hide_the_others() {
    let (origin, answers) = serve().await;
    let root = origin.root().await.expect("there").reference;
    let long = "é".repeat(200);
    let entries: String = ["good", "..", ".", "a/b", &long, "also good"]
        .map(|name| {
            format!("<File><Name>{name}</Name><FileId>5</FileId><Properties><Content-Length>3</Content-Length></Properties></File>")
        })
        .concat();
    let page = format!("<EnumerationResults><Entries>{entries}</Entries><NextMarker/></EnumerationResults>");
    *answers.lock().expect("free") =
        Box::new(move |head| if head.starts_with("HEAD") { described(1, "") } else { ok(&page) });
    let page = origin.readdir(&root, DirCursor::default()).await.expect("listed");
    let names: Vec<_> = page.entries.iter().map(|entry| entry.name.to_string()).collect();
    assert_eq!(names, ["good", "also good"]);
    // Where the listing tells too little, each has to be looked at.
    assert!(page.entries.iter().all(|entry| entry.object.is_none()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_makes_no_sense_hides_no_other_and_a_listing_that_does_not_go_on_is_an_error() {
    let (origin, answers) = serve().await;
    let root = origin.root().await.expect("there").reference;
    let times = format!(
        "<CreationTime>{TIME}</CreationTime><LastWriteTime>{TIME}</LastWriteTime><ChangeTime>{TIME}</ChangeTime>"
    );
    let file = |name: &str, size: &str| {
        format!(
            "<File>{name}<FileId>5</FileId><Properties><Content-Length>{size}</Content-Length>{times}<Etag>e</Etag>\
             </Properties></File>"
        )
    };
    let named = |name: &str| format!("<Name>{name}</Name>");
    let entries = [
        file(&named("good"), "3"),
        file(&named("neg"), "-5"),
        file(&named("over"), "1000000000000000000000000"),
        file("", "3"),
        file("<Name Encoded=\"true\">%ff</Name>", "3"),
        "<Pipe><Name>x</Name></Pipe>".to_owned(),
        file(&named("also"), "0"),
    ];
    let page = format!(
        "<EnumerationResults><Entries>{}</Entries><NextMarker/></EnumerationResults>",
        entries.concat()
    );
    *answers.lock().expect("free") =
        Box::new(move |head| if head.starts_with("HEAD") { described(1, "") } else { ok(&page) });
    let listed = origin.readdir(&root, DirCursor::default()).await.expect("listed");
    let shown: Vec<_> =
        listed.entries.iter().map(|entry| (entry.name.to_string(), entry.object.is_some())).collect();
    let shown: Vec<_> = shown.iter().map(|(name, known)| (name.as_str(), *known)).collect();
    assert_eq!(shown, [("good", true), ("neg", false), ("over", false), ("also", true)]);

    let same = "<EnumerationResults><Entries/><NextMarker>same</NextMarker></EnumerationResults>";
    *answers.lock().expect("free") =
        Box::new(move |head| if head.starts_with("HEAD") { described(1, "") } else { ok(same) });
    let first = origin.readdir(&root, DirCursor::default()).await.expect("listed");
    let again = origin.readdir(&root, first.next.expect("to be gone on with")).await;
    assert_eq!(again.expect_err("where it was").kind(), ErrorKind::Corrupt);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_are_answered_with_nonsense_are_not_said_to_be_made() {
    let (origin, answers) = serve().await;
    let root = origin.root().await.expect("there").reference;
    let set = SetAttr::default();
    let change = Change::Mkdir { dir: root.clone(), name: name("dir"), set };
    for (what, answer) in
        [("nothing", Vec::new()), ("no facts", ok("")), ("half a fact", described(2, "")[..60].to_vec())]
    {
        say(&answers, answer);
        let error = origin.change(&change).await.expect_err(what);
        let fitting = matches!(error.kind(), ErrorKind::OutcomeUnknown | ErrorKind::Corrupt);
        assert!(fitting, "{what}: {error:?}");
    }
    // A file that is there, to a write that is refused for ever because it is too short.
    let head = described(1, "").len();
    let refuse =
        b"HTTP/1.1 416 No\r\nx-ms-error-code: InvalidRange\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    *answers.lock().expect("free") = Box::new(move |asked| match asked.contains("comp=range") {
        true => refuse.to_vec(),
        false => described(1, "")[..head].to_vec(),
    });
    let mut file = root.0.to_vec();
    file[0] = b'f';
    file.push(b'x');
    let file = origin::Reference(Bytes::from(file));
    let error =
        origin.write(&file, 0, Bytes::from_static(b"x"), Stability::FileSync).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Busy);
    let how = CreateHow::Guarded;
    say(&answers, b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec());
    let error =
        origin.change(&Change::Create { dir: root, name: name("f"), how, set }).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
}
