//! The communication manager: its tables and queues, and the functions that all its parts use.

mod active;
mod check;
mod disconnect;
mod passive;
mod receive;
mod reject;
mod sidr;
mod timers;

use std::collections::VecDeque;

use remora_wire::mad::{CmMessage, LEN, ServiceId, time_ns};

use crate::cm_id::{RemoteId, RemoteQp};
use crate::id_table::IdTable;
use crate::index::Index;
use crate::listeners::Listeners;
use crate::received_mad::ReceivedMad;
use crate::state::On;
use crate::{
    CmConfig, CmCounters, CmError, CmEvent, CmState, EventKind, GidPair, Instant, Listen, MadPath,
    PrivateData, QpAttributes,
};

/// Largest number of MADs, and of events, that one call or received MAD causes.
const SPACE: usize = 2;

/// A MAD that waits to be sent.
#[derive(Copy, Clone, Debug)]
struct Outgoing {
    path: MadPath,
    mad: [u8; LEN],
}

/// The deadline of an id, as a key of the timer index.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    deadline: Instant,
    slot: u32,
}

/// The communication manager of one channel adapter.
///
/// The manager does nothing by itself: its driver passes in MADs and the time, and after each call takes
/// the MADs and events that are ready. A handle is free for reuse when [`Cm::state`] returns `None` for it.
/// The driver should take all events of a handle before it reuses the handle, so as not to mistake them for
/// events of the new id.
#[derive(Debug)]
pub struct Cm {
    config: CmConfig,
    ids: IdTable,
    listeners: Listeners,
    by_handle: Index<u64>,
    by_remote_id: Index<RemoteId>,
    by_remote_qp: Index<RemoteQp>,
    /// The deadlines of all ids.
    timers: Index<Due>,
    /// The deadlines of lingering ids. The earliest of these ids ends early if a new id needs its slot.
    lingering: Index<Due>,
    outgoing: VecDeque<Outgoing>,
    events: VecDeque<CmEvent>,
    counters: CmCounters,
}

impl Cm {
    /// Creates a manager without ids, and allocates all its memory.
    ///
    /// # Panics
    /// If a bound is 0, if there are more than 65,536 ids, or if the space for MADs or events is smaller
    /// than [`CmConfig`] requires.
    pub fn new(config: CmConfig) -> Cm {
        let ids = config.max_ids as usize;
        let max_outgoing = config.max_outgoing as usize;
        let max_events = config.max_events as usize;
        assert!(config.max_listeners > 0 && max_outgoing >= SPACE && max_events >= SPACE, "{config:?}");
        Cm {
            config,
            ids: IdTable::new(config.max_ids, config.seed),
            listeners: Listeners::new(config.max_listeners),
            by_handle: Index::new(ids),
            by_remote_id: Index::new(ids),
            by_remote_qp: Index::new(ids),
            timers: Index::new(ids),
            lingering: Index::new(ids),
            outgoing: VecDeque::with_capacity(max_outgoing),
            events: VecDeque::with_capacity(max_events),
            counters: CmCounters::default(),
        }
    }

    /// Takes the next MAD to send: writes it to `out`, and returns its path. `None` if no MAD is waiting.
    pub fn transmit(&mut self, out: &mut [u8; LEN]) -> Option<MadPath> {
        let Outgoing { path, mad } = self.outgoing.pop_front()?;
        *out = mad;
        self.counters.transmitted += 1;
        Some(path)
    }

    /// Takes the next event for a program; `None` if there is none.
    pub fn next_event(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    /// Returns the counters of received and sent MADs.
    pub fn counters(&self) -> CmCounters {
        self.counters
    }

    /// Returns the state of an id; `None` if no id has this handle.
    pub fn state(&self, handle: u64) -> Option<CmState> {
        self.by_handle.get(&handle).map(|slot| self.ids.get(slot).state)
    }

    /// Returns the communication id by which peers name an id; `None` if no id has this handle.
    pub fn local_comm_id(&self, handle: u64) -> Option<u32> {
        self.by_handle.get(&handle).map(|slot| self.ids.get(slot).local_comm_id)
    }

    /// Returns the number of ids, including those without a handle.
    pub fn id_count(&self) -> usize {
        self.ids.len()
    }

    /// Starts listening for requests for a service, under a new handle. [`Cm::destroy`] ends the listener.
    ///
    /// # Errors
    /// [`CmError::HandleInUse`], [`CmError::OutOfRange`], [`CmError::AddressInUse`],
    /// [`CmError::NoResources`].
    pub fn listen(&mut self, handle: u64, listen: &Listen) -> Result<(), CmError> {
        self.unused(handle)?;
        self.listeners.insert(handle, listen)
    }

    /// Returns whether a listener accepts this service at the local address of `gids`.
    pub fn is_offered(&self, service_id: ServiceId, gids: GidPair) -> bool {
        self.listeners.find(service_id, gids).is_some()
    }

    /// Returns the attributes that a queue pair needs to send and receive, as far as both sides have agreed
    /// on them. They are available from the request or response on, until the connection ends.
    ///
    /// # Errors
    /// [`CmError::NoSuchHandle`]; [`CmError::WrongState`] before the request or response and after the end.
    pub fn qp_attributes(&self, handle: u64) -> Result<QpAttributes, CmError> {
        let id = self.ids.get(self.slot_of(handle)?);
        if id.state.holds_remote_qpn() { Ok(id.attributes) } else { Err(CmError::WrongState) }
    }

    /// Returns the slot of a handle.
    fn slot_of(&self, handle: u64) -> Result<u32, CmError> {
        self.by_handle.get(&handle).ok_or(CmError::NoSuchHandle)
    }

    /// Checks that no id and no listener has this handle.
    fn unused(&self, handle: u64) -> Result<(), CmError> {
        let used = self.listeners.has(handle) || self.by_handle.get(&handle).is_some();
        if used { Err(CmError::HandleInUse) } else { Ok(()) }
    }

    /// Returns whether there is space for the MADs and events that one call or MAD causes.
    fn has_space(&self) -> bool {
        self.outgoing.len() + SPACE <= self.config.max_outgoing as usize
            && self.events.len() + SPACE <= self.config.max_events as usize
    }

    /// Fails with `Busy` unless there is space for the MADs and events that a call causes.
    fn space(&self) -> Result<(), CmError> {
        if self.has_space() { Ok(()) } else { Err(CmError::Busy) }
    }

    /// Allocates an id with this unused handle. If the table is full, the lingering id with the earliest
    /// deadline is ended to make space. `None` if no id lingers.
    fn take(&mut self, handle: u64) -> Option<u32> {
        if self.ids.is_full() {
            let oldest = self.lingering.first()?.slot;
            self.counters.evicted += 1;
            self.end_timewait(oldest);
        }
        let slot = self.ids.take()?;
        self.ids.get_mut(slot).handle = Some(handle);
        self.by_handle.insert(handle, slot);
        Some(slot)
    }

    /// Returns whether the id's state has a transition for `on`.
    fn allows(&self, slot: u32, on: On) -> bool {
        self.ids.get(slot).state.after(on).is_some()
    }

    /// Moves an id to its next state; the table of transitions must have one. Stops the id's timer. In IDLE
    /// the id and its handle are released.
    fn enter(&mut self, slot: u32, on: On) {
        let state = self.ids.get(slot).state;
        let Some(next) = state.after(on) else {
            debug_assert!(false, "{state} has no row for \"{on}\"");
            return;
        };
        self.set_deadline(slot, Instant::NEVER);
        let id = self.ids.get_mut(slot);
        id.state = next;
        let listener = if next.is_pending() { None } else { id.listener.take() };
        let leaves_qp = id.has_remote_qp && !next.holds_remote_qpn();
        if leaves_qp {
            id.has_remote_qp = false;
            self.by_remote_qp.remove(&id.remote_qp());
        }
        if let Some(listener) = listener {
            self.listeners.remove_pending(listener);
        }
        if next == CmState::Idle {
            self.release(slot);
        }
        self.checked(slot);
    }

    /// Releases an id.
    fn release(&mut self, slot: u32) {
        let id = self.ids.get_mut(slot);
        if std::mem::take(&mut id.has_remote_id) {
            self.by_remote_id.remove(&id.remote_id());
        }
        self.forget_handle(slot);
        self.ids.give_back(slot);
    }

    /// Releases the handle of an id: no further events are reported for the id.
    fn forget_handle(&mut self, slot: u32) {
        if let Some(handle) = self.ids.get_mut(slot).handle.take() {
            self.by_handle.remove(&handle);
        }
    }

    /// Moves an id to TIMEWAIT, where it stays for as long as packets of the connection may be in flight.
    fn enter_timewait(&mut self, now: Instant, slot: u32, on: On) {
        self.enter(slot, on);
        let ns = time_ns(self.ids.get(slot).attributes.timeout);
        self.set_deadline(slot, now.after(ns));
        self.checked(slot);
    }

    /// Enters the id in the indices of the peer's communication id and of the peer's queue pair. Returns
    /// false if another id is already registered under this communication id.
    fn register(&mut self, slot: u32) -> bool {
        let id = self.ids.get_mut(slot);
        id.has_remote_id = self.by_remote_id.insert(id.remote_id(), slot);
        // Programs that have no queue pair yet send the number 0.
        if id.has_remote_id && id.attributes.remote_qpn.get() > 1 {
            id.has_remote_qp = self.by_remote_qp.insert(id.remote_qp(), slot);
        }
        id.has_remote_id
    }

    /// Reports an event to the id's program, unless the id has no handle.
    fn tell(&mut self, slot: u32, kind: EventKind, private_data: PrivateData) {
        if let Some(handle) = self.ids.get(slot).handle {
            self.events.push_back(CmEvent { handle, kind, private_data });
        }
    }

    /// Sends a message of an id, and stores it for repetitions.
    fn send(&mut self, slot: u32, message: &CmMessage) {
        let id = self.ids.get_mut(slot);
        message.emit(id.transaction_id, &mut id.sent);
        self.send_again(slot);
    }

    /// Sends the id's last message once more, unchanged.
    fn send_again(&mut self, slot: u32) {
        let id = self.ids.get(slot);
        let path = MadPath { gids: id.gids, traffic_class: id.attributes.traffic_class };
        self.outgoing.push_back(Outgoing { path, mad: id.sent });
    }

    /// Answers a message that belongs to no id.
    fn answer(&mut self, arrival: &ReceivedMad, message: &CmMessage) {
        let mut mad = [0; LEN];
        message.emit(arrival.transaction_id, &mut mad);
        self.outgoing.push_back(Outgoing { path: arrival.answer_path(), mad });
    }

    /// Returns the transaction id of messages that this side initiates. It does not reveal the seed.
    fn own_transaction(&self, slot: u32) -> u64 {
        let comm_id = self.ids.get(slot).local_comm_id;
        let high = remora_memory::permute(comm_id, u32::BITS, !self.config.seed);
        u64::from(high) << 32 | u64::from(comm_id)
    }
}
