//! A server of these measurements: a thread on its own core, which accepts clients and serves their calls
//! while it is asked to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use remora_verbs::{
    Access, CompletionQueue, ConnectRequest, Context, Listener, MemoryRegion, ProtectionDomain, QpOptions,
    QueuePair, ReceiveRequest,
};

use crate::testbed::Testbed;
use remora_options::cores::pin;

/// Maximum number of callers' connections.
const CALLERS: usize = 64;

/// The service of a server for its clients.
pub(crate) trait Ends: Sized {
    /// Accepts a client's connection.
    fn accept(&mut self, request: ConnectRequest) -> Result<()>;

    /// Serves calls for a while.
    fn serve(&mut self);
}

/// A server thread that runs until this value is dropped.
pub(crate) struct Server {
    /// Address on which the server listens.
    pub address: SocketAddr,
    over: Arc<AtomicBool>,
    polls: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts the server on the servers' core of a test bed. `open` runs on the server's thread.
    pub(crate) fn start<E: Ends>(
        testbed: &Arc<Testbed>,
        open: impl FnOnce(&Testbed) -> Result<E> + Send + 'static,
    ) -> Result<Server> {
        let over = Arc::new(AtomicBool::new(false));
        let polls = Arc::new(AtomicBool::new(false));
        let (ready, opened) = std::sync::mpsc::channel();
        let ends = Arc::clone(&over);
        let serving = Arc::clone(&polls);
        let testbed = Arc::clone(testbed);
        let start = move || -> Result<(Listener, E)> {
            let listen_address = testbed.go_there()?;
            pin(testbed.cores()[1])?;
            Ok((Listener::bind(listen_address)?, open(&testbed)?))
        };
        let thread = std::thread::spawn(move || match start() {
            Ok((listener, server)) => {
                let _ = ready.send(Ok(listener.address()));
                serve(&listener, server, &ends, &serving);
            }
            Err(error) => drop(ready.send(Err(error))),
        });
        let address = opened.recv().context("the benchmark's server did not start")??;
        Ok(Server { address, over, polls, threads: vec![thread] })
    }

    /// Makes the server's thread serve calls while `serving` is true. Otherwise the thread sleeps and only
    /// the NIC works.
    pub(crate) fn poll(&self, serving: bool) {
        self.polls.store(serving, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn serve<E: Ends>(listener: &Listener, mut ends: E, over: &AtomicBool, polls: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        if polls.load(Ordering::Relaxed) {
            ends.serve();
            continue;
        }
        if let Ok(Some(request)) = listener.accept(Some(Duration::from_millis(5)))
            && let Err(error) = ends.accept(request)
        {
            tracing::warn!("a client of the benchmark was not served: {error:#}");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.polls.store(false, Ordering::Relaxed);
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Clients that call a program by messages, each with one message in flight.
pub(crate) struct Callers {
    /// Completion queue of all callers. The work request ID is the caller's number.
    pub cq: CompletionQueue,
    /// Connections of the callers.
    pub pairs: Vec<QueuePair>,
    domain: ProtectionDomain,
    messages: MemoryRegion,
    len: usize,
}

impl Callers {
    /// Makes a set without callers, for messages of up to `len` bytes.
    pub(crate) fn new(context: &Context, domain: &ProtectionDomain, len: usize) -> Result<Callers> {
        let messages = domain.allocate(CALLERS * len, Access::LOCAL_WRITE)?;
        let cq = context.create_cq(1 << 10)?;
        Ok(Callers { cq, pairs: Vec::new(), domain: domain.clone(), messages, len })
    }

    /// Accepts one more caller, up to `CALLERS`.
    pub(crate) fn accept(&mut self, request: ConnectRequest, options: &QpOptions) -> Result<()> {
        let number = self.pairs.len();
        ensure!(number < CALLERS, "the server takes {CALLERS} callers, and all have connected");
        let mut pair = self.domain.create_qp(&self.cq, &self.cq, options)?;
        listen(&mut pair, &self.messages, number, self.len)?;
        self.pairs.push(request.accept(pair)?);
        Ok(())
    }

    /// Returns the words of a caller's message and frees the buffer for the caller's next message.
    pub(crate) fn take<const N: usize>(&mut self, number: usize) -> Result<[u64; N]> {
        let words = self.messages.get(number * self.len)?;
        listen(&mut self.pairs[number], &self.messages, number, self.len)?;
        Ok(words)
    }
}

fn listen<S>(pair: &mut QueuePair<S>, messages: &MemoryRegion, number: usize, len: usize) -> Result<()> {
    let sges = &[messages.sge(number * len, len)];
    Ok(pair.post_recv(&ReceiveRequest { id: number as u64, sges })?)
}
