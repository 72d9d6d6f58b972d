//! The ids of junctions: the same on all nodes, and given out once. And whose settings of a junction differ. Pure.

use std::collections::{BTreeMap, BTreeSet};

use coordinator::Swap;
use serde::{Deserialize, Serialize};
use types::{Error, ErrorKind, JunctionId, NodeId, Result};

use crate::records::{
    DIFFERENCES_MAX, JUNCTION_ID_MAX, JUNCTION_IDS_KEY, JUNCTIONS_PREFIX, JunctionIdsRecord, JunctionRecord,
    check_junction, junction_key, write_record,
};
use crate::roll::{ClusterRoll, KeptRecord};
use crate::settle::NextStep;

/// The most junctions that one swap makes or changes.
const JUNCTIONS_PER_SWAP: usize = 40;

/// A junction as a node's configuration has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JunctionProfile {
    pub path: String,
    /// Without secrets.
    pub url: String,
    /// Of all settings that should be the same on all nodes, without secrets.
    pub digest: String,
}

impl JunctionProfile {
    pub fn check(&self) -> Result<()> {
        check_junction(&self.path, &self.url, &self.digest)
    }
}

/// A junction whose id a node has heard of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownJunction {
    pub id: u32,
    pub path: String,
    pub url: String,
}

/// What a node knows of ids from before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownJunctions {
    pub junctions: Vec<KnownJunction>,
    /// All ids below it may have been given out.
    pub next: u32,
}

impl KnownJunctions {
    pub fn id_of(&self, junction: &JunctionProfile) -> Option<JunctionId> {
        let same = |known: &&KnownJunction| known.path == junction.path && known.url == junction.url;
        self.junctions.iter().find(same).map(|known| JunctionId(known.id))
    }
}

/// The next id as etcd has it.
fn next_in(roll: &ClusterRoll) -> u32 {
    let told = roll.junction_ids.as_ref().and_then(KeptRecord::good).map_or(1, |ids| ids.next.max(1));
    let highest = roll.junctions.keys().next_back().map_or(0, |id| id.0);
    told.max(highest.saturating_add(1))
}

/// The next id, of all that is known here.
pub fn next_id(roll: &ClusterRoll, known: &KnownJunctions) -> u32 {
    let remembered = known.junctions.iter().map(|known| known.id.saturating_add(1));
    // A file may remember a key that was put by hand.
    let next = remembered.chain([known.next]).filter(|next| *next <= JUNCTION_ID_MAX + 1).max();
    next_in(roll).max(next.unwrap_or_default())
}

/// The id under which the cluster has a junction.
pub fn id_in(roll: &ClusterRoll, junction: &JunctionProfile) -> Option<JunctionId> {
    let same = |kept: &KeptRecord<JunctionRecord>| {
        kept.good().is_some_and(|there| there.path == junction.path && there.url == junction.url)
    };
    roll.junctions.iter().find(|(_, kept)| same(kept)).map(|(id, _)| *id)
}

/// Gives each junction its id, and tells the cluster the digests that this node starts with.
///
/// An id is never given to another junction: the next one lies behind all that etcd or this node has heard of. A junction whose record
/// is gone, because it was removed or etcd was restored from a backup, gets the id that this node remembers of it.
///
/// The answer says whether nothing is left to do behind this step. A node tells its digests once: if it did so whenever they are
/// others, two nodes with different settings would take turns for ever.
///
/// While the record of a junction or the next id cannot be read, no junction gets an id that has none: its own record may be the one
/// that cannot be read, and would be there twice, under two ids.
pub fn assign(
    roll: &ClusterRoll,
    junctions: &[JunctionProfile],
    known: &KnownJunctions,
    own: NodeId,
) -> Result<NextStep<bool>> {
    let mut next = next_id(roll, known);
    let mut swap = Swap::new();
    let mut seen = BTreeSet::new();
    let mut taken: BTreeSet<JunctionId> = BTreeSet::new();
    for junction in junctions {
        if !seen.insert((&junction.path, &junction.url)) {
            continue;
        }
        if swap.keys().len() >= JUNCTIONS_PER_SWAP {
            break;
        }
        let JunctionProfile { path, url, digest } = junction.clone();
        let value = write_record(&JunctionRecord { path, url, digest, by: own.to_string() })?;
        if let Some(id) = id_in(roll, junction) {
            let Some(kept) = roll.junctions.get(&id) else { continue };
            if kept.good().is_some_and(|there| there.digest != junction.digest) {
                swap = swap.replace(junction_key(id), kept.revision, value, None);
            }
            continue;
        }
        if let Some(key) = unreadable(roll) {
            let what = format!("{}: the key {key} cannot be read; mend it or remove it", junction.path);
            return Ok(NextStep::Wait(Error::new(ErrorKind::Corrupt, "give a junction an id:", what)));
        }
        let is_free = |id: &JunctionId| {
            (1..=JUNCTION_ID_MAX).contains(&id.0) && !roll.junctions.contains_key(id) && !taken.contains(id)
        };
        let id = match known.id_of(junction).filter(is_free) {
            Some(id) => id,
            None => {
                let id = JunctionId(next);
                if id.0 > JUNCTION_ID_MAX {
                    return Err(Error::new(
                        ErrorKind::NoSpace,
                        "give a junction an id:",
                        "all have been used",
                    ));
                }
                next += 1;
                id
            }
        };
        taken.insert(id);
        swap = swap.create(junction_key(id), value, None);
    }
    let is_told = match &roll.junction_ids {
        Some(ids) => ids.good().is_none_or(|ids| ids.next >= next),
        None => false,
    };
    if swap.keys().is_empty() && (is_told || junctions.is_empty()) {
        return Ok(NextStep::Done(true));
    }
    let is_last = swap.keys().len() < JUNCTIONS_PER_SWAP;
    if taken.is_empty() && is_told {
        return Ok(NextStep::Swap(swap, is_last));
    }
    // A swap that gives out ids always puts this key: two of them have one order.
    let value = write_record(&JunctionIdsRecord { next, by: own.to_string() })?;
    let swap = match &roll.junction_ids {
        Some(ids) => swap.replace(JUNCTION_IDS_KEY, ids.revision, value, None),
        None => swap.create(JUNCTION_IDS_KEY, value, None),
    };
    Ok(NextStep::Swap(swap, is_last))
}

/// A key that has, or may have, the id of a junction, and cannot be read.
fn unreadable(roll: &ClusterRoll) -> Option<String> {
    let ids =
        roll.junction_ids.as_ref().filter(|ids| ids.record.is_err()).map(|_| JUNCTION_IDS_KEY.to_owned());
    let mut bad = roll.junctions.iter().filter(|(_, kept)| kept.record.is_err());
    ids.or_else(|| bad.next().map(|(id, _)| junction_key(*id)))
}

/// What this node says of junctions that are not configured here as the cluster has them: those whose digest is another one, and those
/// that have the path of a junction of this node and another URL.
pub fn differences(roll: &ClusterRoll, junctions: &[JunctionProfile]) -> BTreeMap<u32, String> {
    let digests = junctions.iter().filter_map(|junction| {
        let id = id_in(roll, junction)?;
        let there = roll.junctions.get(&id)?.good()?;
        (there.digest != junction.digest).then(|| (id.0, junction.digest.clone()))
    });
    let own: BTreeMap<&str, JunctionId> = junctions
        .iter()
        .filter_map(|junction| Some((junction.path.as_str(), id_in(roll, junction)?)))
        .collect();
    let urls = roll.junctions.iter().filter_map(|(id, kept)| {
        let there = kept.good()?;
        let here = own.get(there.path.as_str()).filter(|here| *here != id)?;
        let is_here = junctions.iter().any(|own| own.path == there.path && own.url == there.url);
        (!is_here).then(|| (id.0, junction_key(*here)))
    });
    digests.chain(urls).take(DIFFERENCES_MAX).collect()
}

/// One path that leads to different URLs on some nodes, and so is two junctions with two ids.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UrlDifference {
    pub path: String,
    /// Each URL with the names of the nodes that have it.
    pub urls: BTreeMap<String, Vec<String>>,
}

/// All of them, from what the nodes say of themselves. A URL that no living node has any more counts for nothing.
pub fn urls_that_differ(roll: &ClusterRoll) -> Vec<UrlDifference> {
    let mut paths: BTreeMap<&str, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    let record = |id: JunctionId| roll.junctions.get(&id).and_then(KeptRecord::good);
    for (node, alive) in roll.live() {
        let pairs = alive.differs.iter().filter_map(|(there, here)| {
            let here = here.strip_prefix(JUNCTIONS_PREFIX)?.parse().ok().map(JunctionId)?;
            record(JunctionId(*there)).zip(record(here))
        });
        let pairs = pairs.filter(|(there, here)| there.path == here.path && there.url != here.url);
        let here: BTreeSet<(&str, &str)> =
            pairs.map(|(_, here)| (here.path.as_str(), here.url.as_str())).collect();
        for (path, url) in here {
            paths.entry(path).or_default().entry(url.to_owned()).or_default().push(roll.name_of(node));
        }
    }
    let several = paths.into_iter().filter(|(_, urls)| urls.len() > 1);
    several.map(|(path, urls)| UrlDifference { path: path.to_owned(), urls }).collect()
}

/// A junction that is configured unlike on some nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SettingsDifference {
    pub path: String,
    /// The names of the nodes that have the settings of the node that started last.
    pub like: Vec<String>,
    /// The names of those that have others.
    pub unlike: Vec<String>,
}

/// All of them, from what the nodes say of themselves.
pub fn settings_that_differ(roll: &ClusterRoll) -> Vec<SettingsDifference> {
    let mut unlike: BTreeMap<JunctionId, Vec<String>> = BTreeMap::new();
    for (id, alive) in roll.live() {
        for (junction, digest) in alive.differs.iter().filter(|(_, told)| !told.starts_with(JUNCTIONS_PREFIX))
        {
            let junction = JunctionId(*junction);
            // What a node has said of an older digest is over.
            let there = roll.junctions.get(&junction).and_then(KeptRecord::good);
            if there.is_some_and(|there| there.digest != *digest) {
                unlike.entry(junction).or_default().push(roll.name_of(id));
            }
        }
    }
    let difference = |(id, unlike): (JunctionId, Vec<String>)| {
        let junction = roll.junctions.get(&id)?.good()?;
        let names = roll.live().map(|(id, _)| roll.name_of(id));
        let like = names.filter(|name| !unlike.contains(name)).collect();
        Some(SettingsDifference { path: junction.path.clone(), like, unlike })
    };
    unlike.into_iter().filter_map(difference).collect()
}

#[cfg(test)]
mod tests;
