//! The server of a 1RMA table: its NIC answers reads, and its thread answers calls.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use remora_grants::{Fingerprint, GrantCounters, GrantOptions, GrantServer, Offer};
use remora_memory::Bytes;
use remora_store::Registered;
use remora_store::kv::farm::FarmTable;
use remora_store::kv::{Server, ServerConfig, Table as _};
use remora_verbs::rma::{Rights, Rma, RmaOptions, RmaRegion};
use remora_verbs::{Access, Context, ProtectionDomain};

use super::calls::Calls;
use super::frame::block;
use super::{INDEX, LOCAL, STAGING, VALUES};
use crate::error::Context as _;
use crate::kv::{Called, Classical, FarmDesign, Limits, Size};
use crate::{Error, Result};

/// A served table of design farm. Clients read it by 1RMA, and modify it by calls over the connection
/// through which they got their grants.
#[derive(Debug)]
pub struct RmaServer {
    grants: GrantServer,
    /// Number of keys in the table.
    keys: Arc<AtomicU64>,
    context: Context,
}

impl RmaServer {
    /// Serves an empty table. `listen` is the TCP address for grants and calls; `options` decide which
    /// clients are admitted.
    ///
    /// # Errors
    /// The NIC has not enough memory, or an address is in use.
    pub fn open(
        context: &Context,
        listen: SocketAddr,
        options: GrantOptions,
        limits: &Limits,
        size: &Size,
    ) -> Result<RmaServer> {
        RmaServer::open_with::<Error>(context, listen, options, limits, size, |_| Ok(()))
    }

    /// Serves a table that `load` fills before there are clients.
    ///
    /// # Errors
    /// The errors of [`open`](RmaServer::open), and those of `load`.
    pub fn open_with<E: From<Error>>(
        context: &Context,
        listen: SocketAddr,
        options: GrantOptions,
        limits: &Limits,
        size: &Size,
        load: impl FnOnce(&mut Called<FarmTable>) -> Result<(), E>,
    ) -> Result<RmaServer, E> {
        let (mut called, blocks, regions) = table(context, limits, size)?;
        load(&mut called)?;
        let keys = Arc::new(AtomicU64::new(called.server.table().len()));
        let calls = Calls::new(called.server, blocks, limits, Arc::clone(&keys));
        // A client needs its connection for calls, so every client is a follower.
        let options = GrantOptions { followers: limits.clients as usize, ..options };
        let offers = [INDEX_NAME, VALUES_NAME].into_iter().zip(regions);
        let offers = offers.map(|(name, region)| Offer::new(name, Rights::READ, region)).collect();
        let grants = GrantServer::start_with(listen, options, offers, Some(Box::new(calls)));
        Ok(RmaServer { grants: grants.map_err(Error::from)?, keys, context: context.clone() })
    }

    /// Returns the address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.grants.address()
    }

    /// Returns the fingerprint of the server's certificate, which clients must know.
    pub fn fingerprint(&self) -> Fingerprint {
        self.grants.fingerprint()
    }

    /// Returns the number of keys in the table.
    pub fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Returns the server's NIC.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the numbers of clients that got grants and of those that were refused.
    pub fn counters(&self) -> GrantCounters {
        self.grants.counters()
    }

    /// Announces to the clients the keys that the table's regions will have after `ahead`.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn announce(&self, ahead: Duration) -> Result<()> {
        for name in [INDEX_NAME, VALUES_NAME] {
            self.grants.announce(name, remora_host::random_key()?, ahead)?;
        }
        Ok(())
    }

    /// Changes the keys of the table's regions to those that were announced, or to random ones.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn change_keys(&self) -> Result<()> {
        for name in [INDEX_NAME, VALUES_NAME] {
            self.grants.change_key(name)?;
        }
        Ok(())
    }
}

/// Names of the regions in grants.
pub(super) const INDEX_NAME: &str = "index";
pub(super) const VALUES_NAME: &str = "values";

/// Creates the table, the blocks that hold messages, and the regions of index and values.
fn table(
    context: &Context,
    limits: &Limits,
    size: &Size,
) -> Result<(Called<FarmTable>, Vec<Registered>, [RmaRegion; 2])> {
    let Limits { max_key, max_value, clients: connections, .. } = *limits;
    let config = ServerConfig { connections, max_key, max_value, ..ServerConfig::default() };
    let rma = context.open_rma(&RmaOptions::default())?;
    let domain = context.alloc_pd()?;
    let index_len = FarmDesign::table_len(size.capacity, size.seed);
    let (index, index_region) = expose(&rma, &domain, index_len, INDEX)?;
    let (values, values_region) = expose(&rma, &domain, size.bytes, VALUES)?;
    let table = FarmDesign::table(size.capacity, size.seed, Some(index), values.clone());
    let own = |len: usize, key: u32| Bytes::heap(len).map(|bytes| block(bytes, key));
    let memory = || format!("{} MiB for messages: ask for less with --clients", config.staging_len() >> 20);
    let no_memory = |error: remora_memory::Error| Error::Config(format!("{}: {error}", memory()));
    let local = own(config.local_len(), LOCAL).map_err(no_memory)?;
    let staging = own(config.staging_len(), STAGING).map_err(no_memory)?;
    let server = Server::new(table, config, local.clone(), staging.clone())?;
    let called = Called { server, needs: config.needs(), clients: connections };
    Ok((called, vec![local, values, staging], [index_region, values_region]))
}

/// Allocates memory that clients may read, and returns it as the table and as the NIC refer to it.
fn expose(rma: &Rma, domain: &ProtectionDomain, len: usize, key: u32) -> Result<(Registered, RmaRegion)> {
    let memory = domain.allocate(len, Access::LOCAL_WRITE).with_context(|| {
        format!("{} MiB for the table: ask for less with --capacity or --memory", len >> 20)
    })?;
    let bytes = memory.bytes().expect("regions of the stores are allocated here").clone();
    Ok((block(bytes, key), rma.expose(memory, Rights::READ, None)?))
}
