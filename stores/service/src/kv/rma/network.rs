//! The network below a client's machine: reads use the NIC's command slots, calls the connections.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use remora_nic::{CompletionKind, Operation, Payload, ReceiveRequest, WorkCompletion, WorkRequest, prism};
use remora_store::PostPrism;
use remora_store::kv::{Post, PostError};
use remora_verbs::rma::{Class, Kind, Portal, Rma, RmaError, Status as RmaStatus};
use remora_verbs::{ProtectionDomain, Status};

use super::frame::{Frame, completion};
use super::link::{Arrived, ServerLink};
use crate::{Error, Result};

/// The server's number is stored above these bits of an id (`remora_store::kv::Replicas`).
const SHIFT: u32 = 56;

/// A read under way.
#[derive(Copy, Clone)]
struct Reading {
    id: u64,
    /// The connection for which the read was posted, and the generation of its grants at that time.
    epoch: u64,
    generation: u64,
    region: u32,
    remote: u64,
    local: u64,
    len: u64,
}

/// The NIC and the connections of one client.
pub(crate) struct Network {
    /// The 1RMA interface of the NIC.
    pub rma: Rma,
    pub portal: Portal,
    pub links: Vec<ServerLink>,
    /// Reads under way, by the portal's command number.
    reads: HashMap<u64, Reading>,
    done: VecDeque<WorkCompletion>,
    /// Time for which reads are retried that were lost in the network or found the server busy. `None` if
    /// another server is tried instead.
    patience: Option<Duration>,
    /// Number of successful reads.
    pub landed: u64,
    /// Protection domain of the arenas, which must outlive them.
    _domain: ProtectionDomain,
}

/// Returns the number of the server that a request is for.
fn server(id: u64) -> usize {
    (id >> SHIFT) as usize
}

/// Returns the status of a queue pair that corresponds to a 1RMA status.
fn status(status: RmaStatus) -> Status {
    match status {
        RmaStatus::Ok => Status::Success,
        RmaStatus::RemoteAuthenticationFailure => Status::RemoteAccess,
        RmaStatus::RemoteAccessError => Status::RemoteInvalidRequest,
        RmaStatus::Nack | RmaStatus::DispatchTimeout => Status::RnrRetryExceeded,
        RmaStatus::Timeout => Status::RetryExceeded,
        RmaStatus::LocalError => Status::LocalProtection,
    }
}

impl Network {
    /// Returns the network of one client. The operands of `portal` lie in `domain`.
    pub(crate) fn new(
        rma: Rma,
        domain: ProtectionDomain,
        portal: Portal,
        links: Vec<ServerLink>,
        patience: Duration,
    ) -> Network {
        let patience = (links.len() == 1).then_some(patience);
        let reads = HashMap::new();
        let done = VecDeque::new();
        Network { rma, portal, links, reads, done, patience, landed: 0, _domain: domain }
    }

    /// Processes completed reads, and drives the NIC one step.
    ///
    /// # Errors
    /// The NIC failed.
    pub(crate) fn poll(&mut self) -> Result<()> {
        loop {
            let (number, ended) = match self.portal.poll() {
                Ok(Some(ended)) => ended,
                Ok(None) => return Ok(()),
                Err(RmaError::Nic(error)) => return Err(error.into()),
                Err(error) => return Err(Error::Refused(error.to_string())),
            };
            let Some(reading) = self.reads.remove(&number) else { continue };
            let Reading { id, epoch, generation, .. } = reading;
            let link = &mut self.links[server(id)];
            link.reading -= 1;
            let outdated = ended == RmaStatus::RemoteAuthenticationFailure && generation != link.generation;
            if outdated && link.epoch == epoch {
                // The read was posted under an earlier grant, so the current grant may be valid: it is
                // retried.
                self.submit(reading);
                continue;
            }
            self.landed += u64::from(ended == RmaStatus::Ok);
            if link.epoch == epoch {
                self.done.push_back(completion(id, status(ended), CompletionKind::Read, 0));
            }
        }
    }

    /// Processes the messages of a server. Returns true if the requested grants arrived.
    ///
    /// # Errors
    /// The connection has failed, or must be closed.
    pub(crate) fn come(&mut self, number: usize) -> Result<bool> {
        let mut came = Arrived::default();
        let result = self.links[number].come(&mut came);
        self.done.extend(came.done);
        result.map(|()| came.grants)
    }

    /// Returns the next completion.
    pub(crate) fn next_done(&mut self) -> Option<WorkCompletion> {
        self.done.pop_front()
    }

    fn read(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let (Operation::Read(remote), Payload::Sges([sge])) = (request.operation, request.payload) else {
            return Err(PostError::BadPayload);
        };
        let link = self.links.get(server(request.id)).ok_or(PostError::BadState)?;
        self.submit(Reading {
            id: request.id,
            epoch: link.epoch,
            generation: link.generation,
            region: remote.rkey.get(),
            remote: remote.addr,
            local: sge.addr,
            len: u64::from(sge.len),
        });
        Ok(())
    }

    /// Posts a read under the current grants.
    fn submit(&mut self, reading: Reading) {
        let Reading { id, region, remote, local, len, .. } = reading;
        let link = &mut self.links[server(id)];
        let kind = Kind::Read;
        let class = Class::Latency;
        let patience = self.patience;
        let submitted = link.grant(region).and_then(|grant| {
            self.portal.submit(kind, class, &link.arena, local, grant, remote, len, patience).ok()
        });
        let Some(number) = submitted else {
            // The table points outside of its region: the read fails, as it would at the server.
            self.done.push_back(completion(id, Status::RemoteInvalidRequest, CompletionKind::Read, 0));
            return;
        };
        link.reading += 1;
        self.reads.insert(number, Reading { generation: link.generation, ..reading });
    }
}

impl Post for Network {
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        if matches!(request.operation, Operation::Read(_)) {
            return self.read(request);
        }
        let link = self.links.get_mut(server(request.id)).ok_or(PostError::BadState)?;
        let message = Frame::of(request, std::slice::from_ref(&link.block))?;
        link.call(&message);
        Ok(())
    }

    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        let [sge] = *request.sges else { return Err(PostError::BadPayload) };
        let link = self.links.get_mut(server(request.id)).ok_or(PostError::BadState)?;
        // The completion must return the whole id.
        link.post_receive(request.id, sge);
        Ok(())
    }
}

impl PostPrism for Network {
    fn post_prism(&mut self, _: &prism::WorkRequest<'_>) -> Result<(), PostError> {
        Err(PostError::BadPayload)
    }
}
