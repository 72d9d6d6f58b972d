//! Both coordinators are held to one suite: etcd as Debian has it, and the model that other crates test with.
//!
//! The cast:
//! - `stage.rs`: where a test takes place, over the model or over etcd: its clients, and what can happen to the servers.
//! - `contract.rs`: the suite. Each of its tests is run on both stages by the macro below, which has the list.
//! - `history.rs`: the state of a prefix as the events of a watch lead to it, and whether the order of the events was right.
//! - `outages.rs`: what only real servers do: some stop, die, or come back with another history.
//! - `random.rs`: random operations of several nodes, some of whose answers are lost, checked against the order of revisions.
//! - `tls.rs`: certificates on both sides.
//!
//! Begin with `contract.rs`.

mod contract;
mod history;
mod outages;
mod random;
mod stage;
mod tls;

/// Each of the contract's tests over the model and over etcd.
macro_rules! on_both {
    ($($name:ident)*) => {
        mod model {
            $(
                #[tokio::test]
                async fn $name() {
                    crate::contract::$name(crate::stage::ModelStage::new()).await;
                }
            )*
        }

        mod etcd {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $name() {
                    testkit::etcd::with_etcd(stringify!($name), 1, async |etcd| {
                        crate::contract::$name(crate::stage::EtcdStage::new(etcd)).await;
                    })
                    .await;
                }
            )*
        }
    };
}

on_both! {
    a_swap_that_lost_changes_nothing
    a_swap_is_done_whole_at_one_revision
    a_read_has_all_below_its_prefix_and_nothing_else
    a_watch_tells_each_revision_once_and_in_order
    a_watch_begins_with_all_there_is_or_behind_what_was_read
    a_watch_behind_a_compaction_reads_anew
    a_watch_that_nobody_reads_loses_nothing
    the_keys_of_a_killed_holder_end_with_its_lease
    a_lease_that_is_held_outlives_its_length
    a_revoked_lease_takes_its_keys_with_it
    a_lease_of_no_length_or_of_more_than_a_day_is_refused
    a_lease_that_is_dropped_ends_by_itself
    what_is_put_under_a_lease_that_has_ended_is_refused
    a_swap_whose_answer_was_lost_is_read_back
    an_outage_ends_calls_with_an_error_and_watches_go_on_behind_it
    revisions_that_go_back_are_told
    what_was_wiped_is_told
}
