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

mod backend;
mod grant;
mod portal;
mod servers;

use remora_host::random_key;
use remora_nic::rma::{Identity, Regions};
use remora_wire::frame::Endpoint;
use std::sync::Arc;

use crate::nicd::message::Request;
use crate::{Context, CreateError, MemoryRegion, ProtectionDomain};

pub(crate) use backend::OwnRma;
pub use grant::{Client, Grant};
pub use portal::{Portal, RmaError, TRANSFERS};
pub use remora_nic::rma::{Cipher, Facts, RegionKey, Rights};
pub use remora_transport::rma::executor::{CongestionSettings, ControlKind, SubmitError};
pub use remora_transport::rma::{Settings, Status, Timers, WriteDebit};
pub use remora_wire::rma::{Class, Kind};
pub(crate) use servers::{Reached, Servers};

use backend::Backend;

/// How a device speaks 1RMA. A daemon's NIC does as the daemon was told, and ignores all but `congestion`.
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
    backend: Backend,
    identity: Client,
    options: RmaOptions,
}

impl Context {
    /// Speaks 1RMA by one of the device's engines, from now on, or by the daemon's.
    ///
    /// # Errors
    /// `Forked`; `TooMany`: the engine's number; `Nic(Busy)`: the engine speaks it for another `Rma`, which
    /// is in use; `System`: no randomness; `Daemon`: its refusal.
    pub fn open_rma(&self, options: &RmaOptions) -> Result<Rma, CreateError> {
        self.refuse_child()?;
        let (backend, identity) = match self.daemon() {
            Some(daemon) => Backend::of_daemon(daemon)?,
            None => Backend::own(OwnRma::open(self, options)?)?,
        };
        Ok(Rma::new(self, backend, identity, options))
    }

    /// The same by a cipher of the program's own, which has the places for its keys.
    ///
    /// # Errors
    /// Those of [`open_rma`](Context::open_rma); `NotByDaemon`.
    pub fn open_rma_with(&self, options: &RmaOptions, cipher: Box<dyn Cipher>) -> Result<Rma, CreateError> {
        self.refuse_child()?;
        let regions = Arc::new(Regions::new(options.regions));
        let (backend, identity) = Backend::own(OwnRma::with(self, options, regions, cipher)?)?;
        Ok(Rma::new(self, backend, identity, options))
    }
}

/// The errno of a system without randomness: ENOSYS is what `getrandom` gives then.
const NO_RANDOMNESS: i32 = 38;

impl Rma {
    fn new(context: &Context, backend: Backend, identity: Client, options: &RmaOptions) -> Rma {
        let inner = Inner { context: context.clone(), backend, identity, options: *options };
        Rma { inner: Arc::new(inner) }
    }

    /// Speaks 1RMA by another engine of the device, too, over the same regions. A grant names an engine as
    /// its server; any of them serves it.
    ///
    /// # Errors
    /// Those of [`open_rma`](Context::open_rma); `NotByDaemon`.
    pub fn on_engine(&self, engine: usize) -> Result<Rma, CreateError> {
        let Inner { context, backend, identity, options } = &*self.inner;
        context.refuse_child()?;
        let Backend::Own(own) = backend else { return Err(CreateError::NotByDaemon) };
        let options = RmaOptions { engine, ..*options };
        let own =
            OwnRma::with(context, &options, own.regions.clone(), remora_host::rma_cipher(options.keys))?;
        Ok(Rma::new(context, Backend::Own(own), *identity, &options))
    }

    /// What its engine holds now. None: the engine is a daemon's.
    pub fn facts(&self) -> Option<Facts> {
        match &self.inner.backend {
            Backend::Own(rma) => rma.engine.rma_facts(),
            Backend::Lent(_) => None,
        }
    }

    /// Gives a region a RegionId: peers use it with these rights and keys derived from `key` (`None`: a
    /// random one), and this device's portals use it as local operand.
    ///
    /// # Errors
    /// `Forked`; `TooMany` regions; `OtherContext`; `System`: no randomness; `Daemon`: its refusal.
    pub fn expose(
        &self,
        memory: MemoryRegion,
        rights: Rights,
        key: Option<RegionKey>,
    ) -> Result<RmaRegion, CreateError> {
        self.inner.context.refuse_child()?;
        self.refuse_other(memory.domain())?;
        let key = key_or_random(key)?;
        let id = self.inner.backend.register(&memory, rights, &key)?;
        Ok(RmaRegion { rma: self.clone(), id, rights, key, memory })
    }

    /// Makes a portal with `slots` command slots for operands of this domain.
    ///
    /// # Errors
    /// `Forked`; `OtherContext`; `TooFew` slots; `Nic(Full)`: not so many slots are free; `Daemon`: its
    /// refusal.
    pub fn create_portal(&self, domain: &ProtectionDomain, slots: u16) -> Result<Portal, CreateError> {
        Portal::new(self, domain, slots, false)
    }

    /// The same for transfers of the bulk class only, of which a daemon may lend a program more slots.
    ///
    /// # Errors
    /// As [`create_portal`](Rma::create_portal).
    pub fn create_bulk_portal(&self, domain: &ProtectionDomain, slots: u16) -> Result<Portal, CreateError> {
        Portal::new(self, domain, slots, true)
    }

    /// Keys and numbers of another device's objects would name other memory here.
    fn refuse_other(&self, domain: &ProtectionDomain) -> Result<(), CreateError> {
        let own = domain.context().is(&self.inner.context);
        if own { Ok(()) } else { Err(CreateError::OtherContext) }
    }

    /// Where peers send their requests.
    pub fn endpoint(&self) -> Endpoint {
        match &self.inner.backend {
            Backend::Own(rma) => rma.engine.facts().endpoint,
            Backend::Lent(_) => self.inner.context.port().endpoint,
        }
    }

    /// Makes a server reachable where the network must be asked for the way first (`xdp`). Over `udp` there
    /// is nothing to do; over `shm`, a connected queue pair gives both sides their link.
    ///
    /// # Errors
    /// `Forked`; `Unreachable`; `Daemon`: its refusal.
    pub fn reach(&self, server: Endpoint) -> Result<(), CreateError> {
        self.inner.context.refuse_child()?;
        match &self.inner.backend {
            Backend::Own(rma) => rma.reach(server),
            Backend::Lent(daemon) if self.inner.context.port().kind == remora_host::PortKind::Xdp => {
                daemon.done(&Request::Reach(server))
            }
            Backend::Lent(_) => Ok(()),
        }
    }
}

/// A region that peers reach by 1RMA. Dropping it ends that, and then deregisters the memory.
#[derive(Debug)]
pub struct RmaRegion {
    rma: Rma,
    /// 0: it has none.
    id: u32,
    rights: Rights,
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
        let current = self.rma.inner.backend.key(self.id);
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
    /// `Forked`; `System`: no randomness; `Daemon`: its refusal.
    pub fn rekey(&mut self, key: Option<RegionKey>) -> Result<(), CreateError> {
        self.rma.inner.context.refuse_child()?;
        let key = key_or_random(key)?;
        self.rma.inner.backend.rekey(self.id, &key)?;
        self.key = key;
        Ok(())
    }

    /// Deregisters it and registers it again, under another RegionId and another key (`None`: a random one):
    /// what a driver does where there is no rekey. Between both nobody reaches it.
    ///
    /// # Errors
    /// As [`expose`](Rma::expose). It has no RegionId then, and nobody reaches it.
    pub fn register_anew(&mut self, key: Option<RegionKey>) -> Result<(), CreateError> {
        self.rma.inner.context.refuse_child()?;
        let key = key_or_random(key)?;
        let id = std::mem::take(&mut self.id);
        if id != 0 {
            self.rma.inner.backend.deregister(id);
        }
        self.id = self.rma.inner.backend.register(&self.memory, self.rights, &key)?;
        self.key = key;
        Ok(())
    }
}

fn key_or_random(key: Option<RegionKey>) -> Result<RegionKey, CreateError> {
    match key {
        Some(key) => Ok(key),
        None => random_key().map_err(|_| CreateError::System(NO_RANDOMNESS)),
    }
}

impl Drop for RmaRegion {
    fn drop(&mut self) {
        if self.id != 0 && !self.rma.inner.context.fork().is_child() {
            self.rma.inner.backend.deregister(self.id);
        }
    }
}
