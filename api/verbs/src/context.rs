//! An open device: its engines, events and counters (`ibv_context`).

mod create;

use remora_host::metrics::Family;
use remora_host::{Adapter, DriverCounters, Engine, EngineEvent, PortFacts, Signal};
use remora_memory::{Bytes, ForkMark};
use remora_nic::{NicError, Ring};
use remora_port::Counters as PortCounters;
use remora_transport::Counters;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::CreateError;
use crate::nicd::DaemonClient;

/// An open device. A clone shares it. It closes when the last object of it is gone.
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
    /// This process: for itself, or (`lends`) for others that map its queues and regions.
    Own { adapter: Adapter, lends: bool },
    /// The NIC of a daemon, which this process is attached to.
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

    /// The number of its engines; a daemon's NIC has one.
    pub fn engines(&self) -> usize {
        match &self.inner.home {
            Home::Own { adapter, .. } => adapter.engines().len(),
            Home::Nicd { .. } => 1,
        }
    }

    /// The facts of its first engine's port: kind, address, path MTU.
    pub fn port(&self) -> PortFacts {
        match &self.inner.home {
            Home::Own { adapter, .. } => adapter.engines()[0].facts(),
            Home::Nicd { daemon, .. } => daemon.facts(),
        }
    }

    /// The next asynchronous event, if there is one. [`AsFd`] gives a descriptor that is readable while there
    /// is. A forked child gets none: they are its parent's.
    pub fn poll_event(&self) -> Option<EngineEvent> {
        if self.inner.fork.is_child() { None } else { self.events().take() }
    }

    fn events(&self) -> &Signal<EngineEvent> {
        match &self.inner.home {
            Home::Own { adapter, .. } => adapter.events(),
            Home::Nicd { events, .. } => events,
        }
    }

    /// Its engines, if they are this process's. A daemon's engine counts for all of its programs.
    pub(crate) fn own_engines(&self) -> &[Arc<Engine>] {
        match &self.inner.home {
            Home::Own { adapter, .. } => adapter.engines(),
            Home::Nicd { .. } => &[],
        }
    }

    /// Its engines, if the caller may enter them: in a forked child they may be locked for ever, and a signal
    /// handler may have interrupted a call.
    fn live_engines(&self) -> &[Arc<Engine>] {
        if self.refuse_child().is_err() { &[] } else { self.own_engines() }
    }

    /// The counters of all its engines together; zeros in a forked child, and for a daemon's engine, which
    /// reports to its owner.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for engine in self.live_engines() {
            sum.add(&engine.counters());
        }
        sum
    }

    /// The counters of its engines' ports together.
    pub fn port_counters(&self) -> PortCounters {
        let mut sum = PortCounters::default();
        for engine in self.live_engines() {
            sum.add(&engine.port_counters());
        }
        sum
    }

    /// Events of the threads that drive its engines, one entry for each engine.
    pub fn driver_counters(&self) -> Vec<DriverCounters> {
        self.live_engines().iter().map(|engine| engine.driver_counters()).collect()
    }

    /// All its counters, for Prometheus ([`remora_host::metrics::Endpoint`]).
    pub fn metrics(&self) -> Vec<Family> {
        let adapter = self.refuse_child().and_then(|()| self.adapter());
        adapter.map(remora_host::families).unwrap_or_default()
    }

    /// The NIC, if it is this process's own.
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

    /// Has a thread that drives the NIC failed, or the daemon gone?
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        match &self.inner.home {
            Home::Own { adapter, .. } => adapter.has_failed(),
            Home::Nicd { daemon, .. } => daemon.is_gone(),
        }
    }

    /// Ends the work of a NIC of this process for good, as after a fault of the hardware: its place on the
    /// network is lost. All queue pairs enter the error state, [`AsyncEvent::DeviceFatal`](crate::AsyncEvent)
    /// is reported, and polling an empty queue says `Failed`.
    pub fn fail(&self) {
        if let Home::Own { adapter, .. } = &self.inner.home {
            adapter.fail();
        }
    }

    /// Zeroed memory for a queue of `len` bytes: a memfd if the NIC is lent to other processes.
    pub(crate) fn memory(&self, len: usize) -> Result<Bytes, CreateError> {
        match &self.inner.home {
            Home::Own { lends: true, .. } => Ok(Bytes::memfd("remora-queue", len)?),
            _ => Ok(Bytes::heap(len)?),
        }
    }

    /// A queue of so many slots.
    pub(crate) fn ring(&self, slots: u32) -> Result<Ring, CreateError> {
        Ring::new(self.memory(Ring::size(slots))?).ok_or(CreateError::Nic(NicError::TooSmall))
    }

    #[inline]
    pub(crate) fn fork(&self) -> ForkMark {
        self.inner.fork
    }

    /// Refuses a forked child, and a signal handler that interrupted a call on an engine.
    pub(crate) fn refuse_child(&self) -> Result<(), CreateError> {
        if self.inner.fork.is_child() {
            return Err(CreateError::Forked);
        }
        if self.own_engines().iter().any(|engine| engine.has_caller()) {
            return Err(CreateError::Reentered);
        }
        Ok(())
    }

    /// Starts new tags after `used`, which the kept queues of a daemon have.
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
    /// Readable while an asynchronous event waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events().as_fd()
    }
}
