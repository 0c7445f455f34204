//! A NIC without a port and without a clock: for tools that show chains, for fuzzers and for benchmarks.

use remora_memory::{Biased, Bytes, Guard, MemoryCommand, MemoryReply, Reentered, Table};
use remora_transport::Instant;
use std::sync::Arc;

use crate::command::{Command, CommandError, FromReply, Reply};
use crate::config::Config;
use crate::device::{Device, DeviceError};
use crate::doorbell::{BellOwner, Doorbell};
use crate::event::AsyncEvent;
use crate::nic::Nic;
use crate::part_number::PartNumber;
use crate::parts::HandedPart;

/// A NIC without a port. Its commands are executed at time 0.
pub struct Bare {
    engine: Biased<Nic>,
}

impl Bare {
    /// Creates a NIC over a table of memory regions.
    pub fn new(table: &Arc<Table>, config: Config) -> Bare {
        Bare { engine: Biased::new(table, Nic::new(config)) }
    }

    /// Lends the NIC, and the right to touch registered memory.
    pub fn enter(&self) -> Guard<'_, Nic> {
        self.engine.enter()
    }

    /// Hands memory or code to the NIC and returns its number, which the next command names.
    pub fn hand(&self, part: impl Into<HandedPart>) -> PartNumber {
        self.enter().hand(part)
    }

    /// Executes a command.
    ///
    /// # Errors
    /// The refusal of the NIC, which has changed nothing then.
    pub fn execute(&self, command: Command) -> Result<Reply, CommandError> {
        let mut guard = self.enter();
        let (nic, mem) = guard.parts();
        nic.execute(Instant(0), mem, command)
    }

    /// Executes a command and returns the value that its reply carries.
    ///
    /// # Errors
    /// The refusal of the NIC, which has changed nothing then.
    pub fn ask<T: FromReply>(&self, command: Command) -> Result<T, CommandError> {
        let mut guard = self.enter();
        let (nic, mem) = guard.parts();
        nic.ask(Instant(0), mem, command)
    }
}

impl Device for Bare {
    fn execute(&self, command: Command) -> Result<Reply, DeviceError> {
        Ok(Bare::execute(self, command)?)
    }

    fn hand(&self, part: HandedPart) -> Result<PartNumber, DeviceError> {
        Ok(Bare::hand(self, part))
    }

    fn allocate(&self, len: usize) -> Result<Bytes, DeviceError> {
        Ok(Bytes::heap(len)?)
    }

    fn memory(&self, command: MemoryCommand<'_>) -> Result<MemoryReply, DeviceError> {
        Ok(self.engine.table().execute(command)?)
    }

    fn assign_bell(&self, owner: BellOwner) -> Result<Doorbell, DeviceError> {
        Ok(Doorbell { owner, index: 0 })
    }

    fn ring(&self, bell: Doorbell) -> Result<(), Reentered> {
        self.enter().rung(bell.owner);
        Ok(())
    }

    fn take_event(&self) -> Option<AsyncEvent> {
        self.enter().event()
    }
}
