//! All keys of the cluster as one node knows them, put together from a watch. Pure.

use std::collections::BTreeMap;

use cluster::{ClusterMap, MapNode, NODES_MAX};
use coordinator::{KeyChange, KeyEntry, LeaseId, PrefixState, Revision, WatchEvent};
use types::{JunctionId, NodeId, Result};

use crate::records::{
    ALIVE_PREFIX, AliveRecord, CLUSTER_KEY, COPY_RULES_PREFIX, ClusterRecord, CopyRulesRecord,
    JUNCTION_ID_MAX, JUNCTION_IDS_KEY, JUNCTIONS_PREFIX, JunctionIdsRecord, JunctionRecord, KeyRecord,
    NODES_PREFIX, NodeRecord, ROSTER_KEY, RosterRecord, STEWARD_KEY, StewardRecord, read_record,
};

/// A key's value, or what is wrong with it; the key is there either way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRecord<T> {
    pub revision: Revision,
    pub lease: Option<LeaseId>,
    pub record: std::result::Result<T, String>,
}

impl<T: KeyRecord> KeptRecord<T> {
    fn read(entry: &KeyEntry) -> KeptRecord<T> {
        let record = read_record(&entry.value).map_err(|error| error.to_string());
        KeptRecord { revision: entry.revision, lease: entry.lease, record }
    }

    pub fn good(&self) -> Option<&T> {
        self.record.as_ref().ok()
    }
}

/// A record that is left out of everything, because it cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BadRecord {
    pub key: String,
    pub why: String,
}

/// What an event of the watch meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RollChange {
    /// etcd was restored from a backup or wiped: revisions of before mean nothing, and the number of the map may be lower. The
    /// revision that was known before.
    pub went_back: Option<Revision>,
}

/// Which nodes there are, which of them live, which junctions have which ids, and who is the steward.
#[derive(Clone, Debug, Default)]
pub struct ClusterRoll {
    revision: Revision,
    /// Of the map.
    number: u64,
    pub cluster: Option<KeptRecord<ClusterRecord>>,
    pub roster: Option<KeptRecord<RosterRecord>>,
    pub steward: Option<KeptRecord<StewardRecord>>,
    pub junction_ids: Option<KeptRecord<JunctionIdsRecord>>,
    pub nodes: BTreeMap<NodeId, KeptRecord<NodeRecord>>,
    pub alive: BTreeMap<NodeId, KeptRecord<AliveRecord>>,
    pub junctions: BTreeMap<JunctionId, KeptRecord<JunctionRecord>>,
    pub copy_rules: BTreeMap<JunctionId, KeptRecord<CopyRulesRecord>>,
    /// Keys below a known prefix whose names are no ids.
    strays: BTreeMap<String, String>,
}

impl ClusterRoll {
    /// Of a node that knows a map of that number from before; an etcd whose revision is lower went back.
    pub fn behind(number: u64) -> ClusterRoll {
        ClusterRoll { revision: Revision(number), number, ..ClusterRoll::default() }
    }

    pub fn of(state: &PrefixState) -> ClusterRoll {
        let mut roll = ClusterRoll::default();
        roll.reset(state, true);
        roll
    }

    pub fn revision(&self) -> Revision {
        self.revision
    }

    pub fn take(&mut self, event: &WatchEvent) -> RollChange {
        match event {
            WatchEvent::Reset { state, went_back } => {
                let before = self.revision;
                let went_back = self.reset(state, *went_back || state.revision < before);
                RollChange { went_back: went_back.then_some(before) }
            }
            WatchEvent::Changed { revision, changes } => {
                self.revision = self.revision.max(*revision);
                for change in changes {
                    let is_node = matches!(RollKey::of(change.key()), Some(Ok(RollKey::Node(_))));
                    if is_node || change.key() == ROSTER_KEY {
                        self.number = self.number.max(revision.0);
                    }
                    match change {
                        KeyChange::Put(entry) => self.put(entry),
                        KeyChange::Deleted { key } => self.delete(key),
                    }
                }
                RollChange::default()
            }
        }
    }

    /// The number of the map follows from the keys alone, so that a node that has just started computes the one that the others
    /// have: it is the last revision at which a node or the roster was put. Keys whose number is lower than one that was known are those
    /// of another history, also if their revisions were raised when a backup was restored. Answers whether they are.
    fn reset(&mut self, state: &PrefixState, went_back: bool) -> bool {
        let before = std::mem::take(self);
        for entry in &state.entries {
            self.put(entry);
        }
        self.revision = state.revision;
        self.number = self.number_of_keys();
        let went_back = went_back || self.number < before.number;
        let is_removed = before.nodes.keys().any(|id| !self.nodes.contains_key(id));
        if !went_back && self.number == before.number && is_removed {
            // By hand, as by etcdctl.
            self.number = state.revision.0;
        }
        went_back
    }

    /// Of the map.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// As a node computes it that has just started. It is lower than the number of a node that has seen another one removed by hand: then
    /// the roster has to be put, so that all have one number again.
    pub fn number_of_keys(&self) -> u64 {
        let puts = self.nodes.values().map(|node| node.revision);
        puts.chain(self.roster.as_ref().map(|roster| roster.revision)).max().unwrap_or_default().0
    }

    fn put(&mut self, entry: &KeyEntry) {
        let key = entry.key.as_str();
        match key {
            CLUSTER_KEY => self.cluster = Some(KeptRecord::read(entry)),
            ROSTER_KEY => self.roster = Some(KeptRecord::read(entry)),
            STEWARD_KEY => self.steward = Some(KeptRecord::read(entry)),
            JUNCTION_IDS_KEY => self.junction_ids = Some(KeptRecord::read(entry)),
            _ => match RollKey::of(key) {
                Some(Ok(RollKey::Node(id))) => drop(self.nodes.insert(id, KeptRecord::read(entry))),
                Some(Ok(RollKey::Alive(id))) => drop(self.alive.insert(id, KeptRecord::read(entry))),
                Some(Ok(RollKey::Junction(id))) => drop(self.junctions.insert(id, KeptRecord::read(entry))),
                Some(Ok(RollKey::CopyRules(id))) => drop(self.copy_rules.insert(id, KeptRecord::read(entry))),
                Some(Err(why)) => drop(self.strays.insert(key.to_owned(), why)),
                // Of a later version, or of another part of Forebay.
                None => {}
            },
        }
    }

    fn delete(&mut self, key: &str) {
        match key {
            CLUSTER_KEY => self.cluster = None,
            ROSTER_KEY => self.roster = None,
            STEWARD_KEY => self.steward = None,
            JUNCTION_IDS_KEY => self.junction_ids = None,
            _ => match RollKey::of(key) {
                Some(Ok(RollKey::Node(id))) => drop(self.nodes.remove(&id)),
                Some(Ok(RollKey::Alive(id))) => drop(self.alive.remove(&id)),
                Some(Ok(RollKey::Junction(id))) => drop(self.junctions.remove(&id)),
                Some(Ok(RollKey::CopyRules(id))) => drop(self.copy_rules.remove(&id)),
                Some(Err(_)) => drop(self.strays.remove(key)),
                None => {}
            },
        }
    }

    /// The map: every node whose record can be read.
    pub fn map(&self) -> Result<ClusterMap> {
        let nodes: Vec<MapNode> =
            self.good_nodes().map(|(id, node)| node.on_map(id)).take(NODES_MAX).collect();
        ClusterMap::new(self.number, nodes)
    }

    pub fn good_nodes(&self) -> impl Iterator<Item = (NodeId, &NodeRecord)> {
        self.nodes.iter().filter_map(|(id, node)| Some((*id, node.good()?)))
    }

    pub fn good_cluster(&self) -> Option<&ClusterRecord> {
        self.cluster.as_ref().and_then(KeptRecord::good)
    }

    pub fn node(&self, id: NodeId) -> Option<&NodeRecord> {
        self.nodes.get(&id).and_then(KeptRecord::good)
    }

    /// A key without a lease was put by hand, and would never end: it is no sign of life.
    pub fn is_alive(&self, id: NodeId) -> bool {
        self.alive.get(&id).is_some_and(|alive| alive.lease.is_some())
    }

    /// What living nodes say of themselves.
    pub fn live(&self) -> impl Iterator<Item = (NodeId, &AliveRecord)> {
        let live = self.alive.iter().filter(|(_, alive)| alive.lease.is_some());
        live.filter_map(|(id, alive)| Some((*id, alive.good()?)))
    }

    /// By its name, or by its id in 16 digits. A name goes before an id.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        let named = self.good_nodes().find(|(_, node)| node.name == name).map(|(id, _)| id);
        named.or_else(|| name.parse().ok().filter(|id| self.nodes.contains_key(id)))
    }

    /// What operators call a node.
    pub fn name_of(&self, id: NodeId) -> String {
        self.node(id).map_or_else(|| id.to_string(), |node| node.name.clone())
    }

    /// All records that are left out.
    pub fn bad_records(&self) -> Vec<BadRecord> {
        fn bad<'a, T: 'a>(key: String, kept: &'a KeptRecord<T>) -> Option<BadRecord> {
            kept.record.as_ref().err().map(|why| BadRecord { key, why: why.clone() })
        }
        let one = [
            self.cluster.as_ref().and_then(|kept| bad(CLUSTER_KEY.to_owned(), kept)),
            self.roster.as_ref().and_then(|kept| bad(ROSTER_KEY.to_owned(), kept)),
            self.steward.as_ref().and_then(|kept| bad(STEWARD_KEY.to_owned(), kept)),
            self.junction_ids.as_ref().and_then(|kept| bad(JUNCTION_IDS_KEY.to_owned(), kept)),
        ];
        let nodes = self.nodes.iter().filter_map(|(id, kept)| bad(format!("{NODES_PREFIX}{id}"), kept));
        let alive = self.alive.iter().filter_map(|(id, kept)| bad(format!("{ALIVE_PREFIX}{id}"), kept));
        let junctions =
            self.junctions.iter().filter_map(|(id, kept)| bad(format!("{JUNCTIONS_PREFIX}{id}"), kept));
        let copies =
            self.copy_rules.iter().filter_map(|(id, kept)| bad(format!("{COPY_RULES_PREFIX}{id}"), kept));
        let strays = self.strays.iter().map(|(key, why)| BadRecord { key: key.clone(), why: why.clone() });
        one.into_iter()
            .flatten()
            .chain(nodes)
            .chain(alive)
            .chain(junctions)
            .chain(copies)
            .chain(strays)
            .collect()
    }
}

enum RollKey {
    Node(NodeId),
    Alive(NodeId),
    Junction(JunctionId),
    CopyRules(JunctionId),
}

impl RollKey {
    /// `None`: it is none of them. An error: it lies among them and its name is no id.
    fn of(key: &str) -> Option<std::result::Result<RollKey, String>> {
        // One id has one name.
        fn id(text: &str) -> std::result::Result<NodeId, String> {
            let id: NodeId = text.parse().map_err(|error: types::Error| error.to_string())?;
            if id.to_string() == text { Ok(id) } else { Err(format!("{text:?} is no id of a node")) }
        }
        if let Some(text) = key.strip_prefix(NODES_PREFIX) {
            return Some(id(text).map(RollKey::Node));
        }
        if let Some(text) = key.strip_prefix(ALIVE_PREFIX) {
            return Some(id(text).map(RollKey::Alive));
        }
        let (text, of): (_, fn(JunctionId) -> RollKey) = match key.strip_prefix(COPY_RULES_PREFIX) {
            Some(text) => (text, RollKey::CopyRules),
            None => (key.strip_prefix(JUNCTIONS_PREFIX)?, RollKey::Junction),
        };
        let junction = text.parse().ok().map(JunctionId);
        let is_good = |id: &JunctionId| (1..=JUNCTION_ID_MAX).contains(&id.0) && id.to_string() == text;
        let good = junction.filter(is_good);
        Some(good.map(of).ok_or_else(|| format!("{text:?} is no id of a junction")))
    }
}

#[cfg(test)]
mod tests;
