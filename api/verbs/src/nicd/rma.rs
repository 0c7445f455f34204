//! 1RMA on the daemon's NIC.

use remora_wire::frame::Endpoint;
use std::sync::{Mutex, PoisonError};

use crate::rma::{OwnRma, Reached, RmaOptions, Settings};
use crate::{Context, CreateError, PortKind};

/// The 1RMA service of the daemon's engine. It starts when a program first asks for it.
pub(super) struct RmaService {
    context: Context,
    options: RmaOptions,
    opened: Mutex<Option<OwnRma>>,
}

impl RmaService {
    pub(crate) fn new(context: &Context, options: RmaOptions) -> RmaService {
        RmaService { context: context.clone(), options, opened: Mutex::new(None) }
    }

    /// Returns the engine's 1RMA service, and starts it on the first call.
    pub(crate) fn open(&self) -> Result<OwnRma, CreateError> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rma) = &*opened {
            return Ok(rma.clone());
        }
        let rma = OwnRma::open(&self.context, &self.options)?;
        *opened = Some(rma.clone());
        Ok(rma)
    }

    /// The sizes and times of the service.
    pub(crate) fn settings(&self) -> &Settings {
        &self.options.settings
    }

    /// Resolves the way to a server if the port must query the network for it (`xdp`). Returns `None` on
    /// other ports.
    pub(crate) fn find(&self, server: Endpoint) -> Result<Option<Reached>, String> {
        if self.context.port().kind != PortKind::Xdp {
            return Ok(None);
        }
        if !server.address.is_host() {
            return Err("this is no address of a host".to_owned());
        }
        let rma = self.open().map_err(|error| error.to_string())?;
        rma.find(server).map(Some).map_err(|error| error.to_string())
    }
}
