//! The files that one node is about to be told of. Pure.

use std::collections::{HashSet, VecDeque};

use types::FileId;

/// Each file once, the one that has waited longest first. When it is full, the oldest goes.
#[derive(Debug)]
pub struct NoticeQueue {
    max: usize,
    order: VecDeque<FileId>,
    waiting: HashSet<FileId>,
}

impl NoticeQueue {
    pub fn new(max: usize) -> NoticeQueue {
        NoticeQueue { max: max.max(1), order: VecDeque::new(), waiting: HashSet::new() }
    }

    /// One that waits already keeps its place. `false`: another one was dropped for it.
    pub fn put(&mut self, file: FileId) -> bool {
        if !self.waiting.insert(file) {
            return true;
        }
        self.order.push_back(file);
        let has_room = self.order.len() <= self.max;
        if !has_room && let Some(oldest) = self.order.pop_front() {
            self.waiting.remove(&oldest);
        }
        has_room
    }

    /// The oldest ones.
    pub fn take(&mut self, most: usize) -> Vec<FileId> {
        let files: Vec<FileId> = self.order.drain(..self.order.len().min(most)).collect();
        for file in &files {
            self.waiting.remove(file);
        }
        files
    }

    /// Puts back files that were taken, as the oldest ones, as far as there is room. Returns how many were dropped.
    pub fn put_back(&mut self, files: Vec<FileId>) -> u64 {
        let mut dropped = 0;
        // The newest of them first: they are dropped last.
        for file in files.into_iter().rev() {
            if self.waiting.contains(&file) {
                continue; // it changed again
            }
            if self.order.len() >= self.max {
                dropped += 1;
                continue;
            }
            self.waiting.insert(file);
            self.order.push_front(file);
        }
        dropped
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: u8) -> FileId {
        FileId([number; 16])
    }

    fn files(numbers: &[u8]) -> Vec<FileId> {
        numbers.iter().map(|number| file(*number)).collect()
    }

    #[test]
    fn a_file_that_changes_again_while_it_waits_is_told_once_and_again_when_it_was_taken() {
        let mut queue = NoticeQueue::new(10);
        for number in [1, 2, 1, 1, 3] {
            assert!(queue.put(file(number)));
        }
        assert_eq!(queue.take(2), files(&[1, 2]), "as many as one call takes");
        queue.put(file(1));
        assert_eq!(queue.take(100), files(&[3, 1]), "what changed after the call was begun is not in it");
        assert!(queue.is_empty());
    }

    #[test]
    fn the_oldest_goes_when_the_queue_is_full_and_is_counted() {
        let mut queue = NoticeQueue::new(3);
        let dropped = (1..=5).filter(|number| !queue.put(file(*number))).count();
        assert_eq!(dropped, 2);
        assert_eq!(queue.take(100), files(&[3, 4, 5]));
        // What was dropped may come again.
        assert!(queue.put(file(1)));
        assert_eq!(queue.take(100), files(&[1]));
    }

    #[test]
    fn what_a_failed_call_brings_back_is_the_oldest_and_never_more_than_the_queue_holds() {
        let mut queue = NoticeQueue::new(4);
        (1..=4).for_each(|number| assert!(queue.put(file(number))));
        let taken = queue.take(3);
        queue.put(file(2));
        queue.put(file(9));
        // 4, 2 and 9 wait; of 1 and 3 the newer one has room.
        assert_eq!(queue.put_back(taken), 1);
        assert_eq!(queue.take(100), files(&[3, 4, 2, 9]));
        assert!(queue.waiting.is_empty());
    }
}
