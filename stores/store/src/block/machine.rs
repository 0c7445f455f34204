//! What the clients of both designs do for the program that drives them.

use remora_nic::WorkCompletion;
use remora_transport::Instant;

use super::{Finished, Grant, Lost, Operation, Refused, Slot};
use crate::{Broken, Connections};

/// A client of one design. It is pure: its caller owns the queue pairs and passes completions and the time.
pub trait Machine {
    /// Takes a new connection to a replica. Nothing was posted on the connection before.
    ///
    /// # Errors
    /// `Broken::Protocol`: the replica has another design or another layout.
    fn connect(
        &mut self,
        replica: usize,
        grant: Grant,
        connections: &mut impl Connections,
    ) -> Result<(), Broken>;

    /// Ends the connection to a replica: no completion of it comes any more.
    ///
    /// All operations begin their phase again: the replica may return without its memory, so its earlier
    /// answers do not count (`docs/BLOCK.md`, empty replicas).
    fn disconnect(&mut self, now: Instant, replica: usize, connections: &mut impl Connections);

    /// Starts reading a block.
    ///
    /// # Errors
    /// `WindowFull`, `NoSuchBlock`: nothing was started.
    fn read(&mut self, now: Instant, block: u64, connections: &mut impl Connections)
    -> Result<Slot, Refused>;

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
    ) -> Result<Slot, Refused>;

    /// Starts an operation; `value` is what a WRITE writes.
    ///
    /// # Errors
    /// As [`read`](Machine::read) and [`write`](Machine::write).
    fn start(
        &mut self,
        now: Instant,
        operation: Operation,
        block: u64,
        value: &[u8],
        connections: &mut impl Connections,
    ) -> Result<Slot, Refused> {
        match operation {
            Operation::Read => self.read(now, block, connections),
            Operation::Write => self.write(now, block, value, connections),
        }
    }

    /// Takes a completion of a replica's queue pair and returns the operation that it ends. Completions of an
    /// earlier connection are ignored.
    fn complete(
        &mut self,
        now: Instant,
        replica: usize,
        completion: &WorkCompletion,
        connections: &mut impl Connections,
    ) -> Option<Finished<'_>>;

    /// When [`expire`](Machine::expire) is due.
    fn next_deadline(&self) -> Instant;

    /// Continues the operations whose deadline has passed.
    fn expire(&mut self, now: Instant, connections: &mut impl Connections);

    /// A replica whose connection is of no further use.
    fn lost(&self) -> Option<Lost>;

    /// Operations in flight.
    fn in_flight(&self) -> usize;

    /// True if nothing is in flight, and no slow replica has a request, a lock or a buffer of this client.
    fn is_quiet(&self) -> bool;
}
