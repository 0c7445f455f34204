//! The queue pair of each doorbell: the engine's own doorbells, and those that it shares with other
//! processes.

use mio::unix::SourceFd;
use mio::{Interest, Registry};
use remora_memory::Bytes;
use remora_wire::Qpn;
use rustix::fd::{AsRawFd, OwnedFd};
use std::io;

use crate::doorbells::Doorbells;
use crate::watch::WAKER;

/// The queue pairs of a set of doorbells, by index.
#[derive(Debug, Default)]
pub(crate) struct Bells {
    queue_pairs: Vec<Option<Qpn>>,
    free: Vec<u32>,
}

impl Bells {
    /// Gives a queue pair a free doorbell; returns its index.
    pub fn hang(&mut self, qp: Qpn) -> u32 {
        if let Some(index) = self.free.pop() {
            self.queue_pairs[index as usize] = Some(qp);
            return index;
        }
        self.queue_pairs.push(Some(qp));
        self.queue_pairs.len() as u32 - 1
    }

    /// Frees the doorbell with this index: its queue pair is gone.
    pub fn take(&mut self, index: u32) {
        if self.queue_pairs.get_mut(index as usize).and_then(Option::take).is_some() {
            self.free.push(index);
        }
    }

    /// The queue pair of the doorbell with this index.
    #[inline]
    pub fn get(&self, index: u32) -> Option<Qpn> {
        self.queue_pairs.get(index as usize).copied().flatten()
    }
}

/// Doorbells that another process rings, for queue pairs that are its own. It can ring no others: each
/// process has a set.
#[derive(Debug)]
pub(crate) struct SharedBells {
    doorbells: Doorbells<Bytes>,
    bells: Bells,
    wake: OwnedFd,
}

/// The sets that are shared with other processes, by number.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    sets: Vec<Option<SharedBells>>,
}

impl Sets {
    /// Adds a set and returns its number. `wake` becomes readable when a process has rung while the engine
    /// slept.
    pub fn add(
        &mut self,
        registry: &Registry,
        doorbells: Doorbells<Bytes>,
        wake: OwnedFd,
    ) -> io::Result<u32> {
        // Edge-triggered: each write wakes, and nobody reads.
        registry.register(&mut SourceFd(&wake.as_raw_fd()), WAKER, Interest::READABLE)?;
        let set = Some(SharedBells { doorbells, bells: Bells::default(), wake });
        let index = self.sets.iter().position(Option::is_none).unwrap_or(self.sets.len());
        match self.sets.get_mut(index) {
            Some(free) => *free = set,
            None => self.sets.push(set),
        }
        Ok(index as u32)
    }

    /// Removes a set whose process is gone.
    pub fn remove(&mut self, registry: &Registry, set: u32) {
        if let Some(gone) = self.sets.get_mut(set as usize).and_then(Option::take) {
            let _ = registry.deregister(&mut SourceFd(&gone.wake.as_raw_fd()));
        }
    }

    /// The queue pairs of a set.
    pub fn bells(&mut self, set: u32) -> Option<&mut Bells> {
        self.sets.get_mut(set as usize)?.as_mut().map(|set| &mut set.bells)
    }

    /// Calls `rung` for each rung doorbell. True: there was one.
    #[inline]
    pub fn take(&self, mut rung: impl FnMut(Qpn)) -> bool {
        let mut any = false;
        for set in self.sets.iter().flatten() {
            set.doorbells.take(|index| {
                if let Some(qp) = set.bells.get(index) {
                    any = true;
                    rung(qp);
                }
            });
        }
        any
    }

    /// Announces that the engine is about to sleep. True: a doorbell has rung, so that it must not.
    pub fn begin_sleep(&self) -> bool {
        let sets = || self.sets.iter().flatten();
        sets().for_each(|set| set.doorbells.set_asleep(true));
        sets().any(|set| set.doorbells.any())
    }

    /// Announces that the engine is awake.
    pub fn end_sleep(&self) {
        self.sets.iter().flatten().for_each(|set| set.doorbells.set_asleep(false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(sets: &mut Sets, poll: &mio::Poll) -> (u32, Doorbells<Bytes>) {
        let bytes = Bytes::heap(Doorbells::size(64)).unwrap();
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        let set = sets.add(poll.registry(), Doorbells::over(bytes.clone(), 64), wake).unwrap();
        (set, Doorbells::over(bytes, 64))
    }

    fn taken(sets: &Sets) -> Vec<u32> {
        let mut rung = Vec::new();
        sets.take(|qp| rung.push(qp.get()));
        rung
    }

    #[test]
    fn each_process_rings_its_own_queue_pairs_only() {
        let poll = mio::Poll::new().unwrap();
        let mut sets = Sets::default();
        let ((one, ones), (two, twos)) = (shared(&mut sets, &poll), shared(&mut sets, &poll));
        assert_eq!(sets.bells(one).unwrap().hang(Qpn::new(11)), 0);
        assert_eq!(sets.bells(two).unwrap().hang(Qpn::new(22)), 0);
        ones.ring(0);
        ones.ring(1);
        assert_eq!(taken(&sets), [11], "a index without a queue pair is nobody's");
        twos.ring(0);
        assert!(sets.begin_sleep() && ones.is_asleep());
        assert_eq!(taken(&sets), [22]);
        assert!(!sets.begin_sleep());
        sets.end_sleep();
        assert!(!twos.is_asleep());
        sets.remove(poll.registry(), one);
        ones.ring(0);
        assert_eq!(taken(&sets), []);
        assert!(sets.bells(one).is_none());
        assert_eq!(shared(&mut sets, &poll).0, one, "its number is free");
    }
}
