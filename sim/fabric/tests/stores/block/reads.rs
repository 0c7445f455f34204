//! Single reads: the value comes from one replica, even if others are behind, disconnected, dead or empty.

use remora_fabric::{Config, Settings, World};
use remora_store::block::{
    Canary, ClientConfig, ClientId, Finished, Layout, Outcome, Slot, Tag, abdlock, prism_rs,
};

use super::design::{Copied, Design};
use super::run::Endpoints;
use crate::harness::{Host, Link, arena};

const LAYOUT: Layout = Layout { blocks: 24, block_len: 1024 };
/// Largest number of bytes from a replica that answers with its tag and acknowledges.
const LITTLE: u64 = 200;
const WINDOW: u16 = 16;

struct Program<D> {
    node: usize,
    machine: D,
    links: Vec<Option<Link>>,
}

/// The end of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ended {
    value: Option<u8>,
    tag: Tag,
    round_trips: u32,
    /// Duration, in microseconds.
    took: u64,
}

/// A store with some replicas and two clients.
struct SmallStore<D: Design> {
    world: World,
    hosts: Vec<Host<D::Table>>,
    clients: Vec<Program<D>>,
    settings: Settings,
}

impl<D: Design> SmallStore<D> {
    /// Creates a store. A silent connection fails after several times 4 µs * 2^`patience`.
    fn new(replicas: usize, patience: u8) -> SmallStore<D> {
        let mut world = World::new(&Config { nodes: replicas + 2, ..Config::default() });
        let open = |world: &mut World, node| {
            let shape = D::shape(LAYOUT, 4, WINDOW);
            Host::open(world, node, shape, |memory| D::table(LAYOUT, memory, &[]))
        };
        let hosts: Vec<_> = (0..replicas).map(|node| open(&mut world, node)).collect();
        let settings =
            Settings { prism: true, timeout: patience, send_slots: 512, retry_cnt: 3, ..Settings::default() };
        let mut few = SmallStore { world, hosts, clients: Vec::new(), settings };
        for client in 0..2 {
            let id = ClientId::new(client as u32).expect("few clients");
            let canary = Canary::Sound;
            let config = ClientConfig { id, replicas, layout: LAYOUT, window: WINDOW, canary };
            let node = replicas + client;
            let arena = arena(&mut few.world, node, D::arena_len(&config));
            let links = vec![None; replicas];
            few.clients.push(Program { node, machine: D::client(config, arena), links });
        }
        few.connect();
        few
    }

    /// Connects the clients to all replicas that are up.
    fn connect(&mut self) {
        for Program { node, machine, links } in &mut self.clients {
            for (replica, host) in self.hosts.iter_mut().enumerate() {
                if links[replica].is_none()
                    && let Some(link) = host.accept(&mut self.world, *node, &self.settings)
                {
                    links[replica] = Some(link);
                    let grant = D::grant(host);
                    let ends = &mut Endpoints { world: &mut self.world, links };
                    machine.connect(replica, grant, ends).expect("a replica of this store");
                }
            }
        }
    }

    fn cut(&mut self, client: usize, replica: usize, cut: bool) {
        let node = self.clients[client].node;
        self.world.cut(node, replica, cut);
        self.world.cut(replica, node, cut);
    }

    /// Advances by a microsecond, and passes operations that have ended to `ended`.
    fn step(&mut self, mut ended: impl FnMut(usize, &Finished<'_>)) {
        let now = self.world.now();
        self.hosts.iter_mut().for_each(|host| host.turn(&mut self.world));
        for (index, Program { machine, links, .. }) in self.clients.iter_mut().enumerate() {
            for replica in 0..links.len() {
                while let Some(completion) = links[replica].and_then(|link| link.poll(&mut self.world)) {
                    let ends = &mut Endpoints { world: &mut self.world, links };
                    if let Some(finished) = machine.complete(now, replica, &completion, ends) {
                        ended(index, &finished);
                    }
                }
            }
            machine.expire(now, &mut Endpoints { world: &mut self.world, links });
            while let Some(lost) = machine.lost() {
                if let Some(link) = links[lost.replica].take() {
                    link.end(&mut self.world);
                    self.hosts[lost.replica].lose(&mut self.world, &link);
                }
                machine.disconnect(now, lost.replica, &mut Endpoints { world: &mut self.world, links });
            }
        }
        self.world.run_for(1_000);
    }

    fn steps(&mut self, steps: u32) {
        (0..steps).for_each(|_| self.step(|_, _| ()));
    }

    fn begin_read(&mut self, client: usize, block: u64) -> Slot {
        let now = self.world.now();
        let Program { machine, links, .. } = &mut self.clients[client];
        machine.read(now, block, &mut Endpoints { world: &mut self.world, links }).expect("it begins")
    }

    fn begin_write(&mut self, client: usize, block: u64, byte: u8) -> Slot {
        let now = self.world.now();
        let value = [byte; LAYOUT.block_len as usize];
        let Program { machine, links, .. } = &mut self.clients[client];
        machine
            .write(now, block, &value, &mut Endpoints { world: &mut self.world, links })
            .expect("it begins")
    }

    /// Runs until the operation in this slot has ended.
    fn end(&mut self, client: usize, slot: Slot) -> Ended {
        self.ends(client, &[slot]).remove(0)
    }

    /// Runs until the operations in these slots have ended.
    fn ends(&mut self, client: usize, slots: &[Slot]) -> Vec<Ended> {
        let begun = self.world.now();
        let mut ends = vec![None; slots.len()];
        for _ in 0..20_000 {
            let took = self.world.now().since(begun) / 1_000;
            self.step(|index, finished| {
                let read = slots.iter().position(|slot| (index, *slot) == (client, finished.slot));
                let Some(read) = read else { return };
                let value = match finished.outcome {
                    Outcome::Value(value) => {
                        assert!(
                            value.iter().all(|byte| *byte == value[0]),
                            "a value is one of those written"
                        );
                        Some(value[0])
                    }
                    Outcome::Done => None,
                    other => panic!("{other:?}"),
                };
                let Finished { tag, round_trips, .. } = *finished;
                ends[read] = Some(Ended { value, tag, round_trips, took });
            });
            if ends.iter().all(Option::is_some) {
                return ends.into_iter().flatten().collect();
            }
        }
        panic!("the operations do not end");
    }

    fn read(&mut self, client: usize, block: u64) -> Ended {
        let slot = self.begin_read(client, block);
        self.end(client, slot)
    }

    /// Writes a block, and waits for slow replicas as well.
    fn write(&mut self, client: usize, block: u64, byte: u8) {
        let slot = self.begin_write(client, block, byte);
        self.end(client, slot);
        self.steps(50);
    }

    /// Returns the bytes that each replica sends during `operation` and shortly afterwards.
    fn sent<R>(&mut self, operation: impl FnOnce(&mut SmallStore<D>) -> R) -> (R, Vec<u64>) {
        let all = |few: &SmallStore<D>| -> Vec<u64> {
            (0..few.hosts.len()).map(|node| few.world.counters(node).sent_bytes).collect()
        };
        let before = all(self);
        let result = operation(self);
        self.steps(50);
        (result, all(self).iter().zip(before).map(|(after, before)| after - before).collect())
    }

    /// Returns the replica from which a client would read the value of a block, judged by the sent bytes.
    fn source(&mut self, client: usize, block: u64) -> usize {
        let (_, sent) = self.sent(|few| few.read(client, block));
        let mut large = (0..sent.len()).filter(|replica| sent[*replica] > LITTLE);
        let source = large.next().expect("a value");
        assert_eq!(large.next(), None, "one value: {sent:?}");
        source
    }
}

type Rs = SmallStore<prism_rs::Client>;

/// Returns a store whose blocks were written, each with its own number.
fn written(replicas: usize, patience: u8) -> Rs {
    let mut few = Rs::new(replicas, patience);
    (0..LAYOUT.blocks).for_each(|block| few.write(0, block, block as u8));
    few
}

#[test]
fn a_read_brings_one_value_and_all_replicas_give_as_many() {
    for replicas in [1, 3, 5] {
        let mut few = written(replicas, 14);
        let len = u64::from(LAYOUT.block_len);
        let mut values = vec![0; replicas];
        for block in 0..LAYOUT.blocks {
            let (ended, sent) = few.sent(|few| few.read(1, block));
            assert_eq!((ended.value, ended.round_trips), (Some(block as u8), 1));
            let large: Vec<usize> = (0..replicas).filter(|replica| sent[*replica] > LITTLE).collect();
            assert_eq!(large.len(), 1, "{sent:?}");
            assert!((len..len + LITTLE).contains(&sent[large[0]]), "{sent:?}");
            values[large[0]] += 1;
        }
        let fair = LAYOUT.blocks as usize / replicas;
        assert!(values.iter().all(|count| (fair..=fair + 1).contains(count)), "{values:?}");
        // Different clients start at different replicas.
        assert!(replicas == 1 || few.source(0, 0) != few.source(1, 0));
    }
}

#[test]
fn a_source_that_is_behind_costs_a_round_trip_and_the_value_is_the_newest() {
    let mut few = written(3, 14);
    let source = few.source(1, 5);
    few.cut(0, source, true);
    let slot = few.begin_write(0, 5, 77);
    few.end(0, slot);
    let tag = |few: &Rs, replica: usize| few.hosts[replica].table.tags(5).0;
    let before = tag(&few, source);
    let ended = few.read(1, 5);
    assert_eq!((ended.value, ended.round_trips), (Some(77), 2), "two have it: nothing is written back");
    few.steps(50);
    assert_eq!(tag(&few, source), before);
    assert!(ended.tag > before && ended.took < 100, "nobody is late: {ended:?}");
}

/// Starts a write of `byte` to block 5 that reaches only one replica. It reaches neither `behind` nor
/// `other`, although `other` has answered with its tag.
fn written_at_one(few: &mut Rs, behind: usize, other: usize, byte: u8) {
    few.cut(0, behind, true);
    few.begin_write(0, 5, byte);
    few.steps(1);
    let node = few.clients[0].node;
    few.world.cut(node, other, true);
    few.steps(50);
}

#[test]
fn what_one_replica_alone_has_is_written_back_before_it_is_read() {
    let mut few = written(3, 14);
    let source = few.source(1, 5);
    let [holder, other] = [1, 2].map(|step| (source + step) % 3);
    written_at_one(&mut few, source, other, 77);
    few.cut(1, other, true);
    let tags = |few: &Rs| [source, holder, other].map(|replica| few.hosts[replica].table.tags(5).0);
    let [old, new, same] = tags(&few);
    assert!(old == same && new > old, "one replica has it");
    let ended = few.read(1, 5);
    assert_eq!((ended.value, ended.tag, ended.round_trips), (Some(77), new, 3));
    assert_eq!(tags(&few), [new, new, old], "a quorum has it");
}

#[test]
fn who_has_the_newest_alone_and_falls_silent_stops_no_read() {
    let mut few = written(3, 8);
    let source = few.source(1, 5);
    let [holder, other] = [1, 2].map(|step| (source + step) % 3);
    written_at_one(&mut few, source, other, 77);
    few.cut(1, other, true);
    let slot = few.begin_read(1, 5);
    let sent_bytes = few.world.counters(holder).sent_bytes;
    while few.world.counters(holder).sent_bytes == sent_bytes {
        few.steps(1);
    }
    // The holder's tag is in flight, and is its last message.
    few.cut(1, holder, true);
    few.steps(20);
    few.cut(1, other, false);
    let ended = few.end(1, slot);
    assert_eq!(ended.value, Some(5), "what two replicas have, and nobody has read anything newer");
    assert!(few.clients[1].links[holder].is_some(), "its connection was not missed");
}

#[test]
fn a_silent_source_costs_one_wait_and_not_one_a_read() {
    for replicas in [3, 5] {
        let mut few = written(replicas, 14);
        let dead: Vec<usize> = (0..replicas / 2).collect();
        dead.iter().for_each(|replica| few.cut(1, *replica, true));
        let all: Vec<Ended> =
            (0..4 * LAYOUT.blocks).map(|number| few.read(1, number % LAYOUT.blocks)).collect();
        assert!(all.iter().zip(0..).all(|(read, number)| read.value == Some((number % LAYOUT.blocks) as u8)));
        let waited = all.iter().filter(|read| read.round_trips > 1).count();
        assert!((1..=dead.len()).contains(&waited), "{waited}: once for each that is silent");
        assert_eq!(all.iter().filter(|read| read.took > 50).count(), waited);
        assert!(few.clients[1].links.iter().all(Option::is_some), "no connection was missed");
    }
}

#[test]
fn of_reads_that_wait_for_the_same_replica_all_go_on_with_the_first() {
    let mut few = written(3, 14);
    let late: Vec<u64> = (0..LAYOUT.blocks).filter(|block| few.source(1, *block) == 0).take(2).collect();
    few.cut(1, 0, true);
    let first = few.begin_read(1, late[0]);
    few.steps(80);
    let second = few.begin_read(1, late[1]);
    let ends = few.ends(1, &[first, second]);
    assert!(ends.iter().zip(&late).all(|(read, block)| read.value == Some(*block as u8)));
    assert_eq!(ends[0].took, ends[1].took, "both asked again at once");
    assert!((10..500).contains(&ends[0].took), "{ends:?}");
}

#[test]
fn who_was_late_gives_values_again() {
    let mut few = written(3, 8);
    few.cut(1, 0, true);
    (0..LAYOUT.blocks).for_each(|block| assert_eq!(few.read(1, block).value, Some(block as u8)));
    few.cut(1, 0, false);
    few.steps(3_000);
    let mut from_it = 0;
    for index in 0..4 * LAYOUT.blocks {
        let (ended, sent) = few.sent(|few| few.read(1, index % LAYOUT.blocks));
        assert_eq!(ended.round_trips, 1);
        from_it += usize::from(sent[0] > LITTLE);
    }
    let fair = 4 * LAYOUT.blocks as usize / 3;
    assert!((fair / 2..=fair).contains(&from_it), "{from_it} of {fair}");
}

#[test]
fn a_source_that_dies_in_the_middle_of_a_read_and_comes_back_empty_gives_values_again() {
    let mut few = written(3, 4);
    let source = few.source(1, 5);
    let slot = few.begin_read(1, 5);
    few.hosts[source].crash(&mut few.world);
    assert_eq!(few.end(1, slot).value, Some(5));
    // A repair copies the contents of a quorum, as `run.rs` does.
    few.steps(2_000);
    let all: Vec<Copied> = (0..LAYOUT.blocks)
        .map(|block| {
            let ended = few.read(1, block);
            (block, ended.tag, vec![ended.value.expect("a value"); LAYOUT.block_len as usize])
        })
        .collect();
    let table = |memory: &_| <prism_rs::Client as Design>::table(LAYOUT, memory, &all);
    few.hosts[source].restart_empty(&mut few.world, table);
    few.connect();
    few.steps(50);
    let from_it =
        (0..4 * LAYOUT.blocks).filter(|number| few.source(1, number % LAYOUT.blocks) == source).count();
    assert!(from_it > LAYOUT.blocks as usize / 2, "{from_it}");
}

/// Returns such a store of ABDLOCK.
fn written_under_locks() -> SmallStore<abdlock::Client> {
    let mut few = SmallStore::new(3, 14);
    (0..LAYOUT.blocks).for_each(|block| few.write(0, block, block as u8));
    few
}

#[test]
fn a_read_under_locks_brings_one_block_too_and_a_write_none() {
    let mut few = written_under_locks();
    let len = 2 * u64::from(LAYOUT.block_len);
    let mut values = [0; 3];
    for block in 0..LAYOUT.blocks {
        let (ended, sent) = few.sent(|few| few.read(1, block));
        assert_eq!((ended.value, ended.round_trips), (Some(block as u8), 3));
        let large: Vec<usize> = (0..3).filter(|replica| sent[*replica] > LITTLE).collect();
        assert_eq!(large.len(), 1, "{sent:?}");
        assert!((len..len + LITTLE).contains(&sent[large[0]]), "both copies: {sent:?}");
        values[large[0]] += 1;
    }
    assert!(values.iter().filter(|count| **count > 0).count() > 1, "{values:?}");
    let (ended, sent) = few.sent(|few| {
        let slot = few.begin_write(0, 3, 99);
        few.end(0, slot)
    });
    assert_eq!(ended.round_trips, 4);
    assert!(sent.iter().all(|sent| *sent < LITTLE), "{sent:?}");
}

#[test]
fn under_locks_a_source_that_is_behind_costs_a_round_trip_too() {
    let mut few = written_under_locks();
    few.cut(0, 0, true);
    for block in 0..LAYOUT.blocks {
        let slot = few.begin_write(0, block, 100 + block as u8);
        few.end(0, slot);
    }
    few.cut(1, 2, true);
    let mut trips = std::collections::BTreeSet::new();
    for block in 0..8 {
        let ended = few.read(1, block);
        assert_eq!(ended.value, Some(100 + block as u8));
        trips.insert(ended.round_trips);
    }
    assert_eq!(
        trips,
        [4, 5].into(),
        "locks, tags and a value, the value of who is not behind, what the other lacks, locks"
    );
}
