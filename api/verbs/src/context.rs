//! An open device with its engines, events and counters (`ibv_context`).

mod create;

use remora_host::metrics::Family;
use remora_host::{Adapter, DriverCounters, Engine, EngineEvent, PortFacts, Signal};
use remora_memory::{Bytes, ForkMark};
use remora_nic::{NicError, PartNumber, Ring};
use remora_port::Counters as PortCounters;
use remora_transport::Counters;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::CreateError;
use crate::engine_handle::EngineHandle;
use crate::nicd::DaemonClient;

/// An open device. A clone shares it. The device closes when the last clone and the last object created by
/// it are dropped.
#[derive(Clone, Debug)]
pub struct Context {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    home: Home,
    fork: ForkMark,
    tags: AtomicU64,
}

/// The owner of the NIC.
#[derive(Debug)]
enum Home {
    /// This process, for itself or, if `lends`, for other processes that map its queues and regions.
    Own { adapter: Adapter, lends: bool },
    /// A daemon, to which this process is attached.
    Nicd { daemon: Arc<DaemonClient>, events: Signal<EngineEvent> },
}

impl Context {
    pub(crate) fn new(adapter: Adapter, lends: bool) -> Context {
        Context::at(Home::Own { adapter, lends })
    }

    pub(crate) fn of_daemon(daemon: Arc<DaemonClient>, events: Signal<EngineEvent>) -> Context {
        Context::at(Home::Nicd { daemon, events })
    }

    fn at(home: Home) -> Context {
        Context { inner: Arc::new(Inner { home, fork: ForkMark::get(), tags: AtomicU64::new(1) }) }
    }

    /// The number of engines; 1 for a daemon's NIC.
    pub fn engines(&self) -> usize {
        match &self.inner.home {
            Home::Own { adapter, .. } => adapter.engines().len(),
            Home::Nicd { .. } => 1,
        }
    }

    /// The kind, address and path MTU of the first engine's port.
    pub fn port(&self) -> PortFacts {
        match &self.inner.home {
            Home::Own { adapter, .. } => adapter.engines()[0].facts(),
            Home::Nicd { daemon, .. } => daemon.facts(),
        }
    }

    /// Returns the next asynchronous event, or `None` if none waits. The descriptor given by [`AsFd`] is
    /// readable while an event waits. Always `None` in a forked child: the events are its parent's.
    pub fn poll_event(&self) -> Option<EngineEvent> {
        if self.inner.fork.is_child() { None } else { self.events().take() }
    }

    fn events(&self) -> &Signal<EngineEvent> {
        match &self.inner.home {
            Home::Own { adapter, .. } => adapter.events(),
            Home::Nicd { events, .. } => events,
        }
    }

    /// The engines, if they belong to this process; empty for a daemon's NIC, whose engine works for all of
    /// its programs.
    pub(crate) fn own_engines(&self) -> &[Arc<Engine>] {
        match &self.inner.home {
            Home::Own { adapter, .. } => adapter.engines(),
            Home::Nicd { .. } => &[],
        }
    }

    /// The engines that the caller may enter. Empty in a forked child, where an engine's lock may be held for
    /// ever, and in a signal handler that interrupted a call on an engine.
    fn live_engines(&self) -> &[Arc<Engine>] {
        if self.refuse_child().is_err() { &[] } else { self.own_engines() }
    }

    /// The sum of all engines' counters. Zeros in a forked child and for a daemon's NIC, which reports its
    /// counters to its owner.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for engine in self.live_engines() {
            sum.add(&engine.counters());
        }
        sum
    }

    /// The sum of the counters of all engines' ports. Zeros where [`counters`](Context::counters) gives
    /// zeros.
    pub fn port_counters(&self) -> PortCounters {
        let mut sum = PortCounters::default();
        for engine in self.live_engines() {
            sum.add(&engine.port_counters());
        }
        sum
    }

    /// Counters of the threads that drive the engines, one entry for each engine.
    pub fn driver_counters(&self) -> Vec<DriverCounters> {
        self.live_engines().iter().map(|engine| engine.driver_counters()).collect()
    }

    /// All counters as metrics for Prometheus ([`remora_host::metrics::Endpoint`]). Empty in a forked child
    /// and for a daemon's NIC.
    pub fn metrics(&self) -> Vec<Family> {
        let adapter = self.refuse_child().and_then(|()| self.adapter());
        adapter.map(remora_host::families).unwrap_or_default()
    }

    /// The engine with this number. A daemon's NIC has one.
    ///
    /// # Errors
    /// `TooMany` if there is no such engine.
    pub(crate) fn engine_handle(&self, number: usize) -> Result<EngineHandle, CreateError> {
        let engine = match &self.inner.home {
            Home::Own { adapter, .. } => adapter.engines().get(number).cloned().map(EngineHandle::Own),
            Home::Nicd { daemon, .. } => (number == 0).then(|| EngineHandle::Nicd(Arc::clone(daemon))),
        };
        engine.ok_or(CreateError::TooMany("engine number", number as u64 + 1, self.engines() as u64))
    }

    /// Allocates memory for a queue of at least `slots` slots of an engine, which the next command names by
    /// this number.
    pub(crate) fn ring_of(
        &self,
        engine: &EngineHandle,
        slots: u32,
    ) -> Result<(Ring, PartNumber), CreateError> {
        match engine {
            EngineHandle::Own(engine) => {
                let ring = self.ring(slots)?;
                Ok((ring.clone(), engine.hand(ring)))
            }
            EngineHandle::Nicd(daemon) => daemon.hand(slots),
        }
    }

    /// The NIC's adapter, if it is this process's own.
    pub(crate) fn adapter(&self) -> Result<&Adapter, CreateError> {
        match &self.inner.home {
            Home::Own { adapter, .. } => Ok(adapter),
            Home::Nicd { .. } => Err(CreateError::NotByDaemon),
        }
    }

    /// The client of the daemon, if the NIC is a daemon's.
    pub(crate) fn daemon(&self) -> Option<&Arc<DaemonClient>> {
        match &self.inner.home {
            Home::Own { .. } => None,
            Home::Nicd { daemon, .. } => Some(daemon),
        }
    }

    /// Returns whether a thread that drives the NIC has failed, or the daemon is gone.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        match &self.inner.home {
            Home::Own { adapter, .. } => adapter.has_failed(),
            Home::Nicd { daemon, .. } => daemon.is_gone(),
        }
    }

    /// Stops a NIC of this process for good, as after a fault of the hardware, when its place on the network
    /// is lost. All queue pairs enter the error state, [`AsyncEvent::DeviceFatal`](crate::AsyncEvent) is
    /// reported, and polling an empty queue returns `Failed`. No effect on a daemon's NIC.
    pub fn fail(&self) {
        if let Home::Own { adapter, .. } = &self.inner.home {
            adapter.fail();
        }
    }

    /// Allocates `len` zeroed bytes for a queue, as a memfd if the NIC is lent to other processes.
    pub(crate) fn memory(&self, len: usize) -> Result<Bytes, CreateError> {
        match &self.inner.home {
            Home::Own { lends: true, .. } => Ok(Bytes::memfd("remora-queue", len)?),
            _ => Ok(Bytes::heap(len)?),
        }
    }

    /// Allocates a queue of at least `slots` slots.
    pub(crate) fn ring(&self, slots: u32) -> Result<Ring, CreateError> {
        Ring::new(self.memory(Ring::size(slots))?).ok_or(CreateError::Nic(NicError::TooSmall))
    }

    #[inline]
    pub(crate) fn fork(&self) -> ForkMark {
        self.inner.fork
    }

    /// Returns an error in a forked child (`Forked`) and in a signal handler that interrupted a call on an
    /// engine (`Reentered`).
    pub(crate) fn refuse_child(&self) -> Result<(), CreateError> {
        if self.inner.fork.is_child() {
            return Err(CreateError::Forked);
        }
        if self.own_engines().iter().any(|engine| engine.has_caller()) {
            return Err(CreateError::Reentered);
        }
        Ok(())
    }

    /// Makes new tags begin after `used`, the tag of a queue that the daemon kept.
    pub(crate) fn skip_tags(&self, used: u64) {
        self.inner.tags.fetch_max(used.saturating_add(1), Ordering::Relaxed);
    }

    pub(crate) fn tag(&self) -> u64 {
        self.inner.tags.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn is(&self, other: &Context) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl AsFd for Context {
    /// Returns a descriptor that is readable while an asynchronous event waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events().as_fd()
    }
}
