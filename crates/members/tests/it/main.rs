//! Members over the model of etcd, and over etcd as Debian has it.
//!
//! The cast:
//! - `stage.rs`: where a test takes place, over the model or over etcd: one etcd and what can happen to it, and the nodes of a cluster.
//! - `contract.rs`: joining, living, leaving. `outages.rs`: etcd away, wiped, restored. Each of their tests is run on both stages by
//!   the macro below, which has the list.
//! - `random.rs`: random histories of the pure parts, some of whose answers are lost, against a model that is a few maps.
//! - `storm.rs`: whole memberships under random faults, after which all nodes that run have one map.
//!
//! Begin with `contract.rs`.

mod contract;
mod faults;
mod outages;
mod random;
mod stage;
mod storm;

/// Each test over the model, whose time is injected, and over etcd.
macro_rules! on_both {
    ($($module:ident: $($name:ident)*;)*) => {
        mod model {
            $($(
                #[tokio::test(start_paused = true)]
                async fn $name() {
                    crate::$module::$name(crate::stage::ModelStage::new()).await;
                }
            )*)*
        }

        mod etcd {
            $($(
                #[tokio::test(flavor = "multi_thread")]
                async fn $name() {
                    testkit::etcd::with_etcd(stringify!($name), 1, async |etcd| {
                        crate::$module::$name(crate::stage::EtcdStage::new(etcd)).await;
                    })
                    .await;
                }
            )*)*
        }
    };
}

on_both! {
    contract:
    a_cluster_is_made_once
    three_nodes_join_and_see_one_map_with_one_number
    of_several_nodes_with_one_name_one_gets_in
    a_second_incarnation_is_refused_and_a_restart_is_not
    a_silent_node_is_out_and_up_again_on_its_return
    when_the_steward_dies_another_one_takes_over
    a_node_of_another_cluster_is_refused
    what_operators_do_to_a_node_is_done_once
    junctions_have_the_same_ids_on_all_nodes_and_none_twice
    a_junction_that_is_renumbered_under_a_process_is_told_as_conflicted
    settings_that_differ_are_told_with_the_junction_and_the_nodes
    a_record_that_cannot_be_read_is_left_out_alone
    a_node_that_is_removed_by_hand_leaves_one_number
    a_node_that_is_kept_out_is_no_steward
    a_record_under_the_name_of_a_member_is_told
    a_rule_on_copies_is_seen_by_all_nodes_until_it_is_taken_back;
    outages:
    with_etcd_away_a_member_starts_from_its_file_and_a_new_node_waits
    an_outage_marks_nobody_out
    a_wiped_etcd_takes_the_map_from_nobody
    a_cluster_that_is_made_anew_from_a_file_has_the_junctions_of_that_file
    a_restored_etcd_begins_a_new_history
    a_restored_etcd_does_not_undo_what_an_operator_did
    a_cluster_record_that_cannot_be_read_takes_the_map_from_nobody;
}
