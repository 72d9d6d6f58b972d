//! Who is in the cluster: nodes join, live, leave and are forgotten, and every node gets its map from what etcd holds of them.
//!
//! The cast:
//! - [`Membership`] (`membership.rs`) is a node's membership: its [`MembershipNews`] have the map, the ids of junctions and the
//!   alarms. `member_task.rs` is the task behind it, the only part that waits, retries and writes.
//! - [`ClusterRoll`] (`roll.rs`) is all keys as one node knows them, put together from a watch. `records.rs` has their values.
//! - `register.rs` decides how a node gets in, `junctions.rs` which junction has which id, [`Steward`] (`steward.rs`) which node is
//!   out, `alarms.rs` what operators must hear of. They are pure: keys (and a clock) in, a [`NextStep`] or a swap out.
//! - `copy_rules.rs` (pure) has how many copies are wanted of which paths ([`CopyRules`]).
//! - `changes.rs` is what operators do ([`init`], [`change_node`], [`remove_junction`], [`set_copies`]); `settle.rs` carries a decision out.
//! - [`NodeFile`] (`node_file.rs`) is `cluster.json`, by which a member starts while etcd is away;
//!   `file_writer.rs` writes it without stopping the task.
//!
//! The keys, below the cluster's prefix: `cluster` (its id), `nodes/<id>`, `alive/<id>` (under the node's lease), `roster` (put with
//! each change of who is in), `junctions/<id>`, `junction-ids` (the next one), `copies/<junction>`, `steward` (under its holder's lease).
//!
//! The way of data: the task watches all keys and takes each event into its roll; from the roll it decides one step at a time, its
//! own record first, then junctions, then the steward's work; each step is a swap whose conditions are what it was decided from, so
//! that a decision from old keys is lost and made anew. What the roll says is published as news and kept in the file.
//!
//! Invariants:
//! - The number of a map is the revision at which a node or the roster was put last. It follows from the keys alone, so that all nodes
//!   compute the same one, and maps with one number are the same. Signs of life do not change it.
//! - No two nodes have one name: additions and renamings have one order, by the roster.
//! - The id of a junction is given out once, also after etcd was restored from a backup as far as any node remembers it.
//! - Only the steward marks a node out for its silence, by a swap that fails once it is no longer the steward. A node that is back
//!   marks itself up, in the swap that puts its sign of life; the steward marks one up that has a sign of life all the same.
//! - A value that cannot be read takes one record out, with an alarm that names it, and nothing else.
//! - etcd away, wiped or restored takes the map from nobody who has one.
//!
//! Begin with `roll.rs`, then `register.rs`.

mod alarms;
mod changes;
mod copy_rules;
mod file_writer;
mod identity;
mod junctions;
mod member_task;
mod membership;
mod node_file;
mod records;
mod register;
mod roll;
mod settle;
mod steward;

pub use alarms::{ClusterAlarm, RaisedAlarm};
pub use changes::{NewCluster, NodeChange, change_node, init, remove_junction, set_copies};
pub use copy_rules::CopyRules;
pub use identity::new_node_id;
pub use junctions::{
    JunctionProfile, KnownJunction, KnownJunctions, SettingsDifference, UrlDifference, assign,
};
pub use membership::{CertifiedNode, Membership, MembershipConfig, MembershipNews, MembershipStatus};
pub use node_file::NodeFile;
pub use records::{
    AliveRecord, COPIES_MAX, COPY_RULES_MAX, ClusterId, ClusterRecord, CopyRulesRecord, Incarnation,
    JunctionIdsRecord, JunctionRecord, KeyRecord, NodeRecord, OutReason, RosterRecord, StewardRecord,
    read_record, write_record,
};
pub use register::{JoinApplicant, NodeProfile, StateAndReason, admit, check_node_name, register};
pub use roll::{BadRecord, ClusterRoll, KeptRecord, RollChange};
pub use settle::{NextStep, settle};
pub use steward::{Steward, StewardSeat};
