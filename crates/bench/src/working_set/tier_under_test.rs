//! The tier that is measured: one of our own with an empty cache for each condition, or one that is running.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bench_load::{Cleanup, Dataset, Layout, SeededData, from_url, target};
use origin_nfs::Config;
use tokio::sync::Mutex;
use types::{Error, ErrorKind, Result};

use super::{SweepPlan, WARM_UP};
use crate::fixture::ask_tier;
use crate::{
    CommonArgs, CounterPage, Line, MeasuredStorage, TargetArgs, TargetDir, Testbed, TierProcess, data_set,
    refuse,
};

/// A tier makes room from 95 % of its quota on; the data set's blocks round up.
const FULL: f64 = 0.9;
/// A tier may believe for as long as its freshness rule says that a new directory is not there: by default 30 s.
const VISIBLE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(250);

pub enum TierUnderTest {
    Own { testbed: Box<Testbed>, line: Line },
    Running(Box<RunningTierUnderTest>),
}

pub struct RunningTierUnderTest {
    url: String,
    admin: SocketAddr,
    lay_out_at: String,
    may_evict: bool,
    common: CommonArgs,
    /// The data set that is there now, so that it is removed however the run ends.
    target_dir: Mutex<Option<TargetDir>>,
    /// What the removal of the earlier ones came to.
    removed: Mutex<Cleanup>,
}

/// A tier whose cache has nothing of the data set, and the data set behind it.
pub struct ColdTier {
    pub url: String,
    pub admin: SocketAddr,
    /// Where the files are, below the export.
    pub root: String,
    /// If it is ours.
    pub tier: Option<TierProcess>,
}

/// Whether the data set fits beside what a running tier has.
pub fn check_room(plan: &SweepPlan, counters: &CounterPage, may_evict: bool) -> Result<()> {
    let (used, max) = (counters.used_bytes(), counters.max_bytes().unwrap_or(0));
    // What an earlier repetition had stays until somebody needs the room.
    let needed = plan.layout(WARM_UP).total_bytes().saturating_mul(plan.repetitions.into());
    if !may_evict && used.saturating_add(needed) as f64 > max as f64 * FULL {
        return refuse(format!(
            "working-set: {needed} bytes do not fit beside the {used} of {max} that the tier has cached; give a smaller \
             --cache-size, or --may-evict if it may lose them"
        ));
    }
    Ok(())
}

impl TierUnderTest {
    pub async fn make(plan: &SweepPlan) -> Result<TierUnderTest> {
        let args = &plan.args;
        if let (Some(url), Some(admin), Some(lay_out_at)) = (&args.tier, args.common.admin, &args.lay_out_at)
        {
            return Ok(TierUnderTest::Running(Box::new(RunningTierUnderTest {
                url: url.clone(),
                admin,
                lay_out_at: lay_out_at.clone(),
                may_evict: args.may_evict,
                common: args.common.clone(),
                target_dir: Mutex::default(),
                removed: Mutex::default(),
            })));
        }
        let data = data_set(plan.largest(), args.common.seed);
        let testbed = Testbed::at(args.origin.as_deref(), data).await?;
        match testbed.line(args.rtt, args.rate).await {
            Ok(line) => Ok(TierUnderTest::Own { testbed: Box::new(testbed), line }),
            Err(error) => {
                let _ = testbed.clean_up().await;
                Err(error)
            }
        }
    }

    pub fn line(&self) -> Option<&Line> {
        match self {
            TierUnderTest::Own { line, .. } => Some(line),
            TierUnderTest::Running(_) => None,
        }
    }

    /// With a cache that has nothing of these files.
    pub async fn cold_tier(&self, plan: &SweepPlan, layout: &Layout) -> Result<ColdTier> {
        match self {
            TierUnderTest::Own { testbed, line } => {
                let tier = testbed.tier_of(line, plan.cache_bytes)?;
                let (url, admin, root) = (tier.url.clone(), tier.admin, testbed.files.root());
                Ok(ColdTier { url, admin, root, tier: Some(tier) })
            }
            TierUnderTest::Running(running) => running.cold_tier(layout, plan.content()).await,
        }
    }

    /// Before the next one.
    pub async fn leave(&self, cold_tier: ColdTier) -> Result<()> {
        match self {
            TierUnderTest::Own { .. } => Ok(()),
            TierUnderTest::Running(running) => running.leave(&cold_tier.root).await,
        }
    }
}

impl MeasuredStorage for TierUnderTest {
    const OUTLASTS_RUN: bool = true;

    async fn clean_up(self) -> Result<Option<Cleanup>> {
        match self {
            TierUnderTest::Own { testbed, .. } => testbed.clean_up().await,
            TierUnderTest::Running(running) => {
                running.remove().await?;
                Ok(Some(running.removed.into_inner()))
            }
        }
    }
}

impl RunningTierUnderTest {
    /// Files of their own: a tier cannot have what was never there.
    async fn cold_tier(&self, layout: &Layout, content: SeededData) -> Result<ColdTier> {
        let stamp = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let id = format!("{}-{}", std::process::id(), stamp.as_millis());
        let target = TargetArgs::of(&self.url, &self.lay_out_at, &id);
        let mut slot = self.target_dir.lock().await;
        let target_dir = slot.insert(TargetDir::make(&target, &self.common, layout.total_bytes()).await?);
        let root = target_dir.root();
        let dataset = Dataset { layout: layout.clone(), content, version: 1, trees: 1 };
        target_dir.lay_out(&dataset, "").await?;
        visible(&self.url, &layout.path(&root, 0, layout.files - 1)).await?;
        Ok(ColdTier { url: self.url.clone(), admin: self.admin, root, tier: None })
    }

    /// The files are removed, and their room in the cache is given back if that is allowed.
    async fn leave(&self, root: &str) -> Result<()> {
        if self.may_evict {
            let export = Config::from_url(&self.url)?.export;
            let export = String::from_utf8_lossy(&export);
            let path = format!("{}/{root}", export.trim_end_matches('/'));
            ask_tier(&["evict", &path, "--admin", &self.admin.to_string()])?;
        }
        self.remove().await
    }

    async fn remove(&self) -> Result<()> {
        let Some(target_dir) = self.target_dir.lock().await.take() else { return Ok(()) };
        let Some(done) = target_dir.clean_up().await? else { return Ok(()) };
        if !done.complete() {
            return refuse(crate::results::cleaned(&done));
        }
        let mut removed = self.removed.lock().await;
        removed.files += done.files;
        removed.directories += done.directories;
        removed.seconds += done.seconds;
        Ok(())
    }
}

/// Waits until clients of the tier see the file.
async fn visible(url: &str, path: &str) -> Result<()> {
    let clients = target::clients(&from_url(url)?, 0, 1).await?;
    let Some(client) = clients.first() else { return refuse("no client could be made") };
    let begin = Instant::now();
    loop {
        match client.stat(path).await {
            Ok(_) => return Ok(()),
            Err(e) if begin.elapsed() > VISIBLE => {
                let message =
                    format!("{path} does not appear at {url} ({e}); is --lay-out-at the storage behind it?");
                return Err(Error::new(ErrorKind::Config, "bench:", message));
            }
            Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}
