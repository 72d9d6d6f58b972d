//! Memory, counted in KiB: a budget over all connections, of which each client has its share (`ledger.rs`). A
//! request that finds no room waits. A client that was cut for holding memory which others waited for is on
//! probation: for a minute it gets one piece at a time.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::client_of;
use crate::ledger::{Ledger, LedgerAccount, QueueTicket};

/// The most clients that are remembered; each connection of more clients has a share of its own.
const CLIENTS_MAX: usize = 4096;
const PROBATION: Duration = Duration::from_secs(60);

/// A budget of memory over all connections.
#[derive(Debug)]
pub struct MemoryBudget {
    desk: Arc<LockedLedger>,
    clients: Mutex<HashMap<IpAddr, ClientBudget>>,
}

/// One client's share of a budget, the same for all of its connections.
#[derive(Clone, Debug)]
pub struct ClientBudget(Arc<ClientAccount>);

#[derive(Debug)]
struct ClientAccount {
    desk: Arc<LockedLedger>,
    account: LedgerAccount,
}

/// Permission to hold memory, released when it is dropped.
#[derive(Debug, Default)]
pub struct MemoryPermit(Option<HeldMemory>);

#[derive(Debug)]
struct HeldMemory {
    account: Arc<ClientAccount>,
    kib: usize,
}

#[derive(Debug)]
struct LockedLedger(Mutex<State>);

#[derive(Debug)]
struct State {
    ledger: Ledger,
    waiting: HashMap<QueueTicket, oneshot::Sender<()>>,
    /// When each probation ends, in that order.
    on_probation: VecDeque<(Instant, LedgerAccount)>,
}

impl LockedLedger {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn serve(&mut self, served: Vec<QueueTicket>) {
        for ticket in served {
            if let Some(waits) = self.waiting.remove(&ticket) {
                let _ = waits.send(()); // who has given up meanwhile gives it back
            }
        }
    }

    fn end_probations(&mut self) {
        if self.on_probation.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some((_, account)) = self.on_probation.pop_front_if(|(until, _)| *until <= now) {
            let served = self.ledger.set_probation(account, false);
            self.serve(served);
        }
    }
}

impl MemoryBudget {
    /// `largest`: the bytes of the largest permit; a budget has room for it.
    pub fn new(bytes: usize, largest: usize) -> MemoryBudget {
        let ledger = Ledger::new(bytes / 1024, largest.div_ceil(1024));
        let state = State { ledger, waiting: HashMap::new(), on_probation: VecDeque::new() };
        MemoryBudget { desk: Arc::new(LockedLedger(Mutex::new(state))), clients: Mutex::default() }
    }

    /// The share of the client at this address.
    pub fn share(&self, address: IpAddr) -> ClientBudget {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let client = client_of(address);
        if let Some(share) = clients.get(&client) {
            return share.clone();
        }
        let account = self.desk.lock().ledger.open();
        let share = ClientBudget(Arc::new(ClientAccount { desk: self.desk.clone(), account }));
        if clients.len() >= CLIENTS_MAX {
            clients.retain(|_, share| Arc::strong_count(&share.0) > 1 || share.is_on_probation());
        }
        if clients.len() < CLIENTS_MAX {
            clients.insert(client, share.clone());
        }
        share
    }

    /// The bytes that are in use.
    pub fn used(&self) -> usize {
        self.desk.lock().ledger.used() * 1024
    }
}

impl ClientBudget {
    /// Waits until the client may have `bytes` more, and they are free.
    pub async fn acquire(&self, bytes: usize) -> MemoryPermit {
        let (request, told) = {
            let mut state = self.0.desk.lock();
            state.end_probations();
            let kib = kib(bytes, &state.ledger);
            let held = HeldMemory { account: self.0.clone(), kib };
            let Some(ticket) = state.ledger.request(self.0.account, kib) else {
                return MemoryPermit(Some(held));
            };
            let (tell, told) = oneshot::channel();
            state.waiting.insert(ticket, tell);
            (QueuedRequest { ticket, held: Some(held) }, told)
        };
        let _ = told.await;
        request.into_permit()
    }

    /// As `acquire`, but does not wait; for a client that already holds a permit.
    pub fn try_acquire(&self, bytes: usize) -> Option<MemoryPermit> {
        let mut state = self.0.desk.lock();
        state.end_probations();
        let kib = kib(bytes, &state.ledger);
        let is_given = state.ledger.try_request(self.0.account, kib);
        is_given.then(|| MemoryPermit(Some(HeldMemory { account: self.0.clone(), kib })))
    }

    /// Whether another client waits that would not have much more than this one has.
    pub fn is_contended(&self) -> bool {
        let mut state = self.0.desk.lock();
        state.end_probations();
        state.ledger.is_contended(self.0.account)
    }

    /// Puts the client on probation: it held memory for which others waited, and did not go on.
    pub fn put_on_probation(&self) {
        let mut state = self.0.desk.lock();
        let account = self.0.account;
        state.on_probation.retain(|(_, known)| *known != account);
        state.on_probation.push_back((Instant::now() + PROBATION, account));
        let served = state.ledger.set_probation(account, true);
        state.serve(served);
    }

    fn is_on_probation(&self) -> bool {
        self.0.desk.lock().ledger.is_on_probation(self.0.account)
    }
}

/// The KiB of a permit: at most what one client may have.
fn kib(bytes: usize, ledger: &Ledger) -> usize {
    bytes.div_ceil(1024).min(ledger.client_max())
}

impl Drop for ClientAccount {
    /// By now no permit of it exists, and nobody waits.
    fn drop(&mut self) {
        let mut state = self.desk.lock();
        state.on_probation.retain(|(_, known)| *known != self.account);
        state.ledger.close(self.account);
    }
}

/// A request in the queue; dropped, it leaves the queue, and releases what was granted meanwhile.
struct QueuedRequest {
    ticket: QueueTicket,
    held: Option<HeldMemory>,
}

impl QueuedRequest {
    fn into_permit(mut self) -> MemoryPermit {
        MemoryPermit(self.held.take())
    }
}

impl Drop for QueuedRequest {
    fn drop(&mut self) {
        let Some(mut held) = self.held.take() else { return };
        let account = held.account.clone();
        let mut state = account.desk.lock();
        if state.waiting.remove(&self.ticket).is_some() {
            held.kib = 0; // it was not given yet
            let served = state.ledger.cancel(account.account, self.ticket);
            state.serve(served);
        }
        drop(state);
        drop(held);
    }
}

impl HeldMemory {
    fn release(&mut self, kib: usize) {
        let kib = kib.min(self.kib);
        if kib > 0 {
            self.kib -= kib;
            let mut state = self.account.desk.lock();
            let served = state.ledger.release(self.account.account, kib);
            state.serve(served);
        }
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.release(self.kib);
    }
}

impl MemoryPermit {
    /// Releases all but `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        if let Some(held) = &mut self.0 {
            held.release(held.kib.saturating_sub(bytes.div_ceil(1024)));
        }
    }

    /// Merges two permits of one share.
    pub fn merge(&mut self, more: MemoryPermit) {
        match (&mut self.0, more.0) {
            (Some(held), Some(mut more)) => held.kib += std::mem::take(&mut more.kib),
            (None, more) => self.0 = more,
            (Some(_), None) => {}
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|held| held.kib == 0)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const MIB: usize = 1 << 20;

    fn poll<T>(work: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match work.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    fn poll_take(share: &ClientBudget, bytes: usize) -> Option<MemoryPermit> {
        poll(pin!(share.acquire(bytes)))
    }

    fn client(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn all_connections_of_a_client_have_one_share() {
        let budget = MemoryBudget::new(8 * MIB, MIB);
        let shares = [budget.share(client(0)), budget.share(client(0))];
        let taken = [poll_take(&shares[0], MIB), poll_take(&shares[1], MIB)];
        assert!(taken.iter().all(Option::is_some));
        assert!(poll_take(&budget.share(client(0)), 1).is_none(), "a quarter is used up");
        assert!(poll_take(&budget.share(client(1)), MIB).is_some());
        assert_eq!(budget.used(), 2 * MIB);
        drop(taken);
        assert_eq!(budget.used(), 0);
        assert!(poll_take(&shares[0], MIB).is_some(), "what is given back can be taken");
    }

    #[test]
    fn a_budget_has_room_for_the_largest_whatever_was_configured() {
        let budget = MemoryBudget::new(0, MIB + 5);
        assert!(poll_take(&budget.share(client(0)), MIB + 5).is_some());
        assert!(poll_take(&budget.share(client(0)), usize::MAX).is_some(), "and takes it for more than that");
    }

    #[test]
    fn what_is_not_needed_is_given_back_at_once_and_more_can_be_added() {
        let budget = MemoryBudget::new(8 * MIB, MIB);
        let share = budget.share(client(0));
        let mut permit = poll_take(&share, MIB).expect("room");
        permit.shrink_to(3 << 10);
        assert_eq!(budget.used(), 3 << 10);
        permit.merge(share.try_acquire(5 << 10).expect("room"));
        assert_eq!(budget.used(), 8 << 10);
        permit.shrink_to(0);
        assert!(permit.is_empty());
        drop(permit);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn who_waits_has_what_is_given_back_and_who_gives_up_leaves_nothing_behind() {
        let budget = MemoryBudget::new(4 * MIB, MIB);
        let shares: Vec<_> = (0..6).map(|last| budget.share(client(last))).collect();
        let mut held: Vec<_> = shares[..4].iter().map(|share| poll_take(share, MIB)).collect();
        assert!(held.iter().all(Option::is_some) && !shares[0].is_contended());
        let mut first = Box::pin(shares[4].acquire(MIB));
        let mut second = Box::pin(shares[5].acquire(MIB));
        assert!(poll(first.as_mut()).is_none() && poll(second.as_mut()).is_none());
        assert!(shares[0].is_contended());
        held.pop();
        drop(first); // it was its turn
        assert!(poll(second.as_mut()).is_some_and(|permit| !permit.is_empty()), "so it is the next one's");
        drop(second);
        assert!(!shares[0].is_contended());
        assert_eq!(budget.used(), 3 * MIB);
        held.clear();
        assert_eq!(budget.used(), 0);
        drop(shares);
        assert!(budget.desk.lock().waiting.is_empty());
    }

    #[test]
    fn probation_outlives_the_connections_of_a_client() {
        let budget = MemoryBudget::new(64 * MIB, MIB);
        budget.share(client(0)).put_on_probation();
        let share = budget.share(client(0));
        let first = poll_take(&share, 1);
        assert!(first.is_some() && poll_take(&budget.share(client(0)), 1).is_none());
        assert!(poll_take(&budget.share(client(1)), 1).is_some(), "others have all of theirs");
        drop(first);
        assert!(poll_take(&share, 1).is_some());
    }
}
