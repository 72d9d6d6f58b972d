//! The command line. Its names are a contract: scripts are written against them.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};
use program::{companion, log};
use quantity::{Address, Size};
use tier::settings::{Overrides, Settings};
use tier::{config, origins};
use types::{Error, ErrorKind, Result};

use crate::client::ClientArgs;
use crate::{client, cluster, demo, nas, serve};

/// What this program was built from.
const COMMIT: &str = env!("FOREBAY_COMMIT");
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("FOREBAY_COMMIT"), ")");

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
    /// Make a cluster, and the tokens of its nodes
    #[command(subcommand)]
    Cluster(cluster::ClusterVerb),
    /// List the nodes of the cluster, or wait until so many are up
    Nodes(client::NodesArgs),
    /// Show which nodes keep the stripes of a file, and how much of them each has
    Placement(client::PlacementArgs),
    /// Show or set how many nodes keep each stripe of a file, or of all files below a directory
    Copies(client::CopiesArgs),
    /// Have a node get no more stripes; it is asked for what it keeps until the others have read that
    Drain(client::DrainArgs),
    /// Have a node keep stripes again
    Undrain(client::ChangeArgs),
    /// Remove a node that does not run any more from the cluster
    Forget(client::ChangeArgs),
    /// Serve a sample tree from 70 ms away, and time it direct, cold and warm
    Demo(demo::DemoArgs),
    /// How far is my storage, and what does the tier buy me?
    Bench,
    /// Serve a directory as a plain NFS server: a NAS for demonstrations and measurements
    #[command(hide = true)]
    Nas(nas::NasArgs),
}

#[derive(Args, Clone, Debug, Default)]
pub struct ServeArgs {
    /// Configuration file (see docs/forebay.example.toml); --origin adds to it, the other options override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[arg(long, value_name = "[PATH=]URL", help = format!("An origin and its place in the tree: {}; several give one tree", origins::examples()))]
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
    /// When what is written back is on the journal's disk: fsync (when a program calls fsync, as on a local file system; what
    /// comes by NFS or S3 before it is answered) or always (before any change is answered) [default: fsync]
    #[arg(long, value_name = "WHEN")]
    pub durability: Option<String>,
    /// Go on with what can be read of a damaged journal; without, it is shown and takes nothing. Copy it away first
    #[arg(long)]
    pub accept_journal_damage: bool,
    /// The cluster of which this tier is a node: etcd's servers and the cluster's name
    #[arg(long, value_name = "etcd://HOST:PORT,.../NAME")]
    pub cluster: Option<String>,
    /// The node's token, made by forebay cluster join-token
    #[arg(long, value_name = "FILE")]
    pub token: Option<PathBuf>,
    /// The node's name [default: as its token has it]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Where the other nodes reach this one, once for each link
    #[arg(long, value_name = "IP:PORT")]
    pub address: Vec<SocketAddr>,
    /// Print the addresses as JSON once they answer
    #[arg(long)]
    pub json: bool,
    /// End when standard input does: whoever started it is gone
    #[arg(long, hide = true)]
    pub attended: bool,
}

impl ServeArgs {
    fn overrides(&self) -> Overrides {
        Overrides {
            origin: self.origin.clone(),
            cache: self.cache.clone(),
            cache_size: self.cache_size,
            nfs: self.nfs,
            s3: self.s3,
            admin: self.admin,
            mount: self.mount.clone(),
            write: self.write.clone(),
            durability: self.durability.clone(),
            accept_journal_damage: self.accept_journal_damage,
            cluster: self.cluster.clone(),
            token: self.token.clone(),
            node: self.node.clone(),
            addresses: self.address.clone(),
            commit: Some(COMMIT),
        }
    }
}

#[derive(Args, Clone, Debug)]
pub struct MountArgs {
    #[arg(
        value_names = ["URL", "DIR"],
        num_args = 1..=2,
        required = true,
        help = format!("The origin: {}; and an empty directory. With --config the directory alone will do", origins::examples())
    )]
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
    /// When what is written back is on the journal's disk: fsync (when a program calls fsync, as on a local file system; what
    /// comes by NFS or S3 before it is answered) or always (before any change is answered) [default: fsync]
    #[arg(long, value_name = "WHEN")]
    pub durability: Option<String>,
    /// Print the addresses as JSON once it is mounted
    #[arg(long)]
    pub json: bool,
}

impl MountArgs {
    /// `with_file`: a configuration file names origins, too.
    fn overrides(&self, with_file: bool) -> Result<Overrides> {
        let refuse = |wrong: String| Err(Error::new(ErrorKind::Config, "configuration", wrong));
        let (origin, dir) = match self.places.as_slice() {
            [dir] if with_file => (Vec::new(), dir),
            [url, dir] => match url.to_str() {
                Some(url) => (vec![url.to_owned()], dir),
                None => return refuse(format!("{} is no origin: a URL is text", url.display())),
            },
            _ => {
                return refuse(
                    "name an origin and an empty directory: forebay mount nfs://nas/export /mnt/near; or a file \
                     with origins and the directory: forebay mount --config forebay.toml /mnt/near"
                        .to_owned(),
                );
            }
        };
        Ok(Overrides {
            origin,
            mount: Some(PathBuf::from(dir)),
            cache: self.cache.clone(),
            cache_size: self.cache_size,
            admin: self.admin,
            write: self.write.clone(),
            durability: self.durability.clone(),
            commit: Some(COMMIT),
            ..Default::default()
        })
    }
}

/// The command line as clap knows it, for man pages and completions.
pub fn command() -> clap::Command {
    Cli::command()
}

pub fn main() -> ExitCode {
    let done = match companion::bench_arguments(std::env::args_os()) {
        Some(arguments) => bench(arguments),
        None => match program::parse::<Cli>(VERSION) {
            Ok(cli) => run(cli.verb),
            Err(code) => return code,
        },
    };
    done.unwrap_or_else(|e| {
        program::say(&e);
        program::exit_code(&e)
    })
}

/// Goes on as the bench, a program of its own.
fn bench(arguments: Vec<OsString>) -> Result<ExitCode> {
    Err(companion::become_bench(&arguments, COMMIT))
}

fn run(verb: Verb) -> Result<ExitCode> {
    match verb {
        Verb::Serve(args) => {
            // The protocol crate of S3 calls it an error when a client asks for what is not offered.
            log::to_stderr("info,s3s=off");
            let (json, attended) = (args.json, args.attended);
            let again = move || {
                let file = args.config.as_deref().map(config::read).transpose()?.unwrap_or_default();
                Settings::build(file, &args.overrides())
            };
            let settings = again()?;
            log::set(settings.log.as_deref())?;
            program::runtime()?
                .block_on(serve::run(settings, json, attended, Box::new(again)))
                .map(|()| ExitCode::SUCCESS)
        }
        Verb::Mount(args) => {
            log::to_stderr("info");
            let json = args.json;
            let again = move || {
                let file = args.config.as_deref().map(config::read).transpose()?;
                let is_file = file.is_some();
                Settings::of_mount(file, &args.overrides(is_file)?)
            };
            let settings = again()?;
            log::set(settings.log.as_deref())?;
            program::runtime()?
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
        Verb::Cluster(verb) => {
            log::to_stderr("warn");
            program::runtime()?.block_on(cluster::run(verb))
        }
        Verb::Nodes(args) => client::nodes(&args),
        Verb::Placement(args) => client::placement(&args),
        Verb::Copies(args) => client::copies(&args),
        Verb::Drain(args) => client::drain(&args),
        Verb::Undrain(args) => client::change_node(&args, "undrain"),
        Verb::Forget(args) => client::change_node(&args, "forget"),
        Verb::Demo(args) => {
            log::to_stderr("warn");
            program::runtime()?.block_on(demo::run(args)).map(|()| ExitCode::SUCCESS)
        }
        // Nobody gets here by a command line: `main` looks for it first, so that nothing of it is parsed here.
        Verb::Bench => bench(Vec::new()),
        Verb::Nas(args) => {
            log::to_stderr("warn");
            program::runtime()?.block_on(nas::run(args)).map(|()| ExitCode::SUCCESS)
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        super::command().debug_assert();
    }
}
