//! Constructors for the objects of a context.

use super::Context;
use crate::{CompletionChannel, CompletionQueue, CqOptions, CreateError, ProtectionDomain, XrcDomain};

impl Context {
    /// Allocates a protection domain.
    ///
    /// # Errors
    /// `Forked` in a forked child; `Memory(Full)` if there are as many domains as are allowed.
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, CreateError> {
        ProtectionDomain::new(self)
    }

    /// Opens an XRC domain on engine `engine`, which serves the domain's targets and shared receive queues.
    ///
    /// # Errors
    /// `Forked` in a forked child; `TooMany` if there is no such engine; `Nic(Full)`.
    pub fn open_xrc_domain(&self, engine: usize) -> Result<XrcDomain, CreateError> {
        XrcDomain::new(self, engine)
    }

    /// Creates a completion queue for at least `depth` completions. The engines take turns.
    ///
    /// # Errors
    /// The errors of [`create_cq_with`](Context::create_cq_with).
    pub fn create_cq(&self, depth: u32) -> Result<CompletionQueue, CreateError> {
        self.create_cq_with(&CqOptions { depth, ..CqOptions::default() })
    }

    /// Creates a completion queue with these attributes.
    ///
    /// # Errors
    /// `Forked` in a forked child; `TooMany` if the depth or the engine's number is out of bounds; an error
    /// of the NIC or the memory table if it is full.
    pub fn create_cq_with(&self, options: &CqOptions<'_>) -> Result<CompletionQueue, CreateError> {
        CompletionQueue::new(self, options)
    }

    /// Creates a channel that reports completions by a descriptor.
    ///
    /// # Errors
    /// `System` if the operating system gives no descriptor.
    pub fn create_channel(&self) -> Result<CompletionChannel, CreateError> {
        CompletionChannel::new(self)
    }
}
