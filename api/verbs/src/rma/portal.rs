//! Command portals. A transfer of any length is executed as commands of at most 4 KB.

use remora_host::Clock;
use remora_nic::cqe::Cqe;
use remora_nic::rma::{Command, CommandQueue, Completion, Operand, PortalFacts};
use remora_nic::{Device, Doorbell};
use remora_transport::Instant;
use remora_transport::rma::Status;
use remora_transport::rma::executor::{Executor, OnFailure, SubmitError, Transfer, TransferEnd};
use remora_wire::rma::{Class, Kind};
use std::fmt;
use std::time::Duration;

use super::engine::NewPortal;
use super::service::{Inner, Rma, RmaRegion};
use super::{Client, Grant};
use crate::{CompletionQueue, CqOptions, CreateError, PollError, ProtectionDomain};

/// The reason why a transfer did not succeed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RmaError {
    /// The portal refused the transfer: it has no bytes, or too many transfers are in progress.
    Refused(SubmitError),
    /// A command failed; contains the status of the first one that did.
    Failed(Status),
    /// The NIC's completion queue failed, or the wait timed out.
    Nic(PollError),
    /// The bytes are not within the local region, or not within the granted region.
    OutOfBounds,
    /// The local region belongs to another device.
    OtherContext,
}

impl fmt::Display for RmaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RmaError::Refused(SubmitError::Full) => {
                f.write_str("as many transfers in progress as a portal takes")
            }
            RmaError::Refused(SubmitError::Malformed) => f.write_str("a transfer of no bytes"),
            RmaError::Failed(status) => f.write_str(status.explain()),
            RmaError::Nic(error) => error.fmt(f),
            RmaError::OutOfBounds => {
                f.write_str("the bytes lie outside of the local region, or of the region that was granted")
            }
            RmaError::OtherContext => f.write_str("the local region is of another device"),
        }
    }
}

impl std::error::Error for RmaError {}

impl From<PollError> for RmaError {
    fn from(error: PollError) -> RmaError {
        RmaError::Nic(error)
    }
}

impl Rma {
    /// Creates a portal with `slots` command slots, for operands in this domain.
    ///
    /// # Errors
    /// `Forked` in a forked child; `OtherContext`; `TooFew` if `slots` is 0; `Nic(Full)` if fewer slots are
    /// free; `Daemon` if the daemon refuses.
    pub fn create_portal(&self, domain: &ProtectionDomain, slots: u16) -> Result<Portal, CreateError> {
        Portal::new(self, domain, slots, false)
    }

    /// Like [`create_portal`](Rma::create_portal), for transfers of the bulk class only. A daemon may lend
    /// more slots for them.
    ///
    /// # Errors
    /// The errors of [`create_portal`](Rma::create_portal).
    pub fn create_bulk_portal(&self, domain: &ProtectionDomain, slots: u16) -> Result<Portal, CreateError> {
        Portal::new(self, domain, slots, true)
    }
}

/// The attributes that all commands of a transfer share.
#[derive(Copy, Clone)]
struct Job {
    kind: Kind,
    class: Class,
    local: Operand,
    remote: Operand,
    grant: Grant,
}

/// Polls of a waiting caller between two readings of the clock.
const LOOK_EVERY: u32 = 4096;
/// A NIC completes each command in less time. A NIC that takes longer is stopped, as a daemon may be.
const STOPPED: Duration = Duration::from_secs(20);
/// The greatest number of transfers of a portal in progress at a time.
pub const TRANSFERS: u32 = 1024;

/// A command portal: command slots with their completion queue, used by one thread.
pub struct Portal {
    rma: Rma,
    facts: PortalFacts,
    bell: Doorbell,
    commands: CommandQueue,
    /// The number of transfers submitted so far.
    submitted: u64,
    cq: CompletionQueue,
    executor: Executor,
    jobs: Vec<Option<Job>>,
    clock: Clock,
    ended: Vec<TransferEnd>,
    // Keeps the domain of the operands alive.
    _domain: ProtectionDomain,
}

impl Portal {
    pub(super) fn new(
        rma: &Rma,
        domain: &ProtectionDomain,
        slots: u16,
        bulk_only: bool,
    ) -> Result<Portal, CreateError> {
        let Inner { context, engine: rma_engine, identity, options } = &*rma.inner;
        context.refuse_child()?;
        rma.refuse_other(domain)?;
        if slots == 0 {
            return Err(CreateError::TooFew("slots", 0, 1));
        }
        let depth = 2 * u32::from(slots);
        let engine = Some(options.engine);
        let cq = context.create_cq_with(&CqOptions { depth, engine, ..CqOptions::default() })?;
        let made = rma_engine.create_portal(domain, &cq, identity, slots, bulk_only)?;
        let NewPortal { facts, bell, ring } = made;
        Ok(Portal {
            rma: rma.clone(),
            facts,
            bell,
            commands: CommandQueue::new(ring),
            submitted: 0,
            cq,
            executor: Executor::new(slots, TRANSFERS, &rma.inner.options.congestion),
            jobs: vec![None; TRANSFERS as usize],
            clock: Clock::new(),
            ended: Vec::with_capacity(usize::from(slots)),
            _domain: domain.clone(),
        })
    }

    /// The identity of this program towards servers.
    pub fn identity(&self) -> Client {
        self.rma.inner.identity
    }

    /// Reads `len` bytes of a granted region, from `remote` on, into a local region, from `local` on. After a
    /// NACK or a timeout of a command, the command is tried again until `timeout` has passed.
    ///
    /// # Errors
    /// [`RmaError`] with the reason.
    pub fn read(
        &mut self,
        region: &RmaRegion,
        local: u64,
        grant: &Grant,
        remote: u64,
        len: u64,
        timeout: Duration,
    ) -> Result<(), RmaError> {
        let id = self.submit(Kind::Read, Class::Latency, region, local, grant, remote, len, Some(timeout))?;
        self.wait(id, timeout)
    }

    /// Writes `len` bytes of a local region, from `local` on, to a granted region, from `remote` on. After a
    /// NACK or a timeout of a command, the command is tried again until `timeout` has passed. A write that
    /// timed out may have taken effect.
    ///
    /// # Errors
    /// [`RmaError`] with the reason.
    pub fn write(
        &mut self,
        region: &RmaRegion,
        local: u64,
        grant: &Grant,
        remote: u64,
        len: u64,
        timeout: Duration,
    ) -> Result<(), RmaError> {
        let id =
            self.submit(Kind::Write, Class::Latency, region, local, grant, remote, len, Some(timeout))?;
        self.wait(id, timeout)
    }

    /// Changes the key of a granted region to the 16 bytes of a local region from `local` on.
    ///
    /// # Errors
    /// [`RmaError`] with the reason.
    pub fn rekey(&mut self, region: &RmaRegion, local: u64, grant: &Grant) -> Result<(), RmaError> {
        let id = self.submit(Kind::Rekey, Class::Latency, region, local, grant, 0, 16, None)?;
        self.wait(id, Duration::ZERO)
    }

    /// Waits until no ended operation of this portal with the grant's server can change memory there any
    /// more, whatever the status of the operation and however long the server was stopped
    /// (`docs/reference/rma.md`).
    ///
    /// The call reads one byte to `local`, and also succeeds if the server refuses the read: either way the
    /// engine has answered, and an engine executes one operation at a time. The grant names the engine, and
    /// must have a key for reads.
    ///
    /// ```
    /// # use remora_verbs::rma::{Rights, RmaError, RmaOptions, Status};
    /// # use remora_verbs::{Access, Device};
    /// # use std::time::Duration;
    /// # let here = "127.0.0.1:0".parse::<std::net::SocketAddr>()?;
    /// # let [server, client] = [Device::udp(here)?.open()?, Device::udp(here)?.open()?];
    /// # let table = server.alloc_pd()?.allocate(4096, Access::LOCAL_WRITE)?;
    /// # let serving = server.open_rma(&RmaOptions::default())?;
    /// # let table = serving.expose(table, Rights::READ | Rights::WRITE, None)?;
    /// # let rma = client.open_rma(&RmaOptions::default())?;
    /// # let domain = client.alloc_pd()?;
    /// # let buffer = rma.expose(domain.allocate(4096, Access::LOCAL_WRITE)?, Rights::NONE, None)?;
    /// # let mut portal = rma.create_portal(&domain, 4)?;
    /// # let grant = table.grant(&portal.identity());
    /// # let second = Duration::from_secs(1);
    /// match portal.write(&buffer, 0, &grant, 0, 4096, second) {
    ///     // Some, all or none of the bytes are written, and more may still arrive.
    ///     Err(RmaError::Failed(Status::Timeout)) => portal.settle(&buffer, 0, &grant, 10 * second)?,
    ///     other => other?,
    /// }
    /// // From here on the 4096 bytes no longer change.
    /// portal.settle(&buffer, 0, &grant, 10 * second)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RmaError`]; nothing is known about earlier operations then. `Failed(RemoteAuthenticationFailure)`
    /// means that the server has another key now or was replaced. It proves nothing, because anyone can forge
    /// this failure.
    pub fn settle(
        &mut self,
        region: &RmaRegion,
        local: u64,
        grant: &Grant,
        timeout: Duration,
    ) -> Result<(), RmaError> {
        match self.read(region, local, grant, 0, 1, timeout) {
            Err(RmaError::Failed(Status::RemoteAccessError | Status::Nack)) => Ok(()),
            other => other,
        }
    }

    /// Begins a transfer and returns its number, which [`poll`](Portal::poll) reports at its end. After a
    /// NACK or a timeout, commands are tried again until `timeout` has passed. With `None` they end the
    /// transfer at once.
    ///
    /// # Errors
    /// `OutOfBounds`, `OtherContext`, `Refused`; `Nic(Forked)` in a forked child; `Nic(Reentered)`.
    pub fn submit(
        &mut self,
        kind: Kind,
        class: Class,
        local_region: &RmaRegion,
        local: u64,
        grant: &Grant,
        remote: u64,
        len: u64,
        timeout: Option<Duration>,
    ) -> Result<u64, RmaError> {
        let id = self.queue(kind, class, local_region, local, grant, remote, len, timeout)?;
        self.flush();
        Ok(id)
    }

    /// Like [`submit`](Portal::submit), but the commands are issued with the next [`flush`](Portal::flush),
    /// submission or poll, so that those of several transfers are issued together.
    ///
    /// # Errors
    /// The errors of [`submit`](Portal::submit).
    pub fn queue(
        &mut self,
        kind: Kind,
        class: Class,
        local_region: &RmaRegion,
        local: u64,
        grant: &Grant,
        remote: u64,
        len: u64,
        timeout: Option<Duration>,
    ) -> Result<u64, RmaError> {
        let within = |start: u64, size: u64| start.checked_add(len).is_some_and(|end| end <= size);
        let inside = within(local, local_region.memory().len() as u64);
        if self.rma.inner.context.fork().is_child() {
            // A child would use the same nonces as its parent, and the ring of a lent portal is the parent's
            // memory.
            return Err(RmaError::Nic(PollError::Forked));
        }
        if self.rma.inner.engine.engine.has_caller() {
            return Err(RmaError::Nic(PollError::Reentered));
        }
        if !local_region.rma.inner.engine.regions.is(&self.rma.inner.engine.regions) {
            // The RegionId would name another region here.
            return Err(RmaError::OtherContext);
        }
        if !inside || kind != Kind::Rekey && !within(remote, grant.len) {
            return Err(RmaError::OutOfBounds);
        }
        let now = self.clock.now();
        let on_failure = match timeout {
            Some(timeout) => OnFailure::RetryUntil(now.after(timeout.as_nanos() as u64)),
            None => OnFailure::Report,
        };
        let id = self.submitted;
        let server = grant.server.address;
        let transfer = Transfer { id, kind, class, server, size: len, fence: false, on_failure };
        let place = self.executor.submit(now, transfer).map_err(RmaError::Refused)?;
        self.submitted += 1;
        self.jobs[place as usize] = Some(Job {
            kind,
            class,
            local: Operand { region: local_region.id(), offset: local },
            remote: Operand { region: grant.region, offset: remote },
            grant: *grant,
        });
        Ok(id)
    }

    /// Returns the number and status of the next transfer that has ended, or `None`. If there is none, drives
    /// the NIC one step and polls a second time.
    ///
    /// # Errors
    /// `Nic` with the errors of a completion queue.
    pub fn poll(&mut self) -> Result<Option<(u64, Status)>, RmaError> {
        if self.ended.is_empty() {
            self.take()?;
        }
        Ok(self.ended.pop().map(|end| (end.id, end.status)))
    }

    /// Waits for the end of a transfer whose last attempt begins within `timeout`. After many empty polls it
    /// yields the core to other threads now and then.
    fn wait(&mut self, id: u64, timeout: Duration) -> Result<(), RmaError> {
        let mut turn = 0u32;
        let begun = std::time::Instant::now();
        loop {
            turn = turn.wrapping_add(1);
            if turn.is_multiple_of(LOOK_EVERY) {
                std::thread::yield_now();
                if begun.elapsed() > timeout.saturating_add(STOPPED) {
                    return Err(RmaError::Nic(PollError::Timeout));
                }
            }
            if let Some(place) = self.ended.iter().position(|end| end.id == id) {
                return match self.ended.swap_remove(place).status {
                    Status::Ok => Ok(()),
                    status => Err(RmaError::Failed(status)),
                };
            }
            self.take()?;
        }
    }

    /// Processes the completions that are there, and issues the commands that have become possible. Drives
    /// the NIC one step only if there is no completion, so that a waiting caller gets a completion without
    /// another pass.
    fn take(&mut self) -> Result<(), RmaError> {
        let Some(first) = self.cq.poll_entry()? else {
            if self.executor.has_chunks() {
                self.flush();
            }
            return Ok(());
        };
        let now = self.clock.now();
        self.completed(now, &first);
        while let Some(entry) = self.cq.ready_entry() {
            self.completed(now, &entry);
        }
        self.flush_at(now);
        Ok(())
    }

    /// Processes the completion of one command, which may end its transfer.
    fn completed(&mut self, now: Instant, entry: &Cqe) {
        let Some(completion) = Completion::of(entry) else { return };
        let slot = completion.slot.wrapping_sub(self.facts.first);
        let Completion { status, issue_delay, total_delay, .. } = completion;
        debug_assert!(self.executor.is_issued(slot), "a command completes once");
        if let Some(end) = self.executor.completed(now, slot, status, issue_delay, total_delay) {
            let job = &mut self.jobs[end.place as usize];
            if let Some(job) = job {
                job.grant.wipe();
            }
            *job = None;
            self.ended.push(end);
        }
    }

    /// Issues commands of all transfers, as far as slots, windows and pacing allow.
    pub fn flush(&mut self) {
        self.flush_at(self.clock.now());
    }

    fn flush_at(&mut self, now: Instant) {
        while let Some(chunk) = self.executor.next(now) {
            let Some(job) = self.jobs[chunk.place as usize] else { continue };
            let shifted = |operand: Operand| Operand { offset: operand.offset + chunk.offset, ..operand };
            let command = Command {
                kind: job.kind,
                class: job.class,
                size: chunk.size,
                slot: self.facts.first + chunk.slot,
                cq: self.cq.number() as u16,
                local: shifted(job.local),
                remote: shifted(job.remote),
                server: job.grant.server,
                key: job.grant.key(job.kind),
            };
            self.commands.push(&command);
        }
        if self.commands.publish() {
            // `queue` has refused a call from inside the engine.
            let _ = self.rma.inner.engine.engine.ring(self.bell);
        }
    }
}

impl Drop for Portal {
    fn drop(&mut self) {
        if self.rma.inner.context.fork().is_child() {
            return;
        }
        self.rma.inner.engine.destroy_portal(self.facts.number);
    }
}

impl fmt::Debug for Portal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Portal")
            .field("number", &self.facts.number)
            .field("first", &self.facts.first)
            .finish_non_exhaustive()
    }
}
