//! The executor of 1RMA operations: an engine of this process, or a daemon's engine.

use remora_host::connect::{ROUTE_PATIENCE, Uplink};
use remora_host::{Engine, PortKind};
use remora_nic::rma::{Cipher, PortalInit, RegionKey, RegionMemory, Regions, Rights};
use remora_nic::{Command, NicError, Ring};
use remora_wire::frame::Endpoint;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Client, NO_RANDOMNESS, Reached, RmaOptions, Servers};
use crate::nicd::DaemonClient;
use crate::nicd::message::{CreatePortal, PortalFacts, RegisterRma, Request};
use crate::{CompletionQueue, Context, CreateError, MemoryRegion, ProtectionDomain};

/// The executor of 1RMA operations.
#[derive(Debug)]
pub(crate) enum Backend {
    Own(OwnRma),
    Lent(Arc<DaemonClient>),
}

/// The 1RMA service of an engine of this process.
#[derive(Clone, Debug)]
pub(crate) struct OwnRma {
    pub engine: Arc<Engine>,
    pub regions: Arc<Regions>,
    most: u32,
    servers: Arc<Mutex<Servers>>,
    // Marks the engine's 1RMA as used, so that no other `Rma` can start it.
    _user: Arc<()>,
}

impl OwnRma {
    /// Starts 1RMA on the engine that `options` names.
    pub(crate) fn open(context: &Context, options: &RmaOptions) -> Result<OwnRma, CreateError> {
        let regions = Arc::new(Regions::new(options.regions));
        OwnRma::with(context, options, regions, remora_host::rma_cipher(options.keys))
    }

    /// Like [`open`](OwnRma::open), with this cipher, over regions that other engines may serve as well.
    pub(crate) fn with(
        context: &Context,
        options: &RmaOptions,
        regions: Arc<Regions>,
        cipher: Box<dyn Cipher>,
    ) -> Result<OwnRma, CreateError> {
        let engines = context.adapter()?.engines();
        let most = engines.len() as u64 - 1;
        let engine = engines
            .get(options.engine)
            .ok_or(CreateError::TooMany("engine", options.engine as u64, most))?
            .clone();
        let user = Arc::new(());
        let enabled = engine.enable_rma(options.settings, Arc::downgrade(&user), regions.clone(), cipher);
        if !enabled.map_err(|_| NO_RANDOMNESS)? {
            return Err(NicError::Busy.into());
        }
        Ok(OwnRma { engine, regions, most: options.regions, servers: Arc::default(), _user: user })
    }

    /// Resolves the way to a server and keeps it. Over shared memory there is nothing to resolve.
    pub(crate) fn reach(&self, server: Endpoint) -> Result<(), CreateError> {
        if self.engine.facts().kind != PortKind::Shm {
            let reached = self.find(server)?;
            self.servers.lock().unwrap_or_else(PoisonError::into_inner).keep(reached);
        }
        Ok(())
    }

    /// Resolves the way to a server, for the caller to keep. Fails over shared memory.
    pub(crate) fn find(&self, server: Endpoint) -> Result<Reached, CreateError> {
        let peer = self
            .engine
            .reach(0, server, ROUTE_PATIENCE)
            .map_err(|error| CreateError::Unreachable(error.to_string()))?;
        Ok(Reached::new(&self.engine, server, peer))
    }
}

/// A new portal and the ring for its commands.
pub(super) struct NewPortal {
    pub facts: PortalFacts,
    pub ring: Ring,
}

impl Backend {
    /// Uses an engine of this process. The identity contains the process id, which servers cannot verify.
    pub(crate) fn own(rma: OwnRma) -> Result<(Backend, Client), CreateError> {
        let incarnation = remora_host::random().map_err(|_| NO_RANDOMNESS)? as u32;
        let address = rma.engine.facts().endpoint.address;
        let pid = std::process::id();
        Ok((Backend::Own(rma), Client { address, pid, incarnation }))
    }

    /// Uses a daemon's engine. The daemon assigns the identity of this program.
    pub(crate) fn of_daemon(daemon: &Arc<DaemonClient>) -> Result<(Backend, Client), CreateError> {
        let (pid, incarnation) = daemon.identify()?;
        let address = daemon.facts().endpoint.address;
        Ok((Backend::Lent(Arc::clone(daemon)), Client { address, pid, incarnation }))
    }

    /// Returns whether RegionIds of both name the same regions.
    pub(crate) fn shares_regions(&self, other: &Backend) -> bool {
        match (self, other) {
            (Backend::Own(one), Backend::Own(other)) => Arc::ptr_eq(&one.regions, &other.regions),
            (Backend::Lent(one), Backend::Lent(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    pub(crate) fn register(
        &self,
        memory: &MemoryRegion,
        rights: Rights,
        key: &RegionKey,
    ) -> Result<u32, CreateError> {
        match self {
            Backend::Own(rma) => {
                let base = memory.address();
                let len = memory.len() as u64;
                let described = RegionMemory { key: memory.lkey(), base, len, rights };
                let most = u64::from(rma.most);
                let registered = rma.regions.register(&described, key);
                registered.map_err(|_| CreateError::TooMany("regions of 1RMA", most + 1, most))
            }
            Backend::Lent(daemon) => {
                let region = memory.lkey().get();
                daemon.number(&Request::RegisterRma(RegisterRma { region, rights, key: key.clone() }))
            }
        }
    }

    pub(crate) fn deregister(&self, id: u32) {
        match self {
            Backend::Own(rma) => {
                let ended = rma.regions.deregister(id);
                debug_assert!(ended.is_ok(), "only the drop of the region deregisters it");
            }
            Backend::Lent(daemon) => daemon.release(&Request::DeregisterRma(id)),
        }
    }

    pub(crate) fn rekey(&self, id: u32, key: &RegionKey) -> Result<(), CreateError> {
        match self {
            Backend::Own(rma) => {
                let changed = rma.regions.rekey(id, key);
                debug_assert!(changed.is_ok(), "a region that is not dropped is registered");
                Ok(())
            }
            Backend::Lent(daemon) => daemon.done(&Request::RekeyRma { region: id, key: key.clone() }),
        }
    }

    /// The present key of a region.
    pub(crate) fn key(&self, id: u32) -> Option<RegionKey> {
        match self {
            Backend::Own(rma) => rma.regions.get(id).map(|region| region.region_key),
            Backend::Lent(daemon) => daemon.rma_key(id).ok(),
        }
    }

    pub(crate) fn create_portal(
        &self,
        context: &Context,
        domain: &ProtectionDomain,
        cq: &CompletionQueue,
        identity: &Client,
        slots: u16,
        bulk_only: bool,
    ) -> Result<NewPortal, CreateError> {
        let rma = match self {
            Backend::Own(rma) => rma,
            Backend::Lent(daemon) => {
                let domain = domain.number()?;
                let cq = cq.number();
                let (facts, ring) = daemon.create_portal(CreatePortal { domain, cq, slots, bulk_only })?;
                return Ok(NewPortal { facts, ring });
            }
        };
        let ring = context.ring(u32::from(slots))?;
        let init = PortalInit {
            ring: rma.engine.hand(ring.clone()),
            slots,
            pd: domain.pd()?,
            cq: cq.number(),
            pid: identity.pid,
            incarnation: identity.incarnation,
        };
        let remora_nic::rma::PortalFacts { number, first } = rma.engine.ask(Command::CreatePortal(init))?;
        if bulk_only {
            rma.engine.ask::<()>(Command::RestrictToBulk { portal: number })?;
        }
        Ok(NewPortal { facts: PortalFacts { number, bell: 0, first }, ring })
    }

    pub(crate) fn destroy_portal(&self, portal: &PortalFacts) {
        match self {
            Backend::Own(rma) => {
                let ended = rma.engine.ask::<()>(Command::DestroyPortal { portal: portal.number });
                debug_assert!(ended.is_ok(), "only the drop of the portal destroys it");
            }
            Backend::Lent(daemon) => {
                daemon.release(&Request::Execute(Command::DestroyPortal { portal: portal.number }));
            }
        }
    }

    /// Returns whether the calling thread runs a signal handler that interrupted a call on the engine.
    pub(crate) fn has_caller(&self) -> bool {
        match self {
            Backend::Own(rma) => rma.engine.has_caller(),
            Backend::Lent(_) => false,
        }
    }

    /// Rings the portal's doorbell, after commands were written to its ring.
    #[inline]
    pub(crate) fn ring(&self, portal: &PortalFacts) {
        match self {
            Backend::Own(rma) => rma.engine.ring_portal(portal.number),
            Backend::Lent(daemon) => daemon.ring(portal.bell),
        }
    }
}
