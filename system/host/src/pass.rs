//! A pass of an engine: receive, process, transmit. A caller, the attendant or a dedicated thread drives an
//! engine by these few calls, inside the engine's lock.

use remora_memory::Mem;
use remora_nic::{
    AsyncEvent, BellOwner, Command, CommandError, CommandFault, FromReply, HandedPart, Nic, PartNumber, Reply,
};
use remora_port::Port;
use remora_transport::Instant;
use remora_wire::Qpn;
use std::sync::Arc;

use crate::attach::Attach;
use crate::bells::{Bells, Sets};
use crate::clock::Clock;
use crate::doorbells::Doorbells;
use crate::peers::Peers;
use crate::recording::Arrival;
use crate::rx_horizon::RxHorizon;
use crate::signal::{Channel, Signal};
use crate::watch::{Begun, Watch};

/// Maximum number of frames received, and of frames sent, in one pass. Passes must stay short, because
/// deregistrations wait for them.
const BUDGET: usize = 64;
/// Maximum number of queue pairs whose timers run in one pass.
const EXPIRE_BUDGET: usize = 64;
/// Number of passes between two checks of the clock and of lost peers while nothing arrives.
const LOOK_EVERY: u32 = 64;

/// The channel that is notified of completions in an armed completion queue.
#[derive(Debug)]
pub struct CqHook {
    /// The channel to notify.
    pub channel: Channel,
    /// The tag that the channel reports.
    pub tag: u64,
}

/// An asynchronous event, with the engine on which it occurred.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct EngineEvent {
    /// Number of the engine in its adapter.
    pub engine: usize,
    /// The asynchronous event (IBTA vol. 1 §11.6.3).
    pub event: AsyncEvent,
}

/// A program's callback for asynchronous events, used instead of the adapter's queue.
pub type EventHook = Arc<dyn Fn(AsyncEvent) + Send + Sync>;

/// The state of an engine: a NIC and its port.
pub(crate) struct Core<P> {
    pub nic: Nic,
    pub port: P,
    pub peers: Peers,
    pub watch: Watch,
    /// Hooks by completion queue number.
    pub hooks: Vec<Option<CqHook>>,
    pub event_hook: Option<EventHook>,
    /// Owners of the engine's own doorbells. `sets` are those that other processes ring.
    pub bells: Bells,
    pub sets: Sets,
    pub events: Arc<Signal<EngineEvent>>,
    pub engine: usize,
    pub clock: Clock,
    now: Instant,
    turn: u32,
    rx_horizon: RxHorizon,
}

impl<P: Port + Attach> Core<P> {
    pub(crate) fn new(
        nic: Nic,
        port: P,
        watch: Watch,
        clock: Clock,
        engine: usize,
        events: Arc<Signal<EngineEvent>>,
    ) -> Self {
        let now = clock.now();
        Core {
            nic,
            port,
            peers: Peers::default(),
            watch,
            hooks: Vec::new(),
            event_hook: None,
            bells: Bells::default(),
            sets: Sets::default(),
            events,
            engine,
            clock,
            now,
            turn: 0,
            rx_horizon: RxHorizon::default(),
        }
    }

    /// Handles a post of a caller to the send queue of `qp`: packets that can be sent are sent at once.
    #[inline]
    pub(crate) fn post(&mut self, mem: Mem<'_>, qp: Qpn) {
        doorbell(&mut self.nic, &mut self.port, qp);
        self.send_posted(mem);
    }

    #[inline]
    fn send_posted(&mut self, mem: Mem<'_>) {
        if self.nic.has_work() {
            self.now = self.clock.now();
            self.transmit(mem);
        }
        self.notify();
        if self.watch.stands() {
            self.watch.visited(&mut self.port);
        }
    }

    /// Handles commands posted to the ring of a portal: packets that can be sent are sent at once.
    #[inline]
    pub(crate) fn post_commands(&mut self, mem: Mem<'_>, portal: u32) {
        self.nic.ring_portal(portal);
        self.send_posted(mem);
    }

    /// Makes a pass for a caller that polls.
    #[inline]
    pub(crate) fn polled(&mut self, mem: Mem<'_>) {
        self.pass(mem);
        if self.watch.stands() {
            self.watch.visited(&mut self.port);
        }
    }

    /// Takes doorbells, then makes a pass, for a dedicated engine. Returns whether anything was done.
    #[inline]
    pub(crate) fn serve(&mut self, mem: Mem<'_>, doorbells: &Doorbells) -> bool {
        let Core { nic, port, bells, sets, .. } = self;
        let mut ring = |owner| match owner {
            BellOwner::QueuePair(qp) => doorbell(nic, port, qp),
            BellOwner::Portal(portal) => nic.ring_portal(portal),
        };
        let mut rung = sets.take(&mut ring);
        doorbells.take(|bell| {
            if let Some(owner) = bells.get(bell) {
                ring(owner);
                rung = true;
            }
        });
        self.pass(mem) || rung
    }

    /// Receives, runs timers, transmits. Returns whether a frame was received or sent.
    ///
    /// The clock is read when a frame has arrived or may be sent, and otherwise every [`LOOK_EVERY`]
    /// passes.
    #[inline]
    pub(crate) fn pass(&mut self, mem: Mem<'_>) -> bool {
        self.turn = self.turn.wrapping_add(1);
        self.make(mem, self.turn.is_multiple_of(LOOK_EVERY))
    }

    /// Makes a pass after a sleep, which always checks the clock and lost peers.
    pub(crate) fn pass_after_sleep(&mut self, mem: Mem<'_>) -> bool {
        self.turn = self.turn.wrapping_add(1);
        self.make(mem, true)
    }

    #[inline]
    fn make(&mut self, mem: Mem<'_>, look: bool) -> bool {
        if self.port.recorder().is_some() {
            return self.make_recorded(mem, look);
        }
        let Core { nic, port, clock, now, .. } = self;
        let mut fresh = false;
        let received = port.receive(BUDGET, &mut |frame| {
            if !fresh {
                *now = clock.now();
                fresh = true;
            }
            nic.receive(*now, mem, &frame);
        });
        if !fresh {
            if !look && !nic.has_work() {
                return false;
            }
            *now = clock.now();
        }
        self.finish(mem, look, received == 0) || received > 0
    }

    /// Makes a pass like [`make`](Core::make) and records it.
    #[cold]
    fn make_recorded(&mut self, mem: Mem<'_>, look: bool) -> bool {
        let mut arrivals = Vec::new();
        let received = self.port.receive(BUDGET, &mut |frame| arrivals.push(Arrival::new(&frame)));
        if received == 0 && !look && !self.nic.has_work() {
            return false;
        }
        self.now = self.clock.now();
        if let Some(recorder) = self.port.recorder() {
            recorder.receive(&mut self.nic, self.now, mem, arrivals);
        }
        self.finish(mem, look, received == 0) || received > 0
    }

    #[inline]
    fn transmit(&mut self, mem: Mem<'_>) -> usize {
        if let Some(recorder) = self.port.recorder() {
            recorder.begin_transmit(self.now, BUDGET);
        }
        let sent = self.nic.transmit(self.now, mem, &mut self.port, BUDGET);
        if let Some(recorder) = self.port.recorder() {
            recorder.end_transmit(&self.nic, sent);
        }
        sent
    }

    #[inline]
    fn finish(&mut self, mem: Mem<'_>, look: bool, silent: bool) -> bool {
        if self.nic.next_deadline() <= self.now {
            self.expire(silent);
        }
        let mut sent = 0;
        if self.nic.has_work() {
            sent = self.transmit(mem);
        }
        self.notify();
        if look {
            self.forget_lost();
        }
        sent > 0
    }

    /// Runs timers that are due. Frames that have arrived are processed before a peer counts as silent.
    #[cold]
    fn expire(&mut self, silent: bool) {
        let drained_at = self.rx_horizon.until(self.now, self.turn, silent, self.port.receives_to_silence());
        match self.port.recorder() {
            Some(recorder) => recorder.expire(&mut self.nic, self.now, drained_at, EXPIRE_BUDGET),
            None => self.nic.expire(self.now, drained_at, EXPIRE_BUDGET),
        }
    }

    /// Prepares a sleep: makes a last pass, then watches the port. With `stays`, callers do not end the
    /// watch. The second value is the time of the engine's next timer.
    pub(crate) fn rest(&mut self, mem: Mem<'_>, stays: bool) -> (Begun, Instant) {
        if stays {
            // Disarming makes the pass poll all descriptors, as after a sleep.
            self.port.disarm();
        }
        // From here on, processes that ring wake the engine; earlier rings are seen by this call.
        if self.sets.begin_sleep() || self.pass_after_sleep(mem) {
            if !stays {
                self.end_sleep();
            }
            return (Begun::Work, self.now);
        }
        let begun = self.watch.begin(&mut self.port, stays);
        (begun, self.nic.next_deadline())
    }

    /// Ends the sleep of the driving thread.
    pub(crate) fn end_sleep(&mut self) {
        self.sets.end_sleep();
        self.end_watch();
    }

    /// Ends the watch of the port.
    fn end_watch(&mut self) {
        if self.watch.stands() {
            self.watch.end(&mut self.port);
        }
    }

    /// Notifies channels, and reports asynchronous events.
    #[inline]
    pub(crate) fn notify(&mut self) {
        while let Some(cq) = self.nic.wake() {
            if let Some(recorder) = self.port.recorder() {
                recorder.woken(cq);
            }
            if let Some(Some(hook)) = self.hooks.get(cq as usize) {
                hook.channel.put(hook.tag);
            }
        }
        while let Some(event) = self.nic.event() {
            if let Some(recorder) = self.port.recorder() {
                recorder.raised(event);
            }
            match &self.event_hook {
                Some(hook) => hook(event),
                None => self.events.put(EngineEvent { engine: self.engine, event }),
            }
        }
    }

    #[cold]
    fn forget_lost(&mut self) {
        while let Some(peer) = self.port.take_lost() {
            tracing::info!(engine = self.engine, peer = peer.0, "peer lost");
            if self.peers.lose(peer) {
                self.port.remove(peer);
            }
        }
    }
}

/// Rings a doorbell of the NIC.
#[inline]
pub(crate) fn doorbell(nic: &mut Nic, port: &mut (impl Attach + ?Sized), qp: Qpn) {
    match port.recorder() {
        Some(recorder) => recorder.doorbell(nic, qp),
        None => nic.doorbell(qp),
    }
}

/// Hands a part to the NIC.
pub(crate) fn hand(nic: &mut Nic, port: &mut dyn Attach, part: HandedPart) -> PartNumber {
    match port.recorder() {
        Some(recorder) => recorder.hand(nic, part),
        None => nic.hand(part),
    }
}

/// Executes a command.
///
/// # Errors
/// The refusal of the NIC, which has changed nothing then.
pub(crate) fn execute(
    nic: &mut Nic,
    port: &mut dyn Attach,
    now: Instant,
    mem: Mem<'_>,
    command: Command,
) -> Result<Reply, CommandError> {
    match port.recorder() {
        Some(recorder) => recorder.execute(nic, now, mem, command),
        None => nic.execute(now, mem, command),
    }
}

/// Executes a command and returns the value that its reply carries.
///
/// # Errors
/// The refusal of the NIC, which has changed nothing then.
pub(crate) fn ask<T: FromReply>(
    nic: &mut Nic,
    port: &mut dyn Attach,
    now: Instant,
    mem: Mem<'_>,
    command: Command,
) -> Result<T, CommandError> {
    let kind = command.kind();
    let reply = execute(nic, port, now, mem, command)?;
    T::from_reply(reply).ok_or(CommandError { kind, fault: CommandFault::Reply })
}
