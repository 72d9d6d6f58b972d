//! Which operation a client tries next: pure, from a seed and what the client's files are.

use std::sync::Arc;

use crate::crash::chance::Chance;
use crate::crash::model::{Kind, Op, Part, SHARED, Tree, split};

/// Names that one client may have at the same time: few, so that operations meet, and a look at all is quick.
const NAMES_MAX: usize = 14;
/// Bytes of a file at most, about.
const FILE_MAX: u64 = 100_000;

pub struct Draw {
    client: usize,
    chance: Chance,
    /// Every write has its own byte, as long as there are some.
    value: u8,
    /// The umask of this process, which the kernel applies to what is made through a mount.
    umask: u32,
    /// Parts that are written at the same time: 1 where a program waits for each.
    parts_max: u64,
    /// Over NFS: an exclusive create says nothing of the mode there.
    modes_follow: bool,
}

impl Draw {
    pub fn for_nfs(client: usize, chance: Chance) -> Draw {
        Draw { client, chance, value: 0, umask: 0, parts_max: 4, modes_follow: true }
    }

    pub fn for_programs(client: usize, chance: Chance) -> Draw {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
        let umask = status.lines().find_map(|line| line.strip_prefix("Umask:")).expect("Linux has this line");
        let umask = u32::from_str_radix(umask.trim(), 8).expect("octal digits");
        Draw { client, chance, value: 0, umask, parts_max: 1, modes_follow: false }
    }

    pub fn chance(&mut self) -> &mut Chance {
        &mut self.chance
    }

    fn mode(&mut self, made: bool) -> u32 {
        let mode = *self.chance.of(&[0o600, 0o640, 0o644, 0o664, 0o700, 0o755]);
        if made { mode & !self.umask } else { mode }
    }

    /// A name that may be taken already.
    fn name(&mut self, tree: &Tree, kinds: &[&str]) -> String {
        let own = format!("c{}", self.client);
        let mut dirs: Vec<String> = tree.names.keys().filter(|p| is_dir(tree, p)).cloned().collect();
        dirs.push(own.clone());
        let last = self.chance.of(kinds);
        if self.chance.one_in(4) {
            return format!("{SHARED}/{own}-{last}");
        }
        format!("{}/{last}", self.chance.of(&dirs))
    }

    fn file_name(&mut self, tree: &Tree) -> String {
        self.name(tree, &["a", "b", "c", "e", "f"])
    }

    fn dir_name(&mut self, tree: &Tree) -> String {
        self.name(tree, &["d", "g"])
    }

    fn any(&mut self, tree: &Tree, wanted: impl Fn(&Kind) -> bool) -> Option<String> {
        let there: Vec<&String> =
            tree.names.keys().filter(|p| wanted(&tree.get(p).expect("named").kind)).collect();
        (!there.is_empty()).then(|| (*self.chance.of(&there)).clone())
    }

    fn bytes(&mut self, length: u64) -> Arc<Vec<u8>> {
        self.value = self.value % 255 + 1;
        Arc::new(vec![self.value; length as usize])
    }

    fn length(&mut self) -> u64 {
        let most = *self.chance.of(&[10, 1000, 4096, 4096, 9000, 40_000]);
        1 + self.chance.below(most)
    }

    fn offset(&mut self, size: u64) -> u64 {
        match self.chance.below(4) {
            0 => size, // append
            1 => self.chance.below(FILE_MAX / 2),
            _ => self.chance.below(size + 1),
        }
    }

    fn write(&mut self, path: String, size: u64) -> Op {
        let sync = self.chance.one_in(4);
        let count = 1 + self.chance.below(self.parts_max) * self.chance.below(2);
        let mut at = self.offset(size.min(FILE_MAX));
        let mut parts = Vec::new();
        for _ in 0..count {
            let length = self.length();
            parts.push(Part { offset: at, bytes: self.bytes(length) });
            at += length + self.chance.below(3) * 512;
        }
        Op::Write { path, parts, sync }
    }

    /// An operation, and what should follow it. Not always one that can be done.
    pub fn next(&mut self, tree: &Tree) -> (Op, Option<Op>) {
        let full = tree.names.len() >= NAMES_MAX;
        loop {
            let kind = self.chance.below(100);
            if full && (30..60).contains(&kind) {
                continue; // makes something
            }
            if let Some(op) = self.of_kind(tree, kind) {
                return op;
            }
        }
    }

    fn of_kind(&mut self, tree: &Tree, kind: u64) -> Option<(Op, Option<Op>)> {
        let file = |kind: &Kind| matches!(kind, Kind::File(_));
        let op = match kind {
            0..22 => {
                let path = self.any(tree, file)?;
                let size = tree.bytes(&path)?.len() as u64;
                self.write(path, size)
            }
            22..30 => Op::Sync { path: self.any(tree, file)? },
            30..42 => {
                let (path, mode) = (self.file_name(tree), self.mode(true));
                Op::Create { path, mode: Some(mode), exclusive: false }
            }
            42..47 => {
                let (path, mode) = (self.file_name(tree), self.mode(true));
                let follows = Op::Chmod { path: path.clone(), mode };
                if self.modes_follow {
                    return Some((Op::Create { path, mode: None, exclusive: true }, Some(follows)));
                }
                Op::Create { path, mode: Some(mode), exclusive: true }
            }
            47..53 => Op::Mkdir { path: self.dir_name(tree), mode: self.mode(true) | 0o700 },
            53..56 => {
                let target = format!("nowhere/{}", self.chance.below(1000));
                Op::Symlink { path: self.file_name(tree), target }
            }
            56..60 => Op::Link { from: self.any(tree, file)?, to: self.file_name(tree) },
            60..72 => return self.rename(tree).map(|op| (op, None)),
            72..79 => Op::Remove { path: self.any(tree, |kind| *kind != Kind::Dir)? },
            79..84 => Op::Rmdir { path: self.any(tree, |kind| *kind == Kind::Dir)? },
            84..90 => {
                let path = self.any(tree, file)?;
                let size = tree.bytes(&path)?.len() as u64;
                let size =
                    if self.chance.one_in(2) { self.chance.below(size + 1) } else { self.offset(size) };
                Op::Truncate { path, size }
            }
            90..94 => {
                let path = self.any(tree, |kind| !matches!(kind, Kind::Link(_)))?;
                let searchable = if is_dir(tree, &path) { 0o700 } else { 0 };
                Op::Chmod { path, mode: self.mode(false) | searchable }
            }
            94..98 => {
                let path = self.any(tree, file)?;
                Op::Touch { path, mtime: 1_000_000_000_000_000_000 + self.chance.below(1 << 59) }
            }
            98 => Op::Remove { path: self.file_name(tree) },
            // There is no COMMIT of a directory.
            _ if self.modes_follow => return None,
            _ => Op::Sync { path: self.any(tree, |kind| *kind == Kind::Dir)? },
        };
        Some((op, None))
    }

    /// Not a directory into itself, and not a file onto another name of itself: that does nothing.
    fn rename(&mut self, tree: &Tree) -> Option<Op> {
        let from = self.any(tree, |_| true)?;
        let to = if is_dir(tree, &from) { self.dir_name(tree) } else { self.file_name(tree) };
        let within = to == from || to.starts_with(&format!("{from}/"));
        let same = tree.names.get(&to).is_some_and(|ino| *ino == tree.ino(&from));
        // Refusals of the wrong kind differ from one file system to another, and say nothing here.
        let kinds = tree.get(&to).is_some_and(|_| is_dir(tree, &to) != is_dir(tree, &from));
        let above = split(&from).0.starts_with(&to) && is_dir(tree, &to);
        (!within && !same && !kinds && !above).then_some(Op::Rename { from, to })
    }
}

fn is_dir(tree: &Tree, path: &str) -> bool {
    tree.get(path).is_some_and(|node| node.kind == Kind::Dir)
}
