//! The command executor, which splits transfers of any length into commands of at most 4 KB (1RMA paper,
//! §3.1, §4.4, §6).
//!
//! The executor is software above the command slots; the NIC itself knows only commands. Transfers
//! alternate, one chunk at a time, so a small transfer waits for about one chunk of a large one. Two
//! congestion windows determine the number of outstanding commands and their rate: one per server, direction
//! and class, and one for this NIC. The smaller window applies.

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

/// The reaction of a transfer to a failed command.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// The transfer ends at once with the status of the command.
    Report,
    /// Commands that fail by NACK or timeout are retried until this time. Other failures end the transfer.
    RetryUntil(Instant),
}

/// A read or write of any length.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Number chosen by the program, returned in [`TransferEnd`].
    pub id: u64,
    /// Read, write or rekey; a rekey is one chunk of 16 bytes.
    pub kind: Kind,
    /// Class of service of the commands.
    pub class: Class,
    /// Address of the server.
    pub server: Address,
    /// Length in bytes.
    pub size: u64,
    /// Fence: the transfer starts only after all transfers submitted before it have ended.
    pub fence: bool,
    /// The reaction to a failed command.
    pub on_failure: OnFailure,
}

/// A command to issue now.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Command slot, starting at 0.
    pub slot: u16,
    /// Index of the transfer among those in progress; the caller keeps its context under this index.
    pub place: u32,
    /// Offset in the transfer, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub size: u32,
}

/// A transfer that ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TransferEnd {
    /// Number chosen by the program.
    pub id: u64,
    /// Index of the transfer, which is free now.
    pub place: u32,
    /// `Ok`, or the status of the command that ended the transfer.
    pub status: Status,
    /// Number of commands that failed and were retried.
    pub retries: u32,
}

/// The reason why a transfer is refused.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// The maximum number of transfers or windows is in use: retry after a transfer has ended.
    Full,
    /// The transfer has no bytes, or is a rekey whose length is not that of a key.
    Malformed,
}

#[derive(Copy, Clone, Debug)]
struct Progress {
    transfer: Transfer,
    destination: usize,
    /// Offset of the first byte for which no command was issued.
    next: u64,
    /// Number of outstanding commands.
    outstanding: u32,
    retries: u32,
    /// Status with which the transfer ends after its outstanding commands.
    failed: Option<Status>,
    /// For a fenced transfer, the number of earlier transfers that have not ended.
    waits: u32,
    /// Sequence number of the submission.
    number: u64,
}

#[derive(Copy, Clone, Debug)]
struct Issued {
    place: u32,
    offset: u64,
    size: u32,
}

/// The transfers in progress and the command slots that they use. `C` is the congestion control.
pub struct Executor<C = Chosen> {
    transfers: Vec<Option<Progress>>,
    /// Free indices, used last in first out to keep memory in the caches.
    free_places: Vec<u32>,
    /// Number of transfers that wait for earlier ones.
    fenced: usize,
    /// Indices of transfers with chunks to issue, served round-robin.
    line: VecDeque<u32>,
    /// Failed chunks to retry, which are issued before new ones.
    retry_queue: VecDeque<Issued>,
    slots: Vec<Option<Issued>>,
    free_slots: VecDeque<u16>,
    destinations: Destinations<C>,
    local: C,
    submitted: u64,
}

impl Executor {
    /// Returns an executor over `slots` command slots for at most `transfers` transfers. The settings select
    /// the congestion control.
    pub fn new(slots: u16, transfers: u32, settings: &CongestionSettings) -> Executor {
        Executor::with_control(slots, transfers, settings)
    }
}

impl<C: Control> Executor<C> {
    /// Returns an executor with the congestion control `C`, whatever the settings select.
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

    /// Starts a transfer and returns its index.
    ///
    /// # Errors
    /// [`SubmitError`]; the transfer was not started.
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

    /// Returns the number of transfers that have not ended.
    pub fn in_progress(&self) -> usize {
        self.transfers.len() - self.free_places.len()
    }

    /// Returns the next command to issue at `now`, if a slot is free and windows and rate allow one.
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

    /// Returns the next chunk, round-robin over the transfers whose windows are not full.
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

    /// Records the completion of a command. Returns the end of its transfer if nothing else of it is
    /// outstanding.
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
            // A failed transfer issues no further commands.
            progress.next = progress.transfer.size;
            self.line.retain(|waiting| *waiting != place);
            self.retry_queue.retain(|waiting| waiting.place != place);
        }
        let retried = self.retry_queue.iter().any(|waiting| waiting.place == place);
        if progress.outstanding > 0 || progress.next < progress.transfer.size || retried {
            return None;
        }
        let id = progress.transfer.id;
        let retries = progress.retries;
        let number = progress.number;
        let status = progress.failed.unwrap_or(Status::Ok);
        self.destinations.leave(progress.destination);
        self.transfers[place as usize] = None;
        self.free_places.push(place);
        self.release_fences(number);
        Some(TransferEnd { id, place, status, retries })
    }

    /// Updates the fenced transfers behind a transfer that ended.
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

    /// Returns true if commands remain to be issued.
    #[inline]
    pub fn has_chunks(&self) -> bool {
        !self.line.is_empty() || !self.retry_queue.is_empty()
    }

    /// Returns true if the command of this slot is outstanding.
    pub fn is_issued(&self, slot: u16) -> bool {
        self.slots.get(usize::from(slot)).is_some_and(Option::is_some)
    }

    /// Returns the time at which the rate allows the next command, or `NEVER` if no command waits only for
    /// time.
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

    /// Returns the window of this NIC, in commands of 4 KB.
    pub fn local_window(&self) -> f64 {
        self.local.size()
    }

    /// Returns the window of a server in one direction and class, or `None` if no recent transfer used it.
    pub fn remote_window(&self, server: Address, inbound: bool, class: Class) -> Option<f64> {
        self.destinations.window(WindowKey { server, inbound, class })
    }
}

#[cfg(test)]
mod tests;
