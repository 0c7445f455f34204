//! A block client of either design.

use remora_nic::WorkCompletion;
use remora_transport::Instant;

use super::{
    ClientConfig, Design, Finished, Grant, Lost, Machine, Operation, Refused, Slot, abdlock, prism_rs,
};
use crate::{Broken, Connections, QueueNeeds, Registered};

/// A block client of the design that the replicas use.
#[derive(Debug)]
pub enum AnyClient {
    /// A client of PRISM-RS.
    PrismRs(prism_rs::Client),
    /// A client of ABDLOCK.
    AbdLock(abdlock::Client),
}

impl AnyClient {
    /// Returns the bytes of registered memory that a client of this design needs.
    pub fn arena_len(design: Design, config: &ClientConfig) -> usize {
        match design {
            Design::PrismRs => prism_rs::Client::arena_len(config),
            Design::AbdLock => abdlock::Client::arena_len(config),
        }
    }

    /// Returns the sizes of queue pair that are sufficient for either design.
    pub fn needs(config: &ClientConfig) -> QueueNeeds {
        prism_rs::Client::needs(config).max(abdlock::Client::needs(config))
    }

    /// Returns a client without connections. `seed` seeds the pauses before it retries locks.
    ///
    /// Returns `None` if the configuration is invalid or if `arena` is shorter than
    /// [`AnyClient::arena_len`].
    pub fn new(design: Design, config: ClientConfig, arena: Registered, seed: u64) -> Option<AnyClient> {
        match design {
            Design::PrismRs => prism_rs::Client::new(config, arena).map(AnyClient::PrismRs),
            Design::AbdLock => abdlock::Client::new(config, arena, seed).map(AnyClient::AbdLock),
        }
    }
}

/// Calls the same method of the client of either design.
macro_rules! either {
    ($self:expr, $client:ident => $call:expr) => {
        match $self {
            AnyClient::PrismRs($client) => $call,
            AnyClient::AbdLock($client) => $call,
        }
    };
}

impl Machine for AnyClient {
    fn connect(
        &mut self,
        replica: usize,
        grant: Grant,
        connections: &mut impl Connections,
    ) -> Result<(), Broken> {
        either!(self, client => client.connect(replica, grant, connections))
    }

    fn disconnect(&mut self, now: Instant, replica: usize, connections: &mut impl Connections) {
        either!(self, client => client.disconnect(now, replica, connections));
    }

    #[inline]
    fn start(
        &mut self,
        now: Instant,
        operation: Operation,
        block: u64,
        value: &[u8],
        connections: &mut impl Connections,
    ) -> Result<Slot, Refused> {
        either!(self, client => client.start(now, operation, block, value, connections))
    }

    #[inline]
    fn complete(
        &mut self,
        now: Instant,
        replica: usize,
        completion: &WorkCompletion,
        connections: &mut impl Connections,
    ) -> Option<Finished<'_>> {
        either!(self, client => client.complete(now, replica, completion, connections))
    }

    #[inline]
    fn next_deadline(&self) -> Instant {
        either!(self, client => client.next_deadline())
    }

    fn expire(&mut self, now: Instant, connections: &mut impl Connections) {
        either!(self, client => client.expire(now, connections));
    }

    fn lost(&self) -> Option<Lost> {
        either!(self, client => client.lost())
    }

    fn in_flight(&self) -> usize {
        either!(self, client => client.in_flight())
    }

    fn is_quiet(&self) -> bool {
        either!(self, client => client.is_quiet())
    }
}
