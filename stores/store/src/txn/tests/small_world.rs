//! An exhaustive search of small worlds: a few clients with a few transactions on two keys. It tries every
//! order in which the shards can execute their operations, and lets a client die at any of them. The final
//! state must be possible for a sequential execution.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use remora_check::{History, Step as Recorded};
use xxhash_rust::xxh3::Xxh3;

use super::executor::Net;
use crate::txn::client::shard_of;
use crate::txn::{Client, ClientConfig, EntryId, Event, Machine as _, Outcome, Rules, ShardConfig, Tx};

/// A transaction: the keys that it reads, the keys that it writes, and its clock.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Plan {
    pub reads: &'static [usize],
    pub writes: &'static [usize],
    pub clock: u64,
}

/// The world to search.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub config: ClientConfig,
    pub shards: usize,
    /// Number of slots per shard; keys share slots if there are few.
    pub slots: u64,
    /// The sequence of transactions of each client.
    pub clients: Vec<Vec<Plan>>,
    /// True if one of the clients may die.
    pub deaths: bool,
    /// True if the keys exist at the beginning.
    pub loaded: bool,
}

/// The two keys; if there are two shards, one key is on each.
pub(crate) fn keys() -> [&'static [u8]; 2] {
    let others: [&[u8]; 6] = [b"yy", b"z", b"k1", b"k2", b"k3", b"k4"];
    let apart = |key: &&&[u8]| shard_of(key, 2) != shard_of(b"x", 2);
    [b"x", others.iter().find(apart).expect("a key on the other shard")]
}
const BUFFERS: u32 = 10;

/// A possible next step of a run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Move {
    Step { client: usize, shard: usize },
    Die(usize),
}

/// A transaction under way: the keys that it reads, and their values.
type Open = (Tx, Vec<EntryId>, Vec<(usize, Option<u64>)>);

/// The state of a client's program.
struct Program {
    client: Client,
    plans: Vec<Plan>,
    next: usize,
    open: Option<Open>,
    committing: bool,
    dead: bool,
}

/// The state of a run.
struct Run {
    net: Net,
    programs: Vec<Program>,
    history: History,
    recorded: u32,
    committed: u32,
}

/// Returns the value that a client's transaction writes.
fn value(client: usize, plan: usize, key: usize) -> u64 {
    1000 + (client * 100 + plan * 10 + key) as u64
}

impl Run {
    fn new(world: &World) -> Run {
        let config = ShardConfig { slots: world.slots, reach: world.slots as u32, sessions: 8, window: 4 };
        let mut net = Net::new(world.shards, config, BUFFERS);
        let mut history = History::default();
        if world.loaded {
            let steps = keys().into_iter().enumerate().map(|(key, name)| {
                let server = &mut net.servers[shard_of(name, world.shards)];
                let buffer = server.free.pop().unwrap();
                assert!(server.shard.load(name, &(key as u64 + 1).to_le_bytes(), buffer));
                Recorded::Write { key: key as u64, value: key as u64 + 1 }
            });
            let steps: Vec<_> = steps.collect();
            history.invoke(0, 0, &steps);
            history.ok(0, 1, &steps);
        }
        let mut run = Run { net, programs: Vec::new(), history, recorded: 1, committed: 0 };
        world.clients.iter().for_each(|plans| run.join(world.config, plans.clone()));
        (0..run.programs.len()).for_each(|client| run.proceed(client));
        run
    }

    fn join(&mut self, config: ClientConfig, plans: Vec<Plan>) {
        let (grants, arena) = self.net.join(config.arena_len(self.net.servers.len()));
        let mut client = Client::new(config, grants, arena).unwrap();
        client.start(&mut self.net.connections(self.programs.len())).unwrap();
        self.programs.push(Program { client, plans, next: 0, open: None, committing: false, dead: false });
    }

    /// Continues a client until it has to wait.
    fn proceed(&mut self, index: usize) {
        loop {
            let Program { client, plans, next, open, committing, .. } = &mut self.programs[index];
            let Some(plan) = plans.get(*next).copied() else {
                (0..self.net.servers.len()).for_each(|shard| {
                    client.return_buffers(shard, &mut self.net.connections(index)).unwrap()
                });
                return;
            };
            let mut connections = self.net.connections(index);
            match open {
                None => {
                    let Ok(tx) = client.begin() else { return };
                    let reads =
                        plan.reads.iter().map(|key| client.read(tx, keys()[*key], &mut connections).unwrap());
                    let entries = reads.collect();
                    for key in plan.writes {
                        let bytes = value(index, *next, *key).to_le_bytes();
                        client.write(tx, keys()[*key], &bytes, &mut connections).unwrap();
                    }
                    *open = Some((tx, entries, Vec::new()));
                }
                Some((tx, entries, values)) if values.len() == entries.len() && !*committing => {
                    *committing = true;
                    let tx = *tx;
                    let ended = client.commit(tx, plan.clock, &mut connections).unwrap();
                    if let Some(Event::Ended { outcome, .. }) = ended {
                        self.ended(index, outcome);
                    }
                }
                _ => return,
            }
        }
    }

    fn steps(&self, client: usize) -> Vec<Recorded> {
        let program = &self.programs[client];
        let plan = program.plans[program.next];
        let values = &program.open.as_ref().unwrap().2;
        let reads = values.iter().map(|(key, value)| Recorded::Read { key: *key as u64, value: *value });
        let writes = plan
            .writes
            .iter()
            .map(|key| Recorded::Write { key: *key as u64, value: value(client, program.next, *key) });
        reads.chain(writes).collect()
    }

    /// Records the outcome of a transaction, which may be unknown for ever.
    fn record(&mut self, client: usize, outcome: Option<Outcome>) {
        let steps = self.steps(client);
        let number = self.recorded;
        self.recorded += 1;
        match outcome {
            Some(Outcome::Committed(_)) => {
                self.committed += 1;
                self.history.invoke(number, 2, &steps);
                self.history.ok(number, 3, &steps);
            }
            Some(Outcome::Aborted) => {}
            None => self.history.invoke(number, 2, &steps),
            Some(other) => panic!("{other:?}"),
        }
    }

    fn ended(&mut self, client: usize, outcome: Outcome) {
        self.record(client, Some(outcome));
        let program = &mut self.programs[client];
        (program.open, program.committing, program.next) = (None, false, program.next + 1);
    }

    fn moves(&self, deaths: bool) -> Vec<Move> {
        let mut moves = Vec::new();
        let alive = |client: &usize| !self.programs[*client].dead;
        for client in (0..self.programs.len()).filter(alive) {
            let shards = (0..self.net.servers.len()).filter(|shard| self.net.has_work(client, *shard));
            let before = moves.len();
            moves.extend(shards.map(|shard| Move::Step { client, shard }));
            if deaths && moves.len() > before && self.programs.iter().all(|program| !program.dead) {
                moves.push(Move::Die(client));
            }
        }
        moves
    }

    fn make(&mut self, step: Move) {
        match step {
            Move::Die(client) => {
                if self.programs[client].committing {
                    self.record(client, None);
                }
                self.programs[client].dead = true;
                self.net.kill(client);
            }
            Move::Step { client, shard } => {
                self.net.step(client, shard);
                while let Some(completion) = self.net.poll(client, shard) {
                    let program = &mut self.programs[client];
                    let event = program
                        .client
                        .complete(shard, &completion, &mut self.net.connections(client))
                        .unwrap();
                    match event {
                        Some(Event::Read { entry, value, .. }) => {
                            let value = value.map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
                            let plan = program.plans[program.next];
                            let (_, entries, values) = program.open.as_mut().unwrap();
                            let index = entries.iter().position(|known| *known == entry).unwrap();
                            values.push((plan.reads[index], value));
                        }
                        Some(Event::Ended { outcome, .. }) => self.ended(client, outcome),
                        None => {}
                    }
                }
                self.proceed(client);
            }
        }
    }

    /// Returns a digest of the state. Two runs in the same state continue in the same way.
    fn state(&self) -> u64 {
        let mut hasher = Xxh3::new();
        for server in &self.net.servers {
            let mut bytes = vec![0; server.memory.bytes.len()];
            server.memory.read(0, &mut bytes);
            (bytes, &server.free).hash(&mut hasher);
        }
        for (client, program) in self.programs.iter().enumerate() {
            let queues = (0..self.net.servers.len()).map(|shard| self.net.has_work(client, shard));
            (self.net.seen(client), program.dead, queues.collect::<Vec<_>>()).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Ends a run: a client reads all keys, which must be consistent with the results so far.
    fn close(mut self, world: &World) -> Result<u32, String> {
        let janitor = self.programs.len();
        let config = ClientConfig { patience: 0, rules: Rules::Proved, ..world.config };
        self.join(config, vec![Plan { reads: &[0, 1], writes: &[], clock: 0 }; 3]);
        self.proceed(janitor);
        let before = self.committed;
        while let Some(step) = self.moves(false).first().copied() {
            self.make(step);
        }
        if self.programs[janitor].open.is_some() || self.committed == before {
            return Err("a key is blocked".to_owned());
        }
        remora_check::serializable(&self.history).map_err(|violation| violation.to_string())?;
        let died = self.programs.iter().any(|program| program.dead);
        for server in self.net.servers.iter().filter(|_| !died && world.config.rules == Rules::Proved) {
            let free = server.free.len();
            let live = server.live().len();
            if free + live != BUFFERS as usize {
                return Err(format!("{free} buffers are free and {live} live"));
            }
        }
        Ok(before)
    }
}

/// The result of a search.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub states: usize,
    pub ends: usize,
    /// The minimum and maximum number of committed transactions.
    pub committed: (u32, u32),
    pub broken: Option<String>,
}

/// Searches all orders.
pub(crate) fn search(world: &World) -> Found {
    let mut result = Found { committed: (u32::MAX, 0), ..Found::default() };
    let mut known = BTreeSet::new();
    let mut paths: Vec<Vec<Move>> = vec![Vec::new()];
    while let Some(mut path) = paths.pop() {
        let mut run = Run::new(world);
        path.iter().for_each(|step| run.make(*step));
        // Continues with the first possible step, and returns later for the others.
        while known.insert(run.state()) {
            let moves = run.moves(world.deaths);
            if moves.iter().any(|step| matches!(step, Move::Step { .. })) {
                paths.extend(moves[1..].iter().map(|step| [path.as_slice(), &[*step]].concat()));
                run.make(moves[0]);
                path.push(moves[0]);
                continue;
            }
            result.ends += 1;
            match run.close(world) {
                Ok(committed) => {
                    result.committed = (result.committed.0.min(committed), result.committed.1.max(committed));
                }
                Err(says) => {
                    result.broken = Some(format!("{says}\nafter {path:?}"));
                    paths.clear();
                }
            }
            break;
        }
    }
    result.states = known.len();
    result
}
