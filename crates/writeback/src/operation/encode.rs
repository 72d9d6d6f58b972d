//! An operation as bytes. The layout is drawn in docs/design/journal-format.md.

use bytes::{BufMut, Bytes, BytesMut};
use types::{FileId, Name, NewNode, Timestamp, Version};

use super::{Action, Attributes, JournalOperation, NewObject, Rename};

pub const FORMAT: u8 = 1;

pub fn encode(operation: &JournalOperation) -> Bytes {
    let mut out = BytesMut::with_capacity(160);
    out.put_u8(FORMAT);
    out.put_u8(kind(&operation.action));
    out.put_u16_le(0);
    out.put_u32_le(operation.junction.0);
    time(&mut out, operation.acknowledged);
    time(&mut out, operation.since);
    match &operation.action {
        Action::Make { dir, name: given, id, what, set } => {
            ids(&mut out, &[dir, id]);
            name(&mut out, given);
            new_object(&mut out, what);
            attributes(&mut out, set);
        }
        Action::Write { file, offset: number, size_before, base: on }
        | Action::Truncate { file, size: number, size_before, base: on } => {
            ids(&mut out, &[file]);
            out.put_u64_le(*number);
            out.put_u64_le(*size_before);
            base(&mut out, *on);
        }
        Action::Set { object, set, base: on } => {
            ids(&mut out, &[object]);
            attributes(&mut out, set);
            base(&mut out, *on);
        }
        Action::Link { file: object, dir, name: given, links, base: on }
        | Action::Remove { dir, name: given, object, links, base: on } => {
            ids(&mut out, &[dir, object]);
            out.put_u32_le(*links);
            name(&mut out, given);
            base(&mut out, *on);
        }
        Action::Rmdir { dir, name: given, object } => {
            ids(&mut out, &[dir, object]);
            name(&mut out, given);
        }
        Action::Rename(it) => rename(&mut out, it),
    }
    out.freeze()
}

fn kind(action: &Action) -> u8 {
    match action {
        Action::Make { .. } => 1,
        Action::Write { .. } => 2,
        Action::Truncate { .. } => 3,
        Action::Set { .. } => 4,
        Action::Link { .. } => 5,
        Action::Remove { .. } => 6,
        Action::Rmdir { .. } => 7,
        Action::Rename(_) => 8,
    }
}

fn rename(out: &mut BytesMut, it: &Rename) {
    ids(out, &[&it.from_dir, &it.to_dir, &it.object]);
    name(out, &it.from);
    name(out, &it.to);
    out.put_u8(u8::from(it.is_dir));
    base(out, it.base);
    out.put_u8(u8::from(it.replaced.is_some()));
    if let Some(replaced) = &it.replaced {
        ids(out, &[&replaced.object]);
        out.put_u32_le(replaced.links);
        base(out, replaced.base);
    }
}

fn ids(out: &mut BytesMut, ids: &[&FileId]) {
    ids.iter().for_each(|id| out.put_slice(&id.0));
}

fn name(out: &mut BytesMut, name: &Name) {
    // A name has 255 bytes at most.
    out.put_u8(name.as_bytes().len() as u8);
    out.put_slice(name.as_bytes());
}

fn time(out: &mut BytesMut, time: Timestamp) {
    out.put_i64_le(time.seconds);
    out.put_u32_le(time.nanos);
}

fn base(out: &mut BytesMut, base: Option<Version>) {
    out.put_u8(u8::from(base.is_some()));
    if let Some(version) = base {
        out.put_slice(&version.0);
    }
}

fn new_object(out: &mut BytesMut, what: &NewObject) {
    match what {
        NewObject::File => out.put_u8(0),
        NewObject::Directory => out.put_u8(1),
        NewObject::Symlink(target) => {
            out.put_u8(2);
            // Checked where it enters: 4096 at most.
            out.put_u16_le(target.len() as u16);
            out.put_slice(target);
        }
        NewObject::Special(NewNode::Fifo) => out.put_u8(3),
        NewObject::Special(NewNode::Socket) => out.put_u8(4),
        NewObject::Special(NewNode::CharDevice(major, minor)) => device(out, 5, *major, *minor),
        NewObject::Special(NewNode::BlockDevice(major, minor)) => device(out, 6, *major, *minor),
    }
}

fn device(out: &mut BytesMut, tag: u8, major: u32, minor: u32) {
    out.put_u8(tag);
    out.put_u32_le(major);
    out.put_u32_le(minor);
}

fn attributes(out: &mut BytesMut, set: &Attributes) {
    let numbers = [set.mode, set.uid, set.gid];
    let times = [set.atime, set.mtime];
    let present = numbers.iter().map(Option::is_some).chain(times.iter().map(Option::is_some));
    out.put_u8(present.enumerate().fold(0, |bits, (at, is)| bits | u8::from(is) << at));
    numbers.iter().flatten().for_each(|number| out.put_u32_le(*number));
    times.iter().flatten().for_each(|it| time(out, *it));
}
