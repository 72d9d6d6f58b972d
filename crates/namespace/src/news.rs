//! News of objects that changed, for fronts whose clients keep what they were told.

use std::sync::{Arc, Weak};

use tokio::sync::broadcast;
use types::FileId;

use crate::Namespace;

/// News that are kept for a listener that is slow; one that is slower takes everything for changed.
const NEWS_KEPT: usize = 4096;

/// An object was found to have another version or to be gone, was changed by us, or is expired by the operator.
#[derive(Clone, Debug)]
pub struct ChangeNews {
    /// `None`: any object may have changed.
    pub object: Option<FileId>,
    /// The listener that made the change, and has told its client of it with the answer.
    known_to: Option<ListenerMark>,
}

/// Names a listener, also after it ended.
#[derive(Clone, Debug)]
pub struct ListenerMark(Weak<()>);

/// Hears of all news from the moment at which it was made.
pub struct ChangeListener {
    receiver: broadcast::Receiver<ChangeNews>,
    alive: Arc<()>,
}

/// Tells all listeners.
pub struct NewsSender(broadcast::Sender<ChangeNews>);

impl Default for NewsSender {
    fn default() -> NewsSender {
        NewsSender(broadcast::Sender::new(NEWS_KEPT))
    }
}

impl NewsSender {
    /// `None`: any object may have changed.
    pub fn tell(&self, object: Option<FileId>) {
        let _ = self.0.send(ChangeNews { object, known_to: None }); // nobody may be listening
    }

    fn tell_others(&self, object: FileId, known_to: &ListenerMark) {
        // Counted first: if the one that knows still listens after that, it is the one that was counted.
        if self.0.receiver_count() == 1 && known_to.0.strong_count() > 0 {
            return;
        }
        let _ = self.0.send(ChangeNews { object: Some(object), known_to: Some(known_to.clone()) });
    }

    fn listen(&self) -> ChangeListener {
        ChangeListener { receiver: self.0.subscribe(), alive: Arc::default() }
    }
}

impl ChangeListener {
    pub fn mark(&self) -> ListenerMark {
        ListenerMark(Arc::downgrade(&self.alive))
    }

    /// The next object that changed, but by who has this listener; `Some(None)` means that too many changed or that other
    /// rules are in force: take all for changed. `None` at the end.
    pub async fn next(&mut self) -> Option<Option<FileId>> {
        loop {
            match self.receiver.recv().await {
                Ok(news) if self.is_known(&news) => {}
                Ok(news) => return Some(news.object),
                Err(broadcast::error::RecvError::Lagged(_)) => return Some(None),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// What `next` would return at once; `None` if that is nothing.
    pub fn try_next(&mut self) -> Option<Option<FileId>> {
        loop {
            match self.receiver.try_recv() {
                Ok(news) if self.is_known(&news) => {}
                Ok(news) => return Some(news.object),
                Err(broadcast::error::TryRecvError::Lagged(_)) => return Some(None),
                Err(_) => return None,
            }
        }
    }

    fn is_known(&self, news: &ChangeNews) -> bool {
        news.known_to.as_ref().is_some_and(|mark| mark.0.as_ptr() == Arc::as_ptr(&self.alive))
    }
}

impl Namespace {
    /// Hears of the objects that change from now on.
    pub fn changes(&self) -> ChangeListener {
        self.changed.listen()
    }

    /// Notifies listeners that an object changed whose state is kept elsewhere.
    pub fn tell_changed(&self, id: FileId) {
        self.changed.tell(Some(id));
    }

    /// The same, for a change that one of them made.
    pub fn tell_others_changed(&self, id: FileId, maker: &ListenerMark) {
        self.changed.tell_others(id, maker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: FileId = FileId([1; 16]);
    const OTHER: FileId = FileId([2; 16]);

    #[test]
    fn who_makes_a_change_is_not_told_of_it_and_all_others_are() {
        let sender = NewsSender::default();
        let (mut maker, mut other) = (sender.listen(), sender.listen());
        sender.tell_others(ONE, &maker.mark());
        sender.tell(Some(OTHER));
        assert_eq!((maker.try_next(), maker.try_next()), (Some(Some(OTHER)), None));
        assert_eq!((other.try_next(), other.try_next()), (Some(Some(ONE)), Some(Some(OTHER))));
        sender.tell(None);
        assert_eq!((maker.try_next(), other.try_next()), (Some(None), Some(None)));
    }

    /// What a listener that ended has under way still concerns the one that is left.
    #[test]
    fn a_change_of_who_listens_no_more_is_told_to_the_last_one_that_does() {
        let sender = NewsSender::default();
        let (gone, mut left) = (sender.listen(), sender.listen());
        let mark = gone.mark();
        drop(gone);
        sender.tell_others(ONE, &mark);
        assert_eq!(left.try_next(), Some(Some(ONE)));
        sender.tell_others(OTHER, &left.mark());
        assert_eq!(left.try_next(), None);
    }
}
