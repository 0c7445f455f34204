//! What the clients of both protocols do for the program that drives them.

use remora_nic::WorkCompletion;
use remora_transport::Status;

use super::{EntryId, Event, Known, Outcome, Refused, Tx};
use crate::{Broken, Connections};

/// A client of PRISM-TX or of FaRM. It is pure: its caller owns the queue pairs and passes their completions.
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

    /// Writes a key. The value is copied; nobody sees it before the commit.
    ///
    /// # Errors
    /// As [`read`](Machine::read), and `ValueTooLong`.
    fn write(
        &mut self,
        tx: Tx,
        key: &[u8],
        value: &[u8],
        connections: &mut impl Connections,
    ) -> Result<EntryId, Refused>;

    /// Removes a key, at the commit.
    ///
    /// # Errors
    /// As [`read`](Machine::read).
    fn delete(&mut self, tx: Tx, key: &[u8], connections: &mut impl Connections) -> Result<EntryId, Refused>;

    /// What the transaction wrote to a key, or else what it read. `None`: nothing is known yet.
    fn value(&mut self, tx: Tx, entry: EntryId) -> Option<Known<'_>>;

    /// Commits a transaction. The result comes as [`Event::Ended`], or at once if nothing is to be done.
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

    /// Gives a transaction up. It ends at once, or by [`Event::Ended`] if requests of it are still under way.
    ///
    /// # Errors
    /// `NotOpen`.
    fn abort(&mut self, tx: Tx) -> Result<Option<Event<'static>>, Refused>;

    /// Takes a completion of a shard's queue pair.
    ///
    /// # Errors
    /// The queue pair has failed, and the client with it. [`abandon`](Machine::abandon) returns what was
    /// under way.
    fn complete(
        &mut self,
        shard: usize,
        completion: &WorkCompletion,
        connections: &mut impl Connections,
    ) -> Result<Option<Event<'_>>, Broken>;

    /// Returns buffers to a shard. The caller calls it for every shard now and then; FaRM has nothing to
    /// return.
    ///
    /// # Errors
    /// The queue did not take the message.
    fn return_buffers(&mut self, shard: usize, connections: &mut impl Connections) -> Result<(), Broken> {
        let _ = (shard, connections);
        Ok(())
    }

    /// Transactions under way, including those whose requests are still being cleared up.
    fn in_flight(&self) -> usize;

    /// True if a shard waits for the transactions that are open. The shard ends a client for which it waits
    /// too long.
    fn is_awaited(&self) -> bool {
        false
    }

    /// Gives the client up, for instance because a shard is gone.
    fn give_up(&mut self, status: Status);

    /// After a failure: returns the transactions that were under way, one a call.
    fn abandon(&mut self) -> Option<(Tx, Outcome)>;
}
