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
mod portal;

use remora_host::random_key;
use remora_nic::rma::Identity;
use remora_wire::frame::{Address, Endpoint};
use remora_wire::rma::Kind;
use std::fmt;
use std::sync::Arc;

use crate::nicd::message::Request;
use crate::{Context, CreateError, MemoryRegion, ProtectionDomain};

pub(crate) use backend::OwnRma;
pub use portal::{Portal, RmaError};
pub use remora_nic::rma::{RegionKey, Rights};
pub use remora_transport::rma::executor::{CongestionSettings, ControlKind};
pub use remora_transport::rma::{Settings, Status, WriteDebit};

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

/// Who a client is for a server: what its keys are derived from. Without a NIC daemon the process number is
/// the client's own claim, and only the secrecy of its keys protects. With one the kernel says the process
/// number.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its address, as the server sees it.
    pub address: Address,
    /// Its process.
    pub pid: u32,
    /// A random number of its start.
    pub incarnation: u32,
}

/// What a client needs to use a region: secret, and good for that client alone.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The server's NIC.
    pub server: Endpoint,
    /// The region, by its RegionId.
    pub region: u32,
    /// Bytes of the region.
    pub len: u64,
    keys: [[u8; 16]; 3],
}

impl Grant {
    /// Bytes of its encoded form.
    pub const LEN: usize = 78;

    /// Encoded: address, port, RegionId, length, three keys; numbers little-endian. Whoever reads it can do
    /// what the client can.
    pub fn to_bytes(&self) -> [u8; Grant::LEN] {
        let mut bytes = [0; Grant::LEN];
        bytes[..16].copy_from_slice(&self.server.address.0);
        bytes[16..18].copy_from_slice(&self.server.udp_port.to_le_bytes());
        bytes[18..22].copy_from_slice(&self.region.to_le_bytes());
        bytes[22..30].copy_from_slice(&self.len.to_le_bytes());
        for (place, key) in bytes[30..].chunks_exact_mut(16).zip(&self.keys) {
            place.copy_from_slice(key);
        }
        bytes
    }

    /// Decoded from the front of `bytes`. None: too few.
    pub fn from_bytes(bytes: &[u8]) -> Option<Grant> {
        let bytes = bytes.first_chunk::<{ Grant::LEN }>()?;
        let (mut address, mut keys) = ([0; 16], [[0; 16]; 3]);
        address.copy_from_slice(&bytes[..16]);
        for (key, place) in keys.iter_mut().zip(bytes[30..].chunks_exact(16)) {
            key.copy_from_slice(place);
        }
        let word = |at: usize| bytes[at..].first_chunk().copied();
        Some(Grant {
            server: Endpoint {
                address: Address(address),
                udp_port: u16::from_le_bytes([bytes[16], bytes[17]]),
            },
            region: u32::from_le_bytes(word(18)?),
            len: u64::from_le_bytes(*bytes[22..].first_chunk()?),
            keys,
        })
    }

    /// The same without the keys of the operations that `rights` lack.
    #[must_use]
    pub fn restricted(mut self, rights: Rights) -> Grant {
        for (key, right) in self.keys.iter_mut().zip([Rights::READ, Rights::WRITE, Rights::REKEY]) {
            if !rights.contains(right) {
                *key = [0; 16];
            }
        }
        self
    }

    /// The key for one kind of operation.
    pub(crate) fn key(&self, kind: Kind) -> [u8; 16] {
        match kind {
            Kind::Write => self.keys[1],
            Kind::Rekey => self.keys[2],
            _ => self.keys[0],
        }
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Grant { server, region, len, .. } = self;
        write!(f, "Grant {{ server: {server}, region: {region}, len: {len}, keys: .. }}")
    }
}

impl Context {
    /// Speaks 1RMA by one of the device's engines, from now on, or by the daemon's.
    ///
    /// # Errors
    /// `Forked`; `TooMany`: the engine's number; `System`: no randomness; `Daemon`: its refusal.
    pub fn open_rma(&self, options: &RmaOptions) -> Result<Rma, CreateError> {
        self.refuse_child()?;
        let (backend, identity) = match self.daemon() {
            Some(daemon) => Backend::of_daemon(daemon)?,
            None => Backend::own(OwnRma::open(self, options)?)?,
        };
        let inner = Inner { context: self.clone(), backend, identity, options: *options };
        Ok(Rma { inner: Arc::new(inner) })
    }
}

/// The errno of a system without randomness: ENOSYS is what `getrandom` gives then.
const NO_RANDOMNESS: i32 = 38;

impl Rma {
    /// Gives a region a RegionId: peers use it with these rights and keys derived from `key` (`None`: a
    /// random one), and this device's portals use it as local operand.
    ///
    /// # Errors
    /// `TooMany` regions; `OtherContext`; `System`: no randomness; `Daemon`: its refusal.
    pub fn expose(
        &self,
        memory: MemoryRegion,
        rights: Rights,
        key: Option<RegionKey>,
    ) -> Result<RmaRegion, CreateError> {
        let key = key_or_random(key)?;
        let id = self.inner.backend.register(&memory, rights, &key)?;
        Ok(RmaRegion { rma: self.clone(), id, rights, key, memory })
    }

    /// Makes a portal with `slots` command slots for operands of this domain.
    ///
    /// # Errors
    /// `Forked`; `Nic(Full)`: no so many slots are free; `Daemon`: its refusal.
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
    /// `Unreachable`; `Daemon`: its refusal.
    pub fn reach(&self, server: Endpoint) -> Result<(), CreateError> {
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
    /// `System`: no randomness; `Daemon`: its refusal.
    pub fn rekey(&mut self, key: Option<RegionKey>) -> Result<(), CreateError> {
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
