//! Queue pairs that a NIC daemon lends: the program's side, and the daemon's part of lending.

use remora_nic::{Ring, Service};
use std::marker::PhantomData;
use std::sync::Arc;

use super::qp_backend::{Lent, QpBackend};
use super::{Incoming, Init, Inner, Own, QueuePair, Ready};
use crate::nicd::DaemonClient;
use crate::nicd::loan::Loan;
use crate::nicd::message::{CreateQp, PairFacts};
use crate::{CompletionQueue, CreateError, ProtectionDomain, QpOptions};

impl Inner {
    fn lent(
        daemon: &Arc<DaemonClient>,
        domain: &ProtectionDomain,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        facts: PairFacts,
        Loan { rings: [send, receive], connection }: Loan,
    ) -> Inner {
        let options = &facts.options;
        Inner {
            send: options.send_side(send).resumed(),
            receive: Incoming::Own(options.receive_side(receive).resumed()),
            backend: QpBackend::Lent(Lent::new(daemon, facts, connection)),
            fork: domain.context().fork(),
            receive_cq: Arc::clone(receive_cq.shared()),
            send_cq: Arc::clone(send_cq.shared()),
            _domain: domain.clone(),
        }
    }
}

/// Builds the request to a daemon for a queue pair.
fn asked(
    domain: &ProtectionDomain,
    send_cq: &CompletionQueue,
    receive_cq: &CompletionQueue,
    service: Service,
    options: &QpOptions,
) -> Result<CreateQp, CreateError> {
    options.check(Own::Both)?;
    domain.context().refuse_child()?;
    let send_cq = send_cq.shared();
    let receive_cq = receive_cq.shared();
    if !send_cq.context.is(domain.context()) || !receive_cq.context.is(domain.context()) {
        return Err(CreateError::OtherContext);
    }
    let send_cq = send_cq.number;
    let receive_cq = receive_cq.number;
    let options = Box::new(options.clone());
    Ok(CreateQp { domain: domain.number()?, send_cq, receive_cq, service, options })
}

impl QueuePair<Init> {
    pub(super) fn of_daemon(
        daemon: &Arc<DaemonClient>,
        domain: &ProtectionDomain,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        service: Service,
        options: &QpOptions,
    ) -> Result<QueuePair<Init>, CreateError> {
        let (facts, loan) = daemon.create_qp(asked(domain, send_cq, receive_cq, service, options)?)?;
        Ok(QueuePair {
            inner: Inner::lent(daemon, domain, send_cq, receive_cq, facts, loan),
            state: PhantomData,
        })
    }
}

impl QueuePair<Ready> {
    pub(super) fn loopback_of_daemon(
        daemon: &Arc<DaemonClient>,
        domain: &ProtectionDomain,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        options: &QpOptions,
    ) -> Result<QueuePair<Ready>, CreateError> {
        let (facts, loan) =
            daemon.create_loopback(asked(domain, send_cq, receive_cq, Service::Rc, options)?)?;
        Ok(QueuePair::reattach(daemon, domain, send_cq, receive_cq, facts, loan))
    }

    /// Wraps a queue pair that the daemon has kept.
    pub(crate) fn reattach(
        daemon: &Arc<DaemonClient>,
        domain: &ProtectionDomain,
        send_cq: &CompletionQueue,
        receive_cq: &CompletionQueue,
        facts: PairFacts,
        loan: Loan,
    ) -> QueuePair<Ready> {
        QueuePair { inner: Inner::lent(daemon, domain, send_cq, receive_cq, facts, loan), state: PhantomData }
    }
}

impl<S> QueuePair<S> {
    /// The memory of both queues, or `None` if the queue pair has no receive queue of its own.
    pub(crate) fn rings(&self) -> Option<[&Ring; 2]> {
        match &self.inner.receive {
            Incoming::Own(own) => Some([self.inner.send.ring(), own.ring()]),
            _ => None,
        }
    }

    /// Gives the queue pair a doorbell of the shared set `set`, which another process rings from now on.
    /// Returns the doorbell's index in the set.
    pub(crate) fn share_bell(&mut self, set: u32) -> Result<u32, CreateError> {
        self.inner.backend.own_mut().map_err(|_| CreateError::NotByDaemon)?.share_bell(set)
    }

    /// Makes the NIC inspect the queues, whether or not the doorbell was rung.
    pub(crate) fn look(&self) {
        self.inner.backend.look();
    }
}
