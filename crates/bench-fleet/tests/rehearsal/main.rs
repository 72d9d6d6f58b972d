//! A bench without a load: joins, meets at barriers, gathers a table that depends on the ranks alone, and prints it on
//! rank 0. The tests start it under every launcher.
//!
//!   fleet-rehearsal [--procs N] [--hosts LIST] [--coordinator HOST:PORT] [--rendezvous DIR] [--ssh CMD]
//!                   [--join-seconds N] [--silence-seconds N] [--bytes N] [--work-seconds N] [--abort-rank R]
//!                   [--leave-rank R] [--stray-rank R] [--pids DIR] [--linger-seconds N] [--skew] [--host-names]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bench_fleet::{Fleet, FleetOptions, Member};
use types::{Error, ErrorKind, Result};

#[derive(Default)]
struct Play {
    /// Given to the gather by each rank.
    bytes: usize,
    /// Spent between two barriers.
    work: Duration,
    abort_rank: Option<u32>,
    leave_rank: Option<u32>,
    /// Goes to another barrier than the others.
    stray_rank: Option<u32>,
    /// Each rank leaves its process's id here when work begins.
    pids: Option<PathBuf>,
    skew: bool,
    /// The hosts of all ranks are printed too.
    host_names: bool,
    /// After the run, on rank 0.
    linger: Duration,
}

fn main() -> std::process::ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(rehearse()),
        Err(e) => Err(Error::io("start a runtime", "", e)),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            // In one piece, as all ranks write to one terminal.
            let line = format!("fleet-rehearsal: {error}\n");
            eprint!("{line}");
            std::process::ExitCode::FAILURE
        }
    }
}

async fn rehearse() -> Result<()> {
    let (options, play) = parse()?;
    if options
        .environment
        .get("FLEET_REHEARSAL_REFUSE")
        .and(options.environment.get("FOREBAY_BENCH_RANK"))
        .is_some()
    {
        std::process::exit(3);
    }
    let member = Fleet::join(options).await?;
    let plan = member.broadcast(Some(&format!("plan of {}", member.size()))).await?;
    let begin = member.barrier("begin").await?;
    if let Some(dir) = &play.pids {
        leave_id(dir, member.rank())?;
    }
    if play.abort_rank == Some(member.rank()) {
        return Err(member.abort("its target is full").await);
    }
    if play.leave_rank == Some(member.rank()) {
        return Err(Error::new(ErrorKind::Config, "--leave-rank", "says so"));
    }
    member.guard(tokio::time::sleep(play.work)).await?;
    let end = member.barrier(if play.stray_rank == Some(member.rank()) { "stray" } else { "end" }).await?;
    let row = describe(&member, &plan, play.bytes);
    let rows = member.gather(&row).await?;
    let (first, second) = (member.skew(&begin).await?, member.skew(&end).await?);
    if member.is_root() {
        println!("rank plan bytes sum");
        rows.iter().for_each(|row| println!("{}", summary(row)));
        if play.skew {
            for skew in [first, second] {
                println!("{} {} {}", skew.name, skew.spread.as_nanos(), skew.error_bound.as_nanos());
            }
        }
    }
    let stamp = member.stamp(Instant::now());
    let stamps = member.gather(&stamp).await?;
    let is_root = member.is_root();
    assert!(!is_root || stamps.len() == member.size() as usize);
    if is_root && play.host_names {
        member.roster().iter().for_each(|place| println!("{} {}", place.rank, place.host));
    }
    member.finish().await?;
    if is_root && !play.linger.is_zero() {
        leave_id(&play.pids.unwrap_or_default().join("done"), 0)?;
        tokio::time::sleep(play.linger).await;
    }
    Ok(())
}

/// Renamed, so that it is seen whole.
fn leave_id(dir: &Path, rank: u32) -> Result<()> {
    let path = dir.join(rank.to_string());
    let put = || {
        std::fs::create_dir_all(dir)?;
        let partial = dir.join(format!("{rank}.partial"));
        std::fs::write(&partial, std::process::id().to_string())?;
        std::fs::rename(&partial, &path)
    };
    put().map_err(|e| Error::io("write", path.display(), e))
}

/// `rank plan`, a line feed, and as many bytes as were asked for.
fn describe(member: &Member, plan: &str, bytes: usize) -> Vec<u8> {
    let place = &member.roster()[member.rank() as usize];
    let mut row = format!("{} {plan}\n", place.rank).into_bytes();
    row.extend((0..bytes).map(|i| (i * 31 + place.rank as usize * 7) as u8));
    row
}

fn summary(row: &[u8]) -> String {
    let line = row.iter().position(|byte| *byte == b'\n').unwrap_or(row.len());
    let (head, bytes) = row.split_at(line);
    let sum = bytes.iter().fold(7_u64, |sum, byte| sum.wrapping_mul(131).wrapping_add(u64::from(*byte)));
    format!("{} {} {sum:016x}", String::from_utf8_lossy(head), bytes.len())
}

fn parse() -> Result<(FleetOptions, Play)> {
    let mut options = FleetOptions::of_this_process()?;
    let mut play = Play { bytes: 1000, ..Play::default() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--skew" => {
                play.skew = true;
                continue;
            }
            "--host-names" => {
                play.host_names = true;
                continue;
            }
            _ => {}
        }
        let value = words.next().unwrap_or_default();
        let wrong =
            |_| Error::new(ErrorKind::Config, "fleet-rehearsal", format!("{word} {value:?}: not a number"));
        let number = || value.parse::<u32>().map_err(wrong);
        let seconds = || value.parse::<f64>().map(Duration::from_secs_f64).map_err(|_| number().unwrap_err());
        match word.as_str() {
            "--procs" => options.launch.procs = Some(number()?),
            "--hosts" => options.launch.hosts = Some(value.clone()),
            "--coordinator" => options.launch.coordinator = Some(value.clone()),
            "--rendezvous" => options.launch.rendezvous = Some(value.clone().into()),
            "--ssh" => options.launch.ssh = Some(value.clone()),
            "--join-seconds" => options.join_deadline = seconds()?,
            "--silence-seconds" => options.silence_max = seconds()?,
            "--bytes" => play.bytes = number()? as usize,
            "--work-seconds" => play.work = seconds()?,
            "--linger-seconds" => play.linger = seconds()?,
            "--abort-rank" => play.abort_rank = Some(number()?),
            "--leave-rank" => play.leave_rank = Some(number()?),
            "--stray-rank" => play.stray_rank = Some(number()?),
            "--pids" => play.pids = Some(value.clone().into()),
            _ => return Err(Error::new(ErrorKind::Config, "fleet-rehearsal", format!("what is {word}?"))),
        }
    }
    Ok((options, play))
}
