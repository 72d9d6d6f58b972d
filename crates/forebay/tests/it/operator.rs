//! Who may use the operator's interface: its own user, holders of the token, and nobody else; not even a page in a browser.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::tier::Tier;

fn served(dir: &Path) -> Tier {
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).expect("made");
    std::fs::write(tree.join("hello.txt"), b"hello, far away\n").expect("written");
    // The temporary directory's own mode must not be what protects it.
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).expect("set");
    let tier =
        Tier::start(dir, &format!("[[junction]]\npath = \"/\"\norigin = \"file://{}\"\n", tree.display()));
    tier.json(&["warm", "/"]);
    tier
}

/// The status and the body of the answer to a request that is sent as it stands here.
fn raw(tier: &Tier, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(tier.admin).expect("connected");
    let request = format!("{head}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, answer.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
}

fn audited(dir: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join("cache/audit.log")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn is_cached(tier: &Tier) -> bool {
    tier.json(&["stat", "/hello.txt"])["cached_bytes"] == 16
}

#[test]
fn a_change_by_tcp_needs_the_token_and_each_change_has_a_line_in_the_audit_log() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let tier = served(dir.path());
    let before = audited(dir.path()).len();
    let host = format!("Host: {}", tier.admin);
    let (json, evict) = ("Content-Type: application/json", r#"{"paths": ["/hello.txt"]}"#);
    let token = std::fs::read_to_string(dir.path().join("cache/admin.token")).expect("made at the start");
    let bearer = format!("Authorization: Bearer {token}");
    let post = |headers: &[&str], body: &str| {
        raw(&tier, &format!("POST /v1/evict HTTP/1.1\r\n{}", headers.join("\r\n")), body).0
    };
    assert_eq!(post(&[&host, json], evict), 401, "without a token");
    assert_eq!(post(&[&host, json, "Authorization: Bearer 00"], evict), 401, "another token");
    assert_eq!(post(&[&host, "Content-Type: text/plain", &bearer], evict), 415);
    assert_eq!(post(&["Host: evil.example", json, &bearer], evict), 403);
    assert_eq!(post(&[&host, "Origin: http://evil.example", json, &bearer], evict), 403);
    assert_eq!(post(&[&host, json, &bearer], r#"{"paths": ["/"], "force_it": true}"#), 400);
    assert!(is_cached(&tier));
    let get = |path: &str, host: &str| raw(&tier, &format!("GET {path} HTTP/1.1\r\nHost: {host}"), "").0;
    for path in ["/healthz", "/metrics", "/v1/status"] {
        assert_eq!(get(path, "localhost"), 200, "{path}");
        assert_eq!(get(path, "evil.example"), 403, "{path}");
    }
    assert_eq!(get("/v1/stat?path=/hello.txt", "localhost"), 401, "names of files");
    assert_eq!(post(&[&host, json, &bearer], evict), 200);
    assert!(!is_cached(&tier));
    tier.json(&["evict", "/"]); // by the socket, which the command finds by itself

    let lines = &audited(dir.path())[before..];
    let told: Vec<_> = lines.iter().map(|line| (line["what"].as_str(), line["status"].as_u64())).collect();
    let evicted = Some("POST /v1/evict");
    assert_eq!(told, [(evicted, Some(400)), (evicted, Some(200)), (evicted, Some(200))], "{lines:#?}");
    assert_eq!(lines[1]["who"], "admin.token");
    assert!(lines[1]["asked"].as_str().is_some_and(|asked| asked.contains("/hello.txt")), "{lines:#?}");
    let uid = format!("uid {}", rustix::process::geteuid().as_raw());
    assert_eq!(lines[2]["who"], uid.as_str());
}

#[test]
fn idle_connections_do_not_lock_the_operator_out() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let tier = served(dir.path());
    let from = |host: [u8; 4]| {
        let socket =
            rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None);
        let socket = socket.expect("a socket");
        rustix::net::bind(&socket, &std::net::SocketAddr::from((host, 0)))
            .expect("all of 127.0.0.0/8 is here");
        rustix::net::connect(&socket, &tier.admin).expect("connected");
        TcpStream::from(socket)
    };
    let mut idle: Vec<_> = (0..100).map(|_| from([127, 0, 0, 66])).collect();
    // The first of them has to go for it; of itself it would stay for 10 s, and nobody be answered before.
    let begun = std::time::Instant::now();
    let (status, _) = raw(&tier, &format!("GET /healthz HTTP/1.1\r\nHost: {}", tier.admin), "");
    assert_eq!(status, 200);
    assert_eq!(idle[0].read(&mut [0]).expect("closed"), 0);
    assert!(begun.elapsed() < std::time::Duration::from_secs(8));
}

#[test]
fn another_user_of_the_machine_can_neither_evict_nor_learn_a_name() {
    if !rustix::process::geteuid().is_root() {
        testkit::lab::not_run(
            "another_user_of_the_machine_can_neither_evict_nor_learn_a_name",
            "it needs root",
        );
        return;
    }
    let dir = tempfile::tempdir().expect("temporary directory");
    let tier = served(dir.path());
    let port = tier.admin.port();
    let cache = dir.path().join("cache");
    let tries = format!(
        r#"
import http.client, os, socket
os.setgroups([]); os.setgid(65534); os.setuid(65534)
def asked(method, path, body=None, headers={{}}):
    c = http.client.HTTPConnection("127.0.0.1", {port}, timeout=20)
    c.request(method, path, body, headers)
    r = c.getresponse()
    return r.status, r.read()
json = {{"Content-Type": "application/json"}}
for path, body in [("/v1/evict", '{{"paths": ["/"]}}'), ("/v1/flush", "{{}}"), ("/v1/warm", '{{"paths": ["/"]}}')]:
    for headers in [{{}}, json, dict(json, Authorization="Bearer x")]:
        status, _ = asked("POST", path, body, headers)
        assert status == 401, (path, headers, status)
assert asked("GET", "/v1/stat?path=/hello.txt")[0] == 401
assert b"hello.txt" not in asked("GET", "/v1/status")[1]
for name in ["admin.token", "audit.log"]:
    try:
        open("{cache}/" + name).read()
        raise SystemExit(name + " can be read")
    except PermissionError:
        pass
try:
    socket.socket(socket.AF_UNIX).connect("{cache}/admin.sock")
    raise SystemExit("the socket can be used")
except PermissionError:
    pass
"#,
        cache = cache.display()
    );
    let done = Command::new("/usr/bin/python3").args(["-c", &tries]).output().expect("python runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(is_cached(&tier));
}

/// A web server of somebody else's, which gives this page to whoever asks.
fn give(page: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let _ = stream.read(&mut [0; 4096]);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length:";
            let _ = write!(stream, "{head} {}\r\n\r\n{page}", page.len());
        }
    });
    port
}

/// What Debian's chromium shows of an address; all names lead to this machine.
fn browsed(url: &str) -> String {
    let profile = tempfile::tempdir().expect("temporary directory");
    let shown = Command::new("timeout")
        .args(["60", "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--no-first-run", "--disable-background-networking", "--disable-component-update"])
        .args(["--disable-sync", "--disable-default-apps", "--disable-extensions", "--dump-dom"])
        .args(["--virtual-time-budget=8000", "--host-resolver-rules=MAP * 127.0.0.1"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(url)
        .stderr(Stdio::null())
        .output()
        .expect("chromium runs");
    String::from_utf8_lossy(&shown.stdout).into_owned()
}

#[test]
fn a_page_in_a_browser_on_this_machine_changes_nothing_and_reads_nothing() {
    let name = "a_page_in_a_browser_on_this_machine_changes_nothing_and_reads_nothing";
    let found =
        Command::new("chromium").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        testkit::lab::not_run(name, "chromium is not installed");
        return;
    }
    let dir = tempfile::tempdir().expect("temporary directory");
    let tier = served(dir.path());
    let before = audited(dir.path()).len();
    let admin = format!("http://{}", tier.admin);
    let page = format!(
        r#"<pre id=told></pre><form id=form method=post enctype=text/plain action="{admin}/v1/evict" target=frame>
<input name='{{"paths": ["/"], "x": "' value='"}}'></form><iframe name=frame></iframe><script>
async function tried(what, path, how) {{
  let told;
  try {{ const r = await fetch("{admin}" + path, how); told = r.type + " " + r.status + " " + await r.text(); }}
  catch (e) {{ told = "refused"; }}
  document.getElementById("told").textContent += what + ": " + told + "\n";
}}
(async () => {{
  const body = '{{"paths": ["/"]}}', json = {{"Content-Type": "application/json"}};
  await tried("simple", "/v1/evict", {{method: "POST", mode: "no-cors", body}});
  await tried("preflighted", "/v1/evict", {{method: "POST", headers: json, body}});
  await tried("flush", "/v1/flush", {{method: "POST", mode: "no-cors", body: "{{}}"}});
  await tried("read", "/v1/status", {{}});
  document.getElementById("form").submit();
  document.getElementById("told").textContent += "done\n";
}})();
</script>"#
    );
    let port = give(page);
    let shown = browsed(&format!("http://evil.example:{port}/"));
    assert!(shown.contains("preflighted: refused") && shown.contains("read: refused"), "{shown}");
    // A name that its owner leads to this machine makes the page one of the same origin.
    let rebound = browsed(&format!("http://evil.example:{}/v1/status", tier.admin.port()));
    assert!(rebound.contains("evil.example") && !rebound.contains("uptime_seconds"), "{rebound}");
    assert!(is_cached(&tier), "nothing was evicted");
    assert_eq!(audited(dir.path()).len(), before, "nothing was changed");
}
