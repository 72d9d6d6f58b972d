//! How a node is asked and told something as its operator.
//!
//! With a token all is asked by HTTP. Without one the tier's own command asks, which finds the socket of a node on this machine; only
//! counters are open to everybody there.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::Value;
use types::{Error, Result};

use crate::fixture::operator;
use crate::{CounterPage, fixture};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDoor {
    pub admin: SocketAddr,
    /// The node's `admin.token`, or a copy. It is read anew each time: a node whose cache was lost has another one.
    pub token: Option<PathBuf>,
}

impl NodeDoor {
    pub fn nodes(&self) -> Result<Value> {
        self.ask("/v1/nodes", &["nodes"])
    }

    pub fn status(&self) -> Result<Value> {
        self.ask("/v1/status", &["status"])
    }

    pub fn placement(&self, path: &str) -> Result<Value> {
        self.ask(&format!("/v1/placement?path={path}"), &["placement", path])
    }

    pub fn counters(&self) -> Result<CounterPage> {
        CounterPage::of(self.admin, self.token()?.as_deref())
    }

    /// A change: `verb` is the tier's own command, about `what`.
    pub fn tell(&self, verb: &'static str, what: &str) -> Result<()> {
        self.command(&[verb, what]).map(drop)
    }

    pub fn unclear(&self) -> Error {
        operator::unavailable(self.admin, "ask", "its answer is not understood")
    }

    fn token(&self) -> Result<Option<String>> {
        let Some(file) = &self.token else { return Ok(None) };
        let text =
            std::fs::read_to_string(file).map_err(|e| Error::io("read the token", file.display(), e))?;
        Ok(Some(text.trim().to_owned()))
    }

    fn ask(&self, path: &str, command: &[&'_ str]) -> Result<Value> {
        let text = match self.token()? {
            Some(token) => operator::page(self.admin, path, "ask", Some(&token))?,
            None => self.command(&[command, &["--json"]].concat())?,
        };
        serde_json::from_str(&text).map_err(|_| self.unclear())
    }

    fn command(&self, words: &[&str]) -> Result<String> {
        let admin = self.admin.to_string();
        let mut words = [words, &["--admin", &admin]].concat();
        let token = self.token.as_ref().map(|file| file.to_string_lossy().into_owned());
        if let Some(token) = &token {
            words.extend(["--token-file", token]);
        }
        fixture::ask_tier(&words)
    }
}
