//! XRC domains, which group shared receive queues.

use remora_host::Engine;
use remora_nic::Command;
use std::sync::Arc;

use crate::{Context, CreateError};

/// An XRC domain: the shared receive queues that a target's peer may name. A clone shares the domain.
#[derive(Clone, Debug)]
pub struct XrcDomain {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Context,
    engine: Arc<Engine>,
    number: u32,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.context.fork().is_child() {
            let ended = self.engine.ask::<()>(Command::FreeXrcDomain { domain: self.number });
            debug_assert!(ended.is_ok(), "targets and queues hold their domain");
        }
    }
}

impl XrcDomain {
    pub(crate) fn new(context: &Context, engine: usize) -> Result<XrcDomain, CreateError> {
        context.refuse_child()?;
        let engines = context.adapter()?.engines();
        let asked = engine as u64 + 1;
        let most = engines.len() as u64;
        let engine = engines.get(engine).ok_or(CreateError::TooMany("engine number", asked, most))?;
        let number = engine.ask::<u32>(Command::AllocXrcDomain)?;
        let inner = Inner { context: context.clone(), engine: Arc::clone(engine), number };
        Ok(XrcDomain { inner: Arc::new(inner) })
    }

    pub(crate) fn number(&self) -> u32 {
        self.inner.number
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.inner.engine
    }

    pub(crate) fn context(&self) -> &Context {
        &self.inner.context
    }
}
