//! The link by itself: TCP streams between agents, without any storage. One pair after the other, then all pairs at once,
//! by schedule and measured in the window in which all streams run; rates that do not overlap are never added.
//!
//! Launching, handshakes, clocks and results are the fleet's. Each pair is a run of two ranks, which its opener leads
//! (`pair.rs`). This process and the agents that open pairs for it are the ranks of another run, whose orders are rounds
//! (`schedule.rs`). An agent (`bench link server`, `agent.rs`) waits for calls to runs, takes the streams that a run has told it
//! of, and echoes bytes. Start with `pair.rs`.

mod agent;
mod answer;
mod args;
mod pair;
mod retransmits;
mod schedule;
mod stream;
mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant, SystemTime};

use bench_load::process::cpu_seconds;
use bench_report::ResultFile;
use clap::builder::RangedU64ValueParser;
use types::Result;

pub use agent::LinkServer;
pub use args::{LinkTestArgs, command};
pub use wire::StreamDirection;

pub use pair::all_of;
use pair::wrong;

use crate::Nic;
use crate::args::typed;

/// Two agents, one of which opens the connections.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    /// The agent that opens the connections; `None`: this process.
    pub from: Option<String>,
    /// The agent that they lead to, HOST:PORT.
    pub to: String,
}

/// `HOST:PORT`, or `HOST:PORT=HOST:PORT` for a pair of two other machines.
impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Pair, String> {
        let (from, to) = match text.split_once('=') {
            Some((from, to)) => (Some(from), to),
            None => (None, text),
        };
        let has_port = |place: &str| {
            let port = place.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
            port.is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
        };
        if !has_port(to) || !from.is_none_or(has_port) {
            return Err(format!("\"{text}\" is no pair; write HOST:PORT of an agent, or FROM:PORT=TO:PORT"));
        }
        Ok(Pair { from: from.map(str::to_owned), to: to.to_owned() })
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <-> {}", self.from.as_deref().unwrap_or("here"), self.to)
    }
}

#[derive(Clone, Debug, clap::Args)]
pub struct Config {
    /// Agents: HOST:PORT for a pair with this process, FROM:PORT=TO:PORT for a pair of two others
    #[arg(required = true, value_name = "PAIR")]
    pub pairs: Vec<Pair>,
    /// The study's: 10 streams for 60 s on each pair, then one stream on each pair at once
    #[arg(long)]
    pub faithful: bool,
    /// Parallel streams of a pair that runs alone
    #[arg(long, value_name = "N")]
    pub streams: Option<u32>,
    /// Streams of each pair when all run at once
    #[arg(long, value_name = "N")]
    pub streams_together: Option<u32>,
    /// How long one measurement takes, for example 10s
    #[arg(long, value_name = "TIME", default_value = "2s", default_value_if("faithful", "true", "60s"), value_parser = quantity::duration)]
    pub time: Duration,
    /// Left out at the beginning of a measurement, while the streams find their speed.
    #[arg(skip = Duration::from_millis(300))]
    pub omit: Duration,
    /// Repetitions; below 6 there is no confidence interval
    #[arg(short = 'n', long, value_name = "N", default_value_t = 6, default_value_if("faithful", "true", "1"), value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    pub repetitions: usize,
    #[arg(skip = vec![StreamDirection::Up, StreamDirection::Down])]
    pub ways: Vec<StreamDirection>,
    /// The token of the agents, for pairs of two others
    #[arg(long, value_name = "TEXT")]
    pub token: Option<String>,
}

impl Default for Config {
    /// What the command line has if nothing is typed, and no pair.
    fn default() -> Config {
        let typed = typed(&["agent:1"]).expect("the defaults are within their own bounds");
        Config { pairs: Vec::new(), ..typed }
    }
}

impl Config {
    fn streams(&self) -> u32 {
        self.streams.unwrap_or(if self.faithful { 10 } else { 4 })
    }

    fn streams_together(&self) -> u32 {
        self.streams_together.or(self.streams).unwrap_or(if self.faithful { 1 } else { 4 })
    }

    fn check(&self) -> Result<()> {
        let (pairs, times) = (self.pairs.len(), wire::TIME_MIN..=wire::TIME_MAX);
        if pairs == 0 {
            return wrong("which link? start `forebay bench link server` there and give its HOST:PORT");
        }
        if pairs > schedule::PAIRS_MAX {
            return wrong(format!("{pairs} pairs are too many; {} at most", schedule::PAIRS_MAX));
        }
        if [self.streams(), self.streams_together()].iter().any(|n| !(1..=wire::STREAMS_MAX).contains(n)) {
            return wrong(format!("streams are from 1 to {}", wire::STREAMS_MAX));
        }
        if !times.contains(&self.time) {
            return wrong(format!("a measurement takes from {:?} to {:?}", times.start(), times.end()));
        }
        if self.omit * 2 > self.time {
            return wrong("half of the time at least has to count; omit less or measure longer");
        }
        if self.repetitions == 0 || self.ways.is_empty() {
            return wrong("there is nothing to measure without repetitions or directions");
        }
        if self.pairs.iter().any(|pair| pair.from.is_some()) && self.token.is_none() {
            return wrong("agents start pairs of their own only for who knows their --token; give it");
        }
        Ok(())
    }
}

pub async fn run(config: Config) -> Result<ResultFile> {
    config.check()?;
    let (started, start) = (SystemTime::now(), Instant::now());
    let before = cpu_seconds();
    let runs = schedule::run(&config).await?;
    let cpu_seconds = cpu_seconds() - before;
    let here = answer::Here { cpu_seconds, nics: nics(&config.pairs).await };
    let mut file = answer::of(&config, &runs, &here);
    file.started = crate::fingerprint::timestamp(started);
    file.seconds = start.elapsed().as_secs_f64();
    let threads = tokio::runtime::Handle::current().metrics().num_workers();
    file.parameters.insert("threads_here".to_owned(), threads.into());
    Ok(file)
}

/// The network interface by which each pair leaves this machine.
async fn nics(pairs: &[Pair]) -> BTreeMap<Pair, Nic> {
    let mut found = BTreeMap::new();
    for pair in pairs.iter().filter(|pair| pair.from.is_none()) {
        let address = tokio::net::lookup_host(&pair.to).await.ok().and_then(|mut all| all.next());
        if let Some(nic) = address.and_then(|address| Nic::to(address.ip())) {
            found.insert(pair.clone(), nic);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_agents_with_ports() {
        let here: Pair = "nas:5201".parse().expect("an agent");
        assert_eq!((here.from.as_deref(), here.to.as_str()), (None, "nas:5201"));
        let elsewhere: Pair = "a:1=[::1]:2".parse().expect("two agents");
        assert_eq!((elsewhere.from.as_deref(), elsewhere.to.as_str()), (Some("a:1"), "[::1]:2"));
        for wrong in ["", "nas", ":5201", "nas:0", "nas:port", "a=b:1", "a:1=b"] {
            assert!(wrong.parse::<Pair>().is_err_and(|e| e.contains("HOST:PORT")), "{wrong}");
        }
    }

    #[test]
    fn what_cannot_be_measured_is_refused_in_one_line() {
        let pairs = vec!["nas:1".parse().expect("an agent")];
        let base = Config { pairs, ..Config::default() };
        base.check().expect("it can be measured");
        let far = vec!["a:1=b:1".parse().expect("two agents")];
        for (wrong, hint) in [
            (Config::default(), "link server"),
            (Config { streams: Some(0), ..base.clone() }, "from 1 to"),
            (Config { time: Duration::from_millis(1), ..base.clone() }, "takes from"),
            (Config { omit: Duration::from_secs(2), ..base.clone() }, "omit less"),
            (Config { repetitions: 0, ..base.clone() }, "nothing to measure"),
            (Config { pairs: far, ..base.clone() }, "--token"),
        ] {
            let error = wrong.check().expect_err("it cannot be measured").to_string();
            assert!(error.contains(hint) && !error.contains('\n'), "{error}");
        }
    }
}
