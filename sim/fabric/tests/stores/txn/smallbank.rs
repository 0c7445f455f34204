//! SmallBank over both designs of transactions: clients move money between the accounts of two shards, while
//! links lose and reorder. At the end no money is missing, and the clients' results are serializable.

use remora_check::{History, Step, Violation};
use remora_fabric::{Config, World};
use remora_fault::Random;
use remora_store::txn::workload::{Audit, Counts, Ended, Load, Runner, SmallBank, Workload};
use remora_store::txn::{ClientConfig, Machine, Outcome, Rules, ShardConfig, farm};
use remora_transport::Instant;

use super::protocol::{Farm, PrismTx, Protocol, settings};
use crate::harness::{Endpoints, Host, Link, arena};
use crate::mishaps::Plan;

const TELLERS: usize = 4;
const SHARDS: usize = 2;
const WINDOW: u32 = 3;
const CUSTOMERS: u64 = 6;
/// Jobs per teller.
const JOBS: u64 = 25;

const MAX_KEYS: u32 = 3;

const PRISM_TX: PrismTx = PrismTx {
    shard: ShardConfig { slots: 32, reach: 32, sessions: 64, window: WINDOW },
    client: ClientConfig {
        window: WINDOW,
        max_keys: MAX_KEYS,
        max_key: 16,
        max_value: 16,
        patience: 12,
        one_step: true,
        rules: Rules::Proved,
    },
    buffers: (128, 200),
    peers: TELLERS as u32,
};

const FARM: Farm = Farm {
    shard: farm::ShardConfig {
        keys: 32,
        homes: 32,
        reach: 32,
        max_pair: 32,
        clients: TELLERS as u32,
        window: WINDOW,
        max_keys: MAX_KEYS,
    },
    client: farm::ClientConfig {
        window: WINDOW,
        max_keys: MAX_KEYS,
        max_key: 16,
        max_value: 16,
        patience: 12,
        seed: 0,
        rules: farm::Rules::Proved,
    },
};

/// A client with its connections.
struct Teller<C> {
    links: Vec<Link>,
    client: C,
}

struct Bank<P: Protocol> {
    world: World,
    hosts: Vec<Host<P::Shard>>,
    tellers: Vec<Teller<P::Client>>,
    history: History,
}

/// Returns a key as the history names it, and the writer of its value.
fn noted(key: &[u8], value: Option<&[u8]>) -> (u64, Option<u64>) {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    (word(key), value.map(|value| word(&value[8..])))
}

/// Records a committed transaction. An aborted one is retried with the same values and therefore left out.
fn note<D>(history: &mut History, client: u32, ended: &Ended<'_, D>, now: Instant) {
    let Outcome::Committed(_) = ended.outcome else { return };
    let script = ended.script;
    let reads = (0..script.asked()).map(|place| {
        let key = script.key(place).expect("a key that was asked for");
        let (key, value) = noted(key.bytes(), script.value(place));
        Step::Read { key, value }
    });
    let write = |(key, value): (&remora_store::txn::workload::Key, Option<&[u8]>)| {
        let (key, value) = noted(key.bytes(), value);
        Step::Write { key, value: value.expect("nothing is removed") }
    };
    let writes: Vec<Step> = script.writes().map(write).collect();
    let steps: Vec<Step> = reads.chain(writes.iter().copied()).collect();
    history.invoke(client, ended.began[1].0, &writes);
    history.ok(client, now.0, &steps);
}

impl<P: Protocol> Bank<P> {
    fn new(protocol: P, seed: u64) -> Bank<P> {
        let mut world = World::new(&Config { seed, nodes: TELLERS + SHARDS, ..Config::default() });
        let host =
            |index| Host::open(&mut world, TELLERS + index, protocol.shape(), |memory| protocol.open(memory));
        let mut hosts: Vec<_> = (0..SHARDS).map(host).collect();
        let mut tellers = Vec::new();
        for node in 0..TELLERS {
            let arena = arena(&mut world, node, protocol.arena_len(SHARDS));
            let accept = |host: &mut Host<P::Shard>| host.accept(&mut world, node, &settings());
            let links: Vec<Link> = hosts.iter_mut().filter_map(accept).collect();
            let mut client = protocol.join(&mut world, &mut hosts, &links, arena, node as u64 + 1);
            client.start(&mut Endpoints { world: &mut world, links: &links }).expect("a receive request");
            tellers.push(Teller { links, client });
        }
        Bank { world, hosts, tellers, history: History::default() }
    }

    /// Lets a teller continue its jobs.
    fn turn<W: Workload>(&mut self, index: usize, runner: &mut Runner<W>) {
        let now = self.world.now();
        let Teller { links, client } = &mut self.tellers[index];
        let history = &mut self.history;
        let mut report = |ended: &Ended<'_, W::Job>| {
            note(history, index as u32 * WINDOW + ended.place as u32, ended, now);
        };
        for shard in 0..SHARDS {
            while let Some(completion) = links[shard].poll(&mut self.world) {
                let connections = &mut Endpoints { world: &mut self.world, links };
                runner
                    .complete(|| now, shard, &completion, client, connections, &mut report)
                    .expect("nothing breaks");
            }
        }
        let connections = &mut Endpoints { world: &mut self.world, links };
        runner.begin(now, client, connections, &mut report).expect("there is space");
        (0..SHARDS).try_for_each(|shard| client.return_buffers(shard, connections)).expect("nothing breaks");
    }

    /// Runs until the tellers of these runners have finished all jobs.
    fn run<W: Workload>(&mut self, runners: &mut [Runner<W>]) {
        for _ in 0..100_000 {
            self.hosts.iter_mut().for_each(|host| host.turn(&mut self.world));
            runners.iter_mut().enumerate().for_each(|(index, runner)| self.turn(index, runner));
            if runners.iter().all(Runner::is_done) {
                return;
            }
            let limit = self.world.now().after(4_000);
            self.world.step_until(limit);
        }
        panic!("a job is never done");
    }

    /// Lets a single teller execute `jobs` jobs alone. Returns their sum.
    fn alone<W: Workload>(&mut self, workload: W, jobs: u64) -> i64 {
        let mut runners = [Runner::new(workload, WINDOW as usize, 1)];
        runners[0].draw(jobs);
        self.run(&mut runners);
        assert_eq!(runners[0].counts().declined, 0, "a value that is none");
        runners[0].counts().gain
    }
}

/// Runs the bank. Returns the counts, the missing money, and the verdict on the history.
fn day<P: Protocol>(protocol: P, seed: u64) -> (Counts, i64, Result<(), Violation>) {
    let mut random = Random::new(seed);
    let mut bank = Bank::new(protocol, seed);
    bank.world.set_rules(&Plan::draw(&mut random).rules(), seed);
    let workload = |client| SmallBank::new(CUSTOMERS, client, seed);
    let load = workload(0);
    let ledger = workload(0);
    let load = Load::of(&load);
    let rows = load.jobs();
    let before = bank.alone(load, rows);
    let teller = |client| {
        // Clocks are up to four seconds apart.
        let skew = random.below(4_000_000);
        let mut runner = Runner::new(workload(client), WINDOW as usize, seed).ahead(skew);
        runner.draw(JOBS);
        runner
    };
    let mut runners: Vec<Runner<SmallBank>> = (0..TELLERS as u16).map(teller).collect();
    bank.run(&mut runners);
    let mut all = Counts::default();
    for counts in runners.iter().map(Runner::counts) {
        all.committed += counts.committed;
        all.declined += counts.declined;
        all.aborted += counts.aborted;
        all.gain += counts.gain;
    }
    let audit = Audit::of(&ledger);
    let rows = audit.jobs();
    let after = bank.alone(audit, rows);
    (all, after - before - all.gain, P::judge(&bank.history))
}

fn days<P: Protocol>(protocol: P, seeds: std::ops::Range<u64>) {
    let mut all = Counts::default();
    for seed in seeds {
        let (counts, off, judged) = day(protocol, seed);
        assert_eq!(off, 0, "seed {seed}: cents that came from nowhere");
        judged.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        assert_eq!(counts.committed, TELLERS as u64 * JOBS);
        all.aborted += counts.aborted;
        all.declined += counts.declined;
    }
    assert!(all.aborted > 100 && all.declined > 100, "the accounts are crowded, and some are poor: {all:?}");
}

#[test]
fn over_prism_tx_not_a_cent_is_missing() {
    days(PRISM_TX, 0..20);
}

#[test]
fn over_farm_not_a_cent_is_missing() {
    days(FARM, 0..20);
}

/// A cheque is paid from both accounts but writes only one of them. With unchecked reads, two clients that
/// saw the same money both spend it. The sum is still right, and the checker finds the fault.
#[test]
fn where_reads_are_not_validated_the_history_says_so() {
    let unchecked = PRISM_TX.with(Rules::ReadsUnchecked);
    assert!((0..100).any(|seed| day(unchecked, seed).2.is_err()), "PRISM-TX");
    let unchecked = FARM.with(farm::Rules::ReadsUnchecked);
    assert!((0..100).any(|seed| day(unchecked, seed).2.is_err()), "FaRM");
}
