//! How large must a cache be, and how long does it take to get warm? Clients read a data set through a tier: once while
//! its cache is empty, watched as it fills; then data sets from a quarter to four times as large as the cache, in
//! several orders, of which not the first pass is measured but a later one. Every state is proved by the tier's counters
//! (`account.rs`).
//!
//! Start with `measure` below; where the tier is from is in `tier_under_test.rs`, what is made of the figures in `table.rs`.

mod account;
mod curve;
mod table;
mod tier_under_test;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use bench_load::{
    AccessOrder, Amount, ClientSet, Layout, LoadJob, LoadPhase, LoadWork, PhaseOutcome, SeededData, Sequence,
    Sharing, Sizes, Touch, TouchUnit,
};
use bench_report::{ResultFile, format};
use clap::{Args, ValueEnum};
use quantity::ByteRate;
use types::{Error, ErrorKind, Result};

use crate::{Budget, CommonArgs, CounterPage, Ranks, ResultBuilder, Watch, driver, refuse};

use account::PassAccount;
use curve::CounterLook;
use tier_under_test::{ColdTier, TierUnderTest};

/// What a tier has if nobody says otherwise; a scale is a part of it.
const CACHE_BYTES: u64 = 20 << 30;
/// No tier takes less.
const CACHE_MIN: u64 = 64 << 20;
/// The size of the data set that a cache gets warm with, in sizes of the cache. All of it fits, below where a tier begins
/// to make room.
const WARM_UP: f64 = 0.75;
/// Even a single client finds something from the second one on, and a small cache shows by several looks that it is warm.
const WARM_UP_PASSES: u64 = 4;
const FACTORS: &str = "0.25,0.5,0.75,0.9,1,1.25,1.5,2,4";
/// What the time is estimated by: bytes a second, and seconds until a tier serves.
const GUESSED_RATE: f64 = 200.0 * 1_048_576.0;
const TIER_SECONDS: f64 = 1.0;
/// Draws of which the files are looked up one by one, to know how many different ones there are.
const DRAWS_MAX: u64 = 100_000_000;

#[derive(Args, Clone, Debug)]
pub struct WorkingSetArgs {
    /// Where the data is: a directory of this machine (a NAS is put in front of it), or nfs://host/export that can be
    /// written; a temporary directory if absent
    #[arg(long, value_name = "DIR|URL", conflicts_with = "tier")]
    origin: Option<String>,
    /// Round trip to the storage
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = quantity::duration, conflicts_with = "tier")]
    rtt: Duration,
    /// Bandwidth of the line, each direction; unlimited if absent
    #[arg(long, value_name = "RATE", conflicts_with = "tier")]
    rate: Option<ByteRate>,
    /// Of the tier [default: 20 GiB x scale, at least the tier's floor of 64 MiB]
    #[arg(long, value_name = "SIZE", value_parser = quantity::size)]
    cache_size: Option<u64>,
    /// Sizes of the data set, in sizes of the cache; 0: only how it gets warm
    #[arg(long, value_name = "FACTORS", value_delimiter = ',', default_value = FACTORS, value_parser = parse_factor)]
    factors: Vec<f64>,
    /// In which the files are read
    #[arg(long, value_name = "ORDERS", value_delimiter = ',', default_value = "sequential,permutation,zipf")]
    orders: Vec<OrderName>,
    /// Of the zipf order: how popular the popular files are
    #[arg(long, value_name = "THETA", default_value_t = 0.9)]
    theta: f64,
    /// Clients; each reads everything
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=4096))]
    clients: u32,
    /// Workers of each client
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: u32,
    /// Bytes of each file
    #[arg(long, value_name = "SIZE", default_value = "256KiB", value_parser = quantity::size)]
    file_size: u64,
    /// A tier that is running, instead of one of our own: nfs://host/export, with --admin and --lay-out-at
    #[arg(long, value_name = "URL", requires = "admin", requires = "lay_out_at")]
    tier: Option<String>,
    /// The storage behind that tier's export, to write the data set there
    #[arg(long, value_name = "URL", requires = "tier")]
    lay_out_at: Option<String>,
    /// That tier may lose what it has cached: the data sets of the sweep do not fit beside it
    #[arg(long, requires = "tier")]
    may_evict: bool,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Clone, Copy, Debug, strum::Display, PartialEq, Eq, ValueEnum)]
#[strum(serialize_all = "lowercase")]
enum OrderName {
    Sequential,
    Permutation,
    Zipf,
}

fn parse_factor(text: &str) -> std::result::Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| *factor == 0.0 || (0.01..=100.0).contains(factor));
    factor.ok_or_else(|| {
        format!("\"{text}\" is no factor; write numbers from 0.01 to 100, for example 0.5,1,2, or 0")
    })
}

/// Everything that is decided before anything is measured.
struct SweepPlan {
    args: WorkingSetArgs,
    cache_bytes: u64,
    fleet: ClientSet,
    /// Rising.
    factors: Vec<f64>,
    repetitions: u32,
}

impl SweepPlan {
    fn of(args: &WorkingSetArgs, cache_bytes: u64) -> Result<SweepPlan> {
        if args.file_size == 0 || args.orders.is_empty() {
            return refuse("working-set: give files of at least 1 byte, and at least one order");
        }
        if args.common.faithful {
            return refuse("working-set: there is no original to be faithful to; leave --faithful out");
        }
        let mut factors: Vec<f64> = args.factors.iter().copied().filter(|factor| *factor > 0.0).collect();
        if args.tier.is_some() && !args.may_evict {
            factors.clear();
        }
        factors.sort_by(f64::total_cmp);
        factors.dedup();
        let plan = SweepPlan {
            args: args.clone(),
            cache_bytes,
            fleet: ClientSet { clients: args.clients, first_client: 0, workers: args.workers },
            factors,
            repetitions: args.common.repetitions(1),
        };
        plan.largest().check()?;
        plan.work(OrderName::Zipf, &plan.largest(), 1, 0).check()?;
        if cache_bytes < CACHE_MIN {
            return refuse(format!(
                "working-set: a cache of {} is below the tier's floor of {}; give a larger --cache-size",
                format::bytes(cache_bytes),
                format::bytes(CACHE_MIN)
            ));
        }
        args.common.check_bytes(plan.largest().total_bytes())?;
        Ok(plan)
    }

    fn content(&self) -> SeededData {
        SeededData { seed: self.args.common.seed, ..SeededData::default() }
    }

    /// Files that are so many times as large as the cache.
    fn layout(&self, factor: f64) -> Layout {
        let files = (self.cache_bytes as f64 * factor / self.args.file_size as f64).round().max(1.0) as u64;
        Layout { files, sizes: Sizes::Equal(self.args.file_size), files_per_directory: 1000, private: false }
    }

    /// All that is laid out. The others are its first files.
    fn largest(&self) -> Layout {
        self.layout(self.factors.iter().copied().fold(WARM_UP, f64::max))
    }

    /// `passes` over the files. `turn`: permutations of another turn are other ones.
    fn work(&self, order: OrderName, layout: &Layout, passes: u64, turn: u64) -> LoadWork {
        let (order, amount, turn) = match order {
            OrderName::Sequential => (AccessOrder::Sequential, Amount::Epochs(passes), 0),
            OrderName::Permutation => (AccessOrder::Random, Amount::Epochs(passes), turn),
            // The seed says which files are popular, and they stay so.
            OrderName::Zipf => {
                let draws = Amount::Draws(layout.files.saturating_mul(passes));
                (AccessOrder::Zipf { theta: self.args.theta }, draws, 0)
            }
        };
        let seed = self.args.common.seed.wrapping_add(turn);
        LoadWork { unit: TouchUnit::File, order, share: Sharing::Client, amount, seed, ..LoadWork::default() }
    }

    fn job(&self, cold_tier: &ColdTier, layout: &Layout, work: LoadWork, budget: &Budget) -> LoadJob {
        LoadJob {
            root: cold_tier.root.clone(),
            layout: layout.clone(),
            content: self.content(),
            fleet: self.fleet,
            phases: vec![LoadPhase { name: "read".to_owned(), work, ..LoadPhase::default() }],
            limits: budget.limits(),
        }
    }

    /// Bytes that the clients read in so many passes.
    fn demanded(&self, layout: &Layout, passes: u64) -> u64 {
        layout.total_bytes().saturating_mul(passes).saturating_mul(u64::from(self.fleet.clients))
    }

    /// Different bytes among them.
    fn unique(&self, order: OrderName, layout: &Layout, passes: u64) -> u64 {
        if order != OrderName::Zipf {
            return layout.total_bytes();
        }
        let work = self.work(order, layout, passes, 0);
        let mut files = BTreeSet::new();
        for client in 0..self.fleet.clients {
            let sequence = Sequence::new(layout, &work, client, 0);
            for number in 0..sequence.numbers().min(DRAWS_MAX) {
                if let Some(Touch::Read(part)) = sequence.at(number) {
                    files.insert(part.file);
                }
            }
        }
        (files.len() as u64).saturating_mul(self.args.file_size)
    }

    /// Bytes that clients read in all, about: each condition twice, and warming up.
    fn predicted_bytes(&self) -> u64 {
        let sweep: u64 = self.factors.iter().map(|factor| self.demanded(&self.layout(*factor), 3)).sum();
        let each = sweep.saturating_mul(self.args.orders.len() as u64)
            + self.demanded(&self.layout(WARM_UP), WARM_UP_PASSES + 2);
        each.saturating_mul(u64::from(self.repetitions))
    }

    /// Of the whole run, about: what is read, at the rate of a small machine that is clients, tier and storage in one;
    /// and each row for as long as it takes to be believed.
    fn predicted_seconds(&self) -> f64 {
        let rows = (self.factors.len() * self.args.orders.len() + 3) as f64 * f64::from(self.repetitions);
        self.predicted_bytes() as f64 / GUESSED_RATE
            + rows * (self.args.common.row_time.as_secs_f64() + TIER_SECONDS)
    }
}

/// One data set of the sweep: a later pass over it.
struct SweepCondition {
    factor: f64,
    order: OrderName,
    /// Different bytes that the first pass, and that the measured ones asked for.
    first_unique: u64,
    unique: u64,
    first: PassAccount,
    later: PassAccount,
    /// From before the first pass to after the last one: a tier makes room between them too.
    evicted: u64,
    /// In the same time: bytes that came from the storage after they had come before.
    again: u64,
}

/// A tier's way from cold to warm, and what it served when it was warm.
struct WarmUp {
    cold: PassAccount,
    looks: Vec<(f64, CounterLook)>,
    warm: PassAccount,
    /// Again, after the kernel was asked to forget the pages of the cache; of a tier of our own.
    from_disk: Option<PassAccount>,
}

#[derive(Default)]
struct SweepRuns {
    warm_ups: Vec<WarmUp>,
    sweeps: Vec<Vec<SweepCondition>>,
}

pub async fn command(args: WorkingSetArgs) -> Result<ExitCode> {
    let running =
        args.tier.as_ref().and(args.common.admin).map(|admin| CounterPage::of(admin, None)).transpose()?;
    let own = args.common.scale.small_is(0.003).of(CACHE_BYTES, CACHE_MIN);
    let theirs = running.as_ref().and_then(CounterPage::max_bytes);
    if running.is_some() && theirs.is_none() {
        return refuse(
            "working-set: that tier does not tell how large its cache is; run one of this version",
        );
    }
    // Of a tier that must not evict, only what --cache-size says is used.
    let theirs = theirs.filter(|_| args.may_evict);
    let plan = SweepPlan::of(&args, theirs.or(args.cache_size).unwrap_or(own))?;
    if let Some(counters) = &running {
        tier_under_test::check_room(&plan, counters, args.may_evict)?;
    }
    let told = || {
        let [cache, written, read] =
            [plan.cache_bytes, plan.largest().total_bytes(), plan.predicted_bytes()].map(format::bytes);
        let SweepPlan { factors, repetitions, fleet, .. } = &plan;
        format!(
            "working-set: a cache of {cache}; {} clients read data sets of {factors:?} times its size in {} orders, {repetitions} \
             times; about {}; {written} written, about {read} read",
            fleet.clients,
            args.orders.len(),
            format::duration(plan.predicted_seconds())
        )
    };
    driver::command(&args.common, told, async |ranks| measure(ranks, &plan).await).await
}

async fn measure(ranks: &Ranks, plan: &SweepPlan) -> Result<ResultFile> {
    let title = "How a cache gets warm, and how large it must be";
    let draft = ResultBuilder::new("working-set", title, &plan.args.common, plan.repetitions);
    eprintln!("working-set: about {}", format::duration(plan.predicted_seconds()));
    let tier = TierUnderTest::make(plan);
    let measure = async |tier: &mut TierUnderTest, budget: &Budget| all(ranks, tier, plan, budget).await;
    let common = &plan.args.common;
    driver::on_stage(Some(ranks), common, draft, tier, measure, async |draft, tier, _, measured| {
        table::fill(draft, plan, tier, &measured);
    })
    .await
}

async fn all(
    ranks: &Ranks,
    tier_under_test: &TierUnderTest,
    plan: &SweepPlan,
    budget: &Budget,
) -> Result<SweepRuns> {
    let mut measured = SweepRuns::default();
    // Interleaved: what changes on this machine meanwhile changes all conditions alike.
    let repeated = budget.repeat(plan.repetitions, "repetitions", async |repetition| {
        let run = SweepRun { ranks, tier_under_test, plan, repetition, budget };
        measured.warm_ups.push(run.warm_up().await?);
        let mut sweep = Vec::new();
        for factor in &plan.factors {
            for order in &plan.args.orders {
                sweep.push(run.condition(*factor, *order).await?);
            }
        }
        measured.sweeps.push(sweep);
        Ok(())
    });
    repeated.await?;
    Ok(measured)
}

struct SweepRun<'a> {
    ranks: &'a Ranks,
    tier_under_test: &'a TierUnderTest,
    plan: &'a SweepPlan,
    repetition: u32,
    budget: &'a Budget,
}

impl SweepRun<'_> {
    async fn warm_up(&self) -> Result<WarmUp> {
        let (plan, layout) = (self.plan, self.plan.layout(WARM_UP));
        let cold_tier = self.tier_under_test.cold_tier(plan, &layout).await?;
        let order = OrderName::Permutation;
        let watch = Watch::start(cold_tier.admin, |counters| CounterLook {
            hit: counters.cache("hit_bytes"),
            miss: counters.cache("miss_bytes"),
            used: counters.used_bytes(),
        });
        let cold = self.pass(&cold_tier, &layout, order, WARM_UP_PASSES, 0, "getting warm").await?;
        let looks = watch.stop();
        let warm = self.pass(&cold_tier, &layout, order, 1, 2, "warm").await?;
        let from_disk = match &cold_tier.tier {
            Some(tier) => {
                tier.forget_pages().await?;
                Some(self.pass(&cold_tier, &layout, order, 1, 3, "from the disk").await?)
            }
            None => None,
        };
        self.tier_under_test.leave(cold_tier).await?;
        Ok(WarmUp { cold, looks, warm, from_disk })
    }

    async fn condition(&self, factor: f64, order: OrderName) -> Result<SweepCondition> {
        let (plan, layout) = (self.plan, self.plan.layout(factor));
        let cold_tier = self.tier_under_test.cold_tier(plan, &layout).await?;
        let what = format!("{factor} x cache, {order}");
        let before = CounterPage::of(cold_tier.admin, None)?;
        let first = self.pass(&cold_tier, &layout, order, 1, 0, &what).await?;
        let mut later = self.pass(&cold_tier, &layout, order, 1, 1, &what).await?;
        if let Some(passes) = plan.args.common.passes_to_last(later.seconds) {
            later = self.pass(&cold_tier, &layout, order, passes, 2, &what).await?;
        }
        let life = CounterPage::of(cold_tier.admin, None)?.since(&before);
        self.tier_under_test.leave(cold_tier).await?;
        let (first_unique, unique) =
            (plan.unique(order, &layout, 1), plan.unique(order, &layout, later.passes));
        // The first draws of zipf are the same in each pass, so that the longest one has them all.
        let life = PassAccount::of(&life, &PhaseOutcome::default(), 1);
        let again = life.duplicate(unique);
        Ok(SweepCondition { factor, order, first_unique, unique, first, later, evicted: life.evicted, again })
    }

    async fn pass(
        &self,
        cold_tier: &ColdTier,
        layout: &Layout,
        order: OrderName,
        passes: u64,
        turn: u64,
        what: &str,
    ) -> Result<PassAccount> {
        let what = format!("working-set {}/{}, {what}", self.repetition + 1, self.plan.repetitions);
        let job = self.plan.job(cold_tier, layout, self.plan.work(order, layout, passes, turn), self.budget);
        let before = CounterPage::of(cold_tier.admin, None)?;
        let loaded = self.ranks.load(&cold_tier.url, &job, &what).await?;
        let counted = CounterPage::of(cold_tier.admin, None)?.since(&before);
        let phase = loaded.outcome.phases.first();
        let phase = phase.ok_or_else(|| Error::new(ErrorKind::Io, "measure", "no phase came back"))?;
        Ok(PassAccount::of(&counted, phase, passes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::typed;

    fn plan(more: &[&str]) -> Result<SweepPlan> {
        let args: WorkingSetArgs = typed(more).expect("a command line");
        SweepPlan::of(&args, args.cache_size.unwrap_or(CACHE_MIN))
    }

    #[test]
    fn data_sets_are_as_large_as_their_factors_say_and_each_is_the_beginning_of_the_largest() {
        let plan = plan(&[]).expect("a plan");
        assert_eq!((plan.factors.len(), plan.args.orders.len()), (9, 3));
        for factor in &plan.factors {
            let layout = plan.layout(*factor);
            let off = layout.total_bytes() as f64 - CACHE_MIN as f64 * factor;
            assert!(off.abs() <= plan.args.file_size as f64, "{factor}");
            let last = layout.files - 1;
            assert_eq!(layout.path("x", 0, last), plan.largest().path("x", 0, last));
        }
        assert_eq!(plan.largest().total_bytes(), 4 * CACHE_MIN);
    }

    #[test]
    fn what_does_not_fit_the_budget_or_makes_no_sense_is_refused() {
        for (wrong, why) in [
            (&["--cache-size", "1MiB"][..], "--cache-size"),
            (&["--byte-budget", "100MiB"], "--byte-budget"),
            (&["--file-size", "0"], "at least 1 byte"),
            (&["--theta", "99"], "theta"),
        ] {
            let error = plan(wrong).err().unwrap_or_else(|| panic!("{wrong:?} was taken")).to_string();
            assert!(error.contains(why) && error.lines().count() == 1, "{error}");
        }
        let no_sweep = plan(&["--factors", "0"]).expect("a plan");
        assert_eq!((no_sweep.factors.len(), no_sweep.largest().total_bytes()), (0, CACHE_MIN / 4 * 3));
        let running =
            ["--tier", "nfs://t/x", "--admin", "127.0.0.1:1", "--lay-out-at", "nfs://o/x", "--factors", "1"];
        assert_eq!(plan(&running).expect("a plan").factors.len(), 0, "nothing is evicted that may not be");
        assert_eq!(plan(&[&running[..], &["--may-evict"]].concat()).expect("a plan").factors, [1.0]);
    }

    #[test]
    fn popular_files_stay_popular_and_more_draws_find_more_of_them() {
        let plan = plan(&[]).expect("a plan");
        let layout = plan.layout(0.5);
        let unique = |passes| plan.unique(OrderName::Zipf, &layout, passes);
        assert!(unique(1) > 0 && unique(1) < layout.total_bytes());
        assert!((unique(1)..=layout.total_bytes()).contains(&unique(8)));
        assert_eq!(plan.unique(OrderName::Permutation, &layout, 1), layout.total_bytes());
    }
}
