use std::collections::HashMap;

use super::*;

const ALL: usize = 128 << 10;
const PIECE: usize = 2 << 10;

fn ledger(clients: usize) -> (Ledger, Vec<LedgerAccount>) {
    let mut ledger = Ledger::new(ALL, PIECE);
    let accounts = (0..clients).map(|_| ledger.open()).collect();
    (ledger, accounts)
}

/// Takes pieces until it must wait; what it has then.
fn fill(ledger: &mut Ledger, account: LedgerAccount, piece: usize) -> usize {
    while ledger.try_request(account, piece) {}
    ledger.books[account.0].held
}

#[test]
fn a_client_takes_a_quarter_and_never_more_than_it_leaves_to_others() {
    let (mut ledger, accounts) = ledger(100);
    assert_eq!(fill(&mut ledger, accounts[0], 1 << 10), ALL / 4);
    let mut before = ALL / 4;
    for account in &accounts[1..7] {
        let held = fill(&mut ledger, *account, 64);
        let free = ALL - ledger.used();
        assert!(held <= before && held <= free, "{held} beside {free}");
        before = held;
    }
    for account in &accounts[7..] {
        let free = ALL - ledger.used();
        let held = fill(&mut ledger, *account, PIECE);
        assert_eq!(held, if free >= PIECE { PIECE } else { 0 }, "a first piece, as long as there are any");
    }
    assert!(ledger.used() > ALL - PIECE);
}

#[test]
fn beside_four_that_take_all_they_get_a_fifth_works_as_if_alone() {
    let (mut ledger, accounts) = ledger(5);
    for round in 0..20 {
        for account in &accounts[..4] {
            fill(&mut ledger, *account, if round == 0 { PIECE } else { 1 << 10 });
        }
        for amount in [64, 1 << 10, PIECE] {
            assert!(ledger.try_request(accounts[4], amount));
            ledger.release(accounts[4], amount);
        }
    }
    assert!(fill(&mut ledger, accounts[4], 1 << 10) >= 2 * PIECE, "and with several at a time");
}

#[test]
fn those_that_want_more_than_there_is_end_with_equal_shares() {
    let (mut ledger, accounts) = ledger(9);
    for account in &accounts[..8] {
        while ledger.request(*account, 64).is_none() {}
        for _ in 0..2000 {
            ledger.request(*account, 64);
        }
    }
    // All of them go on, piece by piece.
    for _ in 0..4000 {
        for account in &accounts[..8] {
            if ledger.books[account.0].held > 0 {
                ledger.release(*account, 64);
            }
        }
        let waits = |a: &LedgerAccount| ledger.books[a.0].waiting.len() > 500;
        if !accounts[..8].iter().all(waits) {
            break;
        }
    }
    let held: Vec<_> = accounts[..8].iter().map(|a| ledger.books[a.0].held).collect();
    let (least, most) = (held.iter().min(), held.iter().max());
    assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 128), "{held:?}");
    let even = (ALL - ALL / 8) / 9;
    assert!(held.iter().all(|held| held.abs_diff(even) <= 1 << 10), "{held:?}, even would be {even}");
}

#[test]
fn who_waits_presses_those_that_have_about_as_much_and_not_itself() {
    let (mut ledger, accounts) = ledger(40);
    let [big, small, waits] = [accounts[0], accounts[1], accounts[2]];
    fill(&mut ledger, big, PIECE);
    assert!(ledger.request(big, PIECE).is_some());
    assert!(!ledger.is_contended(big), "it waits for its own");
    assert!(ledger.try_request(small, 64));
    for account in &accounts[3..] {
        fill(&mut ledger, *account, PIECE);
    }
    let ticket = ledger.request(waits, PIECE).expect("nothing is left");
    assert!(ledger.is_contended(big) && ledger.is_contended(accounts[5]));
    assert!(!ledger.is_contended(small), "it has less than the other wants");
    assert!(!ledger.is_contended(waits));
    assert_eq!(ledger.cancel(waits, ticket), []);
    assert!(!ledger.is_contended(big));
}

#[test]
fn on_probation_a_client_has_one_piece_at_a_time() {
    let (mut ledger, accounts) = ledger(2);
    assert_eq!(ledger.set_probation(accounts[0], true), []);
    assert!(ledger.try_request(accounts[0], PIECE) && !ledger.try_request(accounts[0], 1));
    let ticket = ledger.request(accounts[0], 1).expect("it waits");
    assert!(
        ledger.try_request(accounts[1], PIECE) && ledger.try_request(accounts[1], PIECE),
        "others have theirs"
    );
    assert_eq!(ledger.release(accounts[0], PIECE), [ticket]);
    let ticket = ledger.request(accounts[0], 1).expect("it waits");
    assert_eq!(ledger.set_probation(accounts[0], false), [ticket]);
}

type Line = VecDeque<(QueueTicket, usize)>;

/// The same by looking at everybody each time.
#[derive(Default)]
struct Naive {
    /// What each holds, whether it is on probation, and what it waits for.
    clients: Vec<(usize, bool, Line)>,
}

impl Naive {
    fn used(&self) -> usize {
        self.clients.iter().map(|(held, ..)| held).sum()
    }

    fn serve(&mut self) -> Vec<QueueTicket> {
        let mut served = Vec::new();
        loop {
            let free = ALL - self.used();
            let next = self.clients.iter().enumerate().filter_map(|(at, (held, on_probation, waiting))| {
                let (ticket, amount) = *waiting.front()?;
                let own = if *on_probation { *held == 0 } else { held + amount <= ALL / 4 };
                own.then_some((held + amount, ticket, at, amount))
            });
            let Some((level, ticket, at, amount)) = next.min() else { return served };
            let fits = amount <= free && (level <= PIECE || level + amount + ALL / 8 <= free);
            if !fits {
                return served;
            }
            self.clients[at].0 += amount;
            self.clients[at].2.pop_front();
            served.push(ticket);
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

#[test]
fn random_asks_are_served_as_by_looking_at_everybody_each_time() {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let seed = match std::env::var("FOREBAY_SEED") {
        Ok(seed) => seed.parse().expect("a number"),
        Err(_) => time.as_nanos() as u64 | 1,
    };
    println!("FOREBAY_SEED={seed}");
    let mut random = Random(seed);
    for _ in 0..40 {
        let clients = 1 + random.below(12);
        let (mut ledger, accounts) = ledger(clients);
        let mut naive = Naive { clients: vec![Default::default(); clients] };
        let mut held: Vec<(usize, usize)> = Vec::new();
        let mut waiting: HashMap<QueueTicket, (usize, usize)> = HashMap::new();
        for _ in 0..600 {
            let at = random.below(clients);
            let (mut expected, served) = match random.below(10) {
                0..=5 => {
                    let amount = 1 + random.below(PIECE);
                    let ticket = ledger.request(accounts[at], amount);
                    // In the other one all of them wait for a moment.
                    let known = ticket.unwrap_or(QueueTicket(u64::MAX));
                    naive.clients[at].2.push_back((known, amount));
                    let mut expected = naive.serve();
                    match ticket {
                        None => {
                            assert_eq!(expected.pop(), Some(known), "given at once, and there was no room");
                            held.push((at, amount));
                        }
                        Some(ticket) => drop(waiting.insert(ticket, (at, amount))),
                    }
                    (expected, Vec::new())
                }
                6..=7 if !held.is_empty() => {
                    let (at, amount) = held.swap_remove(random.below(held.len()));
                    naive.clients[at].0 -= amount;
                    (naive.serve(), ledger.release(accounts[at], amount))
                }
                8 if !waiting.is_empty() => {
                    let ticket = *waiting.keys().min().expect("one");
                    let (at, _) = waiting.remove(&ticket).expect("known");
                    naive.clients[at].2.retain(|(known, _)| *known != ticket);
                    (naive.serve(), ledger.cancel(accounts[at], ticket))
                }
                9 => {
                    let is_on = random.below(3) == 0;
                    naive.clients[at].1 = is_on;
                    (naive.serve(), ledger.set_probation(accounts[at], is_on))
                }
                _ => continue,
            };
            expected.retain(|ticket| waiting.contains_key(ticket));
            assert_eq!(served, expected);
            held.extend(served.iter().map(|ticket| waiting.remove(ticket).expect("it waited")));
            for (at, account) in accounts.iter().enumerate() {
                let own = naive.clients[at].0;
                assert_eq!(ledger.books[account.0].held, own);
                assert!(own <= ALL / 4, "no more than a quarter");
            }
            assert_eq!(ledger.used(), naive.used());
            assert!(ledger.used() <= ALL);
        }
        for account in &accounts {
            let served = ledger.set_probation(*account, false);
            held.extend(served.iter().map(|ticket| waiting.remove(ticket).expect("it waited")));
        }
        while let Some((at, amount)) = held.pop() {
            let served = ledger.release(accounts[at], amount);
            held.extend(served.iter().map(|ticket| waiting.remove(ticket).expect("it waited")));
        }
        assert!(waiting.is_empty() && ledger.used() == 0 && ledger.heads.is_empty(), "nobody waits for ever");
        accounts.into_iter().for_each(|account| ledger.close(account));
    }
}
