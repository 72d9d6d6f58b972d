//! One client: draws operations, has them carried out, and compares what it is told with its model.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::crash::draw::Draw;
use crate::crash::ledger::{Answer, Ledger};
use crate::crash::look::{Sight, bytes_differ, difference, of_client, times_differ};
use crate::crash::model::{Ino, Kind, Op, Refusal, Tree};
use crate::crash::nfs::Nfs;
use crate::crash::programs::Programs;

/// A tier that does not answer is dead, and the harness says so.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a client was told of an operation.
pub enum Told {
    Done {
        durable: bool,
    },
    Refused(Refusal),
    /// The tier is gone, and whatever was under way with it.
    Unanswered,
    /// The answer may speak of what the same call did before.
    Doubtful,
    Failed(String),
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Told::Done { .. } => f.write_str("done"),
            Told::Refused(refusal) => write!(f, "refused: {refusal:?}"),
            Told::Unanswered => f.write_str("not answered"),
            Told::Doubtful => f.write_str("of a doubtful outcome"),
            Told::Failed(why) => f.write_str(why),
        }
    }
}

/// What a crash took that nobody was promised.
pub struct CrashLoss {
    pub files_changed: usize,
    /// Operations that were answered.
    pub taken: usize,
}

/// What becomes of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    Serves,
    /// It is being killed, and its disk cut: on a busy machine that takes a while.
    Dies,
    /// For ever.
    IsDead,
}

/// The time between two crashes.
#[derive(Clone)]
pub struct Life {
    pub number: u32,
    pub fate: watch::Receiver<Fate>,
    /// All clients are to come to rest.
    pub rest: Arc<AtomicBool>,
    /// Operations that were answered, of all clients.
    pub answered: Arc<AtomicU64>,
}

impl Life {
    pub fn is_dead(&self) -> bool {
        *self.fate.borrow() == Fate::IsDead
    }

    pub async fn death(&self) {
        let _ = self.fate.clone().wait_for(|fate| *fate == Fate::IsDead).await;
    }

    /// Returns when it is dead. False: nobody kills it.
    async fn is_killed(&self) -> bool {
        let mut fate = self.fate.clone();
        let dies = tokio::time::timeout(PATIENCE, fate.wait_for(|fate| *fate >= Fate::Dies)).await.is_ok();
        if dies {
            self.death().await;
        }
        dies
    }
}

pub enum Hands {
    Nfs(Nfs),
    Programs(Programs),
}

pub struct Client {
    pub number: usize,
    draw: Draw,
    pub ledger: Ledger,
    pub hands: Hands,
    queue: VecDeque<Op>,
    /// The file of the write that was under way at the crash.
    late: Option<Ino>,
    /// Waits over a crash for the answer to what was under way, as a hard mount does.
    patient: bool,
    pub answered: u64,
    pub doubtful: u64,
}

impl Client {
    pub fn new(number: usize, draw: Draw, ledger: Ledger, hands: Hands) -> Client {
        Client {
            number,
            draw,
            ledger,
            hands,
            queue: VecDeque::new(),
            late: None,
            patient: false,
            answered: 0,
            doubtful: 0,
        }
    }

    /// Until the tier is killed, or all are to rest.
    pub async fn live(&mut self, life: &Life) -> Result<(), String> {
        self.patient = matches!(self.hands, Hands::Nfs(_)) && self.draw.chance().one_in(2);
        let lived_on = |why: String, killed| if killed { Ok(()) } else { Err(why) };
        if let Hands::Nfs(nfs) = &mut self.hands {
            let begun = tokio::select! {
                begun = nfs.begin(life.number) => begun,
                () = life.death() => return Ok(()),
            };
            if let Err(e) = begun {
                return lived_on(e.to_string(), life.is_killed().await);
            }
        }
        while !life.rest.load(Ordering::SeqCst) && !life.is_dead() {
            if !self.step(life).await? {
                let why = "nobody answers, and nobody killed the tier";
                return lived_on(why.to_owned(), life.is_killed().await);
            }
        }
        Ok(())
    }

    /// Nothing is left that may be lost, or is only here.
    pub async fn settle(&mut self, life: &Life) -> Result<(), String> {
        if let Hands::Nfs(nfs) = &mut self.hands {
            nfs.begin(life.number).await.map_err(|e| e.to_string())?;
        }
        loop {
            let tree = self.ledger.now();
            let left = match &mut self.hands {
                Hands::Nfs(nfs) => nfs.owed(tree).or_else(|| nfs.unsettled(tree)),
                Hands::Programs(programs) => programs.unsettled(tree),
            };
            let Some(op) = left.or_else(|| self.queue.pop_front()) else { break };
            self.perform(life, &op).await?;
        }
        if let Hands::Programs(programs) = &mut self.hands {
            programs.crashed(); // closes all
        }
        Ok(())
    }

    /// False: nobody answers any more.
    async fn step(&mut self, life: &Life) -> Result<bool, String> {
        let tree = self.ledger.now();
        let owed = match &mut self.hands {
            Hands::Nfs(nfs) => nfs.owed(tree),
            Hands::Programs(_) => None,
        };
        if owed.is_none() && self.draw.chance().one_in(10) {
            return self.read(life).await;
        }
        let drawn = owed.or_else(|| self.queue.pop_front());
        let op = match drawn {
            Some(op) => op,
            None => {
                let (op, follows) = self.draw.next(self.ledger.now());
                if self.ledger.now().clone().apply(0, &op).is_ok() {
                    self.queue.extend(follows);
                }
                op
            }
        };
        let first = match &self.hands {
            Hands::Nfs(nfs) => nfs.first(self.ledger.now(), &op),
            Hands::Programs(_) => None,
        };
        if let Some(first) = first {
            self.queue.push_front(op);
            return self.perform(life, &first).await;
        }
        self.perform(life, &op).await
    }

    async fn perform(&mut self, life: &Life, op: &Op) -> Result<bool, String> {
        let before = self.ledger.now().clone();
        if let Err(refusal) = before.clone().apply(0, op) {
            return self.be_refused(life, &before, op, refusal).await;
        }
        let id = self.ledger.ask(op);
        let told = self.told(life, &before, id, op).await;
        let again = life.is_dead();
        if let (true, Op::Write { path, .. }) = (again, op) {
            self.late = Some(before.ino(path));
        }
        let answer = match told {
            Told::Done { .. } if again => Answer::DoneAgain,
            Told::Done { durable } => Answer::Done { durable },
            Told::Doubtful if again => Answer::Doubtful,
            Told::Unanswered => Answer::None,
            other => return Err(format!("{op}: {other}")),
        };
        self.ledger.answer(answer);
        self.count(life, &answer);
        Ok(matches!(answer, Answer::Done { .. }))
    }

    fn count(&mut self, life: &Life, answer: &Answer) {
        match answer {
            Answer::Done { .. } => {
                self.answered += 1;
                life.answered.fetch_add(1, Ordering::SeqCst);
            }
            _ => self.doubtful += 1,
        }
    }

    async fn told(&mut self, life: &Life, tree: &Tree, id: u32, op: &Op) -> Told {
        match &mut self.hands {
            Hands::Programs(programs) => programs.carry_out(tree, id, op),
            Hands::Nfs(nfs) if self.patient => nfs.carry_out(tree, id, op).await,
            Hands::Nfs(nfs) => tokio::select! {
                biased;
                told = nfs.carry_out(tree, id, op) => told,
                () = life.death() => Told::Unanswered,
            },
        }
    }

    /// What cannot be done is refused, for the right reason, and changes nothing.
    async fn be_refused(
        &mut self,
        life: &Life,
        tree: &Tree,
        op: &Op,
        refusal: Refusal,
    ) -> Result<bool, String> {
        match self.told(life, tree, 0, op).await {
            Told::Refused(told) if told == refusal => Ok(true),
            // NFS servers may say so.
            Told::Refused(Refusal::Exists) if refusal == Refusal::NotEmpty => Ok(true),
            Told::Unanswered => Ok(false),
            Told::Doubtful | Told::Refused(_) if life.is_dead() => Ok(false),
            other => Err(format!("{op}: it should be refused ({refusal:?}), and it is: {other}")),
        }
    }

    /// One of its files, chosen at random: what was written is read.
    async fn read(&mut self, life: &Life) -> Result<bool, String> {
        let tree = self.ledger.now().clone();
        let files: Vec<&String> = tree.names.keys().filter(|path| tree.bytes(path).is_some()).collect();
        if files.is_empty() {
            return Ok(true);
        }
        let path = (*self.draw.chance().of(&files)).clone();
        let got = match &mut self.hands {
            Hands::Programs(programs) => programs.read(&tree, &path).map_err(|e| e.to_string()),
            Hands::Nfs(nfs) => tokio::select! {
                biased;
                got = nfs.read(&tree, &path) => got.map_err(|e| e.to_string()),
                () = life.death() => return Ok(false),
            },
        };
        let got = match got {
            Ok(got) => got,
            Err(e) => return self.unreadable(life, &path, &e).await,
        };
        let Some(Kind::File(wanted)) = tree.get(&path).map(|node| &node.kind) else { return Ok(true) };
        match bytes_differ(wanted, &got) {
            Some(told) => Err(format!("read {path}: {told}")),
            None => Ok(true),
        }
    }

    /// A failure, but of a tier that was killed.
    async fn unreadable(&self, life: &Life, path: &str, error: &str) -> Result<bool, String> {
        if life.is_killed().await { Ok(false) } else { Err(format!("read {path}: {error}")) }
    }

    /// After a crash: what is seen through NFS is what may be left, and from now on it is what there is.
    pub fn resolve(&mut self, sight: &Sight) -> Result<CrashLoss, String> {
        let resolved = self.ledger.resolve(&of_client(sight, self.number))?;
        let (tree, late) = (self.ledger.now(), self.late.take());
        match &mut self.hands {
            Hands::Nfs(nfs) => {
                // What the crash took, the next tier did not answer: its verifier must be another one.
                if let Some(ino) = late.filter(|_| !resolved.lost) {
                    nfs.answered_late(ino);
                }
                nfs.crashed(tree, self.patient);
            }
            Hands::Programs(programs) => programs.crashed(),
        }
        Ok(CrashLoss { files_changed: resolved.changed.len(), taken: resolved.taken })
    }

    /// What is seen is what there is, to the byte.
    pub fn compare(&self, sight: &Sight) -> Result<(), String> {
        let (tree, mine) = (self.ledger.now(), of_client(sight, self.number));
        difference(tree, &mine).or_else(|| times_differ(tree, &mine, |_| true)).map_or(Ok(()), Err)
    }

    pub fn is_nfs(&self) -> bool {
        matches!(self.hands, Hands::Nfs(_))
    }
}
