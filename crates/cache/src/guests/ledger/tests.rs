use std::collections::{BTreeMap, BTreeSet};

use types::BLOCK_SIZE;

use super::*;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 3 * STRIPE_BLOCKS * BLOCK_SIZE - 5;

fn stripe(file: u8, number: u64) -> StripeId {
    (FileId([file; 16]), Version([1; 16]), number)
}

fn blocks(of: Range<u64>) -> BlockSet {
    BlockSet::of(of)
}

fn add(ledger: &mut GuestLedger, stripe: StripeId, blocks: &BlockSet, ahead: bool, now_ms: u64) {
    ledger.add(stripe, &AddedBlocks { size: SIZE, blocks, pair: 7 }, ahead, now_ms);
}

/// As the one who evicts does.
fn evict(ledger: &mut GuestLedger, departure: &Departure) {
    ledger.are_absent(departure.stripe, &departure.blocks);
}

#[test]
fn the_oldest_guest_goes_first_and_what_was_read_before_it() {
    let mut ledger = GuestLedger::default();
    for file in 1..=3 {
        add(&mut ledger, stripe(file, 0), &blocks(0..4), false, 0);
    }
    add(&mut ledger, stripe(4, 0), &blocks(0..4), true, 0);
    // It has grown, so it is not the oldest any more.
    add(&mut ledger, stripe(1, 0), &blocks(4..5), false, 0);
    ledger.was_read(stripe(4, 0), &blocks(0..2), &blocks(0..2), false, u64::MAX, 1);
    let mut gone = Vec::new();
    while let Some(departure) = ledger.next_to_go(false, 2) {
        gone.push((departure.stripe, departure.blocks.blocks().count(), departure.is_all));
        evict(&mut ledger, &departure);
    }
    let expected = [(4, 2, false), (2, 4, true), (3, 4, true), (4, 2, true), (1, 5, true)];
    assert_eq!(gone, expected.map(|(file, count, all)| (stripe(file, 0), count, all)));
    assert!(ledger.is_empty() && ledger.bytes() == 0 && ledger.unread_bytes() == 0);
}

#[test]
fn what_waits_for_its_reader_is_spared_where_that_is_asked_until_nobody_is_expected() {
    let mut ledger = GuestLedger::default();
    add(&mut ledger, stripe(1, 0), &blocks(0..4), true, 100);
    assert_eq!(ledger.next_to_go(true, 101), None);
    add(&mut ledger, stripe(2, 0), &blocks(0..1), false, 100);
    assert_eq!(ledger.next_to_go(true, 101).map(|next| next.stripe), Some(stripe(2, 0)));
    assert_eq!(ledger.next_to_go(true, 101).map(|next| next.stripe), Some(stripe(2, 0)), "it did not go");
    ledger.expect_no_more(100 + READER_PATIENCE_MS - 1);
    assert!(ledger.unread_bytes() > 0);
    ledger.expect_no_more(100 + READER_PATIENCE_MS);
    assert_eq!(ledger.unread_bytes(), 0);
    assert_eq!(ledger.next_to_go(true, 101).map(|next| next.stripe), Some(stripe(1, 0)));
}

#[test]
fn what_was_read_leaves_after_a_while_or_when_there_is_much_of_it_and_stays_if_it_was_read_twice() {
    let mut ledger = GuestLedger::default();
    add(&mut ledger, stripe(1, 0), &blocks(0..32), true, 0);
    // Of the last block only a piece was read.
    ledger.was_read(stripe(1, 0), &blocks(0..3), &blocks(0..2), false, u64::MAX, 10);
    assert_eq!(ledger.next_read(MIB, 10 + READ_STAYS_MS - 1), None);
    let due = ledger.next_read(MIB, 10 + READ_STAYS_MS).expect("it is time");
    assert_eq!((&due.blocks, due.is_all), (&blocks(0..2), false));
    // In use: later.
    ledger.put_off(&due, 20);
    assert_eq!(ledger.next_read(0, 20), None);
    assert_eq!(ledger.next_read(0, 21), Some(due));
    ledger.was_read(stripe(1, 0), &blocks(2..32), &blocks(2..32), true, 100, 30);
    assert!(ledger.settled_bytes() == 0, "there is no room for it among those that stay");
    ledger.was_read(stripe(1, 0), &blocks(0..32), &blocks(0..32), true, 10 * MIB, 30);
    assert_eq!(ledger.settled_bytes(), ledger.bytes(), "all of it stays");
    assert_eq!(ledger.next_read(0, u64::MAX), None);
}

#[test]
fn bytes_on_their_way_count_and_only_what_waits_for_a_reader_cannot_make_room() {
    let mut ledger = GuestLedger::default();
    add(&mut ledger, stripe(1, 1), &blocks(0..4), false, 0);
    add(&mut ledger, stripe(1, 2), &blocks(0..4), true, 0);
    let each = 4 * BLOCK_SIZE;
    assert_eq!((ledger.bytes(), ledger.unread_bytes()), (2 * each, each));
    assert!(ledger.has_room(each, 3 * each) && !ledger.has_room(each + 1, 3 * each));
    assert!(ledger.can_have_room(2 * each, 3 * each) && !ledger.can_have_room(2 * each + 1, 3 * each));
    ledger.promise(each);
    assert!(!ledger.has_room(1, 3 * each) && !ledger.can_have_room(each + 1, 3 * each));
    ledger.promise_is_over(each);
    assert!(ledger.has_room(each, 3 * each));
}

#[test]
fn blocks_of_a_pair_that_was_dropped_touch_nothing_of_the_one_that_came_after_it() {
    let mut ledger = GuestLedger::default();
    let some = blocks(0..4);
    let of = |pair| AddedBlocks { size: SIZE, blocks: &some, pair };
    ledger.add(stripe(1, 1), &of(3), false, 0);
    // The first pair is dropped while blocks come into it, and there is another one.
    ledger.forget(stripe(1, 1).0, stripe(1, 1).1, 0..u64::MAX);
    ledger.add(stripe(1, 1), &of(3), false, 0);
    ledger.add(stripe(1, 1), &of(5), false, 0);
    ledger.take_back(stripe(1, 1), &some, 3);
    assert_eq!(ledger.bytes(), 4 * BLOCK_SIZE, "those of the second are counted");
    ledger.add(stripe(1, 1), &AddedBlocks { blocks: &blocks(4..8), ..of(3) }, false, 0);
    assert_eq!(ledger.bytes(), 4 * BLOCK_SIZE, "those that come into the first are not");
    ledger.take_back(stripe(1, 1), &some, 5);
    assert!(ledger.is_empty());
}

/// The same, as sets of blocks and without sums.
#[derive(Default)]
struct Model {
    guests: BTreeMap<StripeId, [BTreeSet<u64>; 3]>,
}

impl Model {
    fn bytes(&self, which: usize) -> u64 {
        let of = |(stripe, sets): (&StripeId, &[BTreeSet<u64>; 3])| {
            let room = |block: &u64| room_of_block(stripe.2 * STRIPE_BLOCKS + block, SIZE);
            sets[which].iter().map(room).sum::<u64>()
        };
        self.guests.iter().map(of).sum()
    }

    fn take_off(&mut self, stripe: StripeId, gone: &BTreeSet<u64>) {
        if let Some(sets) = self.guests.get_mut(&stripe) {
            sets.iter_mut().for_each(|set| set.retain(|block| !gone.contains(block)));
        }
        self.guests.retain(|_, sets| !sets[0].is_empty());
    }
}

#[test]
fn after_any_operations_the_sums_are_those_of_the_blocks() {
    let mut state = 1_u64;
    let mut random = move |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let (mut ledger, mut model, mut now) = (GuestLedger::default(), Model::default(), 0);
    let numbers = |set: &BlockSet| set.blocks().collect::<BTreeSet<u64>>();
    for step in 0..20_000 {
        now += random(300);
        let id = stripe(random(3) as u8, random(3));
        // The file ends in its third stripe.
        let start = random(STRIPE_BLOCKS - 40);
        let some = blocks(start..start + random(40));
        let touched = numbers(&some);
        match random(8) {
            0 | 1 => {
                let ahead = random(2) == 0;
                if touched.is_empty() {
                    continue;
                }
                add(&mut ledger, id, &some, ahead, now);
                let sets = model.guests.entry(id).or_default();
                let new: Vec<u64> = touched.difference(&sets[0]).copied().collect();
                sets[0].extend(&new);
                if ahead {
                    sets[1].extend(&new);
                }
            }
            2 | 3 => {
                let stays = random(2) == 0;
                ledger.was_read(id, &some, &some, stays, u64::MAX, now);
                if let Some(sets) = model.guests.get_mut(&id) {
                    let unread: Vec<u64> = sets[1].intersection(&touched).copied().collect();
                    sets[1].retain(|block| !touched.contains(block));
                    if stays {
                        sets[2].retain(|block| !touched.contains(block));
                    } else {
                        sets[2].extend(&unread);
                    }
                }
            }
            4 => {
                let from = id.2 * STRIPE_BLOCKS;
                let all = model.guests.get(&id).map_or(0, |sets| {
                    let gone = sets[0].iter().filter(|block| **block >= start);
                    gone.map(|block| room_of_block(from + block, SIZE)).sum()
                });
                let gone = ledger.forget(id.0, id.1, from + start..from + STRIPE_BLOCKS);
                assert_eq!(gone, all, "step {step}");
                model.take_off(id, &(start..STRIPE_BLOCKS).collect());
            }
            5 => {
                let spare = random(2) == 0;
                let next = ledger.next_to_go(spare, now);
                let is_left = |sets: &[BTreeSet<u64>; 3]| !spare || sets[0].len() > sets[1].len();
                if next.is_none() {
                    // What was read just now cannot be told apart from what was put off.
                    let only_read = |sets: &&[BTreeSet<u64>; 3]| is_left(sets);
                    assert_eq!(model.guests.values().filter(only_read).count(), 0, "step {step}");
                }
                let Some(next) = next else { continue };
                let sets = &model.guests[&next.stripe];
                let gone = numbers(&next.blocks);
                assert!(!gone.is_empty() && gone.is_subset(&sets[0]), "step {step}");
                assert!(!spare || gone.is_disjoint(&sets[1]), "step {step}");
                assert_eq!(next.is_all, gone == sets[0], "step {step}");
                if random(3) == 0 {
                    ledger.put_off(&next, now);
                } else {
                    evict(&mut ledger, &next);
                    model.take_off(next.stripe, &gone);
                }
            }
            6 => {
                ledger.expect_no_more(now);
                // Which were given up is the ledger's matter: it may only be fewer that are expected.
                let unread = ledger.unread_bytes();
                assert!(unread <= model.bytes(1), "step {step}");
                for (stripe, sets) in &mut model.guests {
                    sets[1] = numbers(&ledger.guests[stripe].unread);
                }
            }
            _ => {
                if random(20) == 0 {
                    ledger.forget_file(id.0);
                    model.guests.retain(|stripe, _| stripe.0 != id.0);
                }
            }
        }
        assert_eq!(ledger.bytes(), model.bytes(0), "step {step}");
        assert_eq!(ledger.unread_bytes(), model.bytes(1), "step {step}");
        assert_eq!(
            ledger.bytes() - ledger.settled_bytes() - ledger.unread_bytes(),
            model.bytes(2),
            "step {step}"
        );
        assert_eq!(ledger.guests.keys().collect::<Vec<_>>(), model.guests.keys().collect::<Vec<_>>());
        assert_eq!(ledger.order.len(), ledger.guests.len(), "step {step}");
    }
}
