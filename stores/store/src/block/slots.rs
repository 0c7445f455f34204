//! The slots of a client, and how many of its operations are in flight.

use super::{ClientConfig, Refused};

/// Which slots are free. A slot is free again after its operation has ended and no replica has a request of
/// it.
#[derive(Debug)]
pub struct Slots {
    free: Vec<u16>,
    all: usize,
    in_flight: usize,
    window: usize,
    blocks: u64,
}

impl Slots {
    /// All slots of a client are free.
    pub fn new(config: &ClientConfig) -> Slots {
        let all = config.slots();
        let free = (0..all as u16).rev().collect();
        let (window, blocks) = (config.window.into(), config.layout.blocks);
        Slots { free, all, in_flight: 0, window, blocks }
    }

    /// A slot for an operation on a block.
    ///
    /// # Errors
    /// `NoSuchBlock`, `WindowFull`.
    pub fn begin(&mut self, block: u64) -> Result<usize, Refused> {
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

    /// An operation has ended for its user. Its slot may still be busy at slow replicas.
    pub fn end(&mut self) {
        self.in_flight -= 1;
    }

    /// No replica has a request of the slot any more.
    pub fn free(&mut self, slot: usize) {
        self.free.push(slot as u16);
    }

    /// Operations in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// True if every slot is free.
    pub fn are_all_free(&self) -> bool {
        self.free.len() == self.all
    }
}
