//! A client of transactions: a connection to each shard, and the machine of the shards' design.
//!
//! The session never blocks. Its caller begins transactions with [`Session::parts`], and passes the
//! completions of a [`Session::turn`] to the machine. As many transactions as the window has places may be
//! under way:
//!
//! ```text
//! let (machine, mut connections) = session.parts()?;
//! let tx = machine.begin()?;
//! machine.read(tx, b"key", &mut connections)?;      // the doorbells ring when `connections` is dropped
//! drop(connections);
//! session.turn(|shard, completion, machine, connections| {
//!     match machine.complete(shard, completion, connections)? { … }
//! })?;
//! ```

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use remora_store::Connections;
use remora_store::txn::{AnyClient, Design, Granted, Hello, Limits, Machine as _, Welcome};
use remora_verbs::{
    Access, Batch, CompletionQueue, ConnectError, Context, EMPTY, MemoryRegion, ProtectionDomain, QpOptions,
    QueuePair, Ready, Remote, WorkCompletion, work,
};

use super::{MOST_SHARDS, enrolment};
use crate::error::{Context as _, bail, ensure, need};
use crate::flush::Flush;
use crate::post::{Batched, registered};
use crate::server::READS;
use crate::{Error, Result};

/// The maximum size of a client. The shards may have lower limits for keys, values and transactions.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Size {
    /// Maximum number of concurrent transactions.
    pub window: u32,
    /// Maximum number of keys per transaction.
    pub max_keys: u32,
}

/// The connections, as the machine uses them. Posted requests leave when this is dropped, with one doorbell
/// per shard.
pub struct ShardQueues<'a>([Option<Batch<'a>>; MOST_SHARDS]);

impl<'a> ShardQueues<'a> {
    fn of(pairs: &'a mut [QueuePair<Ready>]) -> Result<ShardQueues<'a>> {
        let mut connections = [const { None }; MOST_SHARDS];
        for (end, pair) in connections.iter_mut().zip(pairs) {
            *end = Some(pair.batch()?);
        }
        Ok(ShardQueues(connections))
    }
}

impl<'a> Connections for ShardQueues<'a> {
    type Endpoint<'e>
        = Batched<'e, 'a>
    where
        Self: 'e;

    #[inline]
    fn endpoint(&mut self, server: usize) -> Batched<'_, 'a> {
        Batched(self.0[server].as_mut().expect("the machine knows how many shards there are"))
    }
}

/// Maximum number of completions per poll.
const TAKEN: usize = 64;
/// Number of turns between two checks for buffers to return.
const RETURN_EVERY: u32 = 256;
/// Maximum time for which a closing client waits for requests under way.
const CLOSING: Duration = Duration::from_millis(100);

/// A connected client.
pub struct Session {
    machine: AnyClient,
    pairs: Vec<QueuePair<Ready>>,
    /// Numbers of the queue pairs.
    numbers: Vec<u32>,
    addresses: Vec<SocketAddr>,
    cq: CompletionQueue,
    done: [WorkCompletion; TAKEN],
    turns: u32,
    limits: Limits,
    /// Start of the store's clock, in microseconds since 1970.
    began: u64,
    /// The grant of shard 0.
    granted: Granted,
    arena: MemoryRegion,
}

impl Session {
    /// Connects to all shards, given in the order of their numbers.
    ///
    /// # Errors
    /// A shard does not answer, has another number, or has restarted without its memory.
    pub fn open(context: &Context, addresses: &[SocketAddr], size: Size) -> Result<Session> {
        ensure!(
            (1..=MOST_SHARDS).contains(&addresses.len()),
            Config,
            "a store has 1 to {MOST_SHARDS} shards"
        );
        let domain = context.alloc_pd()?;
        let most = Limits { max_key: 0, max_value: 0, max_keys: size.max_keys, window: size.window };
        let needs = AnyClient::needs(&most);
        let mut cq = context.create_cq(needs.completions * 2 * addresses.len() as u32)?;
        let options = QpOptions {
            max_send_wr: needs.send * 2,
            max_recv_wr: needs.receive,
            max_rd_atomic: READS,
            max_dest_rd_atomic: READS,
            // A FaRM shard declines PRISM, which is correct.
            prism: true,
            ..QpOptions::default()
        };
        let name = crate::seed::fresh().max(1);
        let mut pairs = Vec::new();
        let mut welcomes = Vec::new();
        for shard in 0..addresses.len() {
            let (pair, welcome) = connect(&domain, &cq, &options, name, shard, addresses)?;
            pairs.push(pair);
            welcomes.push(welcome);
        }
        let limits = agree(&welcomes, size)?;
        let grants: Vec<Granted> = welcomes.iter().map(|welcome| welcome.granted.clone()).collect();
        let arena = domain.allocate(AnyClient::arena_len(&limits, &grants), Access::LOCAL_WRITE)?;
        enrolment::Shards { pairs: &mut pairs, cq: &mut cq, arena: &arena }
            .enrol_all(&welcomes, addresses)?;
        let mut machine = AnyClient::new(&limits, grants, registered(&arena), name)?;
        machine.start(&mut ShardQueues::of(&mut pairs)?)?;
        Ok(Session {
            machine,
            numbers: pairs.iter().map(QueuePair::number).collect(),
            pairs,
            addresses: addresses.to_vec(),
            cq,
            done: [EMPTY; TAKEN],
            turns: 0,
            limits,
            began: welcomes[0].began,
            granted: welcomes[0].granted.clone(),
            arena,
        })
    }

    /// Returns the machine and its connections. Posted requests leave when the connections are dropped.
    ///
    /// # Errors
    /// This process is a fork.
    pub fn parts(&mut self) -> Result<(&mut AnyClient, ShardQueues<'_>)> {
        Ok((&mut self.machine, ShardQueues::of(&mut self.pairs)?))
    }

    /// Performs one turn of the event loop: each completion is passed to `each` with its shard, to be passed
    /// on to the machine's `complete`. Requests posted in a turn leave with one doorbell per shard. Returns
    /// the number of completions.
    ///
    /// # Errors
    /// The NIC failed, or `each` returns an error.
    #[inline]
    pub fn turn(
        &mut self,
        mut each: impl FnMut(usize, &WorkCompletion, &mut AnyClient, &mut ShardQueues<'_>) -> Result<()>,
    ) -> Result<usize> {
        let got = self.cq.poll(&mut self.done)?;
        self.turns = self.turns.wrapping_add(1);
        if got == 0 && !self.turns.is_multiple_of(RETURN_EVERY) {
            return Ok(0);
        }
        let mut connections = ShardQueues::of(&mut self.pairs)?;
        for completion in &self.done[..got] {
            let shard = self.numbers.iter().position(|number| *number == completion.qp_num);
            let shard = need!(shard, Peer, "a completion of no queue pair of this client");
            each(shard, completion, &mut self.machine, &mut connections)
                .with_context(|| format!("shard {shard} at {}", self.addresses[shard]))?;
        }
        if self.turns.is_multiple_of(RETURN_EVERY) {
            (0..self.numbers.len())
                .try_for_each(|shard| self.machine.return_buffers(shard, &mut connections))?;
        }
        Ok(got)
    }

    /// Returns buffers to their shards now. Turns do so periodically; a caller that takes few turns must
    /// call this.
    ///
    /// # Errors
    /// The NIC failed.
    pub fn return_buffers(&mut self) -> Result<()> {
        let mut connections = ShardQueues::of(&mut self.pairs)?;
        Ok((0..self.numbers.len())
            .try_for_each(|shard| self.machine.return_buffers(shard, &mut connections))?)
    }

    /// Returns the store's time, from which transactions get their timestamps: microseconds since the store
    /// began.
    pub fn clock(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (now.as_micros() as u64).saturating_sub(self.began)
    }

    /// Returns the limits of the shards.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns the design of the shards.
    pub fn design(&self) -> Design {
        self.machine.design()
    }

    /// Returns the grant of shard 0.
    pub fn granted(&self) -> &Granted {
        &self.granted
    }

    /// Performs a READ of shard 0's memory, and returns its duration in nanoseconds. Nothing may be under
    /// way.
    ///
    /// # Errors
    /// The READ fails.
    pub fn bare_read(&mut self, source: Remote, len: usize) -> Result<f64> {
        let landing = [self.arena.sge(0, len)];
        let started = Instant::now();
        self.pairs[0].post_send(&work::read(0, &landing, source))?;
        while self.cq.poll(&mut self.done)? == 0 {}
        let took = started.elapsed().as_nanos() as f64;
        ensure!(
            self.done[0].status == remora_verbs::Status::Success,
            Silent,
            "a READ of the shard's memory failed"
        );
        Ok(took)
    }

    /// Closes the connection to a shard, as if it had failed.
    #[cfg(test)]
    pub fn hang_up(&mut self, shard: usize) {
        drop(self.pairs.remove(shard));
    }

    /// Waits until everything under way has ended and buffers are being returned. The wait is short, because
    /// shards also recover what a client leaves behind.
    ///
    /// # Errors
    /// The NIC failed.
    pub fn close(&mut self) -> Result<()> {
        let started = Instant::now();
        let mut idle = 0;
        while (self.machine.in_flight() > 0 || idle < 2 * RETURN_EVERY) && started.elapsed() < CLOSING {
            let got = self.turn(|shard, completion, machine, connections| {
                machine.complete(shard, completion, connections)?;
                Ok(())
            })?;
            idle = if got == 0 { idle + 1 } else { 0 };
        }
        Ok(())
    }

    /// Closes the client, and waits until the shards have acknowledged everything that was sent to them, so
    /// that they may be stopped.
    ///
    /// # Errors
    /// The NIC failed, or a shard does not answer.
    pub fn settle(&mut self) -> Result<()> {
        self.close()?;
        let mut flush = Flush::of("a shard");
        while flush.goes_on(&mut self.pairs)? {
            self.turn(|shard, completion, machine, connections| {
                if !flush.takes(completion)? {
                    machine.complete(shard, completion, connections)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// Connects to a shard.
fn connect(
    domain: &ProtectionDomain,
    cq: &CompletionQueue,
    options: &QpOptions,
    name: u64,
    shard: usize,
    addresses: &[SocketAddr],
) -> Result<(QueuePair<Ready>, Welcome)> {
    let address = addresses[shard];
    let hello = Hello { name, shard: shard as u32, shards: addresses.len() as u32 };
    let options = QpOptions { private_data: hello.encode(), ..options.clone() };
    let connected = crate::connect::connect(domain, cq, &options, address);
    let pair = connected.map_err(|error| match error {
        Error::Connect(ConnectError::Refused(_)) => {
            Error::NoServer { what: "shard", address: address.to_string() }
        }
        error => error.context(format!("connecting to the shard at {address}")),
    })?;
    let welcome = Welcome::decode(pair.peer_private_data());
    let welcome = need!(welcome, Peer, "no shard of transactions answers at {address}");
    Ok((pair, welcome))
}

/// Returns the limits that all shards and this client share.
fn agree(welcomes: &[Welcome], size: Size) -> Result<Limits> {
    let Welcome { limits, granted, .. } = &welcomes[0];
    for welcome in welcomes {
        if welcome.limits != *limits || welcome.granted.design() != granted.design() {
            bail!(
                Config,
                "shard {} has another design or other limits than shard 0: start all shards with the same words",
                welcome.shard
            );
        }
    }
    ensure!(
        limits.max_keys <= size.max_keys,
        Config,
        "the shards take transactions of {} keys, this client of {}: start them with a smaller --max-keys",
        limits.max_keys,
        size.max_keys
    );
    ensure!(
        size.window <= limits.window,
        Config,
        "the shards take {} transactions at a time of each client, not {}: start them with a larger --window",
        limits.window,
        size.window
    );
    Ok(Limits { window: size.window, ..*limits })
}
