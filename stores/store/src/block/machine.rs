//! The interface that the clients of both designs offer to the program that drives them.

use remora_nic::WorkCompletion;
use remora_transport::Instant;

use super::{Finished, Grant, Lost, Operation, Refused, Slot};
use crate::{Broken, Connections};

/// A client of one design. It does no input or output itself: its caller owns the queue pairs and passes
/// completions and the time.
pub trait Machine {
    /// Adds a new connection to a replica. Nothing was posted on the connection before.
    ///
    /// # Errors
    /// `Broken::Protocol`: the replica has a design or a layout that differs from the client's.
    fn connect(
        &mut self,
        replica: usize,
        grant: Grant,
        connections: &mut impl Connections,
    ) -> Result<(), Broken>;

    /// Removes the connection to a replica. No completion of that connection follows.
    ///
    /// All operations begin their phase again: the replica may return without its memory, so its earlier
    /// answers do not count (`docs/internals/stores/blocks.md`, empty replicas).
    fn disconnect(&mut self, now: Instant, replica: usize, connections: &mut impl Connections);

    /// Starts reading a block.
    ///
    /// # Errors
    /// `WindowFull`, `NoSuchBlock`: nothing was started.
    fn read(
        &mut self,
        now: Instant,
        block: u64,
        connections: &mut impl Connections,
    ) -> Result<Slot, Refused> {
        self.start(now, Operation::Read, block, &[], connections)
    }

    /// Starts writing a block. `value` is as long as a block.
    ///
    /// # Errors
    /// `WindowFull`, `NoSuchBlock`, `WrongLength`: nothing was started.
    fn write(
        &mut self,
        now: Instant,
        block: u64,
        value: &[u8],
        connections: &mut impl Connections,
    ) -> Result<Slot, Refused> {
        self.start(now, Operation::Write, block, value, connections)
    }

    /// Starts an operation; `value` is the value of a WRITE.
    ///
    /// # Errors
    /// The errors of [`read`](Machine::read) and [`write`](Machine::write).
    fn start(
        &mut self,
        now: Instant,
        operation: Operation,
        block: u64,
        value: &[u8],
        connections: &mut impl Connections,
    ) -> Result<Slot, Refused>;

    /// Processes a completion of a replica's queue pair, and returns the operation that the completion ends.
    /// Completions of an earlier connection are ignored.
    fn complete(
        &mut self,
        now: Instant,
        replica: usize,
        completion: &WorkCompletion,
        connections: &mut impl Connections,
    ) -> Option<Finished<'_>>;

    /// Returns the time at which [`expire`](Machine::expire) must be called.
    fn next_deadline(&self) -> Instant;

    /// Continues the operations whose deadline has passed.
    fn expire(&mut self, now: Instant, connections: &mut impl Connections);

    /// Returns a replica whose connection must be closed, if there is one.
    fn lost(&self) -> Option<Lost>;

    /// Returns the number of operations in flight.
    fn in_flight(&self) -> usize;

    /// Returns true if no operation is in flight, and no slow replica has a request, a lock or a buffer of
    /// this client.
    fn is_quiet(&self) -> bool;
}
