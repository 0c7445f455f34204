//! A complete replica, from its NIC to its clients.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use remora_store::block::{Design, MAX_REPLICAS, Membership};
use remora_verbs::{Context, Listener};

use super::replica::{Blocks, Replica, Shared, Size};
use super::{Peers, Servers, bootstrap, repair};
use crate::error::{Context as _, Result, ensure, need};
use crate::server::{Extensions, Memory, Service};
use crate::{Error, seed};

/// The configuration of a replica.
#[derive(Copy, Clone, Debug)]
pub struct ReplicaConfig {
    /// Index of the replica among the servers, from 0.
    pub replica: usize,
    /// The blocks, and the maximum number of clients at the same time.
    pub size: Size,
    /// True if all replicas begin a new, empty store together. False if the store exists, and this replica
    /// reads its blocks from the others.
    pub new: bool,
    /// TCP address at which connections are accepted; by default the replica's address among the servers.
    pub listen: Option<SocketAddr>,
}

/// The progress of a replica before it serves.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// The replica reads all blocks from others.
    Repairs {
        /// Number of blocks of the store.
        blocks: u64,
        /// Number of replicas that it reads from.
        replicas: usize,
    },
    /// The new store waits for the replicas at these addresses.
    WaitsFor(&'a [SocketAddr]),
}

/// A replica that is ready to serve.
pub struct OpenReplica<B: Blocks> {
    /// The listener to which clients connect.
    pub listener: Listener,
    /// The event loop of the replica.
    pub service: Service<Replica<B>>,
    over: Arc<AtomicBool>,
    marks: JoinHandle<()>,
}

impl<B: Blocks> OpenReplica<B> {
    /// Opens a replica: waits for the other replicas of a new store, or reads the blocks from them. `tell`
    /// is called with the progress.
    ///
    /// # Errors
    /// `Config`: the configuration is invalid, or the replicas disagree about it. `Silent`: too few others
    /// serve the store. `Io`: the address is in use.
    pub fn open(
        context: &Context,
        servers: Servers,
        config: &ReplicaConfig,
        tell: &mut dyn FnMut(Progress<'_>),
    ) -> Result<OpenReplica<B>> {
        let ReplicaConfig { replica: own, size, new, .. } = *config;
        let count = servers.addresses().len();
        ensure!(
            count % 2 == 1 && count <= MAX_REPLICAS,
            Config,
            "a store of blocks has 1, 3, 5 or 7 replicas, not {count}"
        );
        ensure!(own < count, Config, "there is no replica {own} among {count}: they are numbered from 0");
        let listen = config.listen.unwrap_or(servers.addresses()[own]);
        let listening = || format!("listening at {listen}");
        let mut memory = Memory::of(context.alloc_pd()?);
        let mut blocks = B::open(&size, &mut memory)?;
        let domain = memory.domain.clone();
        let others = servers.reopen()?;
        let mut peers = Peers::new(context.clone(), domain.clone(), servers, own, B::DESIGN, size.layout);
        let membership = if new {
            need!(Membership::new(own, count, 1 | seed::fresh() >> 2), Config, "an odd number of replicas")
        } else {
            // An address that is in use should be reported before the repair, which takes time.
            TcpListener::bind(listen).with_context(listening)?;
            let begins = |blocks, replicas| tell(Progress::Repairs { blocks, replicas });
            repair(&mut blocks, &mut peers, context.clone(), others, own, begins)?
        };
        blocks.begin()?;
        let membership = Shared::new(membership);
        let mut replica = Replica::new(blocks, membership.clone());
        let listener = Listener::bind(listen).with_context(listening)?;
        if new {
            let waits = |missing: &[SocketAddr]| tell(Progress::WaitsFor(missing));
            bootstrap(&mut peers, &membership, &mut replica, context, &domain, &listener, waits)?;
        } else {
            peers.move_mark(&membership)?;
        }
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let marks = std::thread::Builder::new()
            .name("marks".into())
            .spawn(move || peers.keep_marks(&membership, &stop))
            .context("a thread for the numbers of writers")?;
        let extensions = Extensions { prism: B::DESIGN == Design::PrismRs, ..Extensions::default() };
        let connections = size.clients + MAX_REPLICAS as u32;
        let service = Service::new(context.clone(), replica, memory, connections, extensions)?;
        Ok(OpenReplica { listener, service, over, marks })
    }

    /// Ends the thread that agrees with other replicas on client numbers. The thread uses the NIC, too.
    ///
    /// # Errors
    /// The thread has panicked.
    pub fn close(self) -> Result<()> {
        self.over.store(true, Ordering::Relaxed);
        let panicked = |_| Error::Config("the thread for the numbers of writers panicked".to_owned());
        self.marks.join().map_err(panicked)
    }
}
