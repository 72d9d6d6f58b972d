//! Arguments that several experiments take, and how a wrong one is refused.

use std::path::PathBuf;
use std::time::Duration;

use bench_fleet::LaunchArgs;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::de::DeserializeOwned;
use types::{Error, ErrorKind, Result};

/// What a row lasts if nobody says otherwise: long enough for its rate to settle.
pub const ROW_TIME: Duration = Duration::from_secs(2);
/// The least that has a confidence interval.
const REPETITIONS: u32 = 6;

#[derive(Args, Clone, Debug, Default)]
pub struct OutputArgs {
    /// Write NAME.json, NAME.md, NAME.csv and NAME.html here
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print JSON instead of the table
    #[arg(long)]
    pub json: bool,
}

/// What all experiments take.
#[derive(Args, Clone, Debug)]
pub struct CommonArgs {
    /// The original's parameters and columns, at --scale of its size
    #[arg(long)]
    pub faithful: bool,
    /// How large: small (a laptop, minutes), medium, full (the original), or a factor such as 0.05
    #[arg(long, value_name = "SIZE", default_value = "small", value_parser = Scale::parse, allow_hyphen_values = true)]
    pub scale: Scale,
    /// Repetitions of each condition; below 6 there is no confidence interval [default: 6, with --faithful the study's]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: Option<u32>,
    /// Of contents and orders
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Go through a row's files again until it lasts so long; less is a quick look, whose short rows are marked as such
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = quantity::duration)]
    pub row_time: Duration,
    /// End the run, with what it has, after this time
    #[arg(long, value_name = "TIME", default_value = "2h", value_parser = quantity::duration)]
    pub time_budget: Duration,
    /// Most bytes that may be written to a target
    #[arg(long, value_name = "SIZE", default_value = "64GiB", value_parser = quantity::size)]
    pub byte_budget: u64,
    /// Only say what would be done and how much it moves; render also says how long it takes
    #[arg(long)]
    pub dry_run: bool,
    /// Where the operator's interface of the tier answers that the target leads to: its configuration goes into the result
    #[arg(long, value_name = "ADDR", value_parser = quantity::address)]
    pub admin: Option<std::net::SocketAddr>,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub launch: LaunchArgs,
}

/// A share of the original's size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    factor: f64,
    /// It was asked for by the word, and may mean another factor.
    is_small: bool,
}

impl CommonArgs {
    /// Seconds that a row is to last, and the least that is taken for it: it is planned by a first look, which may be slower or faster
    /// than what follows.
    pub fn row_seconds(&self) -> (f64, f64) {
        let wanted = self.row_time.as_secs_f64();
        (wanted, wanted * 0.55)
    }

    /// How often a row is gone through to be believed, if once took less than it is to last.
    pub fn passes_to_last(&self, once: f64) -> Option<u64> {
        let (wanted, least) = self.row_seconds();
        (once < least).then(|| (wanted / once.max(1e-3)).ceil() as u64)
    }

    /// Before anything is written.
    pub fn check_bytes(&self, bytes: u64) -> Result<()> {
        if bytes <= self.byte_budget {
            return Ok(());
        }
        let [bytes, budget] = [bytes, self.byte_budget].map(bench_report::format::bytes);
        refuse(format!(
            "{bytes} would be written and the budget is {budget}; give a smaller --scale or a larger --byte-budget"
        ))
    }

    /// `study`: how often the original ran it.
    pub fn repetitions(&self, study: u32) -> u32 {
        self.repetitions.unwrap_or(if self.faithful { study } else { REPETITIONS })
    }
}

impl Scale {
    pub const fn new(factor: f64) -> Scale {
        Scale { factor, is_small: false }
    }

    pub fn parse(text: &str) -> std::result::Result<Scale, String> {
        let factor = match text {
            "small" => return Ok(Scale { factor: 0.005, is_small: true }),
            "medium" => Some(0.05),
            "full" => Some(1.0),
            _ => text.parse().ok().filter(|factor| (0.0001..=10.0).contains(factor)),
        };
        factor.map(Scale::new).ok_or_else(|| {
            format!("\"{text}\" is no scale; write small, medium, full or a factor from 0.0001 to 10")
        })
    }

    pub fn factor(self) -> f64 {
        self.factor
    }

    /// `small` means another factor where the original's own size is small, or large.
    pub fn small_is(self, factor: f64) -> Scale {
        if self.is_small { Scale { factor, ..self } } else { self }
    }

    pub fn of(self, whole: u64, least: u64) -> u64 {
        ((whole as f64 * self.factor).round() as u64).max(least)
    }
}

/// What these words mean on a command line.
pub fn typed<A: Args>(words: &[&str]) -> std::result::Result<A, clap::Error> {
    let line = A::augment_args(clap::Command::new("bench")).no_binary_name(true);
    line.try_get_matches_from(words).and_then(|typed| A::from_arg_matches(&typed))
}

/// Wrong usage: one line, exit code 2.
pub fn refuse<T>(message: impl std::fmt::Display) -> Result<T> {
    Err(Error::new(ErrorKind::Config, "bench:", message))
}

/// A parser of the bytes of one read or write.
pub fn block_size(text: &str) -> std::result::Result<u64, String> {
    let bytes = quantity::size(text)?;
    let good = (1..=1 << 30).contains(&bytes);
    if good { Ok(bytes) } else { Err(format!("{text}: a block has from 1 byte to 1GiB")) }
}

/// A parser of one of these names, which are those of `T` in JSON.
pub fn one_of<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    let names = PossibleValuesParser::new(names.iter().copied());
    names.try_map(|name| serde_json::from_value::<T>(name.into()))
}
