//! What the two protocols have in common, for programs that are written once for both.

use remora_nic::WorkCompletion;
use remora_transport::Status;

use super::{EntryId, Event, Outcome, Refused, Tx, farm};
use crate::{Broken, Connections};

/// A client machine of PRISM-TX or of FaRM. Its methods are those of the same name of [`Client`](super::Client) and [`farm::Client`].
pub trait Design {
    /// Once, before the first transaction.
    ///
    /// # Errors
    /// A queue did not take its receive request.
    fn start(&mut self, connections: &mut impl Connections) -> Result<(), Broken>;
    /// Begins a transaction.
    ///
    /// # Errors
    /// `WindowFull`, `Broken`.
    fn begin(&mut self) -> Result<Tx, Refused>;
    /// Reads a key.
    ///
    /// # Errors
    /// `NotOpen`, `TooManyKeys`, `KeyTooLong`, `Broken`.
    fn read(&mut self, tx: Tx, key: &[u8], connections: &mut impl Connections) -> Result<EntryId, Refused>;
    /// Writes a key.
    ///
    /// # Errors
    /// As [`read`](Design::read), and `ValueTooLong`.
    fn write(
        &mut self,
        tx: Tx,
        key: &[u8],
        value: &[u8],
        connections: &mut impl Connections,
    ) -> Result<EntryId, Refused>;
    /// Removes a key.
    ///
    /// # Errors
    /// As [`read`](Design::read).
    fn delete(&mut self, tx: Tx, key: &[u8], connections: &mut impl Connections) -> Result<EntryId, Refused>;
    /// What a transaction knows of a key.
    fn value(&mut self, tx: Tx, entry: EntryId) -> Option<Option<&[u8]>>;
    /// Commits, at about this time in microseconds.
    ///
    /// # Errors
    /// `NotOpen`, `ClockOut`, `Broken`.
    fn commit(
        &mut self,
        tx: Tx,
        clock: u64,
        connections: &mut impl Connections,
    ) -> Result<Option<Event<'static>>, Refused>;
    /// Gives a transaction up.
    ///
    /// # Errors
    /// `NotOpen`.
    fn abort(&mut self, tx: Tx) -> Result<Option<Event<'static>>, Refused>;
    /// Takes a completion of a shard's queue pair.
    ///
    /// # Errors
    /// The queue pair has failed, and the client with it.
    fn complete(
        &mut self,
        shard: usize,
        completion: &WorkCompletion,
        connections: &mut impl Connections,
    ) -> Result<Option<Event<'_>>, Broken>;
    /// Called for every shard now and then: what waits to go to it goes.
    ///
    /// # Errors
    /// The queue did not take it.
    fn return_buffers(&mut self, shard: usize, connections: &mut impl Connections) -> Result<(), Broken>;
    /// Transactions under way.
    fn in_flight(&self) -> usize;
    /// Does a shard wait for the transactions that are open?
    fn is_awaited(&self) -> bool {
        false
    }
    /// Gives the client up.
    fn give_up(&mut self, status: Status);
    /// After a failure: what was under way, one a call.
    fn abandon(&mut self) -> Option<(Tx, Outcome)>;
}

macro_rules! design {
    ($client:ty, $start:expr, $return_buffers:expr, $is_awaited:expr) => {
        impl Design for $client {
            fn start(&mut self, connections: &mut impl Connections) -> Result<(), Broken> {
                $start(self, connections)
            }
            fn begin(&mut self) -> Result<Tx, Refused> {
                self.begin()
            }
            fn read(
                &mut self,
                tx: Tx,
                key: &[u8],
                connections: &mut impl Connections,
            ) -> Result<EntryId, Refused> {
                self.read(tx, key, connections)
            }
            fn write(
                &mut self,
                tx: Tx,
                key: &[u8],
                value: &[u8],
                connections: &mut impl Connections,
            ) -> Result<EntryId, Refused> {
                self.write(tx, key, value, connections)
            }
            fn delete(
                &mut self,
                tx: Tx,
                key: &[u8],
                connections: &mut impl Connections,
            ) -> Result<EntryId, Refused> {
                self.delete(tx, key, connections)
            }
            fn value(&mut self, tx: Tx, entry: EntryId) -> Option<Option<&[u8]>> {
                self.value(tx, entry)
            }
            fn commit(
                &mut self,
                tx: Tx,
                clock: u64,
                connections: &mut impl Connections,
            ) -> Result<Option<Event<'static>>, Refused> {
                self.commit(tx, clock, connections)
            }
            fn abort(&mut self, tx: Tx) -> Result<Option<Event<'static>>, Refused> {
                self.abort(tx)
            }
            fn complete(
                &mut self,
                shard: usize,
                completion: &WorkCompletion,
                connections: &mut impl Connections,
            ) -> Result<Option<Event<'_>>, Broken> {
                self.complete(shard, completion, connections)
            }
            fn return_buffers(
                &mut self,
                shard: usize,
                connections: &mut impl Connections,
            ) -> Result<(), Broken> {
                $return_buffers(self, shard, connections)
            }
            fn in_flight(&self) -> usize {
                self.in_flight()
            }
            fn is_awaited(&self) -> bool {
                $is_awaited(self)
            }
            fn give_up(&mut self, status: Status) {
                self.give_up(status);
            }
            fn abandon(&mut self) -> Option<(Tx, Outcome)> {
                self.abandon()
            }
        }
    };
}

design!(super::Client, super::Client::start, super::Client::return_buffers, super::Client::is_awaited);
design!(farm::Client, farm::Client::start, |_: &mut farm::Client, _, _| Ok(()), |_: &farm::Client| false);
