//! `forebay bench link`.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use bench_fleet::RunToken;
use types::Result;

use super::{Config, LinkServer, Pair};
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
    /// Agents: HOST:PORT for a pair with this process, FROM:PORT=TO:PORT for a pair of two others
    #[arg(required = true, value_name = "PAIR")]
    pairs: Vec<Pair>,
    /// The study's: 10 streams for 60 s on each pair, then one stream on each pair at once
    #[arg(long)]
    faithful: bool,
    /// Parallel streams of a pair that runs alone
    #[arg(long, value_name = "N")]
    streams: Option<u32>,
    /// Streams of each pair when all run at once
    #[arg(long, value_name = "N")]
    streams_together: Option<u32>,
    /// How long one measurement takes, for example 10s
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    time: Option<Duration>,
    /// Repetitions; below 6 there is no confidence interval
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    repetitions: Option<u16>,
    /// The token of the agents, for pairs of two others
    #[arg(long, value_name = "TEXT")]
    token: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

impl LinkClientArgs {
    fn config(&self) -> Config {
        let base = if self.faithful { Config::faithful() } else { Config::default() };
        let time = self.time.unwrap_or(base.time);
        Config {
            pairs: self.pairs.clone(),
            streams: self.streams.unwrap_or(base.streams),
            streams_together: self.streams_together.or(self.streams).unwrap_or(base.streams_together),
            time,
            omit: base.omit.min(time / 4),
            repetitions: self.repetitions.map_or(base.repetitions, usize::from),
            token: self.token.clone(),
            command: self.command(),
            ..base
        }
    }

    /// As it was typed, but for the token, which is nobody's business.
    fn command(&self) -> Vec<String> {
        let hidden = |word: String| match &self.token {
            Some(token) if word == *token => "TOKEN".to_owned(),
            Some(token) if word == format!("--token={token}") => "--token=TOKEN".to_owned(),
            _ => word,
        };
        results::command().into_iter().map(hidden).collect()
    }
}

pub async fn command(args: LinkTestArgs) -> Result<ExitCode> {
    match args.role {
        LinkRole::Server(args) => serve(args).await.map(|()| ExitCode::SUCCESS),
        // One that measures is enough, however many a launcher has started; agents may be many.
        LinkRole::Client(args) => alone(measure(args)).await,
    }
}

async fn measure(args: LinkClientArgs) -> Result<ExitCode> {
    let mut file = super::run(args.config()).await?;
    crate::ceiling::measure(crate::args::ROW_TIME).await?.tell(&mut file);
    results::publish(&file, &args.output)
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
