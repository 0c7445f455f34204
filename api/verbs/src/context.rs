//! An open device with its engines, events and counters (`ibv_context`).

mod create;

use remora_host::connect::Uplink;
use remora_host::metrics::Family;
use remora_host::{Adapter, DriverCounters, Engine, EngineEvent, PortFacts};
use remora_memory::ForkMark;
use remora_nic::Device;
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
#[allow(clippy::large_enum_variant, reason = "one per context")]
enum Home {
    /// This process.
    Own(Adapter),
    /// A daemon, to which this process is attached.
    Nicd(Arc<DaemonClient>),
}

impl Context {
    pub(crate) fn new(adapter: Adapter) -> Context {
        Context::at(Home::Own(adapter))
    }

    pub(crate) fn of_daemon(daemon: DaemonClient) -> Context {
        Context::at(Home::Nicd(Arc::new(daemon)))
    }

    fn at(home: Home) -> Context {
        Context { inner: Arc::new(Inner { home, fork: ForkMark::get(), tags: AtomicU64::new(1) }) }
    }

    /// The number of engines; 1 for a daemon's NIC.
    pub fn engines(&self) -> usize {
        match &self.inner.home {
            Home::Own(adapter) => adapter.engines().len(),
            Home::Nicd(_) => 1,
        }
    }

    /// The kind, address and path MTU of the first engine's port.
    pub fn port(&self) -> PortFacts {
        match &self.inner.home {
            Home::Own(adapter) => adapter.engines()[0].facts(),
            Home::Nicd(daemon) => daemon.facts(),
        }
    }

    /// Returns the next asynchronous event, or `None` if none waits. The descriptor given by [`AsFd`] is
    /// readable while an event waits. Always `None` in a forked child: the events are its parent's.
    pub fn poll_event(&self) -> Option<EngineEvent> {
        if self.inner.fork.is_child() {
            return None;
        }
        match &self.inner.home {
            Home::Own(adapter) => adapter.events().take(),
            Home::Nicd(daemon) => Some(EngineEvent { engine: 0, event: daemon.take_event()? }),
        }
    }

    /// The engines, if they belong to this process; empty for a daemon's NIC, whose engine works for all of
    /// its programs.
    pub(crate) fn own_engines(&self) -> &[Arc<Engine>] {
        match &self.inner.home {
            Home::Own(adapter) => adapter.engines(),
            Home::Nicd(_) => &[],
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
            Home::Own(adapter) => adapter.engines().get(number).cloned().map(EngineHandle::Own),
            Home::Nicd(daemon) => (number == 0).then(|| EngineHandle::Nicd(Arc::clone(daemon))),
        };
        engine.ok_or(CreateError::TooMany("engine number", number as u64 + 1, self.engines() as u64))
    }

    /// The engine with this number, or with `None` the next one in turn.
    ///
    /// # Errors
    /// `TooMany` if there is no such engine.
    pub(crate) fn engine_for(&self, number: Option<usize>) -> Result<EngineHandle, CreateError> {
        match (&self.inner.home, number) {
            (Home::Own(adapter), None) => Ok(EngineHandle::Own(Arc::clone(adapter.next_engine()))),
            (_, number) => self.engine_handle(number.unwrap_or(0)),
        }
    }

    /// The NIC's adapter, if it is this process's own.
    pub(crate) fn adapter(&self) -> Result<&Adapter, CreateError> {
        match &self.inner.home {
            Home::Own(adapter) => Ok(adapter),
            Home::Nicd(_) => Err(CreateError::NotByDaemon),
        }
    }

    /// The client of the daemon, if the NIC is a daemon's.
    pub(crate) fn daemon(&self) -> Option<&Arc<DaemonClient>> {
        match &self.inner.home {
            Home::Own { .. } => None,
            Home::Nicd(daemon) => Some(daemon),
        }
    }

    /// Returns whether a thread that drives the NIC has failed, or the daemon is gone.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        match &self.inner.home {
            Home::Own(adapter) => adapter.has_failed(),
            Home::Nicd(daemon) => daemon.is_gone(),
        }
    }

    /// Stops a NIC of this process for good, as after a fault of the hardware, when its place on the network
    /// is lost. All queue pairs enter the error state, [`AsyncEvent::DeviceFatal`](crate::AsyncEvent) is
    /// reported, and polling an empty queue returns `Failed`. No effect on a daemon's NIC.
    pub fn fail(&self) {
        if let Home::Own(adapter) = &self.inner.home {
            adapter.fail();
        }
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
        match &self.inner.home {
            Home::Own(adapter) => adapter.events().as_fd(),
            Home::Nicd(daemon) => daemon.events().as_fd(),
        }
    }
}
