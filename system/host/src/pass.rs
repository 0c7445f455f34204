//! One pass of an engine: receive, process, transmit. A caller, the attendant or a dedicated thread drives an
//! engine by these few calls, from inside the engine's lock.

use remora_memory::Mem;
use remora_nic::{AsyncEvent, Nic};
use remora_port::Port;
use remora_transport::Instant;
use remora_wire::Qpn;
use std::sync::Arc;

use crate::attach::Attach;
use crate::bells::{Bells, Rung, Sets};
use crate::clock::Clock;
use crate::doorbells::Doorbells;
use crate::peers::Peers;
use crate::rx_horizon::RxHorizon;
use crate::signal::{Channel, Signal};
use crate::watch::{Begun, Watch};

/// Frames received, and sent, in one pass at most: passes must stay short, because deregistrations wait for
/// them.
const BUDGET: usize = 64;
/// Queue pairs whose timers run in one pass at most.
const EXPIRE_BUDGET: usize = 64;
/// Passes between two looks at the clock and at lost peers while nothing arrives.
const LOOK_EVERY: u32 = 64;

/// The channel that is notified of completions in an armed queue.
#[derive(Debug)]
pub struct CqHook {
    /// The channel to notify.
    pub channel: Channel,
    /// The tag that the channel reports.
    pub tag: u64,
}

/// An asynchronous event and the engine that it happened on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct EngineEvent {
    /// Number of the engine in its adapter.
    pub engine: usize,
    /// The asynchronous event (IBTA vol. 1 §11.6.3).
    pub event: AsyncEvent,
}

/// A program's own way to learn of asynchronous events, instead of the adapter's queue.
pub type EventHook = Arc<dyn Fn(AsyncEvent) + Send + Sync>;

/// The state of one engine: a NIC and its port.
pub(crate) struct Core<P> {
    pub nic: Nic,
    pub port: P,
    pub peers: Peers,
    pub watch: Watch,
    /// Hooks by completion queue number.
    pub hooks: Vec<Option<CqHook>>,
    pub event_hook: Option<EventHook>,
    /// Queue pairs and portals by their doorbells: the engine's own, and those that other processes ring.
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
    pub fn new(
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

    /// A caller has posted to the send queue of `qp`: what can leave leaves at once.
    #[inline]
    pub fn post(&mut self, mem: Mem<'_>, qp: Qpn) {
        self.nic.doorbell(qp);
        self.send_posted(mem);
    }

    #[inline]
    fn send_posted(&mut self, mem: Mem<'_>) {
        if self.nic.has_work() {
            self.now = self.clock.now();
            self.nic.transmit(self.now, mem, &mut self.port, BUDGET);
        }
        self.notify();
        if self.watch.stands() {
            self.watch.visited(&mut self.port);
        }
    }

    /// The same for the ring of a portal.
    #[inline]
    pub fn post_commands(&mut self, mem: Mem<'_>, portal: u32) {
        self.nic.ring_portal(portal);
        self.send_posted(mem);
    }

    /// A caller polls: makes a pass, if there may be something to do.
    #[inline]
    pub fn polled(&mut self, mem: Mem<'_>) {
        self.pass(mem);
        if self.watch.stands() {
            self.watch.visited(&mut self.port);
        }
    }

    /// Takes doorbells, then makes a pass: the dedicated engine's way. True if anything was done.
    #[inline]
    pub fn serve(&mut self, mem: Mem<'_>, doorbells: &Doorbells) -> bool {
        let Core { nic, bells, sets, .. } = self;
        let ring = |nic: &mut Nic, what| match what {
            Rung::QueuePair(qp) => nic.doorbell(qp),
            Rung::Portal(number) => nic.ring_portal(number),
        };
        let mut rung = sets.take(|what| ring(nic, what));
        doorbells.take(|bell| {
            if let Some(what) = bells.get(bell) {
                ring(nic, what);
                rung = true;
            }
        });
        self.pass(mem) || rung
    }

    /// Receives, runs timers, transmits. True if a frame came or left.
    ///
    /// The clock is read when a frame has come or may leave, and else every now and then.
    #[inline]
    pub fn pass(&mut self, mem: Mem<'_>) -> bool {
        self.turn = self.turn.wrapping_add(1);
        self.make(mem, self.turn.is_multiple_of(LOOK_EVERY))
    }

    /// A pass after a sleep, which always looks at the clock and at lost peers.
    pub fn pass_after_sleep(&mut self, mem: Mem<'_>) -> bool {
        self.turn = self.turn.wrapping_add(1);
        self.make(mem, true)
    }

    #[inline]
    fn make(&mut self, mem: Mem<'_>, look: bool) -> bool {
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

    #[inline]
    fn finish(&mut self, mem: Mem<'_>, look: bool, silent: bool) -> bool {
        if self.nic.next_deadline() <= self.now {
            self.expire(silent);
        }
        let mut sent = 0;
        if self.nic.has_work() {
            sent = self.nic.transmit(self.now, mem, &mut self.port, BUDGET);
        }
        self.notify();
        if look {
            self.forget_lost();
        }
        sent > 0
    }

    /// Runs timers that are due. Frames that have arrived are taken before a peer counts as silent.
    #[cold]
    fn expire(&mut self, silent: bool) {
        let drained_at = self.rx_horizon.until(self.now, self.turn, silent, self.port.receives_to_silence());
        self.nic.expire(self.now, drained_at, EXPIRE_BUDGET);
    }

    /// Prepares a sleep: a last pass, then the port is watched. If it `stays`, callers do not end the
    /// watch. The second value is the time of the engine's next timer.
    pub fn rest(&mut self, mem: Mem<'_>, stays: bool) -> (Begun, Instant) {
        if stays {
            // The pass looks everywhere, as after a sleep.
            self.port.disarm();
        }
        // From here on, other processes that ring wake us; what they rang before is seen.
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
    pub fn end_sleep(&mut self) {
        self.sets.end_sleep();
        self.end_watch();
    }

    /// Ends the watch of the port.
    fn end_watch(&mut self) {
        if self.watch.stands() {
            self.watch.end(&mut self.port);
        }
    }

    /// Notifies channels and the event queue.
    #[inline]
    pub fn notify(&mut self) {
        while let Some(cq) = self.nic.wake() {
            if let Some(Some(hook)) = self.hooks.get(cq as usize) {
                hook.channel.put(hook.tag);
            }
        }
        while let Some(event) = self.nic.event() {
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
