//! A node's NIC as a device: its control path is the same as that of a real NIC.

use remora_memory::{Bytes, MemoryCommand, MemoryReply, Reentered};
use remora_nic::{
    AsyncEvent, BellOwner, Command, Device, DeviceError, Doorbell, HandedPart, PartNumber, Reply,
};
use std::cell::RefCell;

use super::World;

/// The NIC of a node, at the present time of its world.
pub struct Simulated<'w> {
    world: RefCell<&'w mut World>,
    node: usize,
}

impl World {
    /// Lends the NIC of a node as a device.
    pub fn device(&mut self, node: usize) -> Simulated<'_> {
        Simulated { world: RefCell::new(self), node }
    }
}

impl Device for Simulated<'_> {
    fn execute(&self, command: Command) -> Result<Reply, DeviceError> {
        Ok(self.world.borrow_mut().execute(self.node, command)?)
    }

    fn hand(&self, part: HandedPart) -> Result<PartNumber, DeviceError> {
        Ok(self.world.borrow_mut().hand(self.node, part))
    }

    fn allocate(&self, len: usize) -> Result<Bytes, DeviceError> {
        Ok(Bytes::heap(len)?)
    }

    fn memory(&self, command: MemoryCommand<'_>) -> Result<MemoryReply, DeviceError> {
        Ok(self.world.borrow().table(self.node).execute(command)?)
    }

    fn assign_bell(&self, owner: BellOwner) -> Result<Doorbell, DeviceError> {
        Ok(Doorbell { owner, index: 0 })
    }

    fn ring(&self, bell: Doorbell) -> Result<(), Reentered> {
        self.world.borrow_mut().with_nic(self.node, |nic, _| nic.rung(bell.owner));
        Ok(())
    }

    fn take_event(&self) -> Option<AsyncEvent> {
        self.world.borrow_mut().with_nic(self.node, |nic, _| nic.event())
    }
}
