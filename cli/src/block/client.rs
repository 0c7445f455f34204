//! A client of replicated blocks: a connection to each replica that is there.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use host::Clock;
use store::Fleet;
use store::block::{
    Canary, ClientConfig, ClientId, Design, Finished, Hello, Layout, MAX_REPLICAS, MIN_BLOCK, Operation,
    Outcome, Refused, Slot, Welcome,
};
use verbs::{Access, EMPTY, MemoryRegion, ProtectionDomain, WorkCompletion};

use super::connector::{Connector, Link};
use super::machine::Machine;
use super::servers::Servers;
use crate::device::PortArgs;
use crate::post::{Direct, registered};

/// How long an operation may take before a person is told.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a client waits before it asks a replica again that did not answer.
const AGAIN: Duration = Duration::from_millis(500);
/// How long a client that ends waits for what is still under way.
const CLOSING: Duration = Duration::from_millis(100);
/// Completions taken at a time.
const TAKEN: usize = 32;

/// The connections, as the machine sees them.
struct Ends<'a>(&'a mut [Option<Link>]);

impl Fleet for Ends<'_> {
    type End<'a>
        = Direct<'a>
    where
        Self: 'a;

    fn end(&mut self, server: usize) -> Direct<'_> {
        Direct(&mut self.0[server].as_mut().expect("the machine knows who is there").pair)
    }
}

/// The machine, once a replica has said what the blocks are like.
struct Store {
    machine: Machine,
    design: Design,
    layout: Layout,
    _arena: MemoryRegion,
}

/// A client.
pub struct Session {
    servers: Servers,
    connector: Connector,
    domain: ProtectionDomain,
    clock: Clock,
    links: Vec<Option<Link>>,
    /// Replicas' own numbers: no two addresses lead to the same.
    numbers: Vec<Option<usize>>,
    /// Why the last attempt at each was in vain.
    faults: Vec<Option<String>>,
    store: Option<Store>,
    /// Replicas whose first attempt is not over.
    opening: usize,
    done: [WorkCompletion; TAKEN],
    window: u16,
    writes: bool,
}

impl Session {
    /// Connects to a majority of the replicas.
    ///
    /// # Errors
    /// Too few are there.
    pub fn open(port: &PortArgs, servers: Servers, window: u16, writes: bool) -> Result<Session> {
        let count = servers.addresses().len();
        anyhow::ensure!(
            count % 2 == 1 && count <= MAX_REPLICAS,
            "a store of blocks has 1, 3, 5 or 7 replicas, not {count}"
        );
        let context = port.open()?;
        let domain = context.alloc_pd()?;
        let config = config(ClientId::new(0).context("a number")?, count, window);
        let connector = Connector::new(context, domain.clone(), Machine::needs(&config));
        let mut session = Session {
            servers,
            connector,
            domain,
            clock: Clock::new(),
            links: (0..count).map(|_| None).collect(),
            numbers: vec![None; count],
            faults: vec![None; count],
            store: None,
            opening: count,
            done: [EMPTY; TAKEN],
            window,
            writes,
        };
        (0..count).try_for_each(|at| session.begin(at, Duration::ZERO))?;
        let started = Instant::now();
        while session.connected() < count / 2 + 1 {
            session.look()?;
            let failed = session.faults.iter().flatten().count();
            if failed > count / 2 || started.elapsed() > PATIENCE {
                let why = session.faults.iter().flatten().next().cloned();
                let why = why.unwrap_or_else(|| "nothing came back".to_owned());
                bail!("{failed} of {count} replicas do not answer, too many for a majority: {why}");
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(session)
    }

    /// Replicas that it is connected to.
    fn connected(&self) -> usize {
        self.links.iter().flatten().count()
    }

    fn begin(&self, at: usize, pause: Duration) -> Result<()> {
        // Later ones need no other number.
        let hello = Hello { wants_number: self.writes && self.store.is_none() };
        self.connector.begin(at, self.servers.addresses()[at], hello, pause)
    }

    /// Takes in what attempts to connect came to, and what has changed in the map.
    fn look(&mut self) -> Result<()> {
        while let Some(attempt) = self.connector.next() {
            let at = attempt.at;
            self.opening = self.opening.saturating_sub(1);
            let joined = attempt.result.and_then(|(link, welcome)| self.join(at, link, &welcome));
            self.faults[at] = joined.err().map(|error| format!("{error:#}"));
            if self.faults[at].is_some() {
                self.begin(at, AGAIN)?;
            }
        }
        for at in self.servers.changed()? {
            // The thread that is at the old address, if there is one, comes back in vain and tries the new one.
            if self.links[at].is_some() {
                self.leave(at)?;
            }
        }
        Ok(())
    }

    /// A replica is there.
    fn join(&mut self, at: usize, link: Link, welcome: &Welcome) -> Result<()> {
        let address = self.servers.addresses()[at];
        if let Some(other) = self.numbers.iter().position(|number| *number == Some(welcome.replica))
            && other != at
        {
            let known = self.servers.addresses()[other];
            bail!(
                "{known} and {address} are both replica {}: start one with another --replica",
                welcome.replica
            );
        }
        let grant = welcome.grant;
        if self.store.is_none() {
            let id = welcome.number.or(ClientId::new(0)).context("a number")?;
            let config = ClientConfig { layout: grant.layout, ..config(id, self.links.len(), self.window) };
            let len = Machine::arena_len(grant.design, &config);
            let arena = self.domain.allocate(len, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
            let seed = crate::kv::serve::fresh_seed();
            let machine = Machine::new(grant.design, config, registered(&arena), seed)?;
            let (design, layout) = (grant.design, grant.layout);
            self.store = Some(Store { machine, design, layout, _arena: arena });
        }
        let store = self.store.as_mut().context("a machine")?;
        let same = (grant.design, grant.layout) == (store.design, store.layout);
        anyhow::ensure!(same, "the replica at {address} has another design or other blocks than the others");
        self.links[at] = Some(link);
        self.numbers[at] = Some(welcome.replica);
        if let Err(broken) = store.machine.connect(at, grant, &mut Ends(&mut self.links)) {
            self.links[at] = None;
            bail!("{broken}");
        }
        Ok(())
    }

    /// Ends a connection, and begins to make another one.
    fn leave(&mut self, at: usize) -> Result<()> {
        self.links[at] = None;
        if let Some(store) = &mut self.store {
            store.machine.disconnect(self.clock.now(), at, &mut Ends(&mut self.links));
        }
        self.begin(at, AGAIN)
    }

    /// The blocks.
    pub fn layout(&self) -> Result<Layout> {
        Ok(self.store.as_ref().context("a majority is connected")?.layout)
    }

    /// Starts an operation; None: the window is full, or slow replicas hold it up.
    ///
    /// # Errors
    /// There is no such block, or the value has another length.
    pub fn start(&mut self, operation: Operation, block: u64, value: &[u8]) -> Result<Option<Slot>> {
        let store = self.store.as_mut().context("a majority is connected")?;
        let ends = &mut Ends(&mut self.links);
        match store.machine.start(self.clock.now(), (operation, block, value), ends) {
            Ok(slot) => Ok(Some(slot)),
            Err(Refused::WindowFull) => Ok(None),
            Err(Refused::NoSuchBlock) => {
                bail!("there is no block {block}: there are {}", store.layout.blocks)
            }
            Err(refused) => bail!("{refused}"),
        }
    }

    /// One turn: takes what has ended.
    #[inline]
    pub fn turn(&mut self, mut ended: impl FnMut(&Finished<'_>)) -> Result<()> {
        let Some(store) = &mut self.store else { return self.look() };
        let now = self.clock.now();
        for replica in 0..self.links.len() {
            let Some(link) = &mut self.links[replica] else { continue };
            let got = link.cq.poll(&mut self.done)?;
            for completion in &self.done[..got] {
                let ends = &mut Ends(&mut self.links);
                if let Some(finished) = store.machine.complete(now, replica, completion, ends) {
                    ended(&finished);
                }
            }
        }
        store.machine.expire(now, &mut Ends(&mut self.links));
        while let Some(lost) = self.store.as_ref().and_then(|store| store.machine.lost()) {
            tracing::info!(replica = lost.replica, why = %lost.why, "a replica is gone");
            self.leave(lost.replica)?;
        }
        self.look()
    }

    /// One operation, alone, and what `look` sees of its end.
    fn one<R>(
        &mut self,
        (operation, block, value): (Operation, u64, &[u8]),
        mut look: impl FnMut(&Finished<'_>) -> R,
    ) -> Result<R> {
        let (started, mut result, mut slot) = (Instant::now(), None, None);
        while result.is_none() {
            if slot.is_none() {
                slot = self.start(operation, block, value)?;
            }
            self.turn(|finished| result = Some(look(finished)))?;
            if started.elapsed() > PATIENCE {
                bail!("{} of {} replicas answer, too few", self.connected(), self.links.len());
            }
        }
        result.context("an outcome")
    }

    /// Reads a block.
    ///
    /// # Errors
    /// No majority answers, or there is no such block.
    pub fn read(&mut self, block: u64) -> Result<Vec<u8>> {
        self.one((Operation::Read, block, &[]), |finished| match finished.outcome {
            Outcome::Value(value) => Ok(value.to_vec()),
            other => Err(bad_end(other)),
        })?
    }

    /// Writes a block.
    ///
    /// # Errors
    /// No majority answers, or there is no such block.
    pub fn write(&mut self, block: u64, value: &[u8]) -> Result<()> {
        self.one((Operation::Write, block, value), |finished| match finished.outcome {
            Outcome::Done => Ok(()),
            other => Err(bad_end(other)),
        })?
    }

    /// Waits until slow replicas have what is theirs, buffers are on their way back and nobody is in the middle of connecting; not for
    /// long, since replicas find what a client leaves behind.
    ///
    /// # Errors
    /// The NIC's.
    pub fn close(&mut self) -> Result<()> {
        let started = Instant::now();
        while !self.is_quiet() && started.elapsed() < CLOSING {
            self.turn(|_| ())?;
        }
        Ok(())
    }

    fn is_quiet(&self) -> bool {
        self.opening == 0 && self.store.as_ref().is_none_or(|store| store.machine.is_quiet())
    }
}

/// A client of blocks that are not known yet.
fn config(id: ClientId, replicas: usize, window: u16) -> ClientConfig {
    let layout = Layout { blocks: 1, block_len: MIN_BLOCK };
    ClientConfig { id, replicas, layout, window, canary: Canary::Sound }
}

fn bad_end(outcome: Outcome<'_>) -> anyhow::Error {
    match outcome {
        Outcome::NoBuffer => {
            anyhow::anyhow!("the replicas have no buffer left: try again, or start them with more --clients")
        }
        Outcome::Exhausted => anyhow::anyhow!("the block was written 2^44 times, which is the most"),
        Outcome::Value(_) | Outcome::Done => anyhow::anyhow!("the operation ended as another one"),
    }
}
