//! The interface that the clients of both designs offer to the program that drives them.

use remora_nic::WorkCompletion;
use remora_transport::Status;

use super::{EntryId, Event, Known, Outcome, Refused, Tx};
use crate::{Broken, Connections};

/// A client of PRISM-TX or FaRM. It does no input or output itself: its caller owns the queue pairs and
/// passes their completions.
pub trait Machine {
    /// Posts the receive requests. The caller does it once, before the first transaction.
    ///
    /// # Errors
    /// A queue did not take its receive request.
    fn start(&mut self, connections: &mut impl Connections) -> Result<(), Broken>;

    /// Begins a transaction.
    ///
    /// # Errors
    /// `WindowFull`, `Broken`.
    fn begin(&mut self) -> Result<Tx, Refused>;

    /// Reads a key. Its last committed value comes once, as [`Event::Read`]; then [`value`](Machine::value)
    /// returns it. With FaRM, a key that stays locked aborts the transaction instead.
    ///
    /// # Errors
    /// `NotOpen`, `TooManyKeys`, `KeyTooLong`, `Broken`.
    fn read(&mut self, tx: Tx, key: &[u8], connections: &mut impl Connections) -> Result<EntryId, Refused>;

    /// Writes a key. The value is copied, and becomes visible to others at the commit.
    ///
    /// # Errors
    /// The errors of [`read`](Machine::read), and `ValueTooLong`.
    fn write(
        &mut self,
        tx: Tx,
        key: &[u8],
        value: &[u8],
        connections: &mut impl Connections,
    ) -> Result<EntryId, Refused>;

    /// Removes a key at the commit.
    ///
    /// # Errors
    /// The errors of [`read`](Machine::read).
    fn delete(&mut self, tx: Tx, key: &[u8], connections: &mut impl Connections) -> Result<EntryId, Refused>;

    /// Returns what the transaction wrote to a key, or else what it read. `None` if nothing is known yet.
    fn value(&mut self, tx: Tx, entry: EntryId) -> Option<Known<'_>>;

    /// Commits a transaction. The outcome is reported as [`Event::Ended`], or returned at once if there is
    /// nothing to do.
    ///
    /// `clock` is in microseconds and about the same for all clients. PRISM-TX orders transactions by it;
    /// FaRM ignores it.
    ///
    /// # Errors
    /// `NotOpen`, `ClockOut`, `Broken`.
    fn commit(
        &mut self,
        tx: Tx,
        clock: u64,
        connections: &mut impl Connections,
    ) -> Result<Option<Event<'static>>, Refused>;

    /// Aborts a transaction. It ends at once, or by [`Event::Ended`] if requests of it are still under way.
    ///
    /// # Errors
    /// `NotOpen`.
    fn abort(&mut self, tx: Tx) -> Result<Option<Event<'static>>, Refused>;

    /// Processes a completion of a shard's queue pair.
    ///
    /// # Errors
    /// The queue pair has failed, and the client with it. [`abandon`](Machine::abandon) returns the
    /// transactions under way.
    fn complete(
        &mut self,
        shard: usize,
        completion: &WorkCompletion,
        connections: &mut impl Connections,
    ) -> Result<Option<Event<'_>>, Broken>;

    /// Returns buffers to a shard. The caller must call this periodically for every shard; FaRM has nothing
    /// to return.
    ///
    /// # Errors
    /// The queue did not take the message.
    fn return_buffers(&mut self, shard: usize, connections: &mut impl Connections) -> Result<(), Broken> {
        let _ = (shard, connections);
        Ok(())
    }

    /// Returns the number of transactions under way, including those whose requests are still being cleaned
    /// up.
    fn in_flight(&self) -> usize;

    /// Returns true if a shard waits for the open transactions. The shard disconnects a client for which it
    /// waits too long.
    fn is_awaited(&self) -> bool {
        false
    }

    /// Marks the client as failed, for instance because a shard is gone.
    fn give_up(&mut self, status: Status);

    /// Returns the transactions that were under way when the client failed, one per call, and `None` when
    /// none is left.
    fn abandon(&mut self) -> Option<(Tx, Outcome)>;
}
