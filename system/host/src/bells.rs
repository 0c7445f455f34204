//! The map from doorbells to the queue pairs or command portals that they belong to: the engine's own
//! doorbells, and those that it shares with other processes.

use mio::unix::SourceFd;
use mio::{Interest, Registry};
use remora_memory::Bytes;
use remora_nic::BellOwner;
use rustix::fd::{AsRawFd, OwnedFd};
use std::io;

use crate::doorbells::Doorbells;
use crate::watch::WAKER;

/// The owners of the doorbells of a set, by index.
#[derive(Debug, Default)]
pub(crate) struct Bells {
    places: Vec<Option<BellOwner>>,
    free: Vec<u32>,
}

impl Bells {
    /// Assigns a free doorbell to a queue pair or portal, and returns its index.
    pub(crate) fn hang(&mut self, target: BellOwner) -> u32 {
        if let Some(index) = self.free.pop() {
            self.places[index as usize] = Some(target);
            return index;
        }
        self.places.push(Some(target));
        self.places.len() as u32 - 1
    }

    /// Frees the doorbell with this index, whose owner no longer exists.
    pub(crate) fn take(&mut self, index: u32) {
        if self.places.get_mut(index as usize).and_then(Option::take).is_some() {
            self.free.push(index);
        }
    }

    /// Returns the owner of the doorbell with this index.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<BellOwner> {
        self.places.get(index as usize).copied().flatten()
    }
}

/// Doorbells that another process rings, for its own queue pairs and portals. Each process has a set of its
/// own, so it can ring no other doorbells.
#[derive(Debug)]
pub(crate) struct SharedBells {
    doorbells: Doorbells<Bytes>,
    bells: Bells,
    wake: OwnedFd,
}

/// The sets of doorbells that are shared with other processes, by number.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    sets: Vec<Option<SharedBells>>,
}

impl Sets {
    /// Adds a set and returns its number. `wake` becomes readable when a process has rung while the engine
    /// slept.
    pub(crate) fn add(
        &mut self,
        registry: &Registry,
        doorbells: Doorbells<Bytes>,
        wake: OwnedFd,
    ) -> io::Result<u32> {
        // Edge-triggered: each write wakes the engine, and the eventfd need not be read.
        registry.register(&mut SourceFd(&wake.as_raw_fd()), WAKER, Interest::READABLE)?;
        let set = Some(SharedBells { doorbells, bells: Bells::default(), wake });
        let index = self.sets.iter().position(Option::is_none).unwrap_or(self.sets.len());
        match self.sets.get_mut(index) {
            Some(free) => *free = set,
            None => self.sets.push(set),
        }
        Ok(index as u32)
    }

    /// Removes a set whose process has ended.
    pub(crate) fn remove(&mut self, registry: &Registry, set: u32) {
        if let Some(gone) = self.sets.get_mut(set as usize).and_then(Option::take) {
            let _ = registry.deregister(&mut SourceFd(&gone.wake.as_raw_fd()));
        }
    }

    /// Returns the owners of the doorbells of a set; `None` if there is no such set.
    pub(crate) fn bells(&mut self, set: u32) -> Option<&mut Bells> {
        self.sets.get_mut(set as usize)?.as_mut().map(|set| &mut set.bells)
    }

    /// Calls `rung` for each doorbell that was rung. Returns whether there was one.
    #[inline]
    pub(crate) fn take(&self, mut rung: impl FnMut(BellOwner)) -> bool {
        let mut any = false;
        for set in self.sets.iter().flatten() {
            set.doorbells.take(|index| {
                if let Some(target) = set.bells.get(index) {
                    any = true;
                    rung(target);
                }
            });
        }
        any
    }

    /// Announces that the engine is about to sleep. Returns true if a doorbell has been rung, so that the
    /// engine must not sleep.
    pub(crate) fn begin_sleep(&self) -> bool {
        let sets = || self.sets.iter().flatten();
        sets().for_each(|set| set.doorbells.set_asleep(true));
        sets().any(|set| set.doorbells.any())
    }

    /// Announces that the engine is awake.
    pub(crate) fn end_sleep(&self) {
        self.sets.iter().flatten().for_each(|set| set.doorbells.set_asleep(false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_wire::Qpn;

    fn shared(sets: &mut Sets, poll: &mio::Poll) -> (u32, Doorbells<Bytes>) {
        let bytes = Bytes::heap(Doorbells::size(64)).unwrap();
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        let set = sets.add(poll.registry(), Doorbells::over(bytes.clone(), 64), wake).unwrap();
        (set, Doorbells::over(bytes, 64))
    }

    fn taken(sets: &Sets) -> Vec<u32> {
        let mut rung = Vec::new();
        sets.take(|target| match target {
            BellOwner::QueuePair(qp) => rung.push(qp.get()),
            BellOwner::Portal(number) => rung.push(1000 + number),
        });
        rung
    }

    #[test]
    fn each_process_rings_its_own_queue_pairs_only() {
        let poll = mio::Poll::new().unwrap();
        let mut sets = Sets::default();
        let (one, ones) = shared(&mut sets, &poll);
        let (two, twos) = shared(&mut sets, &poll);
        assert_eq!(sets.bells(one).unwrap().hang(BellOwner::QueuePair(Qpn::new(11))), 0);
        assert_eq!(sets.bells(two).unwrap().hang(BellOwner::QueuePair(Qpn::new(22))), 0);
        ones.ring(0);
        ones.ring(1);
        assert_eq!(taken(&sets), [11], "an index without a queue pair is ignored");
        twos.ring(0);
        assert!(sets.begin_sleep() && ones.is_asleep());
        assert_eq!(taken(&sets), [22]);
        assert!(!sets.begin_sleep());
        assert_eq!(sets.bells(two).unwrap().hang(BellOwner::Portal(5)), 1);
        twos.ring(1);
        assert_eq!(taken(&sets), [1005], "portals and queue pairs are distinguished");
        sets.end_sleep();
        assert!(!twos.is_asleep());
        sets.remove(poll.registry(), one);
        ones.ring(0);
        assert_eq!(taken(&sets), []);
        assert!(sets.bells(one).is_none());
        assert_eq!(shared(&mut sets, &poll).0, one, "its number is free");
    }
}
