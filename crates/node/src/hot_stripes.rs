//! Which stripes are read so much by other nodes that more nodes than wanted are to serve them. Pure: the caller brings the time.
//!
//! Each node counts the bytes of each stripe that it serves to others, window by window. A stripe of which it served as much as the
//! rate says becomes hot: the node says so in its answers ([`HotStripe`]: over how many ranks reads are to be spread, and for how
//! long), and whoever hears it asks the ranks in turn, which fetch the bytes from the primary with the first read, and keep them. Still
//! too much for one node, it is spread over one rank more with each window. It stays hot while all ranks together serve half of the
//! rate, as this node estimates from its own share, and else cools down by itself: what was said holds for three windows.
//!
//! Nothing of it is kept anywhere else, and who was not told asks the primary as ever.
//!
//! Bounds: a window counts the first [`COUNTED_MAX`] stripes that it meets (one that is read often is among them); of these the
//! [`HOTTER_MAX`] with the most bytes can become hotter; [`HOT_MAX`] are remembered. What was told is handed on with the time that is
//! left of it, so that two nodes do not keep it alive by telling each other.

use std::collections::HashMap;
use std::time::Duration;

use cluster::Stripe;
use peer::message::HotStripe;

/// Stripes that are counted in one window.
const COUNTED_MAX: usize = 4096;
/// Stripes that become hot, or are spread over one rank more, in one window.
const HOTTER_MAX: usize = 64;
/// Hot stripes that are remembered.
const HOT_MAX: usize = 1024;
/// Windows for which a stripe is said to be hot.
const WINDOWS: u32 = 3;
/// Nobody is believed for longer.
const LASTS_MAX: Duration = Duration::from_secs(60);

/// When a stripe is hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeatConfig {
    /// Bytes per second of one stripe that a node serves to other nodes. 0: none becomes hot here.
    pub rate: u64,
    /// Over which it is measured.
    pub window: Duration,
}

impl Default for HeatConfig {
    fn default() -> HeatConfig {
        // A fifth of 10 Gbit/s.
        HeatConfig { rate: 250_000_000, window: Duration::from_secs(10) }
    }
}

#[derive(Debug)]
pub struct HotStripes {
    config: HeatConfig,
    /// When the window began.
    begun: Duration,
    served: HashMap<Stripe, Served>,
    hot: HashMap<Stripe, Heat>,
}

#[derive(Clone, Copy, Debug)]
struct Served {
    bytes: u64,
    /// Nodes that are to keep the stripe anyway, and the most that can.
    wanted: usize,
    nodes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Heat {
    ranks: usize,
    until: Duration,
}

impl HotStripes {
    pub fn new(config: HeatConfig) -> HotStripes {
        HotStripes { config, begun: Duration::ZERO, served: HashMap::new(), hot: HashMap::new() }
    }

    /// So many bytes of a stripe go to another node, of `nodes` in the map; `wanted` are to keep it. What the answer says of it.
    pub fn serve(
        &mut self,
        stripe: Stripe,
        bytes: u64,
        (wanted, nodes): (usize, usize),
        now: Duration,
    ) -> Option<HotStripe> {
        if self.config.rate > 0 {
            if now >= self.begun + self.config.window {
                self.end_window(now);
            }
            if self.served.len() < COUNTED_MAX || self.served.contains_key(&stripe) {
                let served = self.served.entry(stripe).or_insert(Served { bytes: 0, wanted, nodes });
                (served.wanted, served.nodes) = (wanted, nodes);
                served.bytes = served.bytes.saturating_add(bytes);
            }
        }
        self.heat_of(stripe, now)
    }

    /// Another node says so.
    pub fn told(&mut self, stripe: Stripe, hot: HotStripe, now: Duration) {
        self.set(stripe, usize::from(hot.ranks), now + hot.lasts.min(LASTS_MAX), now);
    }

    /// Over how many ranks reads of a stripe are spread. `None`: it is not hot.
    pub fn ranks(&self, stripe: Stripe, now: Duration) -> Option<usize> {
        self.hot.get(&stripe).filter(|heat| now < heat.until).map(|heat| heat.ranks)
    }

    /// Those that are hot now.
    pub fn count(&self, now: Duration) -> usize {
        self.hot.values().filter(|heat| now < heat.until).count()
    }

    fn heat_of(&self, stripe: Stripe, now: Duration) -> Option<HotStripe> {
        let heat = self.hot.get(&stripe).filter(|heat| now < heat.until)?;
        Some(HotStripe { ranks: u8::try_from(heat.ranks).unwrap_or(u8::MAX), lasts: heat.until - now })
    }

    /// What the window has shown. It may have lasted long, if nothing was served: then its rate is low, and the next one decides.
    fn end_window(&mut self, now: Duration) {
        let lasted = now.saturating_sub(self.begun).as_millis().max(1);
        self.begun = now;
        self.hot.retain(|_, heat| now < heat.until);
        let rate = |bytes: u64| u128::from(bytes) * 1000 / lasted;
        let mut served: Vec<(Stripe, Served)> = self.served.drain().collect();
        served.sort_unstable_by_key(|(_, served)| std::cmp::Reverse(served.bytes));
        let (limit, until) = (u128::from(self.config.rate), now + self.config.window * WINDOWS);
        let mut hotter = 0;
        for (stripe, served) in served {
            let (rate, known) = (rate(served.bytes), self.hot.get(&stripe).map(|heat| heat.ranks));
            let all = rate * known.unwrap_or(1) as u128;
            if rate >= limit && hotter < HOTTER_MAX {
                hotter += 1;
                // First over those that keep it anyway.
                let ranks = known.map_or(served.wanted.max(2), |ranks| ranks + 1);
                self.set(stripe, ranks.min(served.nodes), until, now);
            } else if let Some(ranks) = known.filter(|_| all >= limit / 2) {
                self.set(stripe, ranks, until, now);
            }
        }
    }

    /// Of two words about one stripe the larger number and the later end count.
    fn set(&mut self, stripe: Stripe, ranks: usize, until: Duration, now: Duration) {
        if ranks < 2 || until <= now {
            return;
        }
        if self.hot.len() >= HOT_MAX && !self.hot.contains_key(&stripe) {
            self.hot.retain(|_, heat| now < heat.until);
            if self.hot.len() >= HOT_MAX {
                return;
            }
        }
        let heat = self.hot.entry(stripe).or_insert(Heat { ranks, until });
        if heat.until <= now {
            *heat = Heat { ranks, until };
        }
        *heat = Heat { ranks: heat.ranks.max(ranks), until: heat.until.max(until) };
    }
}

#[cfg(test)]
mod tests {
    use types::FileId;

    use super::*;

    const RATE: u64 = 1000;

    fn stripe(n: u32) -> Stripe {
        Stripe { file: FileId(u128::from(n).to_be_bytes()), index: 0 }
    }

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn stripes() -> HotStripes {
        HotStripes::new(HeatConfig { rate: RATE, window: secs(10) })
    }

    /// Serves so many bytes of stripe 1 in each second.
    fn serve(hot: &mut HotStripes, seconds: std::ops::Range<u64>, bytes: u64) {
        seconds.for_each(|at| {
            let _ = hot.serve(stripe(1), bytes, (1, 5), secs(at));
        });
    }

    #[test]
    fn a_stripe_that_is_served_much_is_spread_over_more_ranks_up_to_all_nodes_and_cools_down() {
        let mut hot = stripes();
        serve(&mut hot, 0..10, RATE);
        assert_eq!(hot.ranks(stripe(1), secs(9)), None, "before a window has passed nothing is known");
        let told = hot.serve(stripe(1), RATE, (1, 5), secs(10)).expect("it is hot");
        assert_eq!((told.ranks, told.lasts), (2, secs(30)));
        serve(&mut hot, 11..21, RATE);
        assert_eq!(hot.ranks(stripe(1), secs(20)), Some(3), "still too much for this node");
        serve(&mut hot, 21..101, RATE);
        assert_eq!(hot.ranks(stripe(1), secs(100)), Some(5), "there are no more nodes");
        let last = hot.hot[&stripe(1)].until;
        assert!(last <= secs(130));
        assert_eq!((hot.ranks(stripe(1), last - secs(1)), hot.ranks(stripe(1), last)), (Some(5), None));
        assert_eq!(hot.count(last), 0);
        assert_eq!(hot.serve(stripe(1), 1, (1, 5), last), None);
    }

    #[test]
    fn it_stays_hot_while_all_ranks_together_serve_half_of_the_rate_and_not_below() {
        for (share, stays) in [(RATE / 4 + 1, true), (RATE / 4 - 1, false)] {
            let mut hot = stripes();
            serve(&mut hot, 0..11, RATE);
            assert_eq!(hot.ranks(stripe(1), secs(10)), Some(2));
            serve(&mut hot, 11..101, share);
            let expected = stays.then_some(2);
            assert_eq!(
                hot.ranks(stripe(1), secs(100)),
                expected,
                "a share of {share}, neither more nor fewer ranks"
            );
        }
    }

    #[test]
    fn a_burst_that_is_shorter_than_a_window_and_a_stripe_of_which_little_is_read_are_not_hot() {
        let mut hot = stripes();
        serve(&mut hot, 0..9, RATE);
        serve(&mut hot, 15..16, RATE);
        assert_eq!(hot.ranks(stripe(1), secs(15)), None, "the rate is of all that time");
        let mut hot = stripes();
        serve(&mut hot, 0..100, RATE - 1);
        assert_eq!(hot.count(secs(99)), 0);
        let mut never = HotStripes::new(HeatConfig { rate: 0, window: secs(10) });
        serve(&mut never, 0..100, u64::MAX);
        assert!(never.count(secs(99)) == 0 && never.served.is_empty());
    }

    #[test]
    fn a_stripe_that_several_keep_is_spread_over_those_first() {
        let mut hot = stripes();
        (0..11).for_each(|at| {
            let _ = hot.serve(stripe(1), RATE, (3, 5), secs(at));
        });
        assert_eq!(hot.ranks(stripe(1), secs(10)), Some(3));
        let mut alone = stripes();
        (0..50).for_each(|at| {
            let _ = alone.serve(stripe(1), RATE, (1, 1), secs(at));
        });
        assert_eq!(alone.ranks(stripe(1), secs(49)), None, "there is no other node");
    }

    #[test]
    fn what_was_told_is_handed_on_with_the_time_that_is_left_and_for_a_minute_at_most() {
        let (mut one, mut two) = (stripes(), stripes());
        one.told(stripe(1), HotStripe { ranks: 4, lasts: secs(30) }, secs(0));
        for at in 0..30 {
            let told = one.serve(stripe(1), 0, (1, 5), secs(at)).expect("it is hot");
            two.told(stripe(1), told, secs(at));
            let told = two.serve(stripe(1), 0, (1, 5), secs(at)).expect("it is hot");
            one.told(stripe(1), told, secs(at));
        }
        assert_eq!((one.ranks(stripe(1), secs(29)), one.ranks(stripe(1), secs(30))), (Some(4), None));
        assert_eq!(two.ranks(stripe(1), secs(30)), None);
        one.told(stripe(2), HotStripe { ranks: 4, lasts: secs(1 << 30) }, secs(100));
        assert_eq!((one.ranks(stripe(2), secs(159)), one.ranks(stripe(2), secs(160))), (Some(4), None));
        one.told(stripe(2), HotStripe { ranks: 2, lasts: secs(10) }, secs(200));
        assert_eq!(one.ranks(stripe(2), secs(200)), Some(2), "what is over counts for nothing");
    }

    #[test]
    fn neither_many_stripes_nor_many_hot_ones_take_more_than_their_room() {
        let mut hot = stripes();
        for at in 0..10 {
            for n in 0..2 * COUNTED_MAX as u32 {
                hot.serve(stripe(n), RATE, (1, 5), secs(at));
            }
            assert!(hot.served.len() <= COUNTED_MAX);
        }
        hot.serve(stripe(0), 1, (1, 5), secs(10));
        assert_eq!(hot.count(secs(10)), HOTTER_MAX, "no storm");
        for n in 0..2 * HOT_MAX as u32 {
            hot.told(stripe(100_000 + n), HotStripe { ranks: 2, lasts: secs(10) }, secs(11));
        }
        assert_eq!(hot.hot.len(), HOT_MAX);
        hot.told(stripe(7), HotStripe { ranks: 2, lasts: secs(10) }, secs(50));
        assert_eq!(hot.count(secs(50)), 1, "what is over makes room");
    }
}
