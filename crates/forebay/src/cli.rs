//! The command line. Its names are a contract: scripts are written against them.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::{Args, CommandFactory, Parser, Subcommand};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};
use types::{ErrorKind, Result};

use crate::address::Address;
use crate::client::AdminAt;
use crate::quantity::Size;
use crate::settings::{ADMIN_DEFAULT, Settings};
use crate::{client, config, demo, nas, serve};

/// Wrong usage or configuration; other failures exit with 1.
const EXIT_USAGE: u8 = 2;

#[derive(Parser)]
#[command(name = "forebay", version, about = "A caching storage tier: far storage, served near")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Serve far storage over NFSv3 through a local disk cache
    Serve(ServeArgs),
    /// Mount far storage on this machine, through a local disk cache
    Mount(MountArgs),
    /// Show how the running tier is doing
    Status(client::StatusArgs),
    /// Show what the tier knows of a path
    Stat {
        /// Path in the served tree
        path: OsString,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Bring files and trees into the cache
    Warm(client::WarmArgs),
    /// List warm-ups and flushes, watch one again, or stop one
    Jobs(client::JobsArgs),
    /// Drop files and trees from the cache, and ask the origin at their next use
    Evict {
        /// Paths in the served tree
        #[arg(required = true)]
        paths: Vec<OsString>,
        /// Also what is here alone while its origin is away
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Decide about a junction
    #[command(subcommand)]
    Junction(client::JunctionVerb),
    /// Send what is written back and still waits here to the origin, now
    Flush(client::FlushArgs),
    /// Look at what waits for its origin, operation by operation, and give up what can never arrive
    #[command(subcommand)]
    Journal(client::JournalVerb),
    /// Serve a sample tree from 70 ms away, and time it direct, cold and warm
    Demo(demo::DemoArgs),
    /// How far is my storage, and what does the tier buy me?
    Bench(Box<bench::cli::BenchArgs>),
    /// Serve a directory as a plain NFS server: a NAS for demonstrations and measurements
    #[command(hide = true)]
    Nas(nas::NasArgs),
}

#[derive(Args, Clone, Debug, Default)]
pub struct ServeArgs {
    /// Configuration file (see docs/forebay.example.toml); --origin adds to it, the other options override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// An origin and its place in the tree: nfs://host[:port]/export, file:///dir, s3://bucket/prefix, az://account/container/prefix, gs://bucket/prefix, azfile://account/share/dir; several give one tree
    #[arg(long, value_name = "[PATH=]URL")]
    pub origin: Vec<String>,
    /// Cache directory, on a local disk [default: forebay-cache]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Quota of the cache [default: 20GiB]
    #[arg(long, value_name = "SIZE")]
    pub cache_size: Option<Size>,
    /// Address for NFSv3 and MOUNT [default: 127.0.0.1:2049]
    #[arg(long, value_name = "ADDR")]
    pub nfs: Option<Address>,
    /// Address for S3 [default: S3 is not served]; its access keys are in the configuration file, or one in
    /// FOREBAY_S3_ACCESS_KEY_ID and FOREBAY_S3_SECRET_ACCESS_KEY
    #[arg(long, value_name = "ADDR")]
    pub s3: Option<Address>,
    /// Address for status, metrics and the other commands [default: 127.0.0.1:9420]
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<Address>,
    /// Also mount the tree on this machine, at this empty directory
    #[arg(long, value_name = "DIR")]
    pub mount: Option<PathBuf>,
    /// What clients may change, of every origin: through (done when the origin has it), back (done when a journal on this
    /// machine's disk has it; goes to the origin later) or read-only [default: through]
    #[arg(long, value_name = "POLICY")]
    pub write: Option<String>,
    /// Go on with what can be read of a damaged journal; without, it is shown and takes nothing. Copy it away first
    #[arg(long)]
    pub accept_journal_damage: bool,
    /// Print the addresses as JSON once they answer
    #[arg(long)]
    pub json: bool,
    /// End when standard input does: whoever started it is gone
    #[arg(long, hide = true)]
    pub attended: bool,
}

#[derive(Args, Clone, Debug)]
pub struct MountArgs {
    /// The origin: nfs://host[:port]/export, file:///dir, s3://bucket/prefix, az://account/container/prefix, gs://bucket/prefix, azfile://account/share/dir; and an empty directory. With --config the directory alone will do
    #[arg(value_names = ["URL", "DIR"], num_args = 1..=2, required = true)]
    pub places: Vec<OsString>,
    /// Configuration file, as of serve; nothing is served by NFS or S3. The origin adds to it, the other options override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Cache directory, on a local disk [default: forebay-cache]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Quota of the cache [default: 20GiB]
    #[arg(long, value_name = "SIZE")]
    pub cache_size: Option<Size>,
    /// Address for status, metrics and the other commands [default: 127.0.0.1:9420]
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<Address>,
    /// What may be changed: through (done when the origin has it), back (done when a journal on this machine's disk has
    /// it; goes to the origin later) or read-only [default: through]
    #[arg(long, value_name = "POLICY")]
    pub write: Option<String>,
    /// Print the addresses as JSON once it is mounted
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
pub struct ClientArgs {
    /// Where the running tier answers: its address, or the path of its socket
    #[arg(long, value_name = "ADDR", default_value_t = AdminAt::Tcp(ADMIN_DEFAULT))]
    pub admin: AdminAt,
    /// The tier's admin.token, for who is not its user or asks from another machine [default: FOREBAY_ADMIN_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) if e.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = e.print();
            return ExitCode::from(EXIT_USAGE);
        }
        Err(e) if e.use_stderr() => {
            let there_are = match e.kind() {
                clap::error::ErrorKind::InvalidSubcommand => {
                    format!("; there are {}", subcommands().join(", "))
                }
                _ => String::new(),
            };
            eprintln!("forebay: {}{there_are} (see --help)", in_one_line(&e.render().to_string()));
            return ExitCode::from(EXIT_USAGE);
        }
        Err(help) => {
            let _ = help.print();
            return ExitCode::SUCCESS;
        }
    };
    match run(cli.verb) {
        Ok(code) => code,
        Err(e) => {
            // Of several processes of a run one says it.
            if !bench::cli::is_said_elsewhere(&e) {
                eprintln!("forebay: {e}");
            }
            ExitCode::from(if e.kind() == ErrorKind::Config { EXIT_USAGE } else { 1 })
        }
    }
}

/// What is wrong and what would be right, without the pages of usage around it.
fn in_one_line(told: &str) -> String {
    let usage = ["Usage:", "For more information"];
    let lines = told.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines = lines.take_while(|line| !usage.iter().any(|start| line.starts_with(start)));
    let text = lines.collect::<Vec<_>>().join(" ");
    text.trim_start_matches("error: ").to_owned()
}

/// Those that could stand where a wrong one was typed.
fn subcommands() -> Vec<String> {
    let mut command = Cli::command();
    for typed in std::env::args().skip(1) {
        match command.find_subcommand(&typed) {
            Some(known) => command = known.clone(),
            None => break,
        }
    }
    command.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name().to_owned()).collect()
}

fn run(verb: Verb) -> Result<ExitCode> {
    match verb {
        Verb::Serve(args) => {
            // The protocol crate of S3 calls it an error when a client asks for what is not offered.
            log_to_stderr("info,s3s=off");
            let (json, attended) = (args.json, args.attended);
            let again = move || {
                let file = args.config.as_deref().map(config::read).transpose()?.unwrap_or_default();
                Settings::build(file, &args)
            };
            let settings = again()?;
            set_log(settings.log.as_deref())?;
            runtime()?
                .block_on(serve::run(settings, json, attended, Box::new(again)))
                .map(|()| ExitCode::SUCCESS)
        }
        Verb::Mount(args) => {
            log_to_stderr("info");
            let json = args.json;
            let again = move || {
                let file = args.config.as_deref().map(config::read).transpose()?;
                Settings::of_mount(file, args.clone())
            };
            let settings = again()?;
            set_log(settings.log.as_deref())?;
            runtime()?
                .block_on(serve::run(settings, json, false, Box::new(again)))
                .map(|()| ExitCode::SUCCESS)
        }
        Verb::Status(args) => client::status(&args),
        Verb::Stat { path, client } => client::stat(&client, &path),
        Verb::Warm(args) => client::warm(&args),
        Verb::Evict { paths, force, client } => client::evict(&client, &paths, force),
        Verb::Jobs(args) => client::jobs(&args),
        Verb::Junction(verb) => client::junction(&verb),
        Verb::Flush(args) => client::flush(&args),
        Verb::Journal(verb) => client::journal(&verb),
        Verb::Demo(args) => {
            log_to_stderr("warn");
            runtime()?.block_on(demo::run(args)).map(|()| ExitCode::SUCCESS)
        }
        Verb::Bench(args) => {
            log_to_stderr("warn");
            serve::raise_descriptor_limit();
            bench::fingerprint::built_from(env!("FOREBAY_COMMIT"), env!("FOREBAY_PROFILE"));
            runtime()?.block_on(bench::cli::run(*args))
        }
        Verb::Nas(args) => {
            log_to_stderr("warn");
            runtime()?.block_on(nas::run(args)).map(|()| ExitCode::SUCCESS)
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|e| types::Error::io("start", "the runtime", e))
}

const LOG_VARIABLE: &str = "FOREBAY_LOG";

/// What is logged, and what changes that later.
static LOG: OnceLock<(&'static str, reload::Handle<EnvFilter, Registry>)> = OnceLock::new();

/// FOREBAY_LOG=debug or FOREBAY_LOG=cache=trace,info shows more.
fn log_to_stderr(default: &'static str) {
    let asked = std::env::var(LOG_VARIABLE).unwrap_or_default();
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
pub fn set_log(level: Option<&str>) -> Result<()> {
    let Some((default, handle)) = LOG.get() else { return Ok(()) };
    if std::env::var(LOG_VARIABLE).is_ok_and(|asked| !asked.is_empty() && no_directive_of(&asked).is_none()) {
        return Ok(());
    }
    let wrong = |why: String| types::Error::new(ErrorKind::Config, "log:", why);
    let filter = log_filter(level.unwrap_or(default)).map_err(wrong)?;
    handle.reload(filter).map_err(|e| wrong(e.to_string()))
}

fn log_filter(level: &str) -> std::result::Result<EnvFilter, String> {
    let wrong =
        |why: &str| format!("\"{level}\" is no level ({why}); write \"info\" or \"info,cache=debug\"");
    match no_directive_of(level) {
        Some(odd) => Err(wrong(&odd)),
        None => EnvFilter::try_new(level).map_err(|e| wrong(&e.to_string())),
    }
}

/// Whether it says what is to be logged.
pub fn check_log(level: &str) -> std::result::Result<(), String> {
    log_filter(level).map(drop)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn a_log_level_that_nobody_has_is_told() {
        for text in ["", "debug", "cache=trace,info", "INFO", "off", " vfs=debug , warn"] {
            assert_eq!(super::no_directive_of(text), None, "{text}");
        }
        for (text, odd) in [("debgu", "debgu"), ("info,cache=loud", "cache=loud"), ("=info", "=info")] {
            assert_eq!(super::no_directive_of(text).as_deref(), Some(odd));
        }
    }

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        super::Cli::command().debug_assert();
    }
}
