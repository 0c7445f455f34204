//! A client of replicated blocks, with a connection to each reachable replica.

use std::time::{Duration, Instant};

use remora_host::Clock;
use remora_store::Connections;
use remora_store::block::{
    AnyClient, Canary, ClientConfig, ClientId, Design, Finished, Hello, Layout, MAX_REPLICAS, MIN_BLOCK,
    Machine as _, Operation, Outcome, Purpose, Refused, Slot, State, View, Welcome,
};
use remora_verbs::{Access, Context as Nic, EMPTY, MemoryRegion, ProtectionDomain, WorkCompletion};

use super::connector::{Connector, Link};
use super::servers::Servers;
use crate::error::{Result, bail, ensure, need};
use crate::post::{Ringing, registered};
use crate::{Error, seed};

/// Maximum time of an operation.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause before a client reconnects to a replica that did not answer.
const AGAIN: Duration = Duration::from_millis(500);
/// Pause before a client reconnects to a replica whose connection has just ended. A replica may close the
/// connections of all its clients and accept them once more.
const SOON: Duration = Duration::from_millis(10);
/// Maximum time for which a closing client waits for requests under way.
const CLOSING: Duration = Duration::from_millis(100);
/// Maximum number of completions per poll.
const TAKEN: usize = 32;

/// The connections, as the client machine uses them.
struct Ends<'a>(&'a mut [Option<Link>]);

impl Connections for Ends<'_> {
    type Endpoint<'a>
        = Ringing<'a>
    where
        Self: 'a;

    fn endpoint(&mut self, server: usize) -> Ringing<'_> {
        Ringing::of(&mut self.0[server].as_mut().expect("the machine knows who is there").pair)
    }
}

/// The client machine and the layout of the blocks; known after the first replica was connected.
struct Store {
    machine: AnyClient,
    design: Design,
    layout: Layout,
    _arena: MemoryRegion,
}

/// The purpose of a client.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The client reads.
    Reader,
    /// The client reads and writes.
    Writer,
    /// The client is an empty replica that reads all blocks from the others.
    Repairer {
        /// Index of the empty replica, to which the client does not connect.
        replica: usize,
        /// The incarnation that the replica will have.
        incarnation: u64,
        /// The store to which the replica belongs.
        store: u64,
    },
}

/// A client session.
pub struct Session {
    role: Role,
    servers: Servers,
    connector: Connector,
    domain: ProtectionDomain,
    clock: Clock,
    links: Vec<Option<Link>>,
    /// The state of each replica at its last connection, to detect two addresses of the same replica.
    states: Vec<Option<State>>,
    view: View,
    /// The failure of the last attempt to connect to each replica.
    faults: Vec<Option<String>>,
    store: Option<Store>,
    /// Number of replicas whose first connection attempt has not ended.
    opening: usize,
    done: [WorkCompletion; TAKEN],
    window: u16,
}

impl Session {
    /// Connects to a majority of the replicas.
    ///
    /// # Errors
    /// Too few replicas answer.
    pub fn open(context: Nic, servers: Servers, window: u16, writes: bool) -> Result<Session> {
        let role = if writes { Role::Writer } else { Role::Reader };
        Session::with_role(context, servers, window, role)
    }

    /// Connects a client of any role to a majority of the replicas.
    ///
    /// # Errors
    /// The errors of [`Session::open`].
    pub fn with_role(context: Nic, servers: Servers, window: u16, role: Role) -> Result<Session> {
        let count = servers.addresses().len();
        ensure!(
            count % 2 == 1 && count <= MAX_REPLICAS,
            Config,
            "a store of blocks has 1, 3, 5 or 7 replicas, not {count}"
        );
        let domain = context.alloc_pd()?;
        let config = client_config(need!(ClientId::new(0), Config, "a number"), count, window);
        let connector = Connector::new(context, domain.clone(), AnyClient::needs(&config));
        let mut session = Session {
            role,
            servers,
            connector,
            domain,
            clock: Clock::new(),
            links: (0..count).map(|_| None).collect(),
            states: vec![None; count],
            view: View::default(),
            faults: vec![None; count],
            store: None,
            opening: 0,
            done: [EMPTY; TAKEN],
            window,
        };
        for index in (0..count).filter(|index| role.uses(*index)) {
            session.begin(index, Duration::ZERO)?;
            session.opening += 1;
        }
        session.wait_for_majority(session.opening)?;
        Ok(session)
    }

    fn wait_for_majority(&mut self, asked: usize) -> Result<()> {
        let started = Instant::now();
        let count = self.links.len();
        let majority = count / 2 + 1;
        while self.connected() < majority {
            self.look()?;
            let failed = self.faults.iter().flatten().count();
            // A user should get an error at once; a replica under repair would have to be restarted, so it
            // waits and retries.
            let waits = matches!(self.role, Role::Repairer { .. });
            let late = started.elapsed() > PATIENCE;
            if (asked - failed < majority && !waits) || late {
                let silent = if late { asked - self.connected() } else { failed };
                let why = self.fault();
                bail!(Silent, "{silent} of {asked} replicas do not answer, too many for a majority: {why}");
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Returns the number of connected replicas.
    pub fn connected(&self) -> usize {
        self.links.iter().flatten().count()
    }

    /// Returns the failure of one of the replicas that are not connected.
    pub fn fault(&self) -> String {
        self.faults.iter().flatten().next().map_or("nothing came back", String::as_str).to_owned()
    }

    /// Returns an explanation for the user of an operation that does not end.
    pub fn too_few(&self) -> String {
        let there = self.connected();
        let all = self.links.len();
        if there > all / 2 {
            return format!(
                "{there} of {all} replicas are connected and do not answer: continue them if they are stopped"
            );
        }
        format!(
            "{there} of {all} replicas answer, too few for a majority: start the others ({})",
            self.fault()
        )
    }

    /// Returns the states that the replicas sent when they were connected.
    pub fn sources(&self) -> Vec<State> {
        self.states.iter().flatten().copied().collect()
    }

    fn begin(&self, index: usize, pause: Duration) -> Result<()> {
        let purpose = match self.role {
            // The first replica issues the client's number; later replicas need not issue another one.
            Role::Writer => Purpose::Use { wants_number: self.store.is_none() },
            Role::Reader => Purpose::Use { wants_number: false },
            Role::Repairer { replica, incarnation, store } => Purpose::Repair { replica, incarnation, store },
        };
        let hello = Hello { replicas: self.links.len(), purpose };
        self.connector.begin(index, self.servers.addresses()[index], hello, pause)
    }

    /// Processes the results of connection attempts, and changes of the map.
    fn look(&mut self) -> Result<()> {
        while let Some(attempt) = self.connector.next() {
            let index = attempt.index;
            self.opening = self.opening.saturating_sub(1);
            let joined = attempt.result.and_then(|(link, welcome)| self.join(index, link, &welcome));
            self.faults[index] = joined.err().map(|error| error.chain());
            if self.faults[index].is_some() {
                self.begin(index, AGAIN)?;
            }
        }
        for index in self.servers.changed()? {
            self.states[index] = None;
            // A connection attempt to the old address, if one is under way, fails and is followed by one to
            // the new address.
            if self.links[index].is_some() {
                self.leave(index)?;
            }
        }
        Ok(())
    }

    /// Adds a connected replica.
    fn join(&mut self, index: usize, link: Link, welcome: &Welcome) -> Result<()> {
        let address = self.servers.addresses()[index];
        self.meet(index, &welcome.state)?;
        let grant = welcome.grant;
        if self.store.is_none() {
            let id = need!(welcome.number.or(ClientId::new(0)), Peer, "a number");
            let config =
                ClientConfig { layout: grant.layout, ..client_config(id, self.links.len(), self.window) };
            let len = AnyClient::arena_len(grant.design, &config);
            let arena = self.domain.allocate(len, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
            let machine = AnyClient::new(grant.design, config, registered(&arena), seed::fresh());
            let machine = need!(machine, Config, "a store of blocks has 1, 3, 5 or 7 replicas");
            let design = grant.design;
            let layout = grant.layout;
            self.store = Some(Store { machine, design, layout, _arena: arena });
        }
        let store = need!(self.store.as_mut(), Silent, "a machine");
        let same = (grant.design, grant.layout) == (store.design, store.layout);
        ensure!(
            same,
            Peer,
            "the replica at {address} has another design or other blocks than the others: \
             start all with the same --design, --blocks and --block-len"
        );
        self.links[index] = Some(link);
        self.states[index] = Some(welcome.state);
        if let Err(broken) = store.machine.connect(index, grant, &mut Ends(&mut self.links)) {
            self.links[index] = None;
            return Err(broken.into());
        }
        Ok(())
    }

    /// Checks that the replica at this address may be used. If its state shows that other replicas were
    /// replaced, their connections are closed before any request is posted to this one.
    fn meet(&mut self, index: usize, state: &State) -> Result<()> {
        let known = |state: &Option<State>| state.map(|state| (state.replica, state.incarnation()));
        let same = |other: &Option<State>| known(other).is_some_and(|(replica, _)| replica == state.replica);
        if let Some(other) = self.states.iter().position(same).filter(|other| *other != index) {
            let [one, two] = [other, index].map(|index| self.servers.addresses()[index]);
            bail!(Config, "{one} and {two} are both replica {}: name each replica once", state.replica);
        }
        self.view.meet(state)?;
        for other in (0..self.links.len()).filter(|other| *other != index) {
            let current = |(replica, incarnation)| self.view.is_current(replica, incarnation);
            if self.links[other].is_some() && !known(&self.states[other]).is_none_or(current) {
                self.leave(other)?;
            }
        }
        Ok(())
    }

    /// Closes a connection, and starts to make a new one.
    fn leave(&mut self, index: usize) -> Result<()> {
        self.links[index] = None;
        if let Some(store) = &mut self.store {
            store.machine.disconnect(self.clock.now(), index, &mut Ends(&mut self.links));
        }
        self.begin(index, SOON)
    }

    /// Returns the layout of the blocks.
    pub fn layout(&self) -> Result<Layout> {
        Ok(need!(self.store.as_ref(), Silent, "a majority is connected").layout)
    }

    /// Starts an operation. Returns `None` if the window is full, or if slow replicas delay it.
    ///
    /// # Errors
    /// The block does not exist, or the value has another length.
    pub fn start(&mut self, operation: Operation, block: u64, value: &[u8]) -> Result<Option<Slot>> {
        let store = need!(self.store.as_mut(), Silent, "a majority is connected");
        let ends = &mut Ends(&mut self.links);
        match store.machine.start(self.clock.now(), operation, block, value, ends) {
            Ok(slot) => Ok(Some(slot)),
            Err(Refused::WindowFull) => Ok(None),
            Err(Refused::NoSuchBlock) => {
                bail!(Refused, "there is no block {block}: there are {}", store.layout.blocks)
            }
            Err(refused) => bail!(Refused, "{refused}"),
        }
    }

    /// Performs one turn of the event loop: processes completions, and passes ended operations to `ended`.
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

    /// Performs one operation, while no other is in flight, and returns what `look` returns for its result.
    fn one<R>(
        &mut self,
        operation: Operation,
        block: u64,
        value: &[u8],
        mut look: impl FnMut(&Finished<'_>) -> R,
    ) -> Result<R> {
        let started = Instant::now();
        let mut result = None;
        let mut slot = None;
        while result.is_none() {
            if slot.is_none() {
                slot = self.start(operation, block, value)?;
            }
            self.turn(|finished| result = Some(look(finished)))?;
            if started.elapsed() > PATIENCE {
                return Err(Error::Silent(self.too_few()));
            }
        }
        Ok(need!(result, Silent, "an outcome"))
    }

    /// Reads a block.
    ///
    /// # Errors
    /// No majority answers, or the block does not exist.
    pub fn read(&mut self, block: u64) -> Result<Vec<u8>> {
        self.one(Operation::Read, block, &[], |finished| match finished.outcome {
            Outcome::Value(value) => Ok(value.to_vec()),
            other => Err(bad_end(other)),
        })?
    }

    /// Writes a block.
    ///
    /// # Errors
    /// No majority answers, or the block does not exist.
    pub fn write(&mut self, block: u64, value: &[u8]) -> Result<()> {
        self.one(Operation::Write, block, value, |finished| match finished.outcome {
            Outcome::Done => Ok(()),
            other => Err(bad_end(other)),
        })?
    }

    /// Waits until slow replicas have received their requests, buffers are returned and no connection
    /// attempt is under way. The wait is short, because replicas also recover what a client leaves behind.
    ///
    /// # Errors
    /// The NIC failed.
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

impl Role {
    /// Returns true if the client connects to the replica at this place.
    fn uses(self, index: usize) -> bool {
        !matches!(self, Role::Repairer { replica, .. } if replica == index)
    }
}

/// Returns the configuration of a client that does not know the layout of the blocks yet.
pub fn client_config(id: ClientId, replicas: usize, window: u16) -> ClientConfig {
    let layout = Layout { blocks: 1, block_len: MIN_BLOCK };
    ClientConfig { id, replicas, layout, window, canary: Canary::Sound }
}

fn bad_end(outcome: Outcome<'_>) -> Error {
    let text = match outcome {
        Outcome::NoBuffer => "the replicas have no buffer left: try again, or start them with more --clients",
        Outcome::Exhausted => "the block was written 2^44 times, which is the most",
        Outcome::Value(_) | Outcome::Done => "the operation ended as another one",
    };
    Error::Refused(text.to_owned())
}
