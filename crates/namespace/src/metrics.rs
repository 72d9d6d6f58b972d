//! What the namespace counts.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

#[derive(Default)]
pub struct Metrics {
    /// Questions answered from what is known.
    pub hits: Counter,
    /// Questions that had to go to the origin.
    pub misses: Counter,
    /// Whole directories fetched.
    pub listings: Counter,
    /// Of these, not followed to an end: they had none, or made no sense.
    pub listings_given_up: Counter,
    /// Of these, ahead of who walks a tree.
    pub listed_ahead: Counter,
    /// "No such name" answered from what is known.
    pub negative_hits: Counter,
    /// Answers past their freshness because the origin could not be reached.
    pub stale_served: Counter,
    /// References that went stale at the origin and were found again by parent and name.
    pub healed: Counter,
    /// Objects unknown here of which a client held a handle: others knew them, or nobody did.
    pub met: Counter,
    pub unmet: Counter,
}

impl Metrics {
    pub fn register(&self, registry: &mut Registry) {
        let all: [(&str, &str, &Counter); 10] = [
            ("hits", "Metadata questions answered without the origin", &self.hits),
            ("misses", "Metadata questions that went to the origin", &self.misses),
            ("listings", "Whole directories fetched from the origin", &self.listings),
            (
                "listings_given_up",
                "Listings that had no end or made no sense; not tried again for a while",
                &self.listings_given_up,
            ),
            ("listed_ahead", "Directories fetched ahead of who walks a tree", &self.listed_ahead),
            ("negative_hits", "Absent names answered without the origin", &self.negative_hits),
            ("stale_served", "Answers past their freshness during an outage", &self.stale_served),
            ("healed", "Stale origin references found again by parent and name", &self.healed),
            ("met", "Objects of a client's handle that other nodes knew, looked up here", &self.met),
            ("unmet", "Objects of a client's handle that nobody knew", &self.unmet),
        ];
        for (name, help, counter) in all {
            registry.register(format!("forebay_namespace_{name}"), help, counter.clone());
        }
    }
}
