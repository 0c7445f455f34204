//! The interface that the clients of all designs offer to the program that drives them.

use remora_nic::WorkCompletion;

use super::{Broken, Client, Finished, Lookup, Refused, Replicas, Slot, prism};
use crate::PostPrism;
use crate::send_queue::Account;

/// A client of any design. It does no input or output itself: its caller owns the queue pair and passes
/// completions.
pub trait Machine {
    /// Starts reading the value of `key`.
    ///
    /// # Errors
    /// See [`Refused`]; nothing was started.
    fn get(&mut self, key: &[u8], nic: &mut impl PostPrism) -> Result<Slot, Refused>;

    /// Starts storing `value` under `key`.
    ///
    /// # Errors
    /// See [`Refused`]; nothing was started.
    fn put(&mut self, key: &[u8], value: &[u8], nic: &mut impl PostPrism) -> Result<Slot, Refused>;

    /// Starts removing `key`.
    ///
    /// # Errors
    /// See [`Refused`]; nothing was started.
    fn delete(&mut self, key: &[u8], nic: &mut impl PostPrism) -> Result<Slot, Refused>;

    /// Posts the client's receive requests.
    ///
    /// # Errors
    /// The queue did not take the requests.
    fn start(&mut self, nic: &mut impl PostPrism) -> Result<(), Broken>;

    /// Processes a completion, and returns the operation that the completion ends.
    ///
    /// # Errors
    /// The queue pair has failed.
    fn complete(
        &mut self,
        completion: &WorkCompletion,
        nic: &mut impl PostPrism,
    ) -> Result<Option<Finished<'_>>, Broken>;

    /// Returns the number of operations in flight.
    fn in_flight(&self) -> usize;
}

macro_rules! machine {
    ($client:ty $(, $bound:ident: $lookup:ident)*) => {
        impl<$($bound: $lookup),*> Machine for $client {
            #[inline]
            fn get(&mut self, key: &[u8], nic: &mut impl PostPrism) -> Result<Slot, Refused> {
                <$client>::get(self, key, nic)
            }

            #[inline]
            fn put(&mut self, key: &[u8], value: &[u8], nic: &mut impl PostPrism) -> Result<Slot, Refused> {
                <$client>::put(self, key, value, nic)
            }

            fn delete(&mut self, key: &[u8], nic: &mut impl PostPrism) -> Result<Slot, Refused> {
                <$client>::delete(self, key, nic)
            }

            fn start(&mut self, nic: &mut impl PostPrism) -> Result<(), Broken> {
                <$client>::start(self, nic)
            }

            #[inline]
            fn complete(
                &mut self,
                completion: &WorkCompletion,
                nic: &mut impl PostPrism,
            ) -> Result<Option<Finished<'_>>, Broken> {
                <$client>::complete(self, completion, nic)
            }

            #[inline]
            fn in_flight(&self) -> usize {
                <$client>::in_flight(self)
            }
        }
    };
}

machine!(Client<L, Q>, L: Lookup, Q: Account);
machine!(prism::Client);
machine!(Replicas<L>, L: Lookup);
