//! `forebay bench link`.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use bench_fleet::RunToken;
use types::Result;

use super::{Config, LinkServer, StreamDirection};
use crate::{OutputArgs, alone, results, signalled};

/// The link by itself: TCP streams between agents, without any storage.
#[derive(Clone, Debug, clap::Args)]
pub struct LinkTestArgs {
    #[command(subcommand)]
    role: LinkRole,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum LinkRole {
    /// The other end: answers, receives and sends until it is interrupted
    Server(ServerArgs),
    /// Measures: each pair alone, then all at once
    Client(LinkClientArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct ServerArgs {
    /// Where to listen; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:5210")]
    listen: SocketAddr,
    /// Who knows it may have this agent send to other agents
    #[arg(long, value_name = "TEXT")]
    token: Option<String>,
}

#[derive(Clone, Debug, clap::Args)]
struct LinkClientArgs {
    #[command(flatten)]
    config: Config,
    #[command(flatten)]
    output: OutputArgs,
}

pub async fn command(args: LinkTestArgs) -> Result<ExitCode> {
    match args.role {
        LinkRole::Server(args) => serve(args).await.map(|()| ExitCode::SUCCESS),
        // One that measures is enough, however many a launcher has started; agents may be many.
        LinkRole::Client(args) => alone(measure(args)).await,
    }
}

async fn measure(LinkClientArgs { mut config, output }: LinkClientArgs) -> Result<ExitCode> {
    config.omit = config.omit.min(config.time / 4);
    if config.faithful {
        (config.omit, config.ways) = (Duration::ZERO, vec![StreamDirection::Up]);
    }
    let token = config.token.clone();
    let mut file = super::run(config).await?;
    // It is nobody's business.
    if let Some(token) = token.filter(|token| !token.is_empty()) {
        let is_token = |word: &&mut String| word.strip_prefix("--token=").unwrap_or(word) == token;
        file.command.iter_mut().filter(is_token).for_each(|word| *word = word.replace(&token, "TOKEN"));
    }
    crate::ceiling::measure(crate::args::ROW_TIME).await?.tell(&mut file);
    results::publish(&file, &output)
}

async fn serve(args: ServerArgs) -> Result<()> {
    // The server proves that it knows the token to whoever calls it: one that can be guessed is found out without asking.
    args.token.clone().map(RunToken::new).transpose()?;
    let ended = signalled()?;
    let agent = LinkServer::bind(args.listen, args.token).await?;
    println!("link server: {}", agent.local_addr());
    ended.await;
    Ok(())
}
