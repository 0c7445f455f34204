//! A client of a key-value server: one queue pair and a window of operations of a design.

use remora_store::QueueNeeds;
use remora_store::kv::{ClientConfig, Finished, Hello, Machine, Refused, Registered, SessionError, Slot};
use remora_verbs::{
    Access, CompletionQueue, ConnectError, Context, EMPTY, MemoryRegion, ProtectionDomain, QpOptions,
    QueuePair, Ready, WorkCompletion,
};

use super::contents::Contents;
use super::program::Loads;
use super::session::{Driver, Found, KvSession, failed, once, unstarted};
use super::size::{Limits, Size};
use crate::connect::connect;
use crate::error::{Context as _, ensure};
use crate::flush::Flush;
use crate::post::{Batched, Direct, registered};
use crate::server::{Extensions, Memory, READS};
use crate::{Error, Result};

/// Maximum number of completions per poll.
const TAKEN: usize = 64;

/// A design of the key-value store.
pub trait KvDesign: Sized + 'static {
    /// The client machine.
    type Client: Machine;
    /// The program of the server.
    type Program: Loads;
    /// The protocol extensions that its queue pairs need in addition to the standard verbs.
    const EXTENSIONS: Extensions;

    /// Returns the sizes that a client's queue pair needs.
    fn needs(config: &ClientConfig) -> QueueNeeds;

    /// Returns the bytes of registered memory that a client needs.
    fn arena_len(config: &ClientConfig) -> usize;

    /// Returns the client's first message to the server.
    fn hello(config: &ClientConfig, arena: &Registered) -> Hello;

    /// Returns a client machine for the server's answer `grant`.
    ///
    /// # Errors
    /// The answer is not that of a server of this design, or client and server cannot work together.
    fn client(config: ClientConfig, grant: &[u8], arena: Registered) -> Result<Self::Client, SessionError>;

    /// Creates the server's program and allocates all its memory.
    ///
    /// # Errors
    /// There is not enough memory.
    fn program(limits: &Limits, size: Size, memory: &mut Memory) -> Result<Self::Program>;

    /// Returns the bytes for keys and values of the initial contents, and of `further` more keys.
    fn memory_for(limits: &Limits, contents: &Contents, further: u64) -> u64;

    /// Calls `report` with each key of the table, in no particular order. A key that is in the table
    /// throughout is reported at least once.
    ///
    /// # Errors
    /// The connection failed, or `report` returns an error.
    fn list(session: &mut Session<Self>, report: &mut Found<'_>) -> Result<()>;

    /// Returns the bytes of the READs of a GET that finds its key: of each but the last, and of the last.
    /// `None` if a GET is a call.
    fn read_lens(key_len: usize, value_len: usize) -> Option<(usize, usize)>;

    /// Returns the bytes of the index for `keys` keys; 0 if clients do not read an index.
    fn index_len(keys: u32, seed: u64) -> usize;
}

/// A connected client.
pub struct Session<D: KvDesign> {
    client: D::Client,
    pair: QueuePair<Ready>,
    cq: CompletionQueue,
    done: [WorkCompletion; TAKEN],
    /// Address of the server, for messages.
    address: String,
    domain: ProtectionDomain,
    _arena: MemoryRegion,
}

impl<D: KvDesign> Session<D> {
    /// Connects to the server at `address` (host:port).
    ///
    /// # Errors
    /// `NoServer`: nobody listens there. `Session`: the server has another design, or grants less than
    /// requested.
    pub fn connect(context: &Context, address: &str, config: ClientConfig) -> Result<Session<D>> {
        Session::connect_by(context, address, config, false)
    }

    /// Connects to the server at `address`, over IRN if `irn` is true.
    ///
    /// # Errors
    /// The errors of [`connect`](Session::connect). `Refused`: the server does not support IRN.
    pub fn connect_by(
        context: &Context,
        address: &str,
        config: ClientConfig,
        irn: bool,
    ) -> Result<Session<D>> {
        let domain = context.alloc_pd()?;
        let needs = D::needs(&config);
        let cq = context.create_cq(needs.completions * 2)?;
        let arena = domain.allocate(D::arena_len(&config), Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let block = registered(&arena);
        let options = QpOptions {
            max_send_wr: needs.send * 2,
            max_recv_wr: needs.receive,
            private_data: D::hello(&config, &block).encode(),
            max_rd_atomic: READS,
            max_dest_rd_atomic: READS,
            prism: D::EXTENSIONS.prism,
            strom: D::EXTENSIONS.strom,
            irn,
            ..QpOptions::default()
        };
        let mut pair = connect(&domain, &cq, &options, address).map_err(|error| match error {
            Error::Connect(ConnectError::Refused(_)) => {
                Error::NoServer { what: "key-value server", address: address.to_owned() }
            }
            error => error.context(format!("connecting to the key-value server at {address}")),
        })?;
        let agreed = pair.agreement().is_some_and(|agreement| agreement.irn.is_some());
        ensure!(
            agreed || !irn,
            Refused,
            "the server at {address} does not speak IRN: start it with --transport irn"
        );
        let mut client = D::client(config, pair.peer_private_data(), block)
            .context("whoever answers there is no key-value server that fits")?;
        client.start(&mut Direct(&mut pair))?;
        let address = address.to_owned();
        Ok(Session { client, pair, cq, done: [EMPTY; TAKEN], address, domain, _arena: arena })
    }

    /// Performs one turn of the event loop: processes completions, and starts the operations of the driver.
    /// All requests posted in a turn (second READs, receive requests, new operations) leave with one
    /// doorbell.
    #[inline]
    pub fn turn(&mut self, driver: &mut impl Driver) -> Result<()> {
        let got = self.cq.poll(&mut self.done)?;
        if got == 0 && !driver.wants(self.client.in_flight()) {
            return Ok(());
        }
        let mut batch = self.pair.batch()?;
        let nic = &mut Batched(&mut batch);
        for completion in &self.done[..got] {
            match self.client.complete(completion, nic) {
                Ok(Some(finished)) => driver.ended(&finished),
                Ok(None) => {}
                Err(broken) => return Err(failed(broken)),
            }
        }
        while driver.wants(self.client.in_flight()) {
            if let Err(refused) = driver.start(&mut self.client, nic) {
                return Err(unstarted(refused));
            }
        }
        Ok(())
    }

    /// Returns the server's grant, as encoded in the connection's private data.
    pub fn grant(&self) -> &[u8] {
        self.pair.peer_private_data()
    }

    /// Allocates registered memory for requests outside the client machine.
    pub fn allocate(&self, len: usize) -> Result<MemoryRegion> {
        Ok(self.domain.allocate(len, Access::LOCAL_WRITE)?)
    }

    /// Returns the queue pair for requests outside the client machine, while it has nothing in flight.
    pub fn direct(&mut self) -> Direct<'_> {
        Direct(&mut self.pair)
    }

    /// Polls once, and passes each completion to `take`. Completions for which `take` returns false belong
    /// to the client machine. Returns the number of completions.
    pub fn poll_beside(
        &mut self,
        mut take: impl FnMut(&WorkCompletion, &mut Direct<'_>) -> Result<bool>,
    ) -> Result<usize> {
        let got = self.cq.poll(&mut self.done)?;
        for completion in &self.done[..got] {
            let nic = &mut Direct(&mut self.pair);
            if take(completion, nic)? {
                continue;
            }
            if let Err(broken) = self.client.complete(completion, nic) {
                return Err(failed(broken));
            }
        }
        Ok(got)
    }

    /// Returns the number of operations in flight.
    pub fn in_flight(&self) -> usize {
        self.client.in_flight()
    }

    /// Waits until the server has acknowledged everything that was sent to it, so that it may be stopped. No
    /// operation may be in flight.
    pub fn settle(&mut self) -> Result<()> {
        let mut flush = Flush::of("the server");
        while flush.goes_on([&mut self.pair])? {
            let got = self.cq.poll(&mut self.done)?;
            for completion in &self.done[..got] {
                if flush.takes(completion)? {
                    continue;
                }
                if let Err(broken) = self.client.complete(completion, &mut Direct(&mut self.pair)) {
                    return Err(failed(broken));
                }
            }
        }
        Ok(())
    }

    /// Starts an operation.
    ///
    /// # Errors
    /// The errors of the client machine.
    pub fn begin(
        &mut self,
        start: impl FnOnce(&mut D::Client, &mut Direct<'_>) -> Result<Slot, Refused>,
    ) -> Result<Slot, Refused> {
        start(&mut self.client, &mut Direct(&mut self.pair))
    }

    /// Performs one operation while no other is in flight: `start` starts it, and `look` receives its
    /// result.
    pub fn one<R>(
        &mut self,
        start: impl FnOnce(&mut D::Client, &mut Direct<'_>) -> Result<Slot, Refused>,
        look: impl FnMut(&Finished<'_>) -> R,
    ) -> Result<R> {
        self.begin(start).map_err(unstarted)?;
        once(self, None, look)
    }
}

impl<D: KvDesign> KvSession for Session<D> {
    #[inline]
    fn turn(&mut self, driver: &mut impl Driver) -> Result<()> {
        Session::turn(self, driver)
    }

    fn in_flight(&self) -> usize {
        self.client.in_flight()
    }

    fn list(&mut self, report: &mut Found<'_>) -> Result<()> {
        D::list(self, report)
    }

    fn settle(&mut self) -> Result<()> {
        Session::settle(self)
    }

    fn who(&self) -> String {
        self.address.clone()
    }
}
