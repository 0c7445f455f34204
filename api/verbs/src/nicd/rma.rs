//! 1RMA on the daemon's NIC.

use remora_nic::rma::Regions;
use std::sync::{Arc, Mutex, PoisonError};

use crate::rma::{RegionTable, RmaEngine, RmaOptions};
use crate::{Context, CreateError};

/// The 1RMA service of the daemon's engine. It starts when a program first asks for it.
pub(super) struct RmaService {
    context: Context,
    options: RmaOptions,
    opened: Mutex<Option<RmaEngine>>,
}

impl RmaService {
    pub(crate) fn new(context: &Context, options: RmaOptions) -> RmaService {
        RmaService { context: context.clone(), options, opened: Mutex::new(None) }
    }

    /// Starts 1RMA on the first call, and returns the table of its regions.
    pub(crate) fn open(&self) -> Result<Arc<Regions>, CreateError> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let rma = match opened.take() {
            Some(rma) => rma,
            None => RmaEngine::open(&self.context, &self.options)?,
        };
        let RegionTable::Own { regions, .. } = &opened.insert(rma).regions else {
            return Err(CreateError::NotByDaemon);
        };
        Ok(Arc::clone(regions))
    }
}
