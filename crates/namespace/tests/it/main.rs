//! The namespace as `vfs` sees it: what may be believed, for how long, and at what price in calls to the origin.

mod ahead;
mod database;
mod elsewhere;
mod endless;
mod freshness;
mod handles;
mod harness;
mod junctions;
mod listing;
mod moved_meanwhile;
mod notices;
mod outage;
mod replaced;
mod several_names;
mod single_flight;
mod validity;
mod wrote;
