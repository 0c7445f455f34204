//! A NIC as programs see it, independent of the place where it runs: in this process, at a daemon, in a
//! simulated network, or without a port.

use remora_memory::{Bytes, MemoryCommand, MemoryReply, Reentered};

use crate::command::{Command, CommandError, CommandFault, FromReply, Reply};
use crate::config::NicError;
use crate::doorbell::{BellOwner, Doorbell};
use crate::event::AsyncEvent;
use crate::part_number::PartNumber;
use crate::parts::HandedPart;
use crate::ring::Ring;

/// The refusal of a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The NIC refuses a command.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The memory table refuses a command.
    #[error(transparent)]
    Memory(#[from] remora_memory::Error),
    /// The host of the NIC does not offer this.
    #[error("the host of this NIC does not offer this")]
    Unsupported,
    /// The user has as much of the NIC as its host allows. The text says of what, and what to do.
    #[error("{0}")]
    Limit(String),
    /// The host of the NIC refuses, or cannot be reached. The text says why, and what to do.
    #[error("{0}")]
    Host(String),
}

/// A NIC: its control path, the memory that it may use, its doorbells and its events. Work requests and
/// completions do not pass through this trait, but through queues in memory that program and NIC share.
pub trait Device {
    /// Executes a command.
    ///
    /// # Errors
    /// The refusal of the NIC or of its host. Nothing has changed then.
    fn execute(&self, command: Command) -> Result<Reply, DeviceError>;

    /// Hands memory of a queue or code of a kernel to the NIC, and returns the number by which the next
    /// command names it.
    ///
    /// # Errors
    /// `Host`: the part cannot be handed over.
    fn hand(&self, part: HandedPart) -> Result<PartNumber, DeviceError>;

    /// Allocates `len` zeroed bytes that the NIC can use as a queue or a region.
    ///
    /// # Errors
    /// `Memory`: there is not so much memory.
    fn allocate(&self, len: usize) -> Result<Bytes, DeviceError>;

    /// Executes a command of the memory table.
    ///
    /// # Errors
    /// The refusal of the table or of its host. Nothing has changed then.
    fn memory(&self, command: MemoryCommand<'_>) -> Result<MemoryReply, DeviceError>;

    /// Assigns a doorbell to a queue pair or portal of this program. The doorbell ends with its owner.
    ///
    /// # Errors
    /// `Host`: the program has no doorbell left.
    fn assign_bell(&self, owner: BellOwner) -> Result<Doorbell, DeviceError>;

    /// Rings a doorbell, after work was posted.
    ///
    /// # Errors
    /// The calling thread is inside the NIC, which has not seen the work.
    fn ring(&self, bell: Doorbell) -> Result<(), Reentered>;

    /// Takes the next asynchronous event; `None` if there is none.
    fn take_event(&self) -> Option<AsyncEvent>;

    /// Allocates the memory of a queue of at least `slots` slots and hands it to the NIC.
    ///
    /// # Errors
    /// The errors of [`allocate`](Device::allocate) and [`hand`](Device::hand).
    fn queue(&self, slots: u32) -> Result<(Ring, PartNumber), DeviceError> {
        let ring = Ring::new(self.allocate(Ring::size(slots))?);
        let ring = ring.ok_or(remora_memory::Error::Invalid)?;
        let part = self.hand(ring.clone().into())?;
        Ok((ring, part))
    }

    /// Executes a command and returns the value that its reply carries.
    ///
    /// # Errors
    /// The errors of [`execute`](Device::execute).
    fn ask<T: FromReply>(&self, command: Command) -> Result<T, DeviceError>
    where
        Self: Sized,
    {
        let kind = command.kind();
        let reply = self.execute(command)?;
        Ok(T::from_reply(reply).ok_or(CommandError { kind, fault: CommandFault::Reply })?)
    }
}

impl DeviceError {
    /// Returns the error of a resource; `None` if the refusal is another one.
    pub fn nic(&self) -> Option<NicError> {
        match self {
            DeviceError::Command(error) => error.fault.nic(),
            _ => None,
        }
    }
}
