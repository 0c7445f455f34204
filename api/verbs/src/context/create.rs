//! The objects that a context makes.

use super::Context;
use crate::{CompletionChannel, CompletionQueue, CqOptions, CreateError, ProtectionDomain, XrcDomain};

impl Context {
    /// A new protection domain.
    ///
    /// # Errors
    /// `Forked`, or `Memory(Full)`.
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, CreateError> {
        ProtectionDomain::new(self)
    }

    /// A new XRC domain on engine `engine`, which serves its targets and shared receive queues.
    ///
    /// # Errors
    /// `Forked`, `TooMany`: the engine's number; `Nic(Full)`.
    pub fn open_xrc_domain(&self, engine: usize) -> Result<XrcDomain, CreateError> {
        XrcDomain::new(self, engine)
    }

    /// A completion queue for at least `depth` completions; the engines take turns.
    ///
    /// # Errors
    /// See [`create_cq_with`](Context::create_cq_with).
    pub fn create_cq(&self, depth: u32) -> Result<CompletionQueue, CreateError> {
        self.create_cq_with(&CqOptions { depth, ..CqOptions::default() })
    }

    /// A completion queue with these attributes.
    ///
    /// # Errors
    /// `Forked`, `TooMany`, or the NIC and the memory table are full.
    pub fn create_cq_with(&self, options: &CqOptions<'_>) -> Result<CompletionQueue, CreateError> {
        CompletionQueue::new(self, options)
    }

    /// A channel that reports completions by a descriptor.
    ///
    /// # Errors
    /// The system gives no descriptor.
    pub fn create_channel(&self) -> Result<CompletionChannel, CreateError> {
        CompletionChannel::new(self)
    }
}
