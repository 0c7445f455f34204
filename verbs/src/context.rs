//! An open device.

use host::metrics::Family;
use host::{Adapter, DriverCounters, EngineEvent, PortFacts};
use port::Counters as PortCounters;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use transport::Counters;

use crate::fork::ForkMark;
use crate::{CompletionChannel, CompletionQueue, CqOptions, CreateError, ProtectionDomain, XrcDomain};

/// An open device. Cloning shares it; it closes when the last thing that was made in it is gone.
#[derive(Clone, Debug)]
pub struct Context {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    adapter: Adapter,
    fork: ForkMark,
    tags: AtomicU64,
}

impl Context {
    pub(crate) fn new(adapter: Adapter) -> Context {
        Context { inner: Arc::new(Inner { adapter, fork: ForkMark::get(), tags: AtomicU64::new(1) }) }
    }

    /// A new protection domain.
    ///
    /// # Errors
    /// `Forked`, or `Memory(Full)`.
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, CreateError> {
        ProtectionDomain::new(self)
    }

    /// A new XRC domain on engine `engine`: what its targets and shared receive queues are on.
    ///
    /// # Errors
    /// `Forked`, `TooMany`: the engine's number; `Nic(Full)`.
    pub fn open_xrc_domain(&self, engine: usize) -> Result<XrcDomain, CreateError> {
        XrcDomain::new(self, engine)
    }

    /// A completion queue for at least `depth` completions, on the engine whose turn it is.
    ///
    /// # Errors
    /// See [`create_cq_with`](Context::create_cq_with).
    pub fn create_cq(&self, depth: u32) -> Result<CompletionQueue, CreateError> {
        self.create_cq_with(&CqOptions { depth, ..CqOptions::default() })
    }

    /// A completion queue.
    ///
    /// # Errors
    /// `Forked`, `TooMany`, or the NIC and the memory table are full.
    pub fn create_cq_with(&self, options: &CqOptions<'_>) -> Result<CompletionQueue, CreateError> {
        CompletionQueue::new(self, options)
    }

    /// A channel that tells of completions by a descriptor.
    ///
    /// # Errors
    /// The system gives no descriptor.
    pub fn create_channel(&self) -> Result<CompletionChannel, CreateError> {
        CompletionChannel::new(self)
    }

    /// How many engines it has.
    pub fn engines(&self) -> usize {
        self.inner.adapter.engines().len()
    }

    /// The facts of its first engine's port: kind, address, path MTU.
    pub fn port(&self) -> PortFacts {
        self.inner.adapter.engines()[0].facts()
    }

    /// The next asynchronous event, if there is one. [`AsFd`] gives a descriptor that is readable while there is.
    pub fn poll_event(&self) -> Option<EngineEvent> {
        self.inner.adapter.events().take()
    }

    /// What its engines have counted together.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for engine in self.inner.adapter.engines() {
            sum.add(&engine.counters());
        }
        sum
    }

    /// What its engines' ports have counted together.
    pub fn port_counters(&self) -> PortCounters {
        let mut sum = PortCounters::default();
        for engine in self.inner.adapter.engines() {
            sum.add(&engine.port_counters());
        }
        sum
    }

    /// What happened to the threads behind its engines, for each engine.
    pub fn driver_counters(&self) -> Vec<DriverCounters> {
        self.inner.adapter.engines().iter().map(|engine| engine.driver_counters()).collect()
    }

    /// Everything it counts, for Prometheus ([`host::metrics::Endpoint`]).
    pub fn metrics(&self) -> Vec<Family> {
        host::families(&self.inner.adapter)
    }

    pub(crate) fn adapter(&self) -> &Adapter {
        &self.inner.adapter
    }

    #[inline]
    pub(crate) fn fork(&self) -> ForkMark {
        self.inner.fork
    }

    pub(crate) fn refuse_child(&self) -> Result<(), CreateError> {
        if self.inner.fork.is_child() { Err(CreateError::Forked) } else { Ok(()) }
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
        self.inner.adapter.events().as_fd()
    }
}
