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
mod portal;
mod servers;

use remora_host::random_key;
use remora_nic::rma::Identity;
use remora_wire::frame::Endpoint;
use std::sync::Arc;

use crate::{Context, CreateError, MemoryRegion, ProtectionDomain};

pub(crate) use engine::{RegionTable, RmaEngine};
pub use grant::{Client, Grant};
pub use portal::{Portal, RmaError, TRANSFERS};
pub use remora_nic::rma::{Cipher, Facts, RegionKey, Rights};
pub use remora_transport::rma::executor::{CongestionSettings, ControlKind, SubmitError};
pub use remora_transport::rma::{Settings, Status, Timers, WriteDebit};
pub use remora_wire::rma::{Class, Kind};
pub(crate) use servers::{Reached, Servers};

/// The options of 1RMA on a device. A daemon's NIC uses the options of the daemon, except `congestion`.
#[derive(Copy, Clone, Debug)]
pub struct RmaOptions {
    /// The engine that speaks 1RMA, counted from 0.
    pub engine: usize,
    /// Sizes and times of the protocol.
    pub settings: Settings,
    /// The greatest number of regions, including those for local operands.
    pub regions: u32,
    /// The number of expanded key schedules that the engine caches.
    pub keys: usize,
    /// Congestion control: the pacing of transfers.
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

/// The 1RMA service of a device. A clone shares it.
#[derive(Clone, Debug)]
pub struct Rma {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Context,
    engine: RmaEngine,
    identity: Client,
    options: RmaOptions,
}

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

/// The error of a system without `getrandom`, with its errno ENOSYS.
const NO_RANDOMNESS: CreateError = CreateError::System("random bytes", 38);

impl Rma {
    fn new(context: &Context, engine: RmaEngine, options: &RmaOptions) -> Result<Rma, CreateError> {
        let identity = engine.identity()?;
        let inner = Inner { context: context.clone(), engine, identity, options: *options };
        Ok(Rma { inner: Arc::new(inner) })
    }

    /// Starts 1RMA on another engine of the device, over the same regions. A grant names one engine as its
    /// server, but each of these engines serves it.
    ///
    /// # Errors
    /// The errors of [`open_rma`](Context::open_rma); `NotByDaemon`.
    pub fn on_engine(&self, engine: usize) -> Result<Rma, CreateError> {
        let Inner { context, engine: first, identity, options } = &*self.inner;
        context.refuse_child()?;
        let options = RmaOptions { engine, ..*options };
        let cipher = remora_host::rma_cipher(options.keys);
        let engine = RmaEngine::with(context, &options, &first.regions, cipher)?;
        let inner = Inner { context: context.clone(), engine, identity: *identity, options };
        Ok(Rma { inner: Arc::new(inner) })
    }

    /// The present numbers of 1RMA objects on the engine. `None` for a daemon's engine.
    pub fn facts(&self) -> Option<Facts> {
        self.inner.engine.engine.engine().ok()?.rma_facts()
    }

    /// Assigns a RegionId to a region. Peers access the region with these rights and with keys derived from
    /// `key` (`None`: a random key); portals of this device use it for local operands.
    ///
    /// # Errors
    /// `Forked` in a forked child; `TooMany` if there are as many regions as are allowed; `OtherContext`;
    /// `System` if the system gives no randomness; `Daemon` if the daemon refuses.
    pub fn expose(
        &self,
        memory: MemoryRegion,
        rights: Rights,
        key: Option<RegionKey>,
    ) -> Result<RmaRegion, CreateError> {
        self.inner.context.refuse_child()?;
        self.refuse_other(memory.domain())?;
        let key = key_or_random(key)?;
        let id = self.inner.engine.regions.register(&memory, rights, &key)?;
        Ok(RmaRegion { rma: self.clone(), id, rights, key, memory })
    }

    /// Creates a portal with `slots` command slots, for operands in this domain.
    ///
    /// # Errors
    /// `Forked` in a forked child; `OtherContext`; `TooFew` if `slots` is 0; `Nic(Full)` if fewer slots are
    /// free; `Daemon` if the daemon refuses.
    pub fn create_portal(&self, domain: &ProtectionDomain, slots: u16) -> Result<Portal, CreateError> {
        Portal::new(self, domain, slots, false)
    }

    /// Like [`create_portal`](Rma::create_portal), for transfers of the bulk class only. A daemon may lend
    /// more slots for them.
    ///
    /// # Errors
    /// The errors of [`create_portal`](Rma::create_portal).
    pub fn create_bulk_portal(&self, domain: &ProtectionDomain, slots: u16) -> Result<Portal, CreateError> {
        Portal::new(self, domain, slots, true)
    }

    /// Returns an error for a domain of another context: keys and numbers of its objects would name other
    /// memory here.
    fn refuse_other(&self, domain: &ProtectionDomain) -> Result<(), CreateError> {
        let own = domain.context().is(&self.inner.context);
        if own { Ok(()) } else { Err(CreateError::OtherContext) }
    }

    /// The address to which peers send requests.
    pub fn endpoint(&self) -> Endpoint {
        self.inner.engine.engine.facts().endpoint
    }

    /// Resolves the way to a server if the port must query the network for it (`xdp`). Over `udp` nothing is
    /// needed. Over `shm`, a connected queue pair gives both sides their link.
    ///
    /// # Errors
    /// `Forked` in a forked child; `Unreachable`; `Daemon` if the daemon refuses.
    pub fn reach(&self, server: Endpoint) -> Result<(), CreateError> {
        self.inner.context.refuse_child()?;
        self.inner.engine.reach(server)
    }
}

/// A region that peers access by 1RMA. Dropping it ends their access, and then deregisters the memory.
#[derive(Debug)]
pub struct RmaRegion {
    rma: Rma,
    /// The RegionId, or 0 if there is none.
    id: u32,
    rights: Rights,
    key: RegionKey,
    memory: MemoryRegion,
}

impl RmaRegion {
    /// The memory region behind it.
    pub fn memory(&self) -> &MemoryRegion {
        &self.memory
    }

    /// The RegionId; 0 if there is none after a failed [`register_anew`](RmaRegion::register_anew).
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the grant by which `client` uses the region under its present key. The grant is secret: send
    /// it over a confidential channel.
    pub fn grant(&self, client: &Client) -> Grant {
        let current = self.rma.inner.engine.regions.key(self.id);
        self.grant_under(client, current.as_ref().unwrap_or(&self.key))
    }

    /// Returns the grant for `client` under another key, which becomes valid with a later
    /// [`rekey`](RmaRegion::rekey) to that key.
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

    /// Gives the region another key (`None`: a random one). Grants under the old key fail from now on.
    ///
    /// # Errors
    /// `Forked` in a forked child; `System` if the system gives no randomness; `Daemon` if the daemon
    /// refuses.
    pub fn rekey(&mut self, key: Option<RegionKey>) -> Result<(), CreateError> {
        self.rma.inner.context.refuse_child()?;
        let key = key_or_random(key)?;
        self.rma.inner.engine.regions.rekey(self.id, &key)?;
        self.key = key;
        Ok(())
    }

    /// Deregisters the region and registers it under another RegionId and another key (`None`: a random one),
    /// as a driver does that has no rekey. In between, no peer can access the region.
    ///
    /// # Errors
    /// The errors of [`expose`](Rma::expose). The region then has no RegionId, and no peer can access it.
    pub fn register_anew(&mut self, key: Option<RegionKey>) -> Result<(), CreateError> {
        self.rma.inner.context.refuse_child()?;
        let key = key_or_random(key)?;
        let id = std::mem::take(&mut self.id);
        if id != 0 {
            self.rma.inner.engine.regions.deregister(id);
        }
        self.id = self.rma.inner.engine.regions.register(&self.memory, self.rights, &key)?;
        self.key = key;
        Ok(())
    }
}

fn key_or_random(key: Option<RegionKey>) -> Result<RegionKey, CreateError> {
    match key {
        Some(key) => Ok(key),
        None => random_key().map_err(|_| NO_RANDOMNESS),
    }
}

impl Drop for RmaRegion {
    fn drop(&mut self) {
        if self.id != 0 && !self.rma.inner.context.fork().is_child() {
            self.rma.inner.engine.regions.deregister(self.id);
        }
    }
}
