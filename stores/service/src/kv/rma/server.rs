//! The server: its NIC answers the reads, its thread the calls.

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

/// A served table of design farm. Clients read it by 1RMA, and store by calls over the connection that gave
/// them their grants.
#[derive(Debug)]
pub struct RmaServer {
    grants: GrantServer,
    /// Keys in the table.
    keys: Arc<AtomicU64>,
    context: Context,
}

impl RmaServer {
    /// Serves an empty table. `listen` is the TCP address for grants and calls; `options` say whom it admits.
    ///
    /// # Errors
    /// The NIC has not so much memory, or an address is taken.
    pub fn open(
        context: &Context,
        listen: SocketAddr,
        options: GrantOptions,
        limits: &Limits,
        size: &Size,
    ) -> Result<RmaServer> {
        RmaServer::open_with::<Error>(context, listen, options, limits, size, |_| Ok(()))
    }

    /// The same with a table that `load` fills before there are clients.
    ///
    /// # Errors
    /// Those of [`open`](RmaServer::open), and what `load` returns.
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
        // A client that does not stay could call nothing.
        let options = GrantOptions { followers: limits.clients as usize, ..options };
        let offers = [INDEX_NAME, VALUES_NAME].into_iter().zip(regions);
        let offers = offers.map(|(name, region)| Offer::new(name, Rights::READ, region)).collect();
        let grants = GrantServer::start_with(listen, options, offers, Some(Box::new(calls)));
        Ok(RmaServer { grants: grants.map_err(Error::from)?, keys, context: context.clone() })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.grants.address()
    }

    /// That of its certificate, which clients must know.
    pub fn fingerprint(&self) -> Fingerprint {
        self.grants.fingerprint()
    }

    /// Keys in the table.
    pub fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Its NIC.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Clients that got grants, or did not.
    pub fn counters(&self) -> GrantCounters {
        self.grants.counters()
    }

    /// Tells the clients the keys that the table's regions will have after `ahead`.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn announce(&self, ahead: Duration) -> Result<()> {
        for name in [INDEX_NAME, VALUES_NAME] {
            self.grants.announce(name, remora_host::random_key()?, ahead)?;
        }
        Ok(())
    }

    /// Changes the keys of the table's regions to those that were announced, or to random ones.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn change_keys(&self) -> Result<()> {
        for name in [INDEX_NAME, VALUES_NAME] {
            self.grants.change_key(name)?;
        }
        Ok(())
    }
}

/// The regions' names for clients.
pub(super) const INDEX_NAME: &str = "index";
pub(super) const VALUES_NAME: &str = "values";

/// The table, with the blocks that messages are in, and the regions of index and values.
fn table(
    context: &Context,
    limits: &Limits,
    size: &Size,
) -> Result<(Called<FarmTable>, Vec<Registered>, [RmaRegion; 2])> {
    let Limits { max_key, max_value, clients: connections, .. } = *limits;
    let config = ServerConfig { connections, max_key, max_value, ..ServerConfig::default() };
    let (rma, domain) = (context.open_rma(&RmaOptions::default())?, context.alloc_pd()?);
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

/// Memory that clients read, and how the table names it.
fn expose(rma: &Rma, domain: &ProtectionDomain, len: usize, key: u32) -> Result<(Registered, RmaRegion)> {
    let memory = domain.allocate(len, Access::LOCAL_WRITE).with_context(|| {
        format!("{} MiB for the table: ask for less with --capacity or --memory", len >> 20)
    })?;
    let bytes = memory.bytes().expect("regions of the stores are allocated here").clone();
    Ok((block(bytes, key), rma.expose(memory, Rights::READ, None)?))
}
