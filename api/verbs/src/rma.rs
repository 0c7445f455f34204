//! 1RMA: encrypted one-sided operations without connections (`docs/RMA.md`).
//!
//! A server [exposes](Rma::expose) a region and gives clients its [`Grant`], by a way that nobody can read. A
//! client reads and writes through a [`Portal`]; the server keeps nothing of it.
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
//! // In a test one thread drives both sides; the server's own thread does it otherwise.
//! portal.read(&buffer, 0, &grant, 4096, 10, second)?;
//! let mut bytes = [0; 10];
//! buffer.memory().read(0, &mut bytes)?;
//! assert_eq!(&bytes, b"over there");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod grant;
mod portal;

use remora_host::{Engine, RmaConfig, random_key};
use remora_nic::NicError;
use remora_nic::rma::{Identity, RegionMemory, Regions};
use remora_wire::frame::Endpoint;
use std::sync::Arc;

use crate::{Context, CreateError, MemoryRegion, ProtectionDomain};

pub use grant::{Client, Grant};
pub use portal::{Portal, RmaError, TRANSFERS};
pub use remora_nic::rma::{Cipher, Facts, RegionKey, Rights};
pub use remora_transport::rma::executor::{CongestionSettings, ControlKind, SubmitError};
pub use remora_transport::rma::{Settings, Status, Timers, WriteDebit};
pub use remora_wire::rma::{Class, Kind};

/// How a device speaks 1RMA.
#[derive(Copy, Clone, Debug)]
pub struct RmaOptions {
    /// The engine that does, counted from 0.
    pub engine: usize,
    /// Sizes and times of the protocol.
    pub settings: Settings,
    /// Regions at most, local operands included.
    pub regions: u32,
    /// Key schedules that are kept expanded.
    pub keys: usize,
    /// How transfers are paced.
    pub congestion: CongestionSettings,
}

impl Default for RmaOptions {
    fn default() -> RmaOptions {
        RmaOptions {
            engine: 0,
            settings: Settings::software(),
            regions: 1024,
            keys: 1024,
            congestion: CongestionSettings::software(),
        }
    }
}

/// 1RMA of a device. A clone shares it.
#[derive(Clone, Debug)]
pub struct Rma {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Context,
    engine: Arc<Engine>,
    regions: Arc<Regions>,
    incarnation: u32,
    options: RmaOptions,
}

impl Context {
    /// Speaks 1RMA by one of the device's engines, from now on.
    ///
    /// # Errors
    /// `Forked`; `NotByDaemon`; `TooMany`: the engine's number; `Nic(Busy)`: the engine speaks it for another
    /// `Rma`, which is in use; `System`: no randomness.
    pub fn open_rma(&self, options: &RmaOptions) -> Result<Rma, CreateError> {
        let config = RmaConfig { settings: options.settings, keys: options.keys };
        self.open_rma_with(options, remora_host::rma_cipher(&config))
    }

    /// The same by a cipher of the program's own, which has the places for its keys.
    ///
    /// # Errors
    /// Those of [`open_rma`](Context::open_rma).
    pub fn open_rma_with(&self, options: &RmaOptions, cipher: Box<dyn Cipher>) -> Result<Rma, CreateError> {
        self.refuse_child()?;
        let incarnation = remora_host::random().map_err(|_| CreateError::System(NO_RANDOMNESS))? as u32;
        let regions = Arc::new(Regions::new(options.regions));
        Rma::on(self, options, incarnation, regions, cipher)
    }
}

/// The errno of a system without randomness: ENOSYS is what `getrandom` gives then.
const NO_RANDOMNESS: i32 = 38;

impl Rma {
    fn on(
        context: &Context,
        options: &RmaOptions,
        incarnation: u32,
        regions: Arc<Regions>,
        cipher: Box<dyn Cipher>,
    ) -> Result<Rma, CreateError> {
        let engines = context.adapter()?.engines();
        let most = engines.len() as u64 - 1;
        let engine = engines
            .get(options.engine)
            .ok_or(CreateError::TooMany("engine", options.engine as u64, most))?
            .clone();
        let config = RmaConfig { settings: options.settings, keys: options.keys };
        let enabled = engine.enable_rma(&config, regions.clone(), cipher);
        if !enabled.map_err(|_| CreateError::System(NO_RANDOMNESS))? {
            return Err(NicError::Busy.into());
        }
        let inner = Inner { context: context.clone(), engine, regions, incarnation, options: *options };
        Ok(Rma { inner: Arc::new(inner) })
    }

    /// Speaks 1RMA by another engine of the device, too, over the same regions. A grant names an engine as
    /// its server; any of them serves it.
    ///
    /// # Errors
    /// Those of [`open_rma`](Context::open_rma).
    pub fn on_engine(&self, engine: usize) -> Result<Rma, CreateError> {
        let Inner { context, regions, incarnation, options, .. } = &*self.inner;
        context.refuse_child()?;
        let options = RmaOptions { engine, ..*options };
        let config = RmaConfig { settings: options.settings, keys: options.keys };
        Rma::on(context, &options, *incarnation, regions.clone(), remora_host::rma_cipher(&config))
    }

    /// What its engine holds now.
    ///
    /// # Panics
    /// Never: the engine speaks 1RMA for as long as this value lives.
    pub fn facts(&self) -> Facts {
        self.inner.engine.rma_facts().expect("the engine speaks 1RMA")
    }

    /// Gives a region a RegionId: peers use it with these rights and keys derived from `key` (`None`: a
    /// random one), and this device's portals use it as local operand.
    ///
    /// # Errors
    /// `Forked`; `TooMany` regions; `OtherContext`; `System`: no randomness.
    pub fn expose(
        &self,
        memory: MemoryRegion,
        rights: Rights,
        key: Option<RegionKey>,
    ) -> Result<RmaRegion, CreateError> {
        self.inner.context.refuse_child()?;
        self.refuse_other(memory.domain())?;
        let key = match key {
            Some(key) => key,
            None => random_key().map_err(|_| CreateError::System(NO_RANDOMNESS))?,
        };
        let described =
            RegionMemory { key: memory.lkey(), base: memory.address(), len: memory.len() as u64, rights };
        let most = u64::from(self.inner.options.regions);
        let id = self
            .inner
            .regions
            .register(&described, &key)
            .map_err(|_| CreateError::TooMany("regions of 1RMA", most + 1, most))?;
        Ok(RmaRegion { rma: self.clone(), id, key, memory })
    }

    /// Makes a portal with `slots` command slots for operands of this domain.
    ///
    /// # Errors
    /// `Forked`; `OtherContext`; `TooFew` slots; `Nic(Full)`: not so many slots are free.
    pub fn create_portal(&self, domain: &ProtectionDomain, slots: u16) -> Result<Portal, CreateError> {
        self.refuse_other(domain)?;
        Portal::new(self, domain, slots)
    }

    /// Keys and numbers of another device's objects would name other memory here.
    fn refuse_other(&self, domain: &ProtectionDomain) -> Result<(), CreateError> {
        let own = domain.context().is(&self.inner.context);
        if own { Ok(()) } else { Err(CreateError::OtherContext) }
    }

    /// Where peers send their requests.
    pub fn endpoint(&self) -> Endpoint {
        self.inner.engine.facts().endpoint
    }

    /// Makes a server reachable where the network must be asked for the way first (`xdp`). Over `udp` there
    /// is nothing to do; over `shm`, a connected queue pair gives both sides their link.
    ///
    /// # Errors
    /// `Forked`; `Unreachable`.
    pub fn reach(&self, server: Endpoint) -> Result<(), CreateError> {
        self.inner.context.refuse_child()?;
        if self.inner.engine.facts().kind == remora_host::PortKind::Shm {
            return Ok(());
        }
        let reached = remora_host::connect::reach(&self.inner.engine, server);
        reached.map(|_| ()).map_err(|error| CreateError::Unreachable(error.to_string()))
    }
}

/// A region that peers reach by 1RMA. Dropping it ends that, and then deregisters the memory.
#[derive(Debug)]
pub struct RmaRegion {
    rma: Rma,
    id: u32,
    key: RegionKey,
    memory: MemoryRegion,
}

impl RmaRegion {
    /// Its memory.
    pub fn memory(&self) -> &MemoryRegion {
        &self.memory
    }

    /// Its RegionId.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// What this client needs to use it, with the region's present key. Send it by a way that nobody can
    /// read.
    pub fn grant(&self, client: &Client) -> Grant {
        let current = self.rma.inner.regions.get(self.id).map(|region| region.region_key);
        self.grant_under(client, current.as_ref().unwrap_or(&self.key))
    }

    /// What this client will need under another key: a grant that can be given before
    /// [`rekey`](RmaRegion::rekey).
    pub fn grant_under(&self, client: &Client, key: &RegionKey) -> Grant {
        let mut cipher = remora_host::key_deriver();
        let mut derive = |kind| {
            let Client { address, pid, incarnation } = *client;
            let identity = Identity { address, pid, incarnation, kind };
            remora_nic::rma::Cipher::derive(&mut cipher, key.bytes(), &identity.bytes())
        };
        Grant {
            server: self.rma.endpoint(),
            region: self.id,
            len: self.memory.len() as u64,
            keys: [Kind::Read, Kind::Write, Kind::Rekey].map(&mut derive),
        }
    }

    /// Gives it another key (`None`: a random one). Clients with grants under the old one fail from now on.
    ///
    /// # Errors
    /// `Forked`; `System`: no randomness.
    pub fn rekey(&mut self, key: Option<RegionKey>) -> Result<(), CreateError> {
        self.rma.inner.context.refuse_child()?;
        let key = match key {
            Some(key) => key,
            None => random_key().map_err(|_| CreateError::System(NO_RANDOMNESS))?,
        };
        let changed = self.rma.inner.regions.rekey(self.id, &key);
        debug_assert!(changed.is_ok(), "it lives as long as this value");
        self.key = key;
        Ok(())
    }
}

impl Drop for RmaRegion {
    fn drop(&mut self) {
        if !self.rma.inner.context.fork().is_child() {
            let ended = self.rma.inner.regions.deregister(self.id);
            debug_assert!(ended.is_ok(), "it lives as long as this value");
        }
    }
}
