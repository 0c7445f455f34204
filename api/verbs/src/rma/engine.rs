//! The engine that executes 1RMA operations, and the table of its regions.

use remora_host::PortKind;
use remora_host::connect::ROUTE_PATIENCE;
use remora_nic::rma::{Cipher, PortalFacts, PortalInit, RegionKey, RegionMemory, Regions, Rights};
use remora_nic::{BellOwner, Command, Device, Doorbell, NicError, Ring};
use remora_wire::frame::Endpoint;
use std::sync::{Arc, Mutex, PoisonError};

use super::options::RmaOptions;
use super::{Client, Reached, Servers};
use crate::engine_handle::EngineHandle;
use crate::nicd::DaemonClient;
use crate::nicd::message::{RegisterRma, Request};
use crate::{CompletionQueue, Context, CreateError, MemoryRegion, ProtectionDomain};

/// The error of a system without `getrandom`, with its errno ENOSYS.
pub(super) const NO_RANDOMNESS: CreateError = CreateError::System("random bytes", 38);

/// The 1RMA service of an engine.
#[derive(Clone, Debug)]
pub(crate) struct RmaEngine {
    pub engine: EngineHandle,
    pub regions: RegionTable,
    servers: Arc<Mutex<Servers>>,
    // Marks the engine's 1RMA as used, so that no other `Rma` can start it.
    _user: Arc<()>,
}

/// The regions that peers access by 1RMA.
#[derive(Clone, Debug)]
pub(crate) enum RegionTable {
    /// A table of this process for at most `most` regions.
    Own { regions: Arc<Regions>, most: u32 },
    /// The daemon's table, of which a program uses its own regions.
    Nicd(Arc<DaemonClient>),
}

impl RegionTable {
    pub(crate) fn new(most: u32) -> RegionTable {
        RegionTable::Own { regions: Arc::new(Regions::new(most)), most }
    }

    /// Returns whether RegionIds of both name the same regions.
    pub(crate) fn is(&self, other: &RegionTable) -> bool {
        match (self, other) {
            (RegionTable::Own { regions: one, .. }, RegionTable::Own { regions: other, .. }) => {
                Arc::ptr_eq(one, other)
            }
            (RegionTable::Nicd(one), RegionTable::Nicd(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    pub(crate) fn register(
        &self,
        memory: &MemoryRegion,
        rights: Rights,
        key: &RegionKey,
    ) -> Result<u32, CreateError> {
        let described =
            RegionMemory { key: memory.lkey(), base: memory.address(), len: memory.len() as u64, rights };
        match self {
            RegionTable::Own { regions, most } => {
                let most = u64::from(*most);
                let registered = regions.register(&described, key);
                registered.map_err(|_| CreateError::TooMany("regions of 1RMA", most + 1, most))
            }
            RegionTable::Nicd(daemon) => {
                let RegionMemory { key: region, base, len, rights } = described;
                let asked = RegisterRma { region: region.get(), base, len, rights, key: key.clone() };
                daemon.number(&Request::RegisterRma(asked))
            }
        }
    }

    pub(crate) fn deregister(&self, id: u32) {
        match self {
            RegionTable::Own { regions, .. } => {
                let ended = regions.deregister(id);
                debug_assert!(ended.is_ok(), "only the drop of the region deregisters it");
            }
            RegionTable::Nicd(daemon) => daemon.release_by(&Request::DeregisterRma(id)),
        }
    }

    pub(crate) fn rekey(&self, id: u32, key: &RegionKey) -> Result<(), CreateError> {
        match self {
            RegionTable::Own { regions, .. } => {
                let changed = regions.rekey(id, key);
                debug_assert!(changed.is_ok(), "a region that is not dropped is registered");
                Ok(())
            }
            RegionTable::Nicd(daemon) => daemon.done(&Request::RekeyRma { region: id, key: key.clone() }),
        }
    }

    /// The present key of a region.
    pub(crate) fn key(&self, id: u32) -> Option<RegionKey> {
        match self {
            RegionTable::Own { regions, .. } => regions.get(id).map(|region| region.region_key),
            RegionTable::Nicd(daemon) => daemon.rma_key(id).ok(),
        }
    }
}

/// A new portal with its doorbell and the ring for its commands.
pub(super) struct NewPortal {
    pub facts: PortalFacts,
    pub bell: Doorbell,
    pub ring: Ring,
}

impl RmaEngine {
    /// Starts 1RMA on the engine that `options` names, or uses that of a daemon's engine.
    pub(crate) fn open(context: &Context, options: &RmaOptions) -> Result<RmaEngine, CreateError> {
        match context.daemon() {
            Some(daemon) => {
                Ok(RmaEngine::over(context.engine_handle(0)?, RegionTable::Nicd(Arc::clone(daemon))))
            }
            None => {
                let regions = RegionTable::new(options.regions);
                RmaEngine::with(context, options, &regions, remora_host::rma_cipher(options.keys))
            }
        }
    }

    /// Starts 1RMA with this cipher, over regions that other engines may serve as well.
    pub(crate) fn with(
        context: &Context,
        options: &RmaOptions,
        regions: &RegionTable,
        cipher: Box<dyn Cipher>,
    ) -> Result<RmaEngine, CreateError> {
        let RegionTable::Own { regions: table, .. } = regions else { return Err(CreateError::NotByDaemon) };
        let rma = RmaEngine::over(context.engine_handle(options.engine)?, regions.clone());
        let user = Arc::downgrade(&rma._user);
        let enabled = rma.engine.engine()?.enable_rma(options.settings, user, Arc::clone(table), cipher);
        if enabled.map_err(|_| NO_RANDOMNESS)? { Ok(rma) } else { Err(NicError::Busy.into()) }
    }

    fn over(engine: EngineHandle, regions: RegionTable) -> RmaEngine {
        RmaEngine { engine, regions, servers: Arc::default(), _user: Arc::new(()) }
    }

    /// The identity of this program towards servers. A daemon assigns it. Without a daemon it contains the
    /// process id, which servers cannot verify.
    pub(crate) fn identity(&self) -> Result<Client, CreateError> {
        let address = self.engine.facts().endpoint.address;
        let (pid, incarnation) = match self.engine.daemon() {
            Some(daemon) => daemon.identify()?,
            None => (std::process::id(), remora_host::random().map_err(|_| NO_RANDOMNESS)? as u32),
        };
        Ok(Client { address, pid, incarnation })
    }

    /// Resolves the way to a server and keeps it. Over shared memory there is nothing to resolve.
    pub(crate) fn reach(&self, server: Endpoint) -> Result<(), CreateError> {
        if self.engine.facts().kind != PortKind::Shm {
            let peer = self
                .engine
                .uplink()
                .reach(0, server, ROUTE_PATIENCE)
                .map_err(|error| CreateError::Unreachable(error.to_string()))?;
            let reached = Reached::new(&self.engine, server, peer);
            self.servers.lock().unwrap_or_else(PoisonError::into_inner).keep(reached);
        }
        Ok(())
    }

    pub(super) fn create_portal(
        &self,
        domain: &ProtectionDomain,
        cq: &CompletionQueue,
        identity: &Client,
        slots: u16,
        bulk_only: bool,
    ) -> Result<NewPortal, CreateError> {
        let (ring, part) = self.engine.queue(u32::from(slots))?;
        let init = PortalInit {
            ring: part,
            slots,
            pd: domain.pd(),
            cq: cq.number(),
            pid: identity.pid,
            incarnation: identity.incarnation,
            bulk_only,
        };
        let facts: PortalFacts = self.engine.ask(Command::CreatePortal(init))?;
        let bell = self.engine.assign_bell(BellOwner::Portal(facts.number));
        let bell = bell.inspect_err(|_| self.destroy_portal(facts.number))?;
        Ok(NewPortal { facts, bell, ring })
    }

    pub(crate) fn destroy_portal(&self, number: u32) {
        self.engine.end(Command::DestroyPortal { portal: number });
    }
}
