//! Queue pairs of the NIC daemon: as the program has them, and what the daemon needs to lend them.

use remora_host::connect::SetupConnection;
use remora_nic::{Ring, Service};
use std::marker::PhantomData;
use std::sync::Arc;

use super::handle::{Handle, Lent};
use super::{Body, Incoming, Init, Own, QueuePair, Ready};
use crate::nicd::Desk;
use crate::nicd::message::{CreateQp, PairFacts};
use crate::{CompletionQueue, CreateError, ProtectionDomain, QpOptions};

/// What a daemon lends with a queue pair.
pub(crate) struct Loan {
    /// Its queues.
    pub rings: [Ring; 2],
    /// The connection of its set-up, if it was connected.
    pub connection: Option<SetupConnection>,
}

impl Body {
    fn lent(
        desk: &Arc<Desk>,
        domain: &ProtectionDomain,
        (send_cq, receive_cq): (&CompletionQueue, &CompletionQueue),
        facts: PairFacts,
        Loan { rings: [send, receive], connection }: Loan,
    ) -> Body {
        let options = &facts.options;
        Body {
            send: options.send_side(send).resumed(),
            receive: Incoming::Own(options.receive_side(receive).resumed()),
            end: Handle::Lent(Lent::new(desk, facts, connection)),
            fork: domain.context().fork(),
            receive_cq: Arc::clone(receive_cq.shared()),
            send_cq: Arc::clone(send_cq.shared()),
            _domain: domain.clone(),
        }
    }
}

/// What is asked of a daemon for a queue pair.
fn asked(
    domain: &ProtectionDomain,
    cqs: (&CompletionQueue, &CompletionQueue),
    service: Service,
    options: &QpOptions,
) -> Result<CreateQp, CreateError> {
    options.check(Own::Both)?;
    domain.context().refuse_child()?;
    let (send_cq, receive_cq) = (cqs.0.shared(), cqs.1.shared());
    if !send_cq.context.is(domain.context()) || !receive_cq.context.is(domain.context()) {
        return Err(CreateError::OtherContext);
    }
    let (send_cq, receive_cq) = (send_cq.number, receive_cq.number);
    let options = Box::new(options.clone());
    Ok(CreateQp { domain: domain.number()?, send_cq, receive_cq, service, options })
}

impl QueuePair<Init> {
    pub(super) fn of_daemon(
        desk: &Arc<Desk>,
        domain: &ProtectionDomain,
        cqs: (&CompletionQueue, &CompletionQueue),
        service: Service,
        options: &QpOptions,
    ) -> Result<QueuePair<Init>, CreateError> {
        let (facts, loan) = desk.create_qp(asked(domain, cqs, service, options)?)?;
        Ok(QueuePair { body: Body::lent(desk, domain, cqs, facts, loan), state: PhantomData })
    }
}

impl QueuePair<Ready> {
    pub(super) fn loopback_of_daemon(
        desk: &Arc<Desk>,
        domain: &ProtectionDomain,
        cqs: (&CompletionQueue, &CompletionQueue),
        options: &QpOptions,
    ) -> Result<QueuePair<Ready>, CreateError> {
        let (facts, loan) = desk.create_loopback(asked(domain, cqs, Service::Rc, options)?)?;
        Ok(QueuePair::again(desk, domain, cqs, facts, loan))
    }

    /// One that the daemon has kept.
    pub(crate) fn again(
        desk: &Arc<Desk>,
        domain: &ProtectionDomain,
        cqs: (&CompletionQueue, &CompletionQueue),
        facts: PairFacts,
        loan: Loan,
    ) -> QueuePair<Ready> {
        QueuePair { body: Body::lent(desk, domain, cqs, facts, loan), state: PhantomData }
    }
}

impl<S> QueuePair<S> {
    /// The memory of its queues; none if it has no receive queue of its own.
    pub(crate) fn rings(&self) -> Option<[&Ring; 2]> {
        match &self.body.receive {
            Incoming::Own(own) => Some([self.body.send.ring(), own.ring()]),
            _ => None,
        }
    }

    /// From now on another process rings for it, by this set of doorbells. The place in it.
    pub(crate) fn share_bell(&mut self, set: u32) -> Result<u32, CreateError> {
        self.body.end.own_mut().map_err(|_| CreateError::NotByDaemon)?.share_bell(set)
    }

    /// Looks at its queues, whatever was rung.
    pub(crate) fn look(&self) {
        self.body.end.look();
    }
}
