//! What an operator reads when the URL is wrong: one line each.

use origin_nfs::{Config, NfsOrigin};
use rpc_nfs3::mount::MountStatus;

use crate::server::{Act, Server, Tree};

async fn failure(config: Config) -> String {
    let error = NfsOrigin::connect(config).await.map(|_| ()).expect_err("must fail");
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    text
}

#[tokio::test]
async fn an_export_that_does_not_exist_is_told_with_those_that_do() {
    let mut tree = Tree::sample();
    tree.export("/other", Ok("root"));
    let server = Server::start(tree, |_| Act::Honest).await;
    let text = failure(Config { export: b"/exprot".to_vec(), ..server.config() }).await;
    assert!(text.contains("/exprot") && text.contains("it exports /export, /other"), "{text}");
}

#[tokio::test]
async fn a_host_that_is_not_allowed_is_told_so() {
    let mut tree = Tree::sample();
    tree.exports = vec![("/export".into(), Err(MountStatus::ACCESS))];
    let server = Server::start(tree, |_| Act::Honest).await;
    let text = failure(server.config()).await;
    assert!(text.contains("/export") && text.contains("does not allow this host"), "{text}");
}

#[tokio::test]
async fn a_refused_port_is_named() {
    let server = Server::start(Tree::sample(), |_| Act::Honest).await;
    let config = server.config();
    let port = server.stop().await.port();
    let text = failure(config).await;
    assert!(text.contains(&format!("127.0.0.1:{port}")) && text.contains("refused"), "{text}");
}

#[tokio::test]
async fn an_unknown_host_is_named() {
    let config = Config {
        host: "no-such-host.invalid".to_owned(),
        port: Some(2049),
        mount_port: Some(2049),
        ..Config::default()
    };
    let text = failure(config).await;
    assert!(text.contains("no-such-host.invalid"), "{text}");
}

#[tokio::test]
async fn a_port_that_speaks_something_else_is_no_nfs_server() {
    let server =
        Server::start(Tree::sample(), |_| Act::Bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec())).await;
    let text = failure(server.config()).await;
    assert!(text.contains("NFSv3"), "{text}");
}
