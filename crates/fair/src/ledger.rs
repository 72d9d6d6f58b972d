//! Who holds how much of a budget, and who gets what becomes free. Pure: amounts in, decisions out.
//!
//! A client gets at most a quarter, and never more than it leaves free for the others: so n clients that want more
//! than there is each end with all / (n + 1), and one that comes later finds as much as they have. Beside that there
//! is a reserve, of which a client gets its first piece and nothing else. When requests wait all the same, the one
//! whose client would have least is first, and clients that hold about as much are pressed to go on
//! (`peer_pace.rs`).

use std::collections::{BTreeSet, VecDeque};

/// The divisor of the reserve, for the first piece of each client.
const RESERVE_PART: usize = 8;
/// The divisor of the most that one client has.
const CLIENT_PART: usize = 4;

/// A client's index in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LedgerAccount(usize);

/// The number of a request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueTicket(u64);

#[derive(Debug)]
pub struct Ledger {
    all: usize,
    /// The largest amount of one request, which is the first piece of a client.
    piece: usize,
    used: usize,
    books: Vec<ClientBook>,
    closed: Vec<usize>,
    /// The first request in the queue of each client that waits for others, by what the client would have then.
    heads: BTreeSet<QueueHead>,
    next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueueHead {
    level: usize,
    ticket: QueueTicket,
    account: LedgerAccount,
}

#[derive(Debug, Default)]
struct ClientBook {
    held: usize,
    /// One piece at a time.
    on_probation: bool,
    waiting: VecDeque<(QueueTicket, usize)>,
    /// Its entry in `heads`.
    head: Option<QueueHead>,
}

impl Ledger {
    pub fn new(all: usize, piece: usize) -> Ledger {
        let all = all.max(piece);
        let (books, closed, heads) = Default::default();
        Ledger { all, piece, used: 0, books, closed, heads, next: 0 }
    }

    pub fn used(&self) -> usize {
        self.used
    }

    /// The most that one client ever has.
    pub fn client_max(&self) -> usize {
        (self.all / CLIENT_PART).max(self.piece)
    }

    pub fn open(&mut self) -> LedgerAccount {
        match self.closed.pop() {
            Some(place) => LedgerAccount(place),
            None => {
                self.books.push(ClientBook::default());
                LedgerAccount(self.books.len() - 1)
            }
        }
    }

    /// Closes an account that holds nothing and waits for nothing.
    pub fn close(&mut self, account: LedgerAccount) {
        debug_assert!(self.books[account.0].held == 0 && self.books[account.0].waiting.is_empty());
        self.books[account.0] = ClientBook::default();
        self.closed.push(account.0);
    }

    /// Requests an amount; `None`: it was granted at once.
    pub fn request(&mut self, account: LedgerAccount, amount: usize) -> Option<QueueTicket> {
        if self.try_request(account, amount) {
            return None;
        }
        let ticket = QueueTicket(self.next);
        self.next += 1;
        self.books[account.0].waiting.push_back((ticket, amount));
        self.rank(account);
        Some(ticket)
    }

    /// Grants an amount at once, or not at all. No waiting request of a client that would have less is passed.
    pub fn try_request(&mut self, account: LedgerAccount, amount: usize) -> bool {
        let book = &self.books[account.0];
        let level = book.held + amount;
        let is_next = book.waiting.is_empty() && self.heads.first().is_none_or(|head| level < head.level);
        let is_given = is_next && self.is_within_client_max(book, amount) && self.fits(level, amount);
        if is_given {
            self.books[account.0].held += amount;
            self.used += amount;
        }
        is_given
    }

    /// Releases an amount. Returns the requests that are granted by it; they hold theirs from now on.
    pub fn release(&mut self, account: LedgerAccount, amount: usize) -> Vec<QueueTicket> {
        let book = &mut self.books[account.0];
        debug_assert!(book.held >= amount);
        book.held -= amount;
        self.used -= amount;
        self.rank(account);
        self.serve()
    }

    /// Withdraws a request that waits.
    pub fn cancel(&mut self, account: LedgerAccount, ticket: QueueTicket) -> Vec<QueueTicket> {
        self.books[account.0].waiting.retain(|(known, _)| *known != ticket);
        self.rank(account);
        self.serve()
    }

    pub fn set_probation(&mut self, account: LedgerAccount, is_on: bool) -> Vec<QueueTicket> {
        self.books[account.0].on_probation = is_on;
        self.rank(account);
        self.serve()
    }

    pub fn is_on_probation(&self, account: LedgerAccount) -> bool {
        self.books[account.0].on_probation
    }

    /// Whether another client waits that would not have more than twice of what this one has: pieces are never quite
    /// the same.
    pub fn is_contended(&self, account: LedgerAccount) -> bool {
        let other = self.heads.iter().find(|head| head.account != account);
        other.is_some_and(|head| head.level <= 2 * self.books[account.0].held)
    }

    /// Whether the client's own limit allows it.
    fn is_within_client_max(&self, book: &ClientBook, amount: usize) -> bool {
        match book.on_probation {
            true => book.held == 0,
            false => book.held + amount <= self.client_max(),
        }
    }

    fn fits(&self, level: usize, amount: usize) -> bool {
        let free = self.all - self.used;
        let reserve = self.all / RESERVE_PART;
        amount <= free && (level <= self.piece || level + amount + reserve <= free)
    }

    /// Updates the client's entry in `heads` after any change. A client at its own limit waits for nobody else.
    fn rank(&mut self, account: LedgerAccount) {
        let book = &self.books[account.0];
        if book.waiting.is_empty() && book.head.is_none() {
            return; // the usual case
        }
        let first = book.waiting.front().filter(|(_, amount)| self.is_within_client_max(book, *amount));
        let head =
            first.map(|(ticket, amount)| QueueHead { level: book.held + amount, ticket: *ticket, account });
        if head == book.head {
            return;
        }
        let before = std::mem::replace(&mut self.books[account.0].head, head);
        before.map(|before| self.heads.remove(&before));
        head.map(|head| self.heads.insert(head));
    }

    fn serve(&mut self) -> Vec<QueueTicket> {
        let mut served = Vec::new();
        while let Some(head) = self.heads.first().copied() {
            let book = &self.books[head.account.0];
            let amount = head.level - book.held;
            if !self.fits(head.level, amount) {
                break;
            }
            let book = &mut self.books[head.account.0];
            book.waiting.pop_front();
            book.held += amount;
            self.used += amount;
            served.push(head.ticket);
            self.rank(head.account);
        }
        served
    }
}

#[cfg(test)]
mod tests;
