//! The bytes of one part while it fills. Pure.

use bytes::BytesMut;

#[derive(Clone)]
pub struct PartBuffer {
    pub bytes: BytesMut,
    /// The ranges that were written, relative to the start of the part: disjoint and sorted.
    pub written: Vec<(usize, usize)>,
}

impl PartBuffer {
    pub fn new() -> PartBuffer {
        PartBuffer { bytes: BytesMut::new(), written: Vec::new() }
    }

    pub fn write(&mut self, at: usize, data: &[u8]) {
        let end = at + data.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(data);
        let (mut from, mut to) = (at, end);
        self.written.retain(|(a, b)| {
            let touches = *a <= to && from <= *b;
            if touches {
                (from, to) = (from.min(*a), to.max(*b));
            }
            !touches
        });
        let place = self.written.partition_point(|(a, _)| *a < from);
        self.written.insert(place, (from, to));
    }

    pub fn is_full(&self, length: usize) -> bool {
        self.written.first() == Some(&(0, length))
    }

    pub fn cut(&mut self, length: usize) {
        self.bytes.truncate(length);
        self.written.retain_mut(|(from, to)| {
            *to = (*to).min(length);
            from < to
        });
    }

    /// Without the bytes before `at`.
    pub fn behind(mut self, at: usize) -> PartBuffer {
        let bytes = if at < self.bytes.len() { self.bytes.split_off(at) } else { BytesMut::new() };
        let written = self.written.into_iter().filter(|(_, to)| *to > at);
        PartBuffer { bytes, written: written.map(|(from, to)| (from.saturating_sub(at), to - at)).collect() }
    }

    /// The ranges of a part of this length that were not written.
    pub fn holes(&self, length: usize) -> Vec<(usize, usize)> {
        let (mut holes, mut at) = (Vec::new(), 0);
        for (from, to) in &self.written {
            if at < *from {
                holes.push((at, *from));
            }
            at = *to;
        }
        if at < length {
            holes.push((at, length));
        }
        holes
    }
}
