//! Protection domains. A key of one domain gives no access in another.

mod create;

use remora_memory::Pd;
use std::sync::Arc;

use crate::nicd::message::Request;
use crate::{Context, CreateError};

/// A protection domain (`ibv_pd`). A clone shares it. Regions and queue pairs keep it alive.
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Context,
    name: Name,
}

/// The identity of the domain: in the NIC of this process, or at the daemon.
#[derive(Copy, Clone, Debug)]
enum Name {
    Own(Pd),
    /// The domain's number at the daemon.
    Lent(u32),
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.context.fork().is_child() {
            return;
        }
        match (self.name, self.context.adapter(), self.context.daemon()) {
            (Name::Own(pd), Ok(adapter), _) => {
                let freed = adapter.table().free_pd(pd);
                debug_assert!(freed.is_ok(), "regions and queue pairs hold the domain");
            }
            (Name::Lent(number), _, Some(daemon)) => daemon.release(&Request::FreeDomain(number)),
            _ => {}
        }
    }
}

impl ProtectionDomain {
    pub(crate) fn new(context: &Context) -> Result<ProtectionDomain, CreateError> {
        context.refuse_child()?;
        let name = match context.daemon() {
            Some(daemon) => Name::Lent(daemon.number(&Request::AllocDomain)?),
            None => Name::Own(context.adapter()?.table().alloc_pd()?),
        };
        Ok(ProtectionDomain { inner: Arc::new(Inner { context: context.clone(), name }) })
    }

    /// Wraps a domain at the daemon that an earlier program of this tenant allocated.
    pub(crate) fn lent(context: &Context, number: u32) -> ProtectionDomain {
        ProtectionDomain { inner: Arc::new(Inner { context: context.clone(), name: Name::Lent(number) }) }
    }

    /// Returns whether a region, a queue pair or a clone uses the domain.
    pub(crate) fn is_used(&self) -> bool {
        Arc::strong_count(&self.inner) > 1
    }

    /// The context in which it was allocated.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    pub(crate) fn pd(&self) -> Result<Pd, CreateError> {
        match self.inner.name {
            Name::Own(pd) => Ok(pd),
            Name::Lent(number) => Ok(Pd::of_number(number)),
        }
    }

    /// The domain's number at the daemon.
    pub(crate) fn number(&self) -> Result<u32, CreateError> {
        match self.inner.name {
            Name::Own(_) => Err(CreateError::OtherContext),
            Name::Lent(number) => Ok(number),
        }
    }
}
