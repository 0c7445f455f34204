//! Protection domains. A key of one domain gives no access in another.

mod create;

use remora_memory::{Key, MemoryCommand, Pd};
use remora_nic::Device;
use std::sync::Arc;

use crate::engine_handle::EngineHandle;
use crate::{Context, CreateError};

/// A protection domain (`ibv_pd`). A clone shares it. Regions and queue pairs keep it alive.
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Context,
    engine: EngineHandle,
    pd: Pd,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.context.fork().is_child() {
            self.engine.end_memory(MemoryCommand::FreeDomain(self.pd));
        }
    }
}

impl ProtectionDomain {
    pub(crate) fn new(context: &Context) -> Result<ProtectionDomain, CreateError> {
        context.refuse_child()?;
        let pd = context.engine_handle(0)?.memory(MemoryCommand::AllocDomain)?.domain();
        ProtectionDomain::over(context, pd.ok_or(remora_memory::Error::Unknown)?)
    }

    /// Wraps a domain that exists, such as one that an earlier program of a tenant has left.
    pub(crate) fn over(context: &Context, pd: Pd) -> Result<ProtectionDomain, CreateError> {
        let inner = Inner { context: context.clone(), engine: context.engine_handle(0)?, pd };
        Ok(ProtectionDomain { inner: Arc::new(inner) })
    }

    /// The context in which it was allocated.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    pub(crate) fn pd(&self) -> Pd {
        self.inner.pd
    }

    /// The first engine of the NIC, through which the memory of all engines is registered.
    pub(crate) fn device(&self) -> &EngineHandle {
        &self.inner.engine
    }

    /// Executes a command of the memory table that gives a key.
    pub(crate) fn key_of(&self, command: MemoryCommand<'_>) -> Result<Key, CreateError> {
        Ok(self.inner.engine.memory(command)?.key().ok_or(remora_memory::Error::Unknown)?)
    }
}
