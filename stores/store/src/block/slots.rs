//! The slots of a client, and the number of its operations in flight.

use super::{ClientConfig, Refused};

/// The free slots of a client. A slot is free again after its operation has ended and no replica has a
/// request of the slot.
#[derive(Debug)]
pub(crate) struct Slots {
    free: Vec<u16>,
    all: usize,
    in_flight: usize,
    window: usize,
    blocks: u64,
}

impl Slots {
    /// Returns the slots of a client, all of them free.
    pub(crate) fn new(config: &ClientConfig) -> Slots {
        let all = config.slots();
        let free = (0..all as u16).rev().collect();
        let window = config.window.into();
        let blocks = config.layout.blocks;
        Slots { free, all, in_flight: 0, window, blocks }
    }

    /// Takes a slot for an operation on a block.
    ///
    /// # Errors
    /// `NoSuchBlock`, `WindowFull`.
    pub(crate) fn begin(&mut self, block: u64) -> Result<usize, Refused> {
        if block >= self.blocks {
            return Err(Refused::NoSuchBlock);
        }
        if self.in_flight == self.window {
            return Err(Refused::WindowFull);
        }
        let slot = self.free.pop().ok_or(Refused::WindowFull)?;
        self.in_flight += 1;
        Ok(slot.into())
    }

    /// Notes that an operation has ended for its user. Its slot may still be busy at slow replicas.
    pub(crate) fn end(&mut self) {
        self.in_flight -= 1;
    }

    /// Frees a slot of which no replica has a request any more.
    pub(crate) fn free(&mut self, slot: usize) {
        self.free.push(slot as u16);
    }

    /// Asserts, in debug builds only, that each slot is free, in flight or left at slow replicas. `is_idle`
    /// returns true if nothing uses a slot. All slots are checked when nothing is in flight.
    #[inline(always)]
    pub(crate) fn checked(&self, is_idle: impl Fn(usize) -> bool) {
        if cfg!(debug_assertions) {
            self.check(is_idle);
        }
    }

    fn check(&self, is_idle: impl Fn(usize) -> bool) {
        assert!(self.in_flight <= self.window, "operations in flight <= window");
        assert!(self.free.len() + self.in_flight <= self.all, "free slots + operations in flight <= slots");
        assert!(self.free.last().is_none_or(|slot| is_idle((*slot).into())), "a free slot is idle");
        if self.in_flight == 0 {
            let idle = (0..self.all).filter(|slot| is_idle(*slot)).count();
            assert_eq!(self.free.len(), idle, "free slots = idle slots");
        }
    }

    /// Returns the number of operations in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns true if every slot is free.
    pub(crate) fn are_all_free(&self) -> bool {
        self.free.len() == self.all
    }
}
