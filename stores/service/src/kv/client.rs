//! A client of a key-value server: one queue pair, a window of operations.

use std::time::{Duration, Instant};

use remora_store::kv::{Broken, ClientConfig, Finished, Machine, Outcome, Refused, Slot};
use remora_verbs::{
    Access, CompletionQueue, ConnectError, Context, EMPTY, MemoryRegion, ProtectionDomain, QpOptions,
    QueuePair, Ready, WorkCompletion,
};

use super::KvDesign;
use crate::connect::connect;
use crate::error::{Context as _, bail, need};
use crate::flush::Flush;
use crate::post::{Batched, Direct, registered};
use crate::server::READS;
use crate::{Error, Result};

/// How long an operation may take.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Why an operation cannot be started, and what would help.
pub fn why_not(refused: Refused) -> String {
    let mend = match refused {
        Refused::KeyTooLong => ": the server's --max-key says how long a key may be",
        Refused::ValueTooLong => ": the server's --max-value says how long a value may be",
        _ => "",
    };
    format!("{refused}{mend}")
}

/// What a person is told of an operation that cannot be started.
fn unstarted(refused: Refused) -> Error {
    Error::Refused(format!("the operation cannot be started: {}", why_not(refused)))
}

/// Who has a session do something.
pub trait Driver {
    /// Is there an operation to start now, with so many in flight?
    fn wants(&mut self, in_flight: usize) -> bool;

    /// Starts it.
    ///
    /// # Errors
    /// The client's.
    fn start(&mut self, client: &mut impl Machine, nic: &mut Batched<'_, '_>) -> Result<(), Refused>;

    /// An operation has ended.
    fn ended(&mut self, finished: &Finished<'_>);
}

/// Waits for what one operation brings.
struct Waiting<F, R> {
    look: F,
    result: Option<R>,
}

impl<F: FnMut(&Finished<'_>) -> R, R> Driver for Waiting<F, R> {
    fn wants(&mut self, _: usize) -> bool {
        false
    }

    fn start(&mut self, _: &mut impl Machine, _: &mut Batched<'_, '_>) -> Result<(), Refused> {
        Ok(())
    }

    fn ended(&mut self, finished: &Finished<'_>) {
        self.result = Some((self.look)(finished));
    }
}

/// Completions taken at a time.
const TAKEN: usize = 64;

/// A connected client.
pub struct Session<D: KvDesign> {
    client: D::Client,
    pair: QueuePair<Ready>,
    cq: CompletionQueue,
    done: [WorkCompletion; TAKEN],
    /// Of the server.
    address: String,
    domain: ProtectionDomain,
    _arena: MemoryRegion,
}

impl<D: KvDesign> Session<D> {
    /// Connects to the server at `address` (host:port).
    ///
    /// # Errors
    /// `NoServer`: nobody listens there. `Session`: the server is of another design, or grants less than is
    /// asked for.
    pub fn connect(context: &Context, address: &str, config: ClientConfig) -> Result<Session<D>> {
        let domain = context.alloc_pd()?;
        let needs = D::needs(&config);
        let cq = context.create_cq(needs.completions * 2)?;
        let arena = domain.allocate(D::arena_len(&config), Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let block = registered(&arena);
        let options = QpOptions {
            max_send_wr: needs.send * 2,
            max_recv_wr: needs.receive,
            private_data: D::hello(&config, &block).encode().to_vec(),
            max_rd_atomic: READS,
            max_dest_rd_atomic: READS,
            prism: D::EXTENSIONS.prism,
            strom: D::EXTENSIONS.strom,
            ..QpOptions::default()
        };
        let mut pair = connect(&domain, &cq, &options, address).map_err(|error| match error {
            Error::Connect(ConnectError::Refused(_)) => {
                Error::NoServer { what: "key-value server", address: address.to_owned() }
            }
            error => error.context(format!("connecting to the key-value server at {address}")),
        })?;
        let mut client = D::client(config, pair.peer_private_data(), block)
            .context("whoever answers there is no key-value server that fits")?;
        client.start(&mut Direct(&mut pair))?;
        let address = address.to_owned();
        Ok(Session { client, pair, cq, done: [EMPTY; TAKEN], address, domain, _arena: arena })
    }

    /// One turn: takes what has ended, and starts what the driver has to start. All that this posts (second
    /// READs, receive requests, new operations) leaves with one doorbell.
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

    /// What the server said when the session began.
    pub fn grant(&self) -> &[u8] {
        self.pair.peer_private_data()
    }

    /// Memory for requests beside the client's.
    pub fn allocate(&self, len: usize) -> Result<MemoryRegion> {
        Ok(self.domain.allocate(len, Access::LOCAL_WRITE)?)
    }

    /// Where requests beside the client's are posted, while it has nothing in flight.
    pub fn direct(&mut self) -> Direct<'_> {
        Direct(&mut self.pair)
    }

    /// Polls once. Completions go to `take`; those that it does not take are the client's. How many there
    /// were.
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

    /// Operations in flight.
    pub fn in_flight(&self) -> usize {
        self.client.in_flight()
    }

    /// Until the server has acknowledged whatever was sent to it: then it may be stopped. For when nothing is
    /// in flight.
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
    /// The client's.
    pub fn begin(
        &mut self,
        start: impl FnOnce(&mut D::Client, &mut Direct<'_>) -> Result<Slot, Refused>,
    ) -> Result<Slot, Refused> {
        start(&mut self.client, &mut Direct(&mut self.pair))
    }

    /// One operation, alone: started by `start`, its outcome looked at by `look`.
    pub fn one<R>(
        &mut self,
        start: impl FnOnce(&mut D::Client, &mut Direct<'_>) -> Result<Slot, Refused>,
        mut look: impl FnMut(&Finished<'_>) -> R,
    ) -> Result<R> {
        self.begin(start).map_err(unstarted)?;
        let started = Instant::now();
        let mut waiting = Waiting { look: &mut look, result: None };
        while waiting.result.is_none() {
            self.turn(&mut waiting)?;
            if waiting.result.is_none() && started.elapsed() > PATIENCE {
                bail!(
                    Silent,
                    "the server at {} has not answered for {} seconds: continue it if it is stopped, or start it again",
                    self.address,
                    PATIENCE.as_secs()
                );
            }
        }
        Ok(need!(waiting.result, Silent, "an outcome"))
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

fn failed(broken: Broken) -> Error {
    Error::Broken(broken).context("the connection failed")
}

/// Why an operation ended otherwise than it should.
pub fn bad_end(verb: &str, outcome: Outcome<'_>) -> Error {
    let text = match outcome {
        Outcome::Failed(broken) => return failed(broken),
        Outcome::Refused(refusal) => format!("the server refuses the {verb}: {refusal}"),
        Outcome::TooLong => "the value is longer than 1 MiB".to_owned(),
        Outcome::Contended => "the key changed each time it was read: try again".to_owned(),
        Outcome::Value(_) | Outcome::Done | Outcome::Absent => {
            return Error::Peer(format!("the server answers a {verb} with something else"));
        }
    };
    Error::Refused(text)
}
