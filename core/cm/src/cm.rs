//! The manager itself: its tables and queues, and what all its parts do with them.

mod active;
mod check;
mod disconnect;
mod passive;
mod received_mad;
mod reject;
mod sidr;
mod timers;

use std::collections::VecDeque;

use received_mad::ReceivedMad;
use remora_wire::mad::{CmMessage, LEN, ServiceId, time_ns};

use crate::cm_id::{RemoteId, RemoteQp};
use crate::id_table::IdTable;
use crate::index::Index;
use crate::listeners::Listeners;
use crate::state::On;
use crate::{
    CmConfig, CmCounters, CmError, CmEvent, CmState, EventKind, GidPair, Instant, Listen, MadPath,
    PrivateData, QpAttributes,
};

/// MADs and events that one call or MAD causes at most.
const SPACE: usize = 2;

/// A MAD that is to leave.
#[derive(Copy, Clone, Debug)]
struct Outgoing {
    path: MadPath,
    mad: [u8; LEN],
}

/// When an id is to be looked at.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Instant,
    slot: u32,
}

/// The communication manager of one channel adapter.
///
/// Nothing happens by itself: its driver hands in MADs and the time. After each call it takes the MADs and
/// events that are there. A handle is free again when [`Cm::state`] knows none of it; who takes its events
/// first does not mistake them for those of the next id.
#[derive(Debug)]
pub struct Cm {
    config: CmConfig,
    ids: IdTable,
    listeners: Listeners,
    by_handle: Index<u64>,
    by_remote_id: Index<RemoteId>,
    by_remote_qp: Index<RemoteQp>,
    /// All deadlines.
    timers: Index<Due>,
    /// Those of ids that linger: the first one ends early, if there is no space for a new id.
    lingering: Index<Due>,
    outgoing: VecDeque<Outgoing>,
    events: VecDeque<CmEvent>,
    counters: CmCounters,
}

impl Cm {
    /// A manager without ids. This allocates all its memory.
    ///
    /// # Panics
    /// A bound is 0, there are more than 65,536 ids, or MADs and events have less space than
    /// [`CmConfig`] says.
    pub fn new(config: CmConfig) -> Cm {
        let ids = config.max_ids as usize;
        let (max_outgoing, max_events) = (config.max_outgoing as usize, config.max_events as usize);
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

    /// The next MAD that leaves: it is written to `out`, and takes this path. `None`: there is none.
    pub fn transmit(&mut self, out: &mut [u8; LEN]) -> Option<MadPath> {
        let Outgoing { path, mad } = self.outgoing.pop_front()?;
        *out = mad;
        self.counters.transmitted += 1;
        Some(path)
    }

    /// The next thing that a program gets to know.
    pub fn next_event(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    /// What happened to MADs.
    pub fn counters(&self) -> CmCounters {
        self.counters
    }

    /// The state of an id; `None` if there is none of this handle.
    pub fn state(&self, handle: u64) -> Option<CmState> {
        self.by_handle.get(&handle).map(|slot| self.ids.get(slot).state)
    }

    /// What peers call an id; `None` if there is none of this handle.
    pub fn local_comm_id(&self, handle: u64) -> Option<u32> {
        self.by_handle.get(&handle).map(|slot| self.ids.get(slot).local_comm_id)
    }

    /// How many ids there are, those among them that nobody has a handle to.
    pub fn id_count(&self) -> usize {
        self.ids.len()
    }

    /// Offers a service, under a handle of its own. [`Cm::destroy`] takes the offer back.
    ///
    /// # Errors
    /// [`CmError::HandleInUse`], [`CmError::OutOfRange`], [`CmError::AddressInUse`],
    /// [`CmError::NoResources`].
    pub fn listen(&mut self, handle: u64, listen: &Listen) -> Result<(), CmError> {
        self.unused(handle)?;
        self.listeners.insert(handle, listen)
    }

    /// Is this service offered at the local one of these addresses?
    pub fn is_offered(&self, service_id: ServiceId, gids: GidPair) -> bool {
        self.listeners.find(service_id, gids).is_some()
    }

    /// What a queue pair needs to send and receive, as far as both sides have agreed on it: from a request or
    /// response on, until the connection ends.
    ///
    /// # Errors
    /// [`CmError::NoSuchHandle`]; [`CmError::WrongState`] before and after.
    pub fn qp_attributes(&self, handle: u64) -> Result<QpAttributes, CmError> {
        let id = self.ids.get(self.slot_of(handle)?);
        if id.state.holds_remote_qpn() { Ok(id.attributes) } else { Err(CmError::WrongState) }
    }

    /// The slot of a handle.
    fn slot_of(&self, handle: u64) -> Result<u32, CmError> {
        self.by_handle.get(&handle).ok_or(CmError::NoSuchHandle)
    }

    /// Nobody may have this handle.
    fn unused(&self, handle: u64) -> Result<(), CmError> {
        let used = self.listeners.has(handle) || self.by_handle.get(&handle).is_some();
        if used { Err(CmError::HandleInUse) } else { Ok(()) }
    }

    /// Is there space for what one call or MAD causes?
    fn has_space(&self) -> bool {
        self.outgoing.len() + SPACE <= self.config.max_outgoing as usize
            && self.events.len() + SPACE <= self.config.max_events as usize
    }

    /// Calls need space.
    fn space(&self) -> Result<(), CmError> {
        if self.has_space() { Ok(()) } else { Err(CmError::Busy) }
    }

    /// A new id with this handle, which nobody has. An id that lingers makes space, if one has to.
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

    /// Does the id's state have a place for this?
    fn allows(&self, slot: u32, on: On) -> bool {
        self.ids.get(slot).state.after(on).is_some()
    }

    /// Takes an id to the next state, which the table must have. Its timer stops. In IDLE it is free, and its
    /// handle, too.
    fn enter(&mut self, slot: u32, on: On) {
        let from = self.ids.get(slot).state;
        let Some(to) = from.after(on) else {
            debug_assert!(false, "{from} has no row for \"{on}\"");
            return;
        };
        self.set_deadline(slot, Instant::NEVER);
        let id = self.ids.get_mut(slot);
        id.state = to;
        let listener = if to.is_pending() { None } else { id.listener.take() };
        let leaves_qp = id.has_remote_qp && !to.holds_remote_qpn();
        if leaves_qp {
            id.has_remote_qp = false;
            self.by_remote_qp.remove(&id.remote_qp());
        }
        if let Some(listener) = listener {
            self.listeners.remove_pending(listener);
        }
        if to == CmState::Idle {
            self.release(slot);
        }
        self.checked(slot);
    }

    /// Frees an id.
    fn release(&mut self, slot: u32) {
        let id = self.ids.get_mut(slot);
        if std::mem::take(&mut id.has_remote_id) {
            self.by_remote_id.remove(&id.remote_id());
        }
        self.forget_handle(slot);
        self.ids.give_back(slot);
    }

    /// From now on nobody gets to know what happens to the id.
    fn forget_handle(&mut self, slot: u32) {
        if let Some(handle) = self.ids.get_mut(slot).handle.take() {
            self.by_handle.remove(&handle);
        }
    }

    /// The id is over, and stays for as long as packets of it may be on their way.
    fn enter_timewait(&mut self, now: Instant, slot: u32, on: On) {
        self.enter(slot, on);
        let ns = time_ns(self.ids.get(slot).attributes.timeout);
        self.set_deadline(slot, now.after(ns));
        self.checked(slot);
    }

    /// Knows the id by what the peer calls it and by the peer's queue pair. `false`: another id has that
    /// name.
    fn register(&mut self, slot: u32) -> bool {
        let id = self.ids.get_mut(slot);
        id.has_remote_id = self.by_remote_id.insert(id.remote_id(), slot);
        // Programs that have no queue pair yet say 0.
        if id.has_remote_id && id.attributes.remote_qpn.get() > 1 {
            id.has_remote_qp = self.by_remote_qp.insert(id.remote_qp(), slot);
        }
        id.has_remote_id
    }

    /// Tells the id's program, if it has one.
    fn tell(&mut self, slot: u32, kind: EventKind, private_data: PrivateData) {
        if let Some(handle) = self.ids.get(slot).handle {
            self.events.push_back(CmEvent { handle, kind, private_data });
        }
    }

    /// Sends a message of an id, and remembers it.
    fn send(&mut self, slot: u32, message: &CmMessage) {
        let id = self.ids.get_mut(slot);
        message.emit(id.transaction_id, &mut id.sent);
        self.send_again(slot);
    }

    /// Sends the id's last message again, as it was.
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

    /// The transaction id of messages that this side begins. It says nothing about the seed.
    fn own_transaction(&self, slot: u32) -> u64 {
        let comm_id = self.ids.get(slot).local_comm_id;
        let high = remora_memory::permute(comm_id, u32::BITS, !self.config.seed);
        u64::from(high) << 32 | u64::from(comm_id)
    }
}
