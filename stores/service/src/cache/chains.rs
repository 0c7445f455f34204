//! The cache's clients that use Remora: each gets a chain of its own on the server's NIC, which reads the
//! cache's memory. After the set-up, the server's CPU takes no part in a GET.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use remora_chain::offload::shipped;
use remora_chain::{Program, assemble};
use remora_store::Registered;
use remora_store::cache::{Buckets, Directory};
use remora_verbs::{
    Access, Answered, Call, ConnectError, ConnectRequest, Context, Departures, Device, Handshakes, Listener,
    Loader, MemoryRegion, Mode, Offload, ProtectionDomain, QpOptions,
};

use crate::error::{Context as _, Result, ensure, need};
use crate::post::registered;

/// Name of the program that a client requests.
pub const PROGRAM: &str = "cache";
/// The program's work request that counts a client's requests, and the offset of the count in it.
const REQUESTS: &str = "more";
const COUNT: u64 = 48;
/// The program's queue that is the client's connection.
const PORT: &str = "port";
/// Time between two checks while clients can be accepted.
const QUIET: Duration = Duration::from_secs(1);
/// Time between two checks while the maximum of clients is being set up.
const SOON: Duration = Duration::from_millis(20);
/// Maximum number of clients for which a NIC's limits are raised.
const MOST: u32 = 1 << 12;

/// The cache's memory on a NIC, and the chains that are loaded there for its clients.
pub struct Chains {
    // Declared, and thus dropped, before the memory that the chains read.
    loaded: Vec<Loaded>,
    /// Clients whose connections are being set up, and their requests.
    joining: Vec<(u64, Call)>,
    handshakes: Handshakes,
    departures: Departures,
    program: Program,
    values: MemoryRegion,
    buckets: MemoryRegion,
    domain: ProtectionDomain,
    _context: Context,
    listener: Listener,
    most: usize,
}

/// Opens a NIC of the server's own, whose thread answers independently of the cache's thread.
pub fn own(device: Device, clients: u32) -> Result<Context> {
    let plain = remora_nic::Config::default();
    // A chain has four queues, with two completion queues each.
    let limits = remora_nic::Config { max_cqs: plain.max_cqs.max(8 * clients.min(MOST)), ..plain };
    Ok(device.nic_limits(limits).mode(Mode::Dedicated).spin(Duration::from_millis(1)).open()?)
}

/// Attaches to a NIC of a daemon. Chains loaded there continue to answer if this process ends.
pub fn lent(socket: &Path, name: &str) -> Result<Context> {
    let context = Device::nicd(socket).keep(name).open().context("attaching to a NIC")?;
    // A cache begins empty, so the chains that a previous process left there are removed.
    drop(context.kept()?);
    Ok(context)
}

struct Loaded {
    offload: Offload,
    /// Number of requests at the last count, and the time since which it is unchanged.
    requests: u64,
    since: Instant,
}

impl Chains {
    /// Allocates memory for values and for `items` items, and listens at a TCP address.
    pub fn open(
        context: Context,
        address: SocketAddr,
        memory: usize,
        items: u32,
        most: usize,
    ) -> Result<Chains> {
        let domain = context.alloc_pd()?;
        // Chains read this memory as local and as remote operand, and nobody writes it over RDMA.
        let region = |len: usize| domain.allocate(len, Access::REMOTE_READ).context("memory for chains");
        let values = region(memory)?;
        let buckets = region(Buckets::memory(items))?;
        let listener = Listener::bind(address)?;
        let program =
            need!(shipped(PROGRAM).and_then(|text| assemble(text).ok()), Config, "the chain does not ship");
        let handshakes = Handshakes::new()?;
        let departures = Departures::new()?;
        let loaded = Vec::new();
        let joining = Vec::new();
        Ok(Chains {
            loaded,
            joining,
            handshakes,
            departures,
            program,
            values,
            buckets,
            domain,
            _context: context,
            listener,
            most,
        })
    }

    /// Returns the memory of the values, and that of the buckets.
    pub fn memory(&self) -> [Registered; 2] {
        [&self.values, &self.buckets].map(registered)
    }

    /// Returns the address to which clients connect.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Accepts clients in a thread of its own, for the lifetime of the process.
    pub fn serve(mut self, directory: Directory, tcp: SocketAddr) -> Result<()> {
        let welcome = [&directory.to_bytes()[..], &tcp.port().to_le_bytes()].concat();
        let work = move || {
            loop {
                if let Err(error) = self.turn(&welcome) {
                    tracing::warn!("no more clients of chains are taken: {}", error.chain());
                    return;
                }
            }
        };
        thread::Builder::new().name("chains".into()).spawn(work).context("a thread for chains")?;
        Ok(())
    }

    /// Waits until a client arrives, is connected or leaves. No client delays another.
    fn turn(&mut self, welcome: &[u8]) -> Result<()> {
        let takes = self.handshakes.has_capacity(Handshakes::HASTE);
        let mut waited = vec![self.handshakes.as_fd(), self.departures.as_fd()];
        if takes {
            waited.push(self.listener.as_fd());
        }
        remora_host::wait_any(&waited, if takes { QUIET } else { SOON })?;
        for number in self.departures.ended()? {
            self.end(|loaded| loaded.number().is_none_or(|own| u64::from(own) == number));
        }
        while self.handshakes.has_capacity(Handshakes::HASTE)
            && let Some(request) = self.listener.accept(Some(Duration::ZERO))?
        {
            if let Err(error) = self.begin(request, welcome) {
                tracing::info!("a client got no chain: {}", error.chain());
            }
        }
        while let Some((id, outcome)) = self.handshakes.finished() {
            let Some(index) = self.joining.iter().position(|(joining, _)| *joining == id) else { continue };
            let (_, call) = self.joining.swap_remove(index);
            match self.load(outcome, &call) {
                Ok(offload) => self.keep(offload),
                Err(error) => tracing::info!("a client got no chain: {error:#}"),
            }
        }
        Ok(())
    }

    fn begin(&mut self, request: ConnectRequest, welcome: &[u8]) -> Result<()> {
        let call = need!(Call::from_bytes(request.private_data()), Peer, "it does not say what it wants");
        ensure!(call.program == PROGRAM, Peer, "it wants {}, and this is a cache", call.program);
        let options = QpOptions { private_data: welcome.to_vec(), ..QpOptions::default() };
        let port = self.domain.create_port(&self.program, PORT, &options)?;
        self.joining.push((self.handshakes.begin(request, port)?, call));
        Ok(())
    }

    fn load(&self, outcome: Result<Answered, ConnectError>, call: &Call) -> Result<Offload> {
        let loader = Loader::new(&self.program).connection(PORT, outcome?.go()?).region("reply", call.reply);
        let loader = loader.region("buckets", self.buckets.remote_memory());
        Ok(loader.region("values", self.values.remote_memory()).load(&self.domain)?)
    }

    /// Adds a chain. If there are too many, the one that has been without requests for longest is removed.
    fn keep(&mut self, offload: Offload) {
        let now = Instant::now();
        for loaded in &mut self.loaded {
            let requests = loaded.count();
            if requests != loaded.requests {
                (loaded.requests, loaded.since) = (requests, now);
            }
        }
        if self.loaded.len() == self.most
            && let Some(idle) = (0..self.most).min_by_key(|index| self.loaded[*index].since)
        {
            let idle = self.loaded[idle].number();
            self.end(|loaded| loaded.number() == idle);
        }
        if let Some(port) = offload.queue(PORT)
            && let Some(connection) = port.connection()
            && let Err(error) = self.departures.add(connection, port.number().into())
        {
            tracing::warn!(%error, "a client's connection is not watched");
        }
        self.loaded.push(Loaded { offload, requests: 0, since: now });
    }

    /// Removes the chains for which `over` returns true.
    fn end(&mut self, over: impl Fn(&Loaded) -> bool) {
        let Chains { loaded, departures, .. } = self;
        loaded.retain(|loaded| {
            let over = over(loaded);
            if over && let Some(connection) = loaded.offload.queue(PORT).and_then(|port| port.connection()) {
                departures.remove(connection);
            }
            !over
        });
    }
}

impl Loaded {
    /// Returns the number of the client's queue pair.
    fn number(&self) -> Option<u32> {
        self.offload.queue(PORT).map(|port| port.number())
    }

    /// Returns the number of the next request that the chain waits for.
    fn count(&self) -> u64 {
        let place = self.offload.program().find(REQUESTS);
        let bytes = place.and_then(|(offset, _)| self.offload.read(offset + COUNT, 8));
        bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
    }
}
