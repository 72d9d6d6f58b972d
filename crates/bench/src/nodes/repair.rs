//! A copy is taken away, and made again by the cluster: how it is lost, and a watch over what follows.

use std::ops::ControlFlow;
use std::process::Stdio;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use types::{Error, ErrorKind, Result};

use super::{BenchCluster, complete_percent, keepers, wait_until};
use crate::Watch;

/// A change of the map is known everywhere long before.
const MAP_PATIENCE: Duration = Duration::from_secs(60);
/// A command that has not made its loss by then has failed.
const COMMAND_PATIENCE: Duration = Duration::from_secs(300);
/// Copies that are not whole again after this are not made.
const REPAIR_PATIENCE: Duration = Duration::from_secs(1800);
/// An alarm that is up when the copies are whole is given this long: a node looks again after 8 s at most.
const CLEAR_PATIENCE: Duration = Duration::from_secs(60);
/// Looks of which the state of the copies is kept.
const CURVE_MAX: usize = 1 << 14;

/// How a node loses what it keeps of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyLoss {
    /// Its operator has it evicted. Nodes that keep other copies look at those again only when the map has changed, so the node
    /// is drained before, and undrained after.
    Evicted,
    /// By this command of the shell, with the node's name in `NODE`: the node serves again, without the copy, when it ends.
    Command(String),
}

impl CopyLoss {
    /// When this returns the node serves, and is to keep what it has lost.
    pub async fn make(&self, cluster: &BenchCluster, node: usize, path: &str) -> Result<()> {
        let Some(name) = cluster.nodes.get(node).map(|node| node.name.clone()) else { return Ok(()) };
        match self {
            CopyLoss::Evicted => {
                let keeps =
                    || cluster.copies(path).is_ok_and(|stripes| keepers(&stripes).contains(name.as_str()));
                cluster.drain(node)?;
                wait_until(&format!("{name} is drained"), MAP_PATIENCE, || !keeps()).await?;
                cluster.evict(node, path)?;
                cluster.restore()?;
                wait_until(&format!("{name} keeps stripes again"), MAP_PATIENCE, keeps).await
            }
            CopyLoss::Command(command) => {
                let failed = |why: String| {
                    Error::new(ErrorKind::Config, "lose a copy by", command)
                        .with_source(std::io::Error::other(why))
                };
                let mut shell = tokio::process::Command::new("sh");
                shell
                    .args(["-c", command.as_str()])
                    .env("NODE", &name)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null());
                let child = shell.kill_on_drop(true).status();
                match tokio::time::timeout(COMMAND_PATIENCE, child).await {
                    Ok(Ok(status)) if status.success() => Ok(()),
                    Ok(Ok(status)) => Err(failed(status.to_string())),
                    Ok(Err(e)) => Err(failed(e.to_string())),
                    Err(_) => Err(failed(format!("it does not end within {} s", COMMAND_PATIENCE.as_secs()))),
                }
            }
        }
    }
}

/// What followed a loss. Seconds after the watch began, which is when the loss did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Repair {
    pub lost: f64,
    /// A node raised the alarm; `None` if none did.
    pub raised: Option<f64>,
    pub whole: Option<f64>,
    /// After an alarm: no node raised it any more.
    pub cleared: Option<f64>,
    /// After the loss: how much there was of all copies, percent.
    pub curve: Vec<(f64, f64)>,
}

impl Repair {
    /// One look. `percent`: of the copies, after the loss; `None` if it is not known.
    fn look(&mut self, now: f64, is_alarming: bool, percent: Option<f64>) {
        if is_alarming {
            self.raised.get_or_insert(now);
            self.cleared = None;
        } else if self.raised.is_some() {
            self.cleared.get_or_insert(now);
        }
        let Some(percent) = percent else { return };
        if self.curve.len() < CURVE_MAX {
            self.curve.push((now, percent));
        }
        if percent >= 100.0 {
            self.whole.get_or_insert(now);
        }
    }

    fn is_over(&self, now: f64) -> bool {
        let Some(whole) = self.whole else { return now > REPAIR_PATIENCE.as_secs_f64() };
        self.raised.is_none() || self.cleared.is_some() || now > whole + CLEAR_PATIENCE.as_secs_f64()
    }
}

/// Looks at the nodes, until the copies are whole and no alarm is up.
pub struct RepairWatch {
    begun: Instant,
    lost: Arc<OnceLock<f64>>,
    watch: Watch<Repair>,
}

impl RepairWatch {
    /// From before a loss on. `wanted`: copies of the file at `path`.
    pub fn start(cluster: Arc<BenchCluster>, path: &str, wanted: usize) -> RepairWatch {
        let (begun, lost, path) = (Instant::now(), Arc::new(OnceLock::new()), path.to_owned());
        let is_lost = lost.clone();
        let watch = Watch::on(move |repair: &mut Repair| {
            let is_alarming = cluster.is_alarming();
            if let Some(at) = is_lost.get() {
                repair.lost = *at;
            }
            let copies = is_lost.get().and_then(|_| cluster.copies(&path).ok());
            let percent = copies.map(|stripes| complete_percent(&stripes, wanted));
            let now = begun.elapsed().as_secs_f64();
            repair.look(now, is_alarming, percent);
            if repair.is_over(now) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        RepairWatch { begun, lost, watch }
    }

    /// The loss is made: from now on the copies are looked at.
    pub fn is_lost(&self) {
        let _ = self.lost.set(self.begun.elapsed().as_secs_f64());
    }

    /// Until the copies are whole, and an alarm that was raised is over. An error if the copies are not made.
    pub async fn wait(self) -> Result<Repair> {
        let repair = self.watch.ended().await;
        match repair.whole {
            Some(_) => Ok(repair),
            None => {
                let why = format!("they are not whole after {} s", REPAIR_PATIENCE.as_secs());
                Err(Error::new(ErrorKind::Unavailable, "wait for", "the copies")
                    .with_source(std::io::Error::other(why)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repair_is_over_when_the_copies_are_whole_and_the_alarm_that_was_raised_is_not_up_any_more() {
        let mut repair = Repair::default();
        for (now, is_alarming, percent) in
            [(1.0, false, None), (2.0, true, None), (3.0, true, Some(50.0)), (4.0, true, Some(100.0))]
        {
            repair.look(now, is_alarming, percent);
            assert!(!repair.is_over(now), "{now}");
        }
        repair.look(5.0, false, Some(100.0));
        assert!(repair.is_over(5.0));
        assert_eq!((repair.raised, repair.whole, repair.cleared), (Some(2.0), Some(4.0), Some(5.0)));
        assert_eq!(repair.curve.len(), 3);
        // An alarm that comes back was not over.
        repair.look(6.0, true, Some(100.0));
        assert!(!repair.is_over(6.0) && repair.cleared.is_none());
        assert!(repair.is_over(4.0 + CLEAR_PATIENCE.as_secs_f64() + 1.0), "it is not waited for without end");
        let mut quiet = Repair::default();
        quiet.look(1.0, false, Some(100.0));
        assert!(quiet.is_over(1.0), "no alarm was raised, so none is to end");
        assert!(
            !Repair::default().is_over(1.0) && Repair::default().is_over(REPAIR_PATIENCE.as_secs_f64() + 1.0)
        );
    }
}
