//! Where a load goes, if the user names it: a directory of its own on the user's target, made before and removed after,
//! removal being a phase with a result of its own.

use std::process::ExitCode;
use std::sync::Arc;

use bench_load::preflight::check_target;
use bench_load::{
    Cleanup, Client, DataSetDir, Dataset, LoadJob, RunDir, SeededData, Target, dataset, from_url, target,
};
use clap::Args;
use origin::emulated::ServiceLimits;
use types::Result;

use crate::results::cleaned;
use crate::{CommonArgs, MeasuredStorage, Ranks, ResultBuilder, refuse};

/// Side by side, to remove what was written.
const CLEANERS: u32 = 4;

#[derive(Args, Clone, Debug)]
pub struct TargetArgs {
    /// Where the load goes: /path, file:///path, nfs://host/export, s3://bucket, az://account/container, gs://bucket or
    /// azfile://account/share
    #[arg(long, value_name = "URL")]
    target: Option<String>,
    /// The same storage by another way, to lay out what is read: where the target itself cannot be written, as a tier's
    /// NFS cannot
    #[arg(long, value_name = "URL")]
    lay_out_at: Option<String>,
    /// Put limits of a service in front of the target, those of each of its clients' process: file=60MiB/s,
    /// file-requests=500/s, all=1GiB/s, requests=20000/s, first-byte=20ms, busy=1%, retry-after=1s, several with commas; or
    /// published ones by name: azure-blob-2018, azure-file-2018
    #[arg(long, value_name = "LIMITS")]
    pub limits: Option<ServiceLimits>,
    /// Leave the files, for another run with the same --id
    #[arg(long)]
    keep: bool,
    /// Of the directory forebay-bench-ID that is made; files that an earlier run left there with --keep are used again if
    /// they are what is wanted, and refused if not
    #[arg(long, value_name = "ID")]
    id: Option<String>,
}

impl TargetArgs {
    /// As if they had been typed.
    pub fn of(target: &str, lay_out_at: &str, id: &str) -> TargetArgs {
        let [target, lay_out_at, id] = [target, lay_out_at, id].map(|text| Some(text.to_owned()));
        TargetArgs { target, lay_out_at, limits: None, keep: false, id }
    }

    pub fn url(&self) -> &str {
        self.target.as_deref().unwrap_or_default()
    }

    /// Whether the load can write there, as a tier's NFS cannot.
    pub fn is_writable(&self) -> bool {
        self.lay_out_at.is_none()
    }

    /// What the load is put on, for a result.
    pub fn tell(&self, draft: &mut ResultBuilder) {
        draft.parameter("target", self.url());
        draft.parameter("limits", self.limits.map_or("none".to_owned(), |limits| limits.to_string()));
        if let Some(limits) = self.limits {
            draft.note(format!("the target was given the limits of a service: {limits}"));
        }
    }

    /// Each process would keep limits of its own.
    pub fn check_ranks(&self, ranks: &Ranks) -> Result<()> {
        if self.limits.is_some() && ranks.processes() > 1 {
            return refuse("limits are kept by one process; leave --limits out, or start one process");
        }
        Ok(())
    }

    pub fn check(&self) -> Result<()> {
        if self.target.is_none() {
            return refuse(
                "no target; name the storage with --target /path, nfs://host/export, s3://bucket, az://account/container, gs://bucket or azfile://account/share",
            );
        }
        from_url(self.url())?;
        self.lay_out_at.as_deref().map_or(Ok(()), |url| from_url(url).map(|_| ()))
    }
}

pub struct TargetDir {
    args: TargetArgs,
    /// Where the load goes, limits included; by another way, if it is changed: through a tier in front of the target.
    pub url: String,
    pub content: SeededData,
    dir: RunDir,
    writers: Vec<Arc<dyn Client>>,
    writable: Arc<dyn Target>,
}

impl TargetDir {
    /// `written`: bytes that will be there at once.
    pub async fn make(args: &TargetArgs, common: &CommonArgs, written: u64) -> Result<TargetDir> {
        args.check()?;
        common.check_bytes(written)?;
        let writable = from_url(args.lay_out_at.as_deref().unwrap_or(args.url()))?;
        let writers = target::clients(&writable, 0, CLEANERS).await?;
        let id = args.id.clone().unwrap_or_else(|| std::process::id().to_string());
        let Some(first) = writers.first() else { return refuse("no client could be made") };
        let dir = RunDir::create(&**first, &id).await?;
        let content = SeededData { seed: common.seed, ..SeededData::default() };
        let url = match args.limits {
            Some(limits) => format!("limits:{limits}:{}", args.url()),
            None => args.url().to_owned(),
        };
        Ok(TargetDir { args: args.clone(), url, content, dir, writers, writable })
    }

    pub fn root(&self) -> String {
        self.dir.path()
    }

    pub async fn check(&self, job: &LoadJob, new_bytes: u64) -> Result<()> {
        check_target(&*self.writable, job, new_bytes).await
    }

    /// Whether these files are there, left by an earlier run; refuses others.
    pub async fn holds(&self, dataset: &Dataset, directory: &str) -> Result<bool> {
        let Some(first) = self.writers.first() else { return Ok(false) };
        dataset::is_there(dataset, DataSetDir { dir: &self.dir, directory }, &**first).await
    }

    /// Sees to it that these files are there, in the run's directory or one directly in it.
    pub async fn lay_out(&self, dataset: &Dataset, directory: &str) -> Result<()> {
        let place = DataSetDir { dir: &self.dir, directory };
        dataset::prepare(dataset, place, &self.writers).await.map(drop)
    }
}

impl MeasuredStorage for TargetDir {
    const OUTLASTS_RUN: bool = true;

    async fn clean_up(self) -> Result<Option<Cleanup>> {
        if self.args.keep {
            return Ok(None);
        }
        self.dir.cleanup(&self.writers).await.map(Some)
    }
}

#[derive(Args, Clone, Debug)]
pub struct CleanArgs {
    /// Where an earlier run wrote
    #[arg(long, value_name = "URL")]
    target: String,
    /// Of its directory forebay-bench-ID
    #[arg(long, value_name = "ID")]
    id: String,
}

/// Removes what a run has left: one with --keep, or one that was killed.
pub async fn clean(args: CleanArgs) -> Result<ExitCode> {
    let clients = target::clients(&from_url(&args.target)?, 0, CLEANERS).await?;
    let Some(first) = clients.first() else { return refuse("no client could be made") };
    let done = RunDir::open(&**first, &args.id).await?.cleanup(&clients).await?;
    println!("{}", cleaned(&done));
    Ok(if done.complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
