//! What is logged, to standard error: by the environment, else by the configuration, else by default.

use std::io::IsTerminal;
use std::sync::OnceLock;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};
use types::{Error, ErrorKind, Result};

const VARIABLE: &str = "FOREBAY_LOG";

/// What is logged, and what changes that later.
static LOG: OnceLock<(&'static str, reload::Handle<EnvFilter, Registry>)> = OnceLock::new();

/// FOREBAY_LOG=debug or FOREBAY_LOG=cache=trace,info shows more.
pub fn to_stderr(default: &'static str) {
    let asked = std::env::var(VARIABLE).unwrap_or_default();
    let odd = no_directive_of(&asked);
    let asked = if odd.is_some() || asked.is_empty() { default } else { &asked };
    let filter = EnvFilter::try_new(asked).unwrap_or_else(|_| EnvFilter::new(default));
    let colours = std::io::stderr().is_terminal();
    let (filter, handle) = reload::Layer::new(filter);
    let lines = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(std::io::stderr);
    tracing_subscriber::registry().with(filter).with(lines).init();
    let _ = LOG.set((default, handle));
    if let Some(odd) = odd {
        tracing::warn!(
            "FOREBAY_LOG is ignored: \"{odd}\" is no level (error, warn, info, debug, trace, off) and no part=level"
        );
    }
}

/// The first word that the log's filter would take for a part of the program that nobody has.
fn no_directive_of(text: &str) -> Option<String> {
    let is_level = |word: &str| word.parse::<tracing::level_filters::LevelFilter>().is_ok();
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    let mut odd = words.filter(|word| match word.rsplit_once('=') {
        Some((part, level)) => part.is_empty() || !is_level(level),
        None => !is_level(word),
    });
    odd.next().map(str::to_owned)
}

/// What the configuration says is logged from now on, where the environment does not say it.
pub fn set(level: Option<&str>) -> Result<()> {
    let Some((default, handle)) = LOG.get() else { return Ok(()) };
    if std::env::var(VARIABLE).is_ok_and(|asked| !asked.is_empty() && no_directive_of(&asked).is_none()) {
        return Ok(());
    }
    let wrong = |why: String| Error::new(ErrorKind::Config, "log:", why);
    let filter = filter(level.unwrap_or(default)).map_err(wrong)?;
    handle.reload(filter).map_err(|e| wrong(e.to_string()))
}

fn filter(level: &str) -> std::result::Result<EnvFilter, String> {
    let wrong =
        |why: &str| format!("\"{level}\" is no level ({why}); write \"info\" or \"info,cache=debug\"");
    match no_directive_of(level) {
        Some(odd) => Err(wrong(&odd)),
        None => EnvFilter::try_new(level).map_err(|e| wrong(&e.to_string())),
    }
}

/// Whether it says what is to be logged.
pub fn check(level: &str) -> std::result::Result<(), String> {
    filter(level).map(drop)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_log_level_that_nobody_has_is_told() {
        for text in ["", "debug", "cache=trace,info", "INFO", "off", " vfs=debug , warn"] {
            assert_eq!(super::no_directive_of(text), None, "{text}");
        }
        for (text, odd) in [("debgu", "debgu"), ("info,cache=loud", "cache=loud"), ("=info", "=info")] {
            assert_eq!(super::no_directive_of(text).as_deref(), Some(odd));
        }
    }
}
