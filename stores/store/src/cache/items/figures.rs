//! Figures of the items, by their class.

use super::{Gone, Items, Name};
use crate::cache::classes::{self, CLASSES, Class, Counts};
use remora_transport::Instant;

impl Items {
    /// Bytes that memcached counts for it.
    pub fn size(&self, name: Name) -> usize {
        self.node(name).size()
    }

    /// The size class of an item.
    pub fn class(&self, name: Name) -> usize {
        self.node(name).class()
    }

    /// The figures of all classes.
    pub fn classes(&self) -> &[Class; CLASSES] {
        &self.classes
    }

    /// The event counts of an item's class.
    pub fn counts(&mut self, name: Name) -> &mut Counts {
        let class = self.class(name);
        &mut self.classes[class].counts
    }

    /// There was no memory for an item of this size.
    pub fn out_of_memory(&mut self, size: usize) {
        self.classes[classes::class(size)].counts.outofmemory += 1;
    }

    /// Counts from 0 on.
    pub fn reset(&mut self) {
        self.gone = Gone::default();
        self.classes.iter_mut().for_each(|class| class.counts = Counts::default());
    }

    /// Seconds since the item was used that was not used for longest.
    pub fn oldest(&self, now: Instant) -> u32 {
        self.lru.oldest().map_or(0, |oldest| self.idle(Name(oldest), now))
    }
}
