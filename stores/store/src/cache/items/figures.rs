//! Statistics of the items, by size class.

use super::{Gone, Items, Name};
use crate::cache::classes::{self, CLASSES, Class, Counts};
use remora_transport::Instant;

impl Items {
    /// Returns the bytes that memcached counts for an item.
    pub(crate) fn size(&self, name: Name) -> usize {
        self.node(name).size()
    }

    /// Returns the size class of an item.
    pub(crate) fn class(&self, name: Name) -> usize {
        self.node(name).class()
    }

    /// Returns the statistics of all classes.
    pub(crate) fn classes(&self) -> &[Class; CLASSES] {
        &self.classes
    }

    /// Returns the event counts of an item's class.
    pub(crate) fn counts(&mut self, name: Name) -> &mut Counts {
        let class = self.class(name);
        &mut self.classes[class].counts
    }

    /// Counts an item of this size that was not stored for lack of memory.
    pub(crate) fn out_of_memory(&mut self, size: usize) {
        self.classes[classes::class(size)].counts.outofmemory += 1;
    }

    /// Resets all event counts to 0.
    pub(crate) fn reset(&mut self) {
        self.gone = Gone::default();
        self.classes.iter_mut().for_each(|class| class.counts = Counts::default());
    }

    /// Returns the seconds since the least recently used item was used.
    pub(crate) fn oldest(&self, now: Instant) -> u32 {
        self.lru.oldest().map_or(0, |oldest| self.idle(Name(oldest), now))
    }
}
