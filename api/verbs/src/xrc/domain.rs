//! XRC domains, which group shared receive queues.

use remora_nic::Command;
use std::sync::Arc;

use crate::engine_handle::EngineHandle;
use crate::{Context, CreateError};

/// An XRC domain: the shared receive queues that a target's peer may name. A clone shares the domain.
#[derive(Clone, Debug)]
pub struct XrcDomain {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Context,
    engine: EngineHandle,
    number: u32,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.context.fork().is_child() {
            self.engine.end(Command::FreeXrcDomain { domain: self.number });
        }
    }
}

impl XrcDomain {
    pub(crate) fn new(context: &Context, engine: usize) -> Result<XrcDomain, CreateError> {
        context.refuse_child()?;
        let engine = context.engine_handle(engine)?;
        let number = engine.ask::<u32>(Command::AllocXrcDomain)?;
        Ok(XrcDomain { inner: Arc::new(Inner { context: context.clone(), engine, number }) })
    }

    pub(crate) fn number(&self) -> u32 {
        self.inner.number
    }

    pub(crate) fn engine(&self) -> &EngineHandle {
        &self.inner.engine
    }

    pub(crate) fn context(&self) -> &Context {
        &self.inner.context
    }
}
