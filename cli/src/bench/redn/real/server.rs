//! The server of lookups: one table and one list, found by chains, by READs, and by calls. A core of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ::chain::offload::{BUCKET, LIST, bucket, places, shipped, wanted};
use anyhow::{Context as _, Result};
use verbs::{
    Access, Call, CompletionQueue, ConnectRequest, EMPTY, Flags, Listener, Loader, MemoryRegion, Mode,
    Offload, ProtectionDomain, QpOptions, QueuePair, ReceiveRequest, WorkRequest, work,
};

use crate::bench::PortName;
use crate::bench::cores::pin;
use crate::device::LOOPBACK;

/// Buckets of the table; a list; values behind them.
pub const BUCKETS: u64 = 1 << 12;
pub const LIST_AT: u64 = BUCKETS * BUCKET;
const VALUES: u64 = LIST_AT + 1024;
/// Bytes from one value to the next.
pub const VALUE: u64 = 1 << 16;
/// Keys 1 to this, each in its first bucket; the first of them are the list's, too.
pub const KEYS: u64 = 64;
const MEMORY: u64 = VALUES + (KEYS + 1) * VALUE;
/// Connections of one kind of calls.
const CALLERS: usize = 64;

/// What a client wants when it connects: a shipped program's name, or one of these.
pub const READS: &str = "reads";
pub const CALLS: &str = "calls";

/// It runs until it is dropped.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    over: Arc<AtomicBool>,
    polls: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts it: values of `len` bytes.
    pub fn start(port: PortName, core: usize, len: u64) -> Result<Server> {
        let listener = Listener::bind("127.0.0.1:0")?;
        let (over, polls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut server = Server {
            address: listener.address(),
            over: Arc::clone(&over),
            polls: Arc::clone(&polls),
            threads: Vec::new(),
        };
        let (ready, open) = std::sync::mpsc::channel();
        server.threads.push(std::thread::spawn(move || {
            // What is opened here runs where this thread does.
            let opened = pin(core).and_then(|()| Ends::open(port, len));
            let mut ends = match opened {
                Ok(ends) => {
                    let _ = ready.send(Ok(()));
                    ends
                }
                Err(error) => return drop(ready.send(Err(error))),
            };
            while !over.load(Ordering::Relaxed) {
                if polls.load(Ordering::Relaxed) != 0 {
                    ends.calls.serve(&polls);
                    continue;
                }
                if let Ok(Some(request)) = listener.accept(Some(Duration::from_millis(5)))
                    && let Err(error) = ends.accept(request)
                {
                    tracing::warn!("a client of the benchmark was not served: {error:#}");
                }
            }
        }));
        open.recv().context("the benchmark's server did not start")??;
        Ok(server)
    }

    /// While `serving`, its thread polls for calls; else it sleeps, and its NIC does what there is to do.
    pub fn poll(&self, serving: bool) {
        self.polls.store(u64::from(serving), Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.polls.store(0, Ordering::Relaxed);
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A NIC with a thread of its own for chains and READs, and one that the server's program drives for calls.
struct Ends {
    domain: ProtectionDomain,
    cq: CompletionQueue,
    table: MemoryRegion,
    loaded: Vec<Offload>,
    readers: Vec<QueuePair>,
    calls: Calls,
}

impl Ends {
    fn open(port: PortName, len: u64) -> Result<Ends> {
        let bytes = verbs::Bytes::heap(MEMORY as usize)?;
        let device = port.device_on(LOOPBACK, "")?;
        let own = device.clone().mode(Mode::Dedicated).spin(Duration::from_millis(1)).open()?;
        let domain = own.alloc_pd()?;
        let table = domain.register(&bytes, Access::REMOTE_READ)?;
        fill(&table, len)?;
        let driven = device.open()?;
        let calls = driven.alloc_pd()?;
        let calls = Calls {
            table: calls.register(&bytes, Access::NONE)?,
            small: calls.allocate(CALLERS * 16, Access::LOCAL_WRITE)?,
            cq: driven.create_cq(1 << 10)?,
            domain: calls,
            pairs: Vec::new(),
        };
        let cq = own.create_cq(64)?;
        Ok(Ends { domain, cq, table, loaded: Vec::new(), readers: Vec::new(), calls })
    }

    fn accept(&mut self, request: ConnectRequest) -> Result<()> {
        let call = Call::from_bytes(request.private_data()).context("it does not say what it wants")?;
        let options = QpOptions {
            private_data: self.table.remote_memory().to_bytes().to_vec(),
            ..QpOptions::default()
        };
        match call.program.as_str() {
            READS => {
                let pair = self.domain.create_qp(&self.cq, &self.cq, &options)?;
                self.readers.push(request.accept(pair)?);
            }
            CALLS => self.calls.accept(request, &options)?,
            name => {
                let program = ::chain::assemble(shipped(name).context("no such program")?)?;
                let port = request.accept(self.domain.create_port(&program, "port", &options)?)?;
                let region = if name == "list" { "list" } else { "table" };
                let loader = Loader::new(&program).connection("port", port);
                let loader = loader.region(region, self.table.remote_memory()).region("reply", call.reply);
                self.loaded.push(loader.load(&self.domain)?);
            }
        }
        Ok(())
    }
}

fn fill(memory: &MemoryRegion, len: u64) -> Result<()> {
    crate::bench::touch(memory)?;
    let value = |key: u64| memory.address() + VALUES + key * VALUE;
    for key in 1..=KEYS {
        let place = places(key, BUCKETS)[0] * BUCKET;
        memory.write(place as usize, &bucket(key, value(key), len, 0))?;
        memory.write((VALUES + key * VALUE) as usize, &key.to_le_bytes())?;
    }
    for place in 0..=LIST as u64 {
        let next = memory.address() + LIST_AT + (place + 1).min(LIST as u64) * BUCKET;
        let key = if place == LIST as u64 { 0 } else { place + 1 };
        memory.write((LIST_AT + place * BUCKET) as usize, &bucket(key, value(key), len, next))?;
    }
    Ok(())
}

/// Calls: a message with a key and whether it is looked for in the list; the answer is the value, in one message.
struct Calls {
    domain: ProtectionDomain,
    table: MemoryRegion,
    small: MemoryRegion,
    cq: CompletionQueue,
    pairs: Vec<QueuePair>,
}

impl Calls {
    fn accept(&mut self, request: ConnectRequest, options: &QpOptions) -> Result<()> {
        let number = self.pairs.len();
        anyhow::ensure!(number < CALLERS, "as many callers as there is room for");
        let mut pair = self.domain.create_qp(&self.cq, &self.cq, options)?;
        pair.post_recv(&ReceiveRequest { id: number as u64, sges: &[self.small.sge(number * 16, 16)] })?;
        self.pairs.push(request.accept(pair)?);
        Ok(())
    }

    /// Answers what comes until nobody wants it any more.
    fn serve(&mut self, polls: &AtomicU64) {
        let mut done = [EMPTY; 16];
        while polls.load(Ordering::Relaxed) != 0 {
            for _ in 0..256 {
                let came = self.cq.poll(&mut done).unwrap_or(0);
                for received in &done[..came] {
                    // A client that went away is nobody's loss here.
                    let _ = self.answer(received.id as usize);
                }
            }
        }
    }

    fn answer(&mut self, number: usize) -> Result<()> {
        let [key, list]: [u64; 2] = self.small.get(number * 16)?;
        let (at, len) = self.find(key, list != 0)?.unwrap_or((0, 0));
        let pair = &mut self.pairs[number];
        pair.post_recv(&ReceiveRequest { id: number as u64, sges: &[self.small.sge(number * 16, 16)] })?;
        let value = [verbs::Sge { addr: at, len: len as u32, lkey: self.table.lkey() }];
        pair.post_send(&WorkRequest { flags: Flags::default(), ..work::send(0, &value) })?;
        Ok(())
    }

    fn find(&self, key: u64, list: bool) -> Result<Option<(u64, u64)>> {
        let mut at = if list { LIST_AT } else { places(key, BUCKETS)[0] * BUCKET };
        loop {
            let [header, value, len, next]: [u64; 4] = self.table.get(at as usize)?;
            if header == wanted(key) {
                return Ok(Some((value, len)));
            }
            if !list || header == wanted(0) {
                return Ok(None);
            }
            at = next - self.table.address();
        }
    }
}
