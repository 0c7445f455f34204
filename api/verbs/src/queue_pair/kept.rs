//! Queue pairs that a daemon keeps when their program ends: the note that the program leaves, and taking
//! over.

use remora_host::connect::{Agreement, ConnectError, SetupConnection};
use remora_host::sent_as;
use remora_nic::{BellOwner, Doorbell, ObjectName, Ring, Service};
use remora_wire::Qpn;
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;

use super::{Incoming, Inner, QueuePair, Ready};
use crate::engine_handle::EngineHandle;
use crate::qp_handle::QpHandle;
use crate::{CompletionQueue, ProtectionDomain, QpOptions};

sent_as! {
    service: Service as u8, |service| *service as u8,
        |number| Service::ALL.into_iter().find(|service| *service as u8 == number);
}

/// The facts that a later program of the tenant needs to take over a queue pair. The daemon stores them
/// unread.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct QpNote {
    /// Number of the protection domain.
    pub domain: u32,
    /// Number of the completion queue for send work requests.
    pub send_cq: u32,
    /// Number of the completion queue for receive work requests.
    pub receive_cq: u32,
    #[serde(with = "service")]
    service: Service,
    options: QpOptions,
    agreement: Option<Agreement>,
}

impl QueuePair<Ready> {
    /// Leaves the facts about the queue pair, and the connection of its set-up, with the daemon, if the
    /// daemon keeps the objects of this program. The daemon keeps a queue pair with such a note only.
    pub(super) fn leave_note(&self) -> Result<(), ConnectError> {
        let Inner { handle, send_cq, receive_cq, _domain: domain, .. } = &self.inner;
        let Some(daemon) = handle.engine.daemon().filter(|daemon| daemon.keeps()) else { return Ok(()) };
        let Incoming::Own(_) = &self.inner.receive else { return Ok(()) };
        let note = QpNote {
            domain: domain.pd().get(),
            send_cq: send_cq.number,
            receive_cq: receive_cq.number,
            service: handle.service,
            options: handle.options.clone(),
            agreement: handle.agreement.clone(),
        };
        let left = daemon.note(ObjectName::Qp(handle.number), &note, handle.connection.as_ref());
        left.map_err(|error| ConnectError::Daemon(error.to_string()))
    }

    /// Takes over a queue pair that an earlier program of the tenant has left.
    pub(crate) fn take_over(
        domain: &ProtectionDomain,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        number: Qpn,
        bell: u32,
        note: QpNote,
        rings: [Ring; 2],
        connection: Option<SetupConnection>,
    ) -> QueuePair<Ready> {
        let engine: &EngineHandle = &send_cq.shared().engine;
        let QpNote { service, options, agreement, .. } = note;
        let bell = Doorbell { owner: BellOwner::QueuePair(number), index: bell };
        let mut handle = QpHandle::over(domain.context(), engine, number, service, &options, bell);
        (handle.agreement, handle.connection) = (agreement, connection);
        let [send, receive] = rings;
        let receive = Incoming::Own(options.receive_side(receive).resumed());
        let mut inner = Inner::new(handle, domain, send_cq, receive_cq, send.clone(), receive);
        inner.send = options.send_side(send).resumed();
        QueuePair { inner, state: PhantomData }
    }
}
