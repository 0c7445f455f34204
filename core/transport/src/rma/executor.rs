//! The command executor: transfers of any length, in commands of at most 4 KB (1RMA paper, §3.1, §4.4, §6).
//!
//! It sits above the command slots, in software: the NIC knows commands only. Transfers take turns, a chunk
//! each, so a small one waits for about one chunk of another, however long that is. How many commands are
//! outstanding, and at which pace they are issued, follows from two congestion windows: one for the server,
//! direction and class, one for this NIC. The smaller one counts.

mod control;
mod destinations;

use std::collections::VecDeque;

use remora_wire::frame::Address;
use remora_wire::rma::{Class, Kind, MAX_OPERATION};

use super::Status;
use crate::Instant;
use destinations::{Destinations, WindowKey};

pub use control::{
    Chosen, CongestionSettings, Control, ControlKind, Delays, Fixed, Scope, Signal, TotalDelay, Unlimited,
};

/// What becomes of a transfer when a command fails.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// It ends with the status of the command, at once.
    Report,
    /// NACKs and timeouts are tried again until then. Other failures end it.
    RetryUntil(Instant),
}

/// A read or write of any length.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Comes back at its end.
    pub id: u64,
    /// Read or write; a rekey is one chunk of 16 bytes.
    pub kind: Kind,
    /// The class of its commands.
    pub class: Class,
    /// The server.
    pub server: Address,
    /// Bytes.
    pub size: u64,
    /// It begins only when all transfers submitted before it have ended.
    pub fence: bool,
    /// What becomes of it when a command fails.
    pub on_failure: OnFailure,
}

/// A command to issue now.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The command slot, from 0 on.
    pub slot: u16,
    /// The transfer's place among those in progress; its context is kept there.
    pub place: u32,
    /// First byte in the transfer.
    pub offset: u64,
    /// Bytes.
    pub size: u32,
}

/// A transfer that ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TransferEnd {
    /// The name that the program gave it.
    pub id: u64,
    /// Its place, which is free again.
    pub place: u32,
    /// `Ok`, or the status of the command that ended it.
    pub status: Status,
    /// Commands that failed and were tried again.
    pub retries: u32,
}

/// Why a transfer is not taken.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// As many are in progress as there may be: try again after one has ended.
    Full,
    /// It has no bytes, or is a rekey of another length than a key's.
    Malformed,
}

#[derive(Copy, Clone, Debug)]
struct Progress {
    transfer: Transfer,
    destination: usize,
    /// The first byte that no command was issued for.
    next: u64,
    /// Commands outstanding.
    outstanding: u32,
    retries: u32,
    /// The status that ends it when its outstanding commands have ended.
    failed: Option<Status>,
    /// Transfers submitted before it that have not ended, if it is fenced.
    waits: u32,
    /// Its place in the order of submission.
    number: u64,
}

#[derive(Copy, Clone, Debug)]
struct Issued {
    place: u32,
    offset: u64,
    size: u32,
}

/// Transfers in progress and the slots that they use, with windows of this control.
pub struct Executor<C = Chosen> {
    transfers: Vec<Option<Progress>>,
    /// The place that was used last is used first: it is in the caches.
    free_places: Vec<u32>,
    /// Transfers that wait for those before them.
    fenced: usize,
    /// Places with chunks to issue, in turns.
    line: VecDeque<u32>,
    /// Chunks that failed and are tried again, before new ones.
    retry_queue: VecDeque<Issued>,
    slots: Vec<Option<Issued>>,
    free_slots: VecDeque<u16>,
    destinations: Destinations<C>,
    local: C,
    submitted: u64,
}

impl Executor {
    /// An executor over so many slots, for so many transfers at once. The settings name its control.
    pub fn new(slots: u16, transfers: u32, settings: &CongestionSettings) -> Executor {
        Executor::with_control(slots, transfers, settings)
    }
}

impl<C: Control> Executor<C> {
    /// The same, with the control that the type names.
    pub fn with_control(slots: u16, transfers: u32, settings: &CongestionSettings) -> Executor<C> {
        Executor {
            transfers: vec![None; transfers as usize],
            free_places: (0..transfers).rev().collect(),
            fenced: 0,
            line: VecDeque::with_capacity(transfers as usize),
            retry_queue: VecDeque::with_capacity(usize::from(slots)),
            slots: vec![None; usize::from(slots)],
            free_slots: (0..slots).collect(),
            destinations: Destinations::new(settings),
            local: C::new(settings, Scope::Local),
            submitted: 0,
        }
    }

    /// Takes a transfer; its place.
    ///
    /// # Errors
    /// [`SubmitError`].
    pub fn submit(&mut self, now: Instant, transfer: Transfer) -> Result<u32, SubmitError> {
        let key = remora_wire::rma::KEY_LEN as u64;
        if transfer.size == 0 || transfer.kind == Kind::Rekey && transfer.size != key {
            return Err(SubmitError::Malformed);
        }
        let place = *self.free_places.last().ok_or(SubmitError::Full)?;
        let Transfer { kind, class, server, .. } = transfer;
        let key = WindowKey { server, inbound: kind == Kind::Read, class };
        let destination = self.destinations.of(now, key).ok_or(SubmitError::Full)?;
        let waits = if transfer.fence { self.in_progress() as u32 } else { 0 };
        self.free_places.pop();
        self.fenced += usize::from(waits > 0);
        self.submitted += 1;
        self.transfers[place as usize] = Some(Progress {
            transfer,
            destination,
            next: 0,
            outstanding: 0,
            retries: 0,
            failed: None,
            waits,
            number: self.submitted,
        });
        if waits == 0 {
            self.line.push_back(place);
        }
        Ok(place)
    }

    /// Transfers that have not ended.
    pub fn in_progress(&self) -> usize {
        self.transfers.len() - self.free_places.len()
    }

    /// The next command to issue at `now`, if a slot is free and the windows and their pace allow one.
    pub fn next(&mut self, now: Instant) -> Option<Chunk> {
        let slot = *self.free_slots.front()?;
        let issued = self.next_retry(now).or_else(|| self.next_new(now))?;
        self.free_slots.pop_front();
        self.slots[usize::from(slot)] = Some(issued);
        let Issued { place, offset, size } = issued;
        if let Some(progress) = &mut self.transfers[place as usize] {
            progress.outstanding += 1;
            self.destinations.issued(now, progress.destination, size, &self.local);
        }
        Some(Chunk { slot, place, offset, size })
    }

    fn next_retry(&mut self, now: Instant) -> Option<Issued> {
        let Issued { place, .. } = *self.retry_queue.front()?;
        let destination = self.transfers[place as usize].as_ref()?.destination;
        if !self.destinations.allows(now, destination, &self.local) {
            return None;
        }
        self.retry_queue.pop_front()
    }

    /// A chunk of the transfer whose turn it is. Those whose windows are full are passed over.
    fn next_new(&mut self, now: Instant) -> Option<Issued> {
        for _ in 0..self.line.len() {
            let place = self.line.pop_front()?;
            let Some(progress) = &mut self.transfers[place as usize] else { continue };
            if !self.destinations.allows(now, progress.destination, &self.local) {
                self.line.push_back(place);
                continue;
            }
            let left = progress.transfer.size - progress.next;
            let size = left.min(u64::from(MAX_OPERATION)) as u32;
            let offset = progress.next;
            progress.next += u64::from(size);
            if progress.next < progress.transfer.size {
                self.line.push_back(place);
            }
            return Some(Issued { place, offset, size });
        }
        None
    }

    /// A command has completed. Returns the end of its transfer, if that was the last of it.
    pub fn completed(
        &mut self,
        now: Instant,
        slot: u16,
        status: Status,
        issue_delay: u64,
        total_delay: u64,
    ) -> Option<TransferEnd> {
        let issued = self.slots.get_mut(usize::from(slot))?.take()?;
        self.free_slots.push_back(slot);
        let signal = Signal { status, issue_delay, total_delay };
        let progress = self.transfers[issued.place as usize].as_mut()?;
        progress.outstanding -= 1;
        self.destinations.completed(now, progress.destination, issued.size, &signal);
        self.local.completed(now, &signal);
        match status {
            Status::Ok => {}
            Status::Nack | Status::Timeout | Status::DispatchTimeout
                if progress.failed.is_none()
                    && matches!(progress.transfer.on_failure, OnFailure::RetryUntil(until) if now < until) =>
            {
                progress.retries += 1;
                self.retry_queue.push_back(issued);
                return None;
            }
            failed => {
                progress.failed.get_or_insert(failed);
            }
        }
        self.end_if_done(issued.place)
    }

    fn end_if_done(&mut self, place: u32) -> Option<TransferEnd> {
        let progress = self.transfers[place as usize].as_mut()?;
        if progress.failed.is_some() {
            // What was not issued is not issued any more.
            progress.next = progress.transfer.size;
            self.line.retain(|waiting| *waiting != place);
            self.retry_queue.retain(|waiting| waiting.place != place);
        }
        let retried = self.retry_queue.iter().any(|waiting| waiting.place == place);
        if progress.outstanding > 0 || progress.next < progress.transfer.size || retried {
            return None;
        }
        let (id, retries, number) = (progress.transfer.id, progress.retries, progress.number);
        let status = progress.failed.unwrap_or(Status::Ok);
        self.destinations.leave(progress.destination);
        self.transfers[place as usize] = None;
        self.free_places.push(place);
        self.release_fences(number);
        Some(TransferEnd { id, place, status, retries })
    }

    /// A transfer has ended: fenced ones behind it have one fewer to wait for.
    fn release_fences(&mut self, ended: u64) {
        if self.fenced == 0 {
            return;
        }
        for (place, progress) in self.transfers.iter_mut().enumerate() {
            let Some(progress) = progress else { continue };
            if progress.waits > 0 && progress.number > ended {
                progress.waits -= 1;
                if progress.waits == 0 {
                    self.fenced -= 1;
                    self.line.push_back(place as u32);
                }
            }
        }
    }

    /// Does it have commands to issue, now or later?
    #[inline]
    pub fn has_chunks(&self) -> bool {
        !self.line.is_empty() || !self.retry_queue.is_empty()
    }

    /// Has a command of this slot not completed?
    pub fn is_issued(&self, slot: u16) -> bool {
        self.slots.get(usize::from(slot)).is_some_and(Option::is_some)
    }

    /// When the pace lets the next command be issued; `NEVER` if nothing waits for the time alone.
    pub fn deadline(&self) -> Instant {
        if self.free_slots.is_empty() {
            return Instant::NEVER;
        }
        let waiting = self.line.iter().copied().chain(self.retry_queue.iter().map(|issued| issued.place));
        let times = waiting.filter_map(|place| {
            let destination = self.transfers[place as usize].as_ref()?.destination;
            self.destinations.due(destination, &self.local)
        });
        times.min().unwrap_or(Instant::NEVER)
    }

    /// The window of this NIC, in commands of 4 KB.
    pub fn local_window(&self) -> f64 {
        self.local.size()
    }

    /// The window of a server in one direction and class, if a transfer with it is in progress or was lately.
    pub fn remote_window(&self, server: Address, inbound: bool, class: Class) -> Option<f64> {
        self.destinations.window(WindowKey { server, inbound, class })
    }
}

#[cfg(test)]
mod tests;
