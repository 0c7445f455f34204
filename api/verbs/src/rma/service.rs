//! The 1RMA service of a device, and its regions.

use remora_host::random_key;
use remora_nic::rma::Identity;
use remora_nic::rma::{Facts, RegionKey, Rights};
use remora_wire::frame::Endpoint;
use remora_wire::rma::Kind;
use std::sync::Arc;

use super::engine::{NO_RANDOMNESS, RmaEngine};
use super::grant::{Client, Grant};
use super::options::RmaOptions;
use crate::{Context, CreateError, MemoryRegion, ProtectionDomain};

/// The 1RMA service of a device. A clone shares it.
#[derive(Clone, Debug)]
pub struct Rma {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) context: Context,
    pub(super) engine: RmaEngine,
    pub(super) identity: Client,
    pub(super) options: RmaOptions,
}

impl Rma {
    pub(super) fn new(
        context: &Context,
        engine: RmaEngine,
        options: &RmaOptions,
    ) -> Result<Rma, CreateError> {
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

    /// Returns an error for a domain of another context: keys and numbers of its objects would name other
    /// memory here.
    pub(super) fn refuse_other(&self, domain: &ProtectionDomain) -> Result<(), CreateError> {
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
    pub(super) rma: Rma,
    /// The RegionId, or 0 if there is none.
    pub(super) id: u32,
    pub(super) rights: Rights,
    pub(super) key: RegionKey,
    pub(super) memory: MemoryRegion,
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

pub(super) fn key_or_random(key: Option<RegionKey>) -> Result<RegionKey, CreateError> {
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
