//! The backend of a queue pair: the NIC of this process, or a daemon's.

use remora_host::connect::{Agreement, Answered, ConnectError, Request, SetupConnection};
use remora_memory::Reentered;
use remora_nic::{AddressVector, Command, Modify, QueuePairFacts, Service};
use remora_transport::state::State;
use remora_wire::Qpn;
use remora_wire::frame::Route;
use std::net::ToSocketAddrs;
use std::os::fd::AsFd;
use std::sync::Arc;

use crate::engine_handle::EngineHandle;
use crate::local_qp::LocalQp;
use crate::nicd::DaemonClient;
use crate::nicd::message::{self, PairFacts};
use crate::{CreateError, QpOptions};

/// The NIC's part of a queue pair. Dropping it destroys the queue pair.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one per queue pair, and the large one is the usual one")]
pub(crate) enum QpBackend {
    Own(LocalQp),
    Lent(Lent),
}

/// A queue pair of a daemon's NIC.
#[derive(Debug)]
pub(crate) struct Lent {
    daemon: Arc<DaemonClient>,
    facts: PairFacts,
    /// The connection of the set-up. The daemon holds a descriptor of it too, as long as the queue pair
    /// exists.
    connection: Option<SetupConnection>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.daemon.release(&message::Request::Execute(Command::DestroyQp(Qpn::new(self.facts.number))));
    }
}

impl Lent {
    pub(crate) fn new(
        daemon: &Arc<DaemonClient>,
        facts: PairFacts,
        connection: Option<SetupConnection>,
    ) -> Lent {
        Lent { daemon: Arc::clone(daemon), facts, connection }
    }
}

impl QpBackend {
    pub(crate) fn own_mut(&mut self) -> Result<&mut LocalQp, ConnectError> {
        match self {
            QpBackend::Own(local) => Ok(local),
            QpBackend::Lent(_) => Err(ConnectError::Daemon(CreateError::NotByDaemon.to_string())),
        }
    }

    /// Rings the doorbell, after work was posted.
    #[inline]
    pub(crate) fn ring(&self) -> Result<(), Reentered> {
        match self {
            QpBackend::Own(local) => local.ring()?,
            QpBackend::Lent(lent) => lent.daemon.ring(lent.facts.bell),
        }
        Ok(())
    }

    /// Returns whether the calling thread runs a signal handler that interrupted a call on the queue pair's
    /// engine.
    pub(crate) fn has_caller(&self) -> bool {
        match self {
            QpBackend::Own(local) => local.engine.has_caller(),
            QpBackend::Lent(_) => false,
        }
    }

    /// Makes the NIC inspect the queues, whether or not the doorbell was rung.
    pub(crate) fn look(&self) {
        match self {
            QpBackend::Own(local) => local.look(),
            QpBackend::Lent(lent) => lent.daemon.ring(lent.facts.bell),
        }
    }

    pub(crate) fn number(&self) -> u32 {
        match self {
            QpBackend::Own(local) => local.number.get(),
            QpBackend::Lent(lent) => lent.facts.number,
        }
    }

    pub(crate) fn service(&self) -> Service {
        match self {
            QpBackend::Own(local) => local.service,
            QpBackend::Lent(lent) => lent.facts.service,
        }
    }

    pub(crate) fn engine_number(&self) -> usize {
        match self {
            QpBackend::Own(local) => local.engine.number(),
            QpBackend::Lent(_) => 0,
        }
    }

    pub(crate) fn options(&self) -> &QpOptions {
        match self {
            QpBackend::Own(local) => &local.options,
            QpBackend::Lent(lent) => &lent.facts.options,
        }
    }

    pub(crate) fn agreement(&self) -> Option<&Agreement> {
        match self {
            QpBackend::Own(local) => local.agreement.as_ref(),
            QpBackend::Lent(lent) => lent.facts.agreement.as_ref(),
        }
    }

    pub(crate) fn address_vector(&self) -> Option<AddressVector> {
        let agreement = self.agreement()?;
        Some(match self {
            QpBackend::Own(local) => local.address_vector(agreement),
            QpBackend::Lent(lent) => {
                let route = Route::new(lent.daemon.facts().endpoint, agreement.remote.endpoint);
                AddressVector::new(agreement.peer, route)
            }
        })
    }

    pub(crate) fn connect(&mut self, address: impl ToSocketAddrs) -> Result<(), ConnectError> {
        match self {
            QpBackend::Own(local) => local.connect(address),
            QpBackend::Lent(lent) => {
                let address = address.to_socket_addrs().map_err(ConnectError::Resolve)?.next();
                let address = address.ok_or(ConnectError::Resolve(std::io::ErrorKind::NotFound.into()))?;
                let request = message::Request::Connect { number: lent.facts.number, address };
                let (agreed, connection) =
                    lent.daemon.negotiate(&request, None, lent.facts.options.connect_timeout)?;
                (lent.facts.agreement, lent.connection) = (Some(agreed), connection);
                Ok(())
            }
        }
    }

    /// Answers a connection request, without the last message.
    pub(crate) fn answer(&mut self, request: Request) -> Result<Answered, ConnectError> {
        match self {
            QpBackend::Own(local) => local.answer(request),
            QpBackend::Lent(lent) => {
                let (stream, hello) = request.into_parts();
                let request = message::Request::Answer { number: lent.facts.number, hello: Box::new(hello) };
                let timeout = lent.facts.options.connect_timeout;
                let (agreed, _) = lent.daemon.negotiate(&request, Some(stream.as_fd()), timeout)?;
                let answered = Answered::received(stream, &agreed);
                lent.facts.agreement = Some(agreed);
                Ok(answered)
            }
        }
    }

    /// Stores the connection of the set-up.
    pub(crate) fn keep(&mut self, connection: Option<SetupConnection>) {
        match self {
            QpBackend::Own(local) => local.connection = connection,
            QpBackend::Lent(lent) => lent.connection = connection,
        }
    }

    /// The connection of the set-up, if it is kept.
    pub(crate) fn connection(&self) -> Option<&SetupConnection> {
        match self {
            QpBackend::Own(local) => local.connection.as_ref(),
            QpBackend::Lent(lent) => lent.connection.as_ref(),
        }
    }

    pub(crate) fn connect_pair(first: &mut QpBackend, second: &mut QpBackend) -> Result<(), ConnectError> {
        match (first, second) {
            (QpBackend::Own(first), QpBackend::Own(second)) => LocalQp::connect_pair(first, second),
            (QpBackend::Lent(first), QpBackend::Lent(second))
                if Arc::ptr_eq(&first.daemon, &second.daemon) =>
            {
                let one = first.facts.number;
                let other = second.facts.number;
                let timeout = first.facts.options.connect_timeout;
                let asked = message::Request::ConnectPair { one, other };
                first.facts.agreement = Some(first.daemon.negotiate(&asked, None, timeout)?.0);
                second.facts.agreement = Some(
                    first.daemon.agreement(other).map_err(|error| ConnectError::Daemon(error.to_string()))?,
                );
                Ok(())
            }
            _ => Err(ConnectError::Daemon(
                "the two queue pairs belong to two NICs, one of them a daemon's: connect them by a Listener"
                    .to_owned(),
            )),
        }
    }

    pub(crate) fn state(&self) -> State {
        self.query().state.unwrap_or(State::Reset)
    }

    /// The NIC of the queue pair.
    pub(crate) fn engine_handle(&self) -> EngineHandle {
        match self {
            QpBackend::Own(local) => EngineHandle::Own(Arc::clone(&local.engine)),
            QpBackend::Lent(lent) => EngineHandle::Nicd(Arc::clone(&lent.daemon)),
        }
    }

    fn qpn(&self) -> Qpn {
        Qpn::new(self.number())
    }

    /// Lets the NIC fetch a managed or recycled send queue up to slot `count`.
    pub(crate) fn enable(&self, count: u64) -> Result<(), CreateError> {
        match self {
            QpBackend::Own(local) => local.enable(count),
            QpBackend::Lent(lent) => {
                lent.daemon.execute::<()>(Command::Enable { qp: self.qpn(), count })?;
                lent.daemon.ring(lent.facts.bell);
                Ok(())
            }
        }
    }

    pub(crate) fn modify(&self, change: &Modify) -> Result<(), CreateError> {
        match self {
            QpBackend::Own(local) => local.modify(change),
            QpBackend::Lent(lent) => {
                lent.daemon.execute(Command::ModifyQp { qp: self.qpn(), change: Box::new(*change) })
            }
        }
    }

    /// The state and the attributes that were set so far (`ibv_query_qp`).
    pub(crate) fn query(&self) -> Modify {
        match self {
            QpBackend::Own(local) => local.query(),
            QpBackend::Lent(lent) => {
                let facts = lent.daemon.execute::<QueuePairFacts>(Command::QueryQp(self.qpn()));
                facts.map(|facts| facts.attributes).unwrap_or_default()
            }
        }
    }

    pub(crate) fn fail(&self) {
        match self {
            QpBackend::Own(local) => local.fail(),
            QpBackend::Lent(_) => {
                // A daemon that is gone has taken the queue pair with it.
                let _ = self.modify(&Modify { state: Some(State::Err), ..Modify::default() });
            }
        }
    }
}
