//! An engine: a NIC and its port behind the biased lock, with the interface for the threads that drive it.

use mio::Waker;
use remora_memory::{Biased, Bytes, Mem, Reentered, Table};
use remora_nic::{
    AddressVector, BellOwner, Command, CommandError, FIRST_TENANT, FromReply, HandedPart, Nic, PartNumber,
    Reply,
};
use remora_port::capture::Capture;
use remora_port::fault::Fault;
use remora_port::linked::LinkedPort;
use remora_port::shm::ShmPort;
use remora_port::udp::UdpPort;
use remora_port::xdp::XdpPort;
use remora_port::{Counters as PortCounters, Endpoint, Peer, Port};
use remora_transport::{Counters, Instant};
use remora_wire::Qpn;
use rustix::fd::OwnedFd;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::attach::{Attach, AttachError};
use crate::bells::{Bells, Sets};
use crate::clock::Clock;
use crate::doorbells::Doorbells;
use crate::pass::{self, Core, CqHook, EngineEvent, EventHook};
use crate::peers::{EngineId, Peers};
use crate::port_kind::PortKind;
use crate::recording::{Feature, Tap};
use crate::signal::Signal;
use crate::watch::{Begun, Watch};

mod beside;
mod inside;
mod services;

pub use inside::Inside;
pub use services::{AttachRefusal, ModifyRefusal};

/// The kind of threads that drive the engines of an adapter.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Callers drive the engines by posting and polling; while they do not, the attendant does.
    #[default]
    Inline,
    /// Each engine has a thread of its own.
    Dedicated,
}

/// The core of an engine. The type of its port is erased once per call, never per packet.
#[allow(
    clippy::large_enum_variant,
    reason = "one per engine, behind an Arc: a box would only add a load to each pass"
)]
pub(crate) enum Cell {
    Shm(Biased<Core<ShmPort>>),
    Udp(Biased<Core<UdpPort>>),
    Linked(Biased<Core<LinkedPort>>),
    Xdp(Biased<Core<XdpPort>>),
    ObservedShm(Observed<ShmPort>),
    ObservedUdp(Observed<UdpPort>),
    ObservedLinked(Observed<LinkedPort>),
    ObservedXdp(Observed<XdpPort>),
}

/// The core of an engine whose port has fault injection or a capture, or that is recorded.
pub(crate) type Observed<P> = Biased<Core<Tap<Fault<Capture<P>>>>>;

macro_rules! each {
    ($engine:expr, $cell:ident => $body:expr) => {
        match &$engine.cell {
            $crate::engine::Cell::Shm($cell) => $body,
            $crate::engine::Cell::Udp($cell) => $body,
            $crate::engine::Cell::Linked($cell) => $body,
            $crate::engine::Cell::Xdp($cell) => $body,
            $crate::engine::Cell::ObservedShm($cell) => $body,
            $crate::engine::Cell::ObservedUdp($cell) => $body,
            $crate::engine::Cell::ObservedLinked($cell) => $body,
            $crate::engine::Cell::ObservedXdp($cell) => $body,
        }
    };
}
pub(crate) use each;

/// Access to an engine's NIC, port and memory, to create and change resources.
pub(crate) struct Control<'a> {
    /// The NIC that the engine drives.
    pub(crate) nic: &'a mut Nic,
    /// The port of the engine.
    pub(crate) port: &'a mut dyn Attach,
    /// The peers of the port.
    pub(crate) peers: &'a mut Peers,
    /// The right to touch registered memory during this access.
    pub(crate) mem: Mem<'a>,
    hooks: &'a mut Vec<Option<CqHook>>,
    event_hook: &'a mut Option<EventHook>,
    bells: &'a mut Bells,
    sets: &'a mut Sets,
    watch: &'a Watch,
    pub(crate) clock: &'a Clock,
}

impl Control<'_> {
    /// Executes a command and returns the value that its reply carries.
    ///
    /// # Errors
    /// The refusal of the NIC, which has changed nothing then.
    pub(crate) fn ask<T: FromReply>(&mut self, command: Command) -> Result<T, CommandError> {
        pass::ask(self.nic, self.port, self.clock.now(), self.mem, command)
    }

    /// Executes a command and returns its reply.
    ///
    /// # Errors
    /// The refusal of the NIC, which has changed nothing then.
    pub(crate) fn execute(&mut self, command: Command) -> Result<Reply, CommandError> {
        pass::execute(self.nic, self.port, self.clock.now(), self.mem, command)
    }

    /// Hands memory or code to the NIC and returns its number.
    pub(crate) fn hand(&mut self, part: HandedPart) -> PartNumber {
        pass::hand(self.nic, self.port, part)
    }

    /// Rings a doorbell of the NIC.
    pub(crate) fn doorbell(&mut self, qp: Qpn) {
        pass::doorbell(self.nic, self.port, qp);
    }

    /// Ends the recording of the NIC, if there is one, because of a feature.
    pub(crate) fn end_recording(&mut self, feature: Feature) {
        if let Some(recorder) = self.port.recorder() {
            recorder.end(feature);
        }
    }

    /// Ends the recording of the NIC, if there is one, because its program ends.
    pub(crate) fn close_recording(&mut self) {
        if let Some(recorder) = self.port.recorder() {
            recorder.close();
        }
    }

    /// Sets the channel that is notified when the completion queue numbered `cq` needs attention.
    pub(crate) fn hook(&mut self, cq: u32, hook: Option<CqHook>) {
        let place = cq as usize;
        if self.hooks.len() <= place {
            self.hooks.resize_with(place + 1, || None);
        }
        self.hooks[place] = hook;
    }

    /// Makes `hook` receive the asynchronous events of this engine, inside the engine's lock. The hook must
    /// not call the engine.
    pub(crate) fn hook_events(&mut self, hook: EventHook) {
        *self.event_hook = Some(hook);
    }

    /// Assigns a doorbell to a queue pair and returns its index. There is a doorbell for every queue pair. A
    /// portal is rung by its number.
    pub(crate) fn assign_bell(&mut self, owner: BellOwner) -> u32 {
        match owner {
            BellOwner::QueuePair(_) => self.bells.hang(owner),
            BellOwner::Portal(portal) => portal,
        }
    }

    /// Frees the doorbell of a queue pair that was destroyed.
    pub(crate) fn take_bell(&mut self, bell: u32) {
        self.bells.take(bell);
    }

    /// Shares doorbells with another process, which rings them (dedicated mode only). The process writes to
    /// `wake` after it has rung while the engine sleeps ([`Doorbells::is_asleep`]). Returns the number of
    /// the set.
    ///
    /// # Errors
    /// The error of the system if it cannot watch `wake`.
    pub(crate) fn share_bells(&mut self, doorbells: Doorbells<Bytes>, wake: OwnedFd) -> io::Result<u32> {
        self.sets.add(self.watch.registry(), doorbells, wake)
    }

    /// Removes a shared set, after its process and that process's queue pairs have ended.
    pub(crate) fn unshare_bells(&mut self, set: u32) {
        self.sets.remove(self.watch.registry(), set);
    }

    /// Assigns a doorbell of a shared set to a queue pair or portal; `None` if there is no such set.
    pub(crate) fn assign_shared_bell(&mut self, set: u32, owner: BellOwner) -> Option<u32> {
        self.sets.bells(set).map(|bells| bells.hang(owner))
    }

    /// Makes the processes of a shared set a tenant of their own in the scheduling of the engine, to which a
    /// queue pair belongs. For scheduling, 1RMA of all sets counts as one tenant.
    pub(crate) fn assign_tenant(&mut self, set: u32, qp: Qpn) -> Result<(), CommandError> {
        self.ask(Command::SetTenant { qp, tenant: set + FIRST_TENANT })
    }

    /// Frees a doorbell of a shared set, whose queue pair or portal was destroyed.
    pub(crate) fn take_shared_bell(&mut self, set: u32, bell: u32) {
        if let Some(bells) = self.sets.bells(set) {
            bells.take(bell);
        }
    }

    /// Makes an endpoint or a multicast group a peer, for frames from the address with this number, and
    /// counts one more user of the peer.
    ///
    /// # Errors
    /// The errors of [`Attach::add_endpoint_at`] and [`Attach::add_group_at`].
    pub(crate) fn use_endpoint(&mut self, address: u8, endpoint: Endpoint) -> Result<Peer, AttachError> {
        let peer = if endpoint.address.is_multicast() {
            self.port.add_group_at(address, endpoint)?
        } else {
            self.port.add_endpoint_at(address, endpoint)?
        };
        self.peers.retain_endpoint(peer);
        Ok(peer)
    }

    /// Returns the number of the further address whose frames have this source; 0 if there is none.
    pub(crate) fn address_of(&self, source: Endpoint) -> u8 {
        let further = (1..=u8::MAX).map_while(|number| Some((number, self.port.further_address(number)?.0)));
        further.into_iter().find(|(_, further)| *further == source).map_or(0, |(number, _)| number)
    }

    /// Makes the destination of an address vector a peer, counts one more user of it, and enters the peer's
    /// number in the vector.
    ///
    /// # Errors
    /// The errors of [`use_endpoint`](Control::use_endpoint).
    pub(crate) fn use_address(&mut self, address: &mut AddressVector) -> Result<Peer, AttachError> {
        let source = self.address_of(address.route.source);
        address.peer = self.use_endpoint(source, address.route.destination)?;
        Ok(address.peer)
    }

    /// Counts one user of `peer` less, and removes the peer from the port with its last user.
    pub(crate) fn release_peer(&mut self, peer: Peer) {
        if self.peers.release(peer) {
            self.port.remove(peer);
        }
    }
}

/// Counters of the threads that drive an engine in addition to its callers. They only increase.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverCounters {
    /// Number of times that the port woke the sleeping thread.
    pub packet_wakes: u64,
    /// Number of times that a doorbell, or a caller that returned, woke the thread.
    pub calls: u64,
    /// Number of times that the thread's timer ended the sleep.
    pub timer_wakes: u64,
    /// Number of passes that the thread made.
    pub passes: u64,
    /// Number of times that a caller that waited for packets itself was woken ([`Inside::await_port`]).
    pub caller_wakes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct DriverStats {
    pub packet_wakes: AtomicU64,
    pub calls: AtomicU64,
    pub timer_wakes: AtomicU64,
    pub passes: AtomicU64,
    pub caller_wakes: AtomicU64,
}

/// Facts about an engine's port.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PortFacts {
    /// The kind of the port.
    pub kind: PortKind,
    /// Address and UDP port of the port.
    pub endpoint: Endpoint,
    /// The address and UDP port that frames are sent from; routes to peers begin with them.
    pub source: Endpoint,
    /// Largest path MTU in bytes of payload.
    pub path_mtu: u32,
    /// A short description of the method that the port has chosen, if it has a choice.
    pub manner: &'static str,
}

/// An engine of an adapter.
pub struct Engine {
    pub(crate) cell: Cell,
    id: EngineId,
    number: usize,
    mode: Mode,
    facts: PortFacts,
    /// True while the attendant makes passes, or is woken by packets, in addition to callers. Callers then
    /// announce themselves, and take what the attendant leaves to them.
    pub(crate) attended: AtomicBool,
    /// Number of callers that wait for the engine while the attendant makes passes.
    pub(crate) callers: AtomicU32,
    /// True if the attendant was woken while a caller was inside, and left the packets to it.
    left_to_caller: AtomicBool,
    /// True while a caller waits for packets itself, so that packets need not wake the attendant.
    pub(crate) awaited: AtomicBool,
    /// True while the attendant stands by with rare checks.
    pub(crate) stands_by: AtomicBool,
    pub(crate) doorbells: Doorbells,
    /// True while the dedicated thread sleeps, so that a ring must wake it.
    pub(crate) asleep: AtomicBool,
    pub(crate) waker: Arc<Waker>,
    pub(crate) stats: DriverStats,
    /// The asynchronous events of the adapter.
    events: Arc<Signal<EngineEvent>>,
}

/// The parts of an engine besides its core.
pub(crate) struct EngineParts {
    pub id: EngineId,
    pub number: usize,
    pub mode: Mode,
    pub facts: PortFacts,
    pub max_qps: usize,
    pub waker: Arc<Waker>,
    pub events: Arc<Signal<EngineEvent>>,
}

impl Engine {
    pub(crate) fn new(parts: EngineParts, cell: Cell) -> Engine {
        Engine {
            cell,
            id: parts.id,
            number: parts.number,
            mode: parts.mode,
            facts: parts.facts,
            attended: AtomicBool::new(false),
            callers: AtomicU32::new(0),
            left_to_caller: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
            stands_by: AtomicBool::new(false),
            doorbells: Doorbells::new(parts.max_qps),
            asleep: AtomicBool::new(false),
            waker: parts.waker,
            stats: DriverStats::default(),
            events: parts.events,
        }
    }

    /// Returns the random id of the engine, unique over all machines and runs.
    pub fn id(&self) -> EngineId {
        self.id
    }

    /// Returns the number of the engine in its adapter.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns the kind of threads that drive the engine.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the facts about the engine's port.
    pub fn facts(&self) -> PortFacts {
        self.facts
    }

    /// Returns whether the calling thread is inside the engine, as a signal handler that interrupted a call
    /// is. Takes no lock. If true, [`ask`](Engine::ask) would panic, and the calls that return an
    /// error would fail.
    pub fn has_caller(&self) -> bool {
        each!(self, cell => cell.has_caller())
    }

    /// Informs the engine that work was posted to the send queue of `qp`, whose doorbell is `bell`.
    ///
    /// # Errors
    /// [`Reentered`] if the calling thread is inside the engine. The NIC has not seen the work, so its
    /// index may be set back.
    #[inline]
    pub fn ring(&self, qp: Qpn, bell: u32) -> Result<(), Reentered> {
        match self.mode {
            Mode::Inline => each!(self, cell => self.enter_once(cell, |core, mem| core.post(mem, qp))?),
            Mode::Dedicated => {
                self.doorbells.ring(bell);
                if self.asleep.load(Ordering::SeqCst) {
                    self.call();
                }
            }
        }
        Ok(())
    }

    /// Makes progress for a caller that found nothing in its completion queue: in inline mode, drives the
    /// engine one step.
    ///
    /// # Errors
    /// [`Reentered`] if the calling thread is inside the engine.
    #[inline]
    pub fn poll(&self) -> Result<(), Reentered> {
        match self.mode {
            Mode::Inline => each!(self, cell => self.enter_once(cell, |core, mem| core.polled(mem))?),
            Mode::Dedicated => std::hint::spin_loop(),
        }
        Ok(())
    }

    /// Informs the engine that a program has written commands into the ring of a portal.
    pub fn ring_portal(&self, number: u32) {
        match self.mode {
            Mode::Inline => each!(self, cell => {
                self.enter(cell, |core, mem| core.post_commands(mem, number))
            }),
            Mode::Dedicated => self.with_core(|core| core.nic.ring_portal(number)),
        }
    }

    /// Creates or changes resources by `change`. Afterwards, packets that can be sent are sent.
    ///
    /// # Panics
    /// If the calling thread is inside the engine ([`has_caller`](Engine::has_caller)).
    pub(crate) fn with_core<R>(&self, change: impl FnOnce(&mut Control<'_>) -> R) -> R {
        let mut change = Some(change);
        let mut result = None;
        self.change(&mut |core| result = change.take().map(|change| change(core)));
        let Some(result) = result else { unreachable!("each change is made once") };
        if self.mode == Mode::Dedicated && self.asleep.load(Ordering::SeqCst) {
            // The next timer may be due earlier now.
            self.call();
        }
        result
    }

    /// Makes a change inside the engine, then a pass. It is not generic: programs have a hundred kinds of
    /// changes, and there are eight kinds of cores.
    fn change(&self, change: &mut dyn FnMut(&mut Control<'_>)) {
        each!(self, cell => self.enter(cell, |core, mem| {
            let Core { nic, port, peers, hooks, event_hook, bells, sets, watch, clock, .. } = core;
            change(&mut Control { nic, port, peers, mem, hooks, event_hook, bells, sets, watch, clock });
            core.pass_after_sleep(mem);
            core.notify();
        }));
    }

    /// Returns the time of the engine's clock.
    pub fn now(&self) -> Instant {
        self.with_core(|core| core.clock.now())
    }

    /// Returns the NIC's counters.
    pub fn counters(&self) -> Counters {
        each!(self, cell => self.enter(cell, |core, _| *core.nic.counters()))
    }

    /// Returns facts about the engine's 1RMA; `None` if 1RMA is not enabled.
    pub fn rma_facts(&self) -> Option<remora_nic::rma::Facts> {
        self.ask(Command::QueryRma).ok().flatten()
    }

    /// Returns the port's counters.
    pub fn port_counters(&self) -> PortCounters {
        each!(self, cell => self.enter(cell, |core, _| core.port.port_counters()))
    }

    /// Returns the number of links to neighbours on a shared address, and their counters; `None` if the
    /// port has no neighbours.
    pub fn neighbours(&self) -> Option<(usize, PortCounters)> {
        each!(self, cell => self.enter(cell, |core, _| core.port.neighbours()))
    }

    /// Returns the counters of the thread that drives the engine in addition to its callers.
    pub fn driver_counters(&self) -> DriverCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DriverCounters {
            packet_wakes: read(&self.stats.packet_wakes),
            calls: read(&self.stats.calls),
            timer_wakes: read(&self.stats.timer_wakes),
            passes: read(&self.stats.passes),
            caller_wakes: read(&self.stats.caller_wakes),
        }
    }

    /// Returns a number that changes with every pass of any thread.
    pub(crate) fn heartbeat(&self) -> u64 {
        each!(self, cell => cell.heartbeat())
    }

    /// Makes one pass without earning the bias. Returns whether it had anything to do; `None` if another
    /// thread is inside.
    pub(crate) fn visit(&self, after_sleep: bool) -> Option<bool> {
        each!(self, cell => {
            let mut guard = cell.try_enter()?;
            let (core, mem) = guard.parts();
            self.stats.passes.fetch_add(1, Ordering::Relaxed);
            Some(if after_sleep { core.pass_after_sleep(mem) } else { core.pass(mem) })
        })
    }

    /// Makes one pass for a caller that waits for packets itself. Returns whether the pass had anything to
    /// do, and the time of the engine's next timer; `None` if a thread is inside.
    pub(crate) fn stand_by(&self) -> Option<(bool, Instant)> {
        each!(self, cell => {
            let mut guard = cell.try_enter()?;
            let (core, mem) = guard.parts();
            self.stats.passes.fetch_add(1, Ordering::Relaxed);
            Some((core.pass_after_sleep(mem), core.nic.next_deadline()))
        })
    }

    /// Ends the wait of a caller that waited for packets itself. `woken` tells whether something had
    /// arrived.
    pub fn end_await(&self, woken: bool) {
        self.awaited.store(false, Ordering::SeqCst);
        if woken {
            self.stats.caller_wakes.fetch_add(1, Ordering::Relaxed);
        }
        if self.stands_by.load(Ordering::SeqCst) {
            self.call();
        }
    }

    /// Makes one pass of the dedicated thread. Returns whether anything was done.
    pub(crate) fn serve(&self) -> bool {
        each!(self, cell => {
            let mut guard = cell.enter();
            let (core, mem) = guard.parts();
            core.serve(mem, &self.doorbells)
        })
    }

    /// Prepares a sleep of the driving thread. With `stays`, callers do not end the watch of the port.
    /// Returns `None` if another thread is inside.
    pub(crate) fn rest(&self, stays: bool) -> Option<(Begun, Instant)> {
        each!(self, cell => {
            let mut guard = cell.try_enter()?;
            let (core, mem) = guard.parts();
            self.stats.passes.fetch_add(1, Ordering::Relaxed);
            Some(core.rest(mem, stays))
        })
    }

    /// Ends the watch: the driving thread is awake and polls itself.
    pub(crate) fn end_watch(&self) {
        each!(self, cell => self.enter(cell, |core, _| core.end_sleep()));
    }

    /// Returns whether the port is being watched; `None` if another thread is inside.
    pub(crate) fn is_watched(&self) -> Option<bool> {
        each!(self, cell => Some(cell.try_enter()?.watch.stands()))
    }

    /// Returns the table whose memory the engine's passes touch.
    pub fn table(&self) -> &Arc<Table> {
        each!(self, cell => cell.table())
    }

    fn call(&self) {
        // If the waker fails, its pipe is full, so the thread wakes anyway.
        let _ = self.waker.wake();
    }

    /// Calls `touch` inside the engine. If the attendant works in addition to callers, it is asked to make
    /// way: its passes are short, but it would make the next one at once.
    #[inline]
    pub(super) fn enter_once<P: Port + Attach, R>(
        &self,
        cell: &Biased<Core<P>>,
        touch: impl FnOnce(&mut Core<P>, Mem<'_>) -> R,
    ) -> Result<R, Reentered> {
        if self.attended.load(Ordering::Relaxed) {
            let mut touch = Some(touch);
            let mut result = None;
            self.enter_attended(cell, &mut |core, mem| result = touch.take().map(|touch| touch(core, mem)))?;
            let Some(result) = result else { unreachable!("a caller that is inside touches the core once") };
            return Ok(result);
        }
        let mut guard = cell.enter_once()?;
        let (core, mem) = guard.parts();
        Ok(touch(core, mem))
    }

    /// Calls `touch` inside the engine, like [`enter_once`](Engine::enter_once).
    ///
    /// # Panics
    /// If the calling thread is inside the engine.
    #[inline]
    fn enter<P: Port + Attach, R>(
        &self,
        cell: &Biased<Core<P>>,
        touch: impl FnOnce(&mut Core<P>, Mem<'_>) -> R,
    ) -> R {
        match self.enter_once(cell, touch) {
            Ok(result) => result,
            Err(reentered) => panic!("{reentered}"),
        }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("number", &self.number)
            .field("facts", &self.facts)
            .finish_non_exhaustive()
    }
}
