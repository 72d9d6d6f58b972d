//! `forebay bench relay`: a line at the command line, until it is interrupted.

use std::net::SocketAddr;
use std::time::Duration;

use quantity::ByteRate;
use relay::{Config, LineMeasurement, Profile, Relay, RoundTrips, calibrate, measure_null};
use types::{Error, ErrorKind, Result};

use crate::signalled;

/// Round trips that are measured before it says that it is ready.
const SAMPLES: usize = 11;

/// Make a near server far: relay TCP connections over a line with a round trip and a bandwidth.
#[derive(Clone, Debug, clap::Args)]
pub struct RelayArgs {
    /// The server, HOST:PORT.
    #[arg(long, value_name = "HOST:PORT")]
    pub to: String,
    /// Where to listen; port 0 is any that is free.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// A line with a name: campus, metro, continental, atlantic, vfxt-1.9, vfxt-69.5, vfxt-194, vfxt-221.
    #[arg(long, value_name = "NAME")]
    pub profile: Option<Profile>,
    /// Round trip that is added, for example 70ms.
    #[arg(long, value_parser = quantity::duration)]
    pub rtt: Option<Duration>,
    /// Bandwidth of each direction, shared by all connections, for example 1Gbit.
    #[arg(long)]
    pub rate: Option<ByteRate>,
    /// Most bytes of one connection on the line in one direction; it carries this much in a round trip.
    #[arg(long, value_name = "SIZE", value_parser = quantity::size)]
    pub window: Option<u64>,
}

impl RelayArgs {
    pub fn config(&self) -> Config {
        let base = self.profile.map_or_else(Config::default, |p| p.config());
        Config {
            rtt: self.rtt.unwrap_or(base.rtt),
            rate: self.rate.or(base.rate),
            window: self.window,
            ..base
        }
    }
}

/// Relays until SIGINT or SIGTERM. Prints where it listens, and the line as it is meant beside the line as it is.
pub async fn serve(args: RelayArgs) -> Result<()> {
    let mut ended = std::pin::pin!(signalled()?);
    let work = async {
        let to = resolve(&args.to).await?;
        let config = args.config();
        let relay = Relay::bind(args.listen, to, config.clone())?;
        println!("relay: {} -> {to}", relay.local_addr());
        report(&config, &relay).await?;
        println!("relaying until interrupted (Ctrl-C)");
        Ok(relay)
    };
    let relay = tokio::select! {
        relay = work => relay?,
        () = &mut ended => return Ok(()),
    };
    ended.await;
    let counts = relay.counts();
    println!(
        "relayed {} B to the server and {} B back over {} connections ({} cut, {} turned away, {} not reached)",
        counts.bytes_up,
        counts.bytes_down,
        counts.connections,
        counts.cut,
        counts.refused,
        counts.unreachable
    );
    Ok(())
}

async fn resolve(to: &str) -> Result<SocketAddr> {
    let wrong = |why: String| {
        let message = format!("--to {to}: {why}; give HOST:PORT, for example nas:2049");
        Error::new(ErrorKind::Config, "relay:", message)
    };
    let mut found = tokio::net::lookup_host(to).await.map_err(|e| wrong(e.to_string()))?;
    found.next().ok_or_else(|| wrong("no such host".to_owned()))
}

async fn report(config: &Config, relay: &Relay) -> Result<()> {
    let measured = calibrate(config, SAMPLES).await?;
    let nominal =
        |rate: Option<ByteRate>| rate.map_or("what the machine carries".to_owned(), |r| r.to_string());
    println!("  round trip: nominal {:?}, measured {}", config.rtt, told(&measured.round_trips));
    println!(
        "  rate:       nominal {}, measured {} up, {} down",
        nominal(config.rate),
        ByteRate(measured.rate_up as u64),
        ByteRate(measured.rate_down as u64)
    );
    for doubt in doubts(config, &measured) {
        println!("  warning: {doubt}");
    }
    let patience = Duration::from_secs(5) + config.rtt * 20;
    match tokio::time::timeout(patience, measure_null(relay.local_addr(), SAMPLES)).await {
        Ok(Ok(round_trips)) => println!("  NFS NULL through it: {}", told(&round_trips)),
        _ => println!("  NFS NULL through it: no answer (no NFS version 3 server there?)"),
    }
    Ok(())
}

fn doubts(config: &Config, measured: &LineMeasurement) -> Vec<String> {
    let mut doubts = Vec::new();
    let longer = measured.round_trips.median() - config.rtt.as_secs_f64();
    // A relay adds some 0.15 ms of its own on a machine that is not busy.
    if longer > (config.rtt.as_secs_f64() * 0.1).max(0.0005) {
        let ms = longer * 1e3;
        doubts.push(format!("round trips are {ms:.2} ms longer than asked for; is the machine busy?"));
    }
    let narrowest = measured.rate_up.min(measured.rate_down);
    if let Some(rate) = config.rate.filter(|rate| narrowest < rate.0 as f64 * 0.9) {
        let percent = narrowest / rate.0 as f64 * 100.0;
        doubts.push(format!("this machine carries {percent:.0} % of the rate that was asked for"));
    }
    doubts
}

fn told(round_trips: &RoundTrips) -> String {
    let (low, high) = round_trips.range();
    format!(
        "{:.3} ms (median of {}, {:.3} to {:.3} ms)",
        round_trips.median() * 1e3,
        round_trips.0.len(),
        low * 1e3,
        high * 1e3
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_not_what_was_asked_for_is_told() {
        let config =
            Config { rtt: Duration::from_millis(50), rate: Some(ByteRate(1000)), ..Config::default() };
        let measured = |rtt: f64, rate_up: f64| LineMeasurement {
            round_trips: RoundTrips(vec![rtt]),
            rate_up,
            rate_down: 1000.0,
        };
        assert!(doubts(&config, &measured(0.0502, 990.0)).is_empty());
        assert_eq!(doubts(&config, &measured(0.0502, 500.0)).len(), 1);
        assert_eq!(doubts(&config, &measured(0.0602, 500.0)).len(), 2);
    }
}
