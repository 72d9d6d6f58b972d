//! What operators changed: a line of JSON each, in a file of the tier's own user and in the log.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::body::Bytes;
use axum::http::StatusCode;
use serde_json::json;
use tracing::{error, info};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use super::guard::Who;

/// A file that is so long is put aside, and the one that was put aside before goes.
const FILE_MAX: u64 = 8 << 20;
/// Of what was asked and of what was answered.
const TEXT_MAX: usize = 2048;

#[derive(Debug)]
pub struct Audit(Arc<Trail>);

#[derive(Debug)]
struct Trail {
    path: PathBuf,
    file_max: u64,
    /// One line after the other.
    writing: Mutex<()>,
}

/// A change that is under way. Its line is written when this goes.
#[derive(Debug)]
pub struct AuditLine {
    trail: Arc<Trail>,
    who: Who,
    what: String,
    asked: String,
    began: Instant,
    outcome: Option<(u16, String)>,
}

impl Audit {
    pub fn open(path: PathBuf) -> Audit {
        Audit(Arc::new(Trail { path, file_max: FILE_MAX, writing: Mutex::new(()) }))
    }

    pub fn begin(&self, who: Who, what: String, asked: &Bytes) -> AuditLine {
        let asked = cut(asked);
        AuditLine { trail: self.0.clone(), who, what, asked, began: Instant::now(), outcome: None }
    }
}

impl AuditLine {
    pub fn answered(&mut self, status: StatusCode, answer: &Bytes) {
        self.outcome = Some((status.as_u16(), cut(answer)));
    }
}

impl Drop for AuditLine {
    fn drop(&mut self) {
        let (who, from) = match self.who {
            Who::User { uid, pid } => (format!("uid {uid}"), format!("pid {pid}")),
            Who::Holder { from } => ("admin.token".to_owned(), from.to_string()),
            Who::Anybody => ("anybody".to_owned(), "?".to_owned()),
            Who::Signal => ("who may send signals".to_owned(), "a signal".to_owned()),
        };
        let (status, result) = match &self.outcome {
            Some((status, result)) => (Some(*status), result.as_str()),
            None => (None, "who asked has gone before the answer"),
        };
        info!(who, from, what = self.what, asked = self.asked, status, result, "operator");
        let mut at = String::new();
        let _ = SystemTime.format_time(&mut Writer::new(&mut at));
        let line = json!({
            "at": at, "who": who, "from": from, "what": self.what, "asked": self.asked, "status": status,
            "result": result, "ms": u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
        if let Err(e) = self.trail.write(&format!("{line}\n")) {
            error!(
                "write to {}: {e}; the line before has what was to stand there",
                self.trail.path.display()
            );
        }
    }
}

impl Trail {
    fn write(&self, line: &str) -> std::io::Result<()> {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = self.open()?;
        if file.metadata()?.len() >= self.file_max {
            std::fs::rename(&self.path, self.path.with_extension("log.1"))?;
            file = self.open()?;
        }
        file.write_all(line.as_bytes())
    }

    fn open(&self) -> std::io::Result<File> {
        OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)
    }
}

/// A long list of paths would be the whole log.
fn cut(text: &Bytes) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(TEXT_MAX)]).into_owned();
    if text.len() >= TEXT_MAX { format!("{text}...") } else { text }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_change_has_one_line_also_when_nobody_waited_for_its_end_and_the_file_is_bounded() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("audit.log");
        let trail = Trail { path: path.clone(), file_max: 4096, writing: Mutex::new(()) };
        let audit = Audit(Arc::new(trail));
        let who = Who::User { uid: 7, pid: 9 };
        let mut line =
            audit.begin(who, "POST /v1/evict".into(), &Bytes::from_static(b"{\"paths\":[\"/a\"]}"));
        line.answered(StatusCode::OK, &Bytes::from_static(b"{\"files\":1}"));
        drop(line);
        drop(audit.begin(who, "POST /v1/evict".into(), &Bytes::new()));
        let text = std::fs::read_to_string(&path).expect("written");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!((lines[0]["who"].as_str(), lines[0]["from"].as_str()), (Some("uid 7"), Some("pid 9")));
        assert_eq!(lines[0]["asked"], "{\"paths\":[\"/a\"]}");
        assert_eq!((&lines[0]["status"], &lines[1]["status"]), (&json!(200), &json!(null)));
        assert_eq!(path.metadata().expect("there").permissions().mode() & 0o777, 0o600);
        for _ in 0..200 {
            drop(audit.begin(who, "POST /v1/warm".into(), &Bytes::from(vec![b'x'; 1 << 20])));
        }
        let bytes: u64 = ["audit.log", "audit.log.1"]
            .map(|name| dir.path().join(name).metadata().expect("there").len())
            .iter()
            .sum();
        assert!(bytes < 16384, "{bytes}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("read").count(), 2);
    }
}
