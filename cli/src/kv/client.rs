//! A client of a key-value server: one queue pair, a window of operations.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use store::kv::{Client, ClientConfig, Finished, Grant, Outcome, Refused};
use verbs::{Access, CompletionQueue, ConnectError, EMPTY, MemoryRegion, QpOptions, QueuePair, Ready};

use super::Design;
use super::READS;
use super::post::{Batched, Direct, registered};
use crate::device::PortArgs;

/// How long an operation may take before a person is told.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connected client.
pub struct Session<D: Design> {
    client: Client<D::Lookup>,
    pair: QueuePair<Ready>,
    cq: CompletionQueue,
    _arena: MemoryRegion,
}

impl<D: Design> Session<D> {
    /// Connects to the server at `address` (host:port).
    pub fn connect(port: &PortArgs, address: &str, config: ClientConfig) -> Result<Session<D>> {
        let context = port.open()?;
        let domain = context.alloc_pd()?;
        let needs = config.needs();
        let cq = context.create_cq(needs.completions * 2)?;
        let arena =
            domain.allocate(config.arena_len::<D::Lookup>(), Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let block = registered(&arena);
        let options = QpOptions {
            max_send_wr: needs.send * 2,
            max_recv_wr: needs.receive,
            private_data: config.hello::<D::Lookup>(&block).encode().to_vec(),
            max_rd_atomic: READS,
            max_dest_rd_atomic: READS,
            ..QpOptions::default()
        };
        let pair = domain.create_qp(&cq, &cq, &options)?;
        let mut pair = pair.connect(address).map_err(|error| match error {
            ConnectError::Refused(_) => anyhow::anyhow!(
                "no key-value server answers at {address}: start one with `remora serve kv --listen {address}`"
            ),
            error => {
                anyhow::Error::new(error).context(format!("connecting to the key-value server at {address}"))
            }
        })?;
        let grant = Grant::decode(pair.peer_private_data())
            .context("whoever answers there is no key-value server")?;
        let mut client = Client::new(config, &grant, block)?;
        client.start(&mut Direct(&mut pair)).map_err(|broken| anyhow::anyhow!("{broken}"))?;
        Ok(Session { client, pair, cq, _arena: arena })
    }

    /// Starts as many operations as `start` wants, with one doorbell. It is called until it says false or the window is full.
    #[inline]
    pub fn start(
        &mut self,
        mut start: impl FnMut(&mut Client<D::Lookup>, &mut Batched<'_, '_>) -> Result<bool, Refused>,
    ) -> Result<()> {
        let mut batch = self.pair.batch()?;
        loop {
            match start(&mut self.client, &mut Batched(&mut batch)) {
                Ok(true) => {}
                Ok(false) | Err(Refused::WindowFull) => break,
                Err(refused) => bail!("the operation cannot be started: {refused}"),
            }
        }
        batch.ring();
        Ok(())
    }

    /// Takes what has ended.
    #[inline]
    pub fn poll(&mut self, mut ended: impl FnMut(Finished<'_>)) -> Result<usize> {
        let mut done = [EMPTY; 32];
        let got = self.cq.poll(&mut done)?;
        if got == 0 {
            return Ok(0);
        }
        // What the completions lead to (second READs, receive requests) leaves together.
        let mut batch = self.pair.batch()?;
        for completion in &done[..got] {
            match self.client.complete(completion, &mut Batched(&mut batch)) {
                Ok(Some(finished)) => ended(finished),
                Ok(None) => {}
                Err(broken) => bail!("the connection failed: {broken}"),
            }
        }
        Ok(got)
    }

    /// Operations in flight.
    pub fn in_flight(&self) -> usize {
        self.client.in_flight()
    }

    /// One operation, alone: started by `start`, its outcome looked at by `look`.
    pub fn one<R>(
        &mut self,
        start: impl FnOnce(&mut Client<D::Lookup>, &mut Direct<'_>) -> Result<store::kv::Slot, Refused>,
        mut look: impl FnMut(&Finished<'_>) -> R,
    ) -> Result<R> {
        start(&mut self.client, &mut Direct(&mut self.pair))
            .map_err(|refused| anyhow::anyhow!("the operation cannot be started: {refused}"))?;
        let (started, mut result) = (Instant::now(), None);
        while result.is_none() {
            self.poll(|finished| result = Some(look(&finished)))?;
            if result.is_none() && started.elapsed() > PATIENCE {
                bail!("the server does not answer");
            }
        }
        result.context("an outcome")
    }

    /// Reads a value.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.one(
            |client, nic| client.get(key, nic),
            |finished| match finished.outcome {
                Outcome::Value(value) => Ok(Some(value.to_vec())),
                Outcome::Absent => Ok(None),
                other => Err(bad_end("GET", other)),
            },
        )?
    }

    /// Stores a value.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.one(
            |client, nic| client.put(key, value, nic),
            |finished| match finished.outcome {
                Outcome::Done => Ok(()),
                other => Err(bad_end("PUT", other)),
            },
        )?
    }

    /// Removes a key; false if there was none.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool> {
        self.one(
            |client, nic| client.delete(key, nic),
            |finished| match finished.outcome {
                Outcome::Done => Ok(true),
                Outcome::Absent => Ok(false),
                other => Err(bad_end("DELETE", other)),
            },
        )?
    }
}

/// Why an operation ended otherwise than it should, in words.
fn bad_end(verb: &str, outcome: Outcome<'_>) -> anyhow::Error {
    match outcome {
        Outcome::Refused(refusal) => anyhow::anyhow!("the server refuses the {verb}: {refusal}"),
        Outcome::TooLong => anyhow::anyhow!("the value is longer than 1 MiB"),
        Outcome::Contended => anyhow::anyhow!("the key changed each time it was read: try again"),
        Outcome::Failed(broken) => anyhow::anyhow!("the connection failed: {broken}"),
        Outcome::Value(_) | Outcome::Done | Outcome::Absent => {
            anyhow::anyhow!("the server answers a {verb} with something else")
        }
    }
}
