//! In which order objects are retracted in one unit: at the origin, what is inside of another one goes before it.
//!
//! Each of them may have any of its names there, and perhaps an earlier attempt took some of them away.

use types::{FileId, Name, Result};

use super::Carry;
use super::undo::staged;
use crate::conflict::ConflictPolicy;
use crate::flush::FlushEngine;
use crate::flush_target::TargetPresence;
use crate::plan::{FlushUnit, FlushWork};

/// The parts of a unit, in order.
pub async fn inner_first<'a>(
    shared: &FlushEngine,
    unit: &'a FlushUnit,
    policy: ConflictPolicy,
) -> Result<Vec<&'a FlushUnit>> {
    let parts = unit.parts();
    if parts.len() < 2 {
        return Ok(parts.iter().collect());
    }
    let mut inside_of = Vec::new();
    for part in parts {
        let dirs = Carry::new(shared, part, policy)
            .is_in(&|dir| parts.iter().any(|part| part.object == dir))
            .await?;
        let outer = parts.iter().enumerate().filter(|(_, part)| dirs.contains(&part.object));
        inside_of.push(outer.map(|(at, _)| at).collect());
    }
    Ok(inner_first_of(&inside_of).into_iter().map(|at| &parts[at]).collect())
}

impl Carry<'_> {
    /// The directories in which it has a name, or takes one away from another object.
    async fn is_in(&self, is_asked: &(dyn Fn(FileId) -> bool + Sync)) -> Result<Vec<FileId>> {
        let FlushWork::Retract(retract) = &self.unit.work else { return Ok(Vec::new()) };
        let over = self.unit.over.iter().map(|rename| rename.to_dir);
        let mut dirs: Vec<FileId> = over.filter(|dir| is_asked(*dir)).collect();
        let staged = staged(self.unit.object)?;
        let names: Vec<(FileId, &Name)> = retract.names.iter().map(|(dir, name)| (*dir, name)).collect();
        let names = names.into_iter().chain(retract.staged.iter().map(|dir| (*dir, &staged)));
        // One whose id an earlier attempt did not learn is not known again by its name.
        let is_unknown = self.shared.look(self.unit.object).await? == TargetPresence::Never;
        for (dir, name) in names.filter(|(dir, _)| is_asked(*dir)) {
            if !dirs.contains(&dir) {
                let (there, _) = self.own_place(dir, name).await?;
                let is_in = there.is_some_and(|there| is_unknown || there.id == self.unit.object);
                dirs.extend(is_in.then_some(dir));
            }
        }
        Ok(dirs)
    }
}

/// Of each the ones that it is inside of are given. Where others made a ring of them, these come last.
fn inner_first_of(inside_of: &[Vec<usize>]) -> Vec<usize> {
    let mut left: Vec<usize> = (0..inside_of.len()).collect();
    let mut order = Vec::new();
    while !left.is_empty() {
        let has_inner = |at: &usize| left.iter().any(|other| other != at && inside_of[*other].contains(at));
        let (later, mut now): (Vec<usize>, Vec<usize>) = left.iter().copied().partition(has_inner);
        let is_ring = now.is_empty();
        order.append(&mut now);
        left = later;
        if is_ring {
            order.append(&mut left);
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_inside_comes_first_and_a_ring_last() {
        assert_eq!(inner_first_of(&[vec![], vec![0], vec![1]]), [2, 1, 0]);
        assert_eq!(inner_first_of(&[vec![1, 2], vec![], vec![1]]), [0, 2, 1]);
        assert_eq!(inner_first_of(&[vec![1], vec![0], vec![], vec![2]]), [3, 2, 0, 1]);
    }
}
