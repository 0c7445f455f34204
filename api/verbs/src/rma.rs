//! 1RMA: encrypted one-sided operations without connections (`docs/reference/rma.md`).
//!
//! A server [exposes](Rma::expose) a region and sends clients its [`Grant`] over a confidential channel. A
//! client reads and writes the region through a [`Portal`]. The server keeps no state for the client.
//!
//! ```
//! use remora_verbs::rma::{RmaOptions, Rights};
//! use remora_verbs::{Access, Device};
//! use std::time::Duration;
//!
//! let here = "127.0.0.1:0".parse::<std::net::SocketAddr>()?;
//! let [server, client] = [Device::udp(here)?.open()?, Device::udp(here)?.open()?];
//!
//! let serving = server.open_rma(&RmaOptions::default())?;
//! let table = server.alloc_pd()?.allocate(1 << 20, Access::LOCAL_WRITE)?;
//! table.write(4096, b"over there")?;
//! let table = serving.expose(table, Rights::READ | Rights::WRITE, None)?;
//!
//! let rma = client.open_rma(&RmaOptions::default())?;
//! let domain = client.alloc_pd()?;
//! let buffer = rma.expose(domain.allocate(1 << 16, Access::LOCAL_WRITE)?, Rights::NONE, None)?;
//! let mut portal = rma.create_portal(&domain, 16)?;
//! let grant = table.grant(&portal.identity());
//!
//! let second = Duration::from_secs(1);
//! // This test drives both sides by one thread. In general each process drives its own.
//! portal.read(&buffer, 0, &grant, 4096, 10, second)?;
//! let mut bytes = [0; 10];
//! buffer.memory().read(0, &mut bytes)?;
//! assert_eq!(&bytes, b"over there");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod engine;
mod grant;
mod options;
mod portal;
mod servers;
mod service;

use crate::{Context, CreateError};

pub(crate) use engine::{RegionTable, RmaEngine};
pub use grant::{Client, Grant};
pub use options::RmaOptions;
pub use portal::{Portal, RmaError, TRANSFERS};
pub use remora_nic::rma::{Cipher, Facts, RegionKey, Rights};
pub use remora_transport::rma::executor::{CongestionSettings, ControlKind, SubmitError};
pub use remora_transport::rma::{Settings, Status, Timers, WriteDebit};
pub use remora_wire::rma::{Class, Kind};
pub(crate) use servers::{Reached, Servers};
pub use service::{Rma, RmaRegion};

impl Context {
    /// Starts 1RMA on one of the device's engines, or on the daemon's.
    ///
    /// # Errors
    /// `Forked` in a forked child; `TooMany` if there is no such engine; `Nic(Busy)` if another `Rma` uses
    /// 1RMA on the engine; `System` if the system gives no randomness; `Daemon` if the daemon refuses.
    pub fn open_rma(&self, options: &RmaOptions) -> Result<Rma, CreateError> {
        self.refuse_child()?;
        Rma::new(self, RmaEngine::open(self, options)?, options)
    }

    /// Like [`open_rma`](Context::open_rma), with a cipher of the program, which must have space for the
    /// keys.
    ///
    /// # Errors
    /// The errors of [`open_rma`](Context::open_rma); `NotByDaemon`.
    pub fn open_rma_with(&self, options: &RmaOptions, cipher: Box<dyn Cipher>) -> Result<Rma, CreateError> {
        self.refuse_child()?;
        let regions = RegionTable::new(options.regions);
        Rma::new(self, RmaEngine::with(self, options, &regions, cipher)?, options)
    }
}
