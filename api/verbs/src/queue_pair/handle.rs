//! A queue pair in the NIC of this process, or in the daemon's.

use remora_host::connect::{Agreement, Answered, ConnectError, Request, SetupConnection};
use remora_nic::{AddressVector, Modify, Service};
use remora_transport::state::State;
use remora_wire::frame::Route;
use std::net::ToSocketAddrs;
use std::os::fd::AsFd;
use std::sync::Arc;

use crate::end::End;
use crate::nicd::Desk;
use crate::nicd::message::{self, PairFacts};
use crate::{CreateError, QpOptions};

/// Dropping it destroys the queue pair.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one per queue pair, and the large one is the usual one")]
pub(crate) enum Handle {
    Own(End),
    Lent(Lent),
}

/// A queue pair of the daemon's.
#[derive(Debug)]
pub(crate) struct Lent {
    desk: Arc<Desk>,
    facts: PairFacts,
    /// The daemon has it too, for as long as it has the queue pair.
    connection: Option<SetupConnection>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.desk.tell(&message::Request::DestroyQp(self.facts.number));
    }
}

impl Lent {
    pub fn new(desk: &Arc<Desk>, facts: PairFacts, connection: Option<SetupConnection>) -> Lent {
        Lent { desk: Arc::clone(desk), facts, connection }
    }
}

impl Handle {
    /// The queue pair, if it is in the NIC of this process.
    pub fn own(&self) -> Result<&End, CreateError> {
        match self {
            Handle::Own(end) => Ok(end),
            Handle::Lent(_) => Err(CreateError::NotByDaemon),
        }
    }

    pub fn own_mut(&mut self) -> Result<&mut End, ConnectError> {
        match self {
            Handle::Own(end) => Ok(end),
            Handle::Lent(_) => Err(ConnectError::Daemon(CreateError::NotByDaemon.to_string())),
        }
    }

    /// Work was posted.
    #[inline]
    pub fn ring(&self) {
        match self {
            Handle::Own(end) => end.ring(),
            Handle::Lent(lent) => lent.desk.ring(lent.facts.bell),
        }
    }

    /// The NIC looks at its queues, whatever was rung.
    pub fn look(&self) {
        match self {
            Handle::Own(end) => end.look(),
            Handle::Lent(lent) => lent.desk.ring(lent.facts.bell),
        }
    }

    pub fn number(&self) -> u32 {
        match self {
            Handle::Own(end) => end.number.get(),
            Handle::Lent(lent) => lent.facts.number,
        }
    }

    pub fn service(&self) -> Service {
        match self {
            Handle::Own(end) => end.service,
            Handle::Lent(lent) => lent.facts.service,
        }
    }

    pub fn engine_number(&self) -> usize {
        match self {
            Handle::Own(end) => end.engine.number(),
            Handle::Lent(_) => 0,
        }
    }

    pub fn options(&self) -> &QpOptions {
        match self {
            Handle::Own(end) => &end.options,
            Handle::Lent(lent) => &lent.facts.options,
        }
    }

    pub fn agreement(&self) -> Option<&Agreement> {
        match self {
            Handle::Own(end) => end.agreement.as_ref(),
            Handle::Lent(lent) => lent.facts.agreement.as_ref(),
        }
    }

    pub fn address_vector(&self) -> Option<AddressVector> {
        let agreement = self.agreement()?;
        Some(match self {
            Handle::Own(end) => end.address_vector(agreement),
            Handle::Lent(lent) => {
                let route = Route::new(lent.desk.facts().endpoint, agreement.remote.endpoint);
                AddressVector { peer: agreement.peer, route }
            }
        })
    }

    pub fn connect(&mut self, address: impl ToSocketAddrs) -> Result<(), ConnectError> {
        match self {
            Handle::Own(end) => end.connect(address),
            Handle::Lent(lent) => {
                let address = address.to_socket_addrs().map_err(ConnectError::Resolve)?.next();
                let address = address.ok_or(ConnectError::Resolve(std::io::ErrorKind::NotFound.into()))?;
                let request = message::Request::Connect { number: lent.facts.number, address };
                let (agreed, connection) =
                    lent.desk.negotiate(&request, None, lent.facts.options.connect_timeout)?;
                (lent.facts.agreement, lent.connection) = (Some(agreed), connection);
                Ok(())
            }
        }
    }

    /// Answers a request, up to its last word.
    pub fn answer(&mut self, request: Request) -> Result<Answered, ConnectError> {
        match self {
            Handle::Own(end) => end.answer(request),
            Handle::Lent(lent) => {
                let (stream, hello) = request.into_parts();
                let request = message::Request::Answer { number: lent.facts.number, hello: Box::new(hello) };
                let timeout = lent.facts.options.connect_timeout;
                let (agreed, _) = lent.desk.negotiate(&request, Some(stream.as_fd()), timeout)?;
                let answered = Answered::received(stream, &agreed);
                lent.facts.agreement = Some(agreed);
                Ok(answered)
            }
        }
    }

    /// The connection of its set-up stays with it.
    pub fn keep(&mut self, connection: Option<SetupConnection>) {
        match self {
            Handle::Own(end) => end.connection = connection,
            Handle::Lent(lent) => lent.connection = connection,
        }
    }

    /// The connection of its set-up.
    pub fn connection(&self) -> Option<&SetupConnection> {
        match self {
            Handle::Own(end) => end.connection.as_ref(),
            Handle::Lent(lent) => lent.connection.as_ref(),
        }
    }

    pub fn connect_pair(first: &mut Handle, second: &mut Handle) -> Result<(), ConnectError> {
        match (first, second) {
            (Handle::Own(first), Handle::Own(second)) => End::connect_pair(first, second),
            (Handle::Lent(first), Handle::Lent(second)) if Arc::ptr_eq(&first.desk, &second.desk) => {
                let (one, other) = (first.facts.number, second.facts.number);
                let timeout = first.facts.options.connect_timeout;
                let asked = message::Request::ConnectPair { one, other };
                first.facts.agreement = Some(first.desk.negotiate(&asked, None, timeout)?.0);
                second.facts.agreement = Some(
                    first.desk.agreement(other).map_err(|error| ConnectError::Daemon(error.to_string()))?,
                );
                Ok(())
            }
            _ => Err(ConnectError::Daemon(
                "the two queue pairs belong to two NICs, one of them a daemon's: connect them by a Listener"
                    .to_owned(),
            )),
        }
    }

    pub fn state(&self) -> State {
        match self {
            Handle::Own(end) => end.state(),
            Handle::Lent(lent) => lent.desk.state(lent.facts.number).unwrap_or(State::Reset),
        }
    }

    /// Lets its send queue be fetched so far.
    pub fn enable(&self, count: u64) -> Result<(), CreateError> {
        match self {
            Handle::Own(end) => end.enable(count),
            Handle::Lent(lent) => {
                lent.desk.done(&message::Request::Enable { number: lent.facts.number, count })
            }
        }
    }

    pub fn modify(&self, change: &Modify) -> Result<(), CreateError> {
        self.own()?.modify(change)
    }

    /// Of one that the daemon has, only the state.
    pub fn query(&self) -> Modify {
        match self {
            Handle::Own(end) => end.query(),
            Handle::Lent(_) => Modify { state: Some(self.state()), ..Modify::default() },
        }
    }

    pub fn fail(&self) {
        match self {
            Handle::Own(end) => end.fail(),
            Handle::Lent(lent) => lent.desk.tell(&message::Request::Fail(lent.facts.number)),
        }
    }
}
