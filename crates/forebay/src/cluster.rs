//! `forebay cluster`: makes a cluster, and the tokens by which nodes come into it. Both are run where its keys are kept.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use coordinator::{EtcdConfig, EtcdTls, EtcdUrl, etcd::Etcd};
use members::{ClusterId, NewCluster, NodeFile};
use peer::{ClusterAuthority, make_authority};
use types::{Error, ErrorKind, NodeId, Result};

/// Where the keys are unless said otherwise.
const KEYS: &str = "forebay-cluster";

#[derive(Subcommand, Clone, Debug)]
pub enum ClusterVerb {
    /// Make a new cluster in etcd, and its keys in a directory of this machine
    Init(InitArgs),
    /// Make the token of a new node, from the cluster's keys: a file that is as secret as a key
    JoinToken(JoinTokenArgs),
}

#[derive(Args, Clone, Debug)]
pub struct InitArgs {
    /// etcd's servers, and a name for the cluster
    #[arg(long, value_name = "etcd://HOST:PORT,.../NAME")]
    cluster: EtcdUrl,
    /// Where the keys are kept: a directory that no other user can look into. Keep a copy of it. Where there are keys already, the
    /// cluster is made with them
    #[arg(long, value_name = "DIR", default_value = KEYS)]
    keys: PathBuf,
    /// The cache directory of a node of the former cluster, whose etcd was lost: the cluster and its junctions get the ids that they
    /// had, and the keys in --keys are those that there are
    #[arg(long, value_name = "DIR")]
    former: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsArgs,
}

/// TLS to etcd.
#[derive(Args, Clone, Debug)]
struct TlsArgs {
    /// The certificate of etcd's authority; without it everything goes over the wire in clear
    #[arg(long, value_name = "FILE")]
    etcd_ca: Option<PathBuf>,
    /// The certificate by which this program is known to etcd
    #[arg(long, value_name = "FILE", requires = "etcd_private_key", requires = "etcd_ca")]
    etcd_certificate: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "etcd_certificate")]
    etcd_private_key: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct JoinTokenArgs {
    /// What people call the node
    name: String,
    /// The file to write, which no other user can read [default: NAME.token]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The directory of the cluster's keys
    #[arg(long, value_name = "DIR", default_value = KEYS)]
    keys: PathBuf,
    /// For a node that has one already, whose certificate ends or whose token was lost: the id of the node
    #[arg(long, value_name = "ID")]
    id: Option<NodeId>,
}

pub async fn run(verb: ClusterVerb) -> Result<ExitCode> {
    match verb {
        ClusterVerb::Init(args) => init(args).await,
        ClusterVerb::JoinToken(args) => join_token(&args),
    }
}

async fn init(args: InitArgs) -> Result<ExitCode> {
    let InitArgs { cluster, keys, former, tls } = args;
    let identity = tls.etcd_certificate.zip(tls.etcd_private_key);
    let tls = tls.etcd_ca.map(|ca| EtcdTls { ca, identity });
    let etcd = Etcd::new(EtcdConfig { tls, ..EtcdConfig::new(cluster.clone()) }).await?;
    let shown = keys.display();
    // The keys are there before the record is: a cluster whose keys could not be written would be of no use.
    let new = match former.map(|dir| former_file(&dir)).transpose()? {
        Some(file) => {
            let authority = ClusterAuthority::read(&keys)?;
            if authority.cluster() != file.cluster.to_string() {
                let what = format!(
                    "{shown} has the keys of the cluster {}, and the node was of the cluster {}",
                    authority.cluster(),
                    file.cluster
                );
                return Err(Error::new(ErrorKind::Config, "make the cluster:", what));
            }
            NewCluster::again(&file)
        }
        // Of a call before this one that etcd did not answer.
        None if ClusterAuthority::is_in(&keys) => {
            NewCluster::of(ClusterAuthority::read(&keys)?.cluster().parse::<ClusterId>()?)
        }
        None => {
            let new = NewCluster::draw()?;
            make_authority(&new.id.to_string())?.write(&keys)?;
            new
        }
    };
    let id = members::init(&etcd, peer::WIRE, &new).await?;
    say(&format!(
        "cluster {id} is made in {cluster}; its keys are in {shown}\n\
         for each node: forebay cluster join-token NAME --keys {shown}\n\
         and there:     forebay serve --cluster {cluster} --token NAME.token --address IP:7423 ..."
    ))
}

fn former_file(dir: &std::path::Path) -> Result<NodeFile> {
    NodeFile::load(dir)?.ok_or_else(|| {
        let what = format!("{} is not the cache directory of a node: it has no cluster.json", dir.display());
        Error::new(ErrorKind::NotFound, "make the cluster:", what)
    })
}

fn join_token(args: &JoinTokenArgs) -> Result<ExitCode> {
    let id = match args.id {
        Some(id) => id,
        None => members::new_node_id()?,
    };
    members::check_node_name(&args.name)?;
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("{}.token", args.name)));
    ClusterAuthority::read(&args.keys)?.token(&args.name, id)?.write(&out)?;
    say(&format!(
        "{} is the token of node {} with the id {id}; move it there (scp -p)",
        out.display(),
        args.name
    ))
}

fn say(text: &str) -> Result<ExitCode> {
    writeln!(std::io::stdout(), "{text}").map_err(|e| Error::io("print", "the answer", e))?;
    Ok(ExitCode::SUCCESS)
}
