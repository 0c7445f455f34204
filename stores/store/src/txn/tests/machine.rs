//! Tests of single clients: the results of transactions, their round trips, and limits.

use super::executor::Net;
use crate::heap::MOST_RETURNED;
use crate::txn::client::slot_of;
use crate::txn::{
    Client, ClientConfig, Event, Known, Machine as _, Outcome, Refused, Shard, ShardConfig, Tx,
};

const SHARD: ShardConfig = ShardConfig { slots: 2, reach: 2, sessions: 3, window: 2 };

struct Bench {
    net: Net,
    client: Client,
}

impl Bench {
    fn new(one_step: bool, buffers: u32) -> Bench {
        let config = ClientConfig {
            window: 2,
            max_keys: 3,
            max_key: 8,
            max_value: 32,
            one_step,
            ..Default::default()
        };
        let mut net = Net::new(1, SHARD, buffers);
        let (grants, arena) = net.join(config.arena_len(1));
        let mut client = Client::new(config, grants, arena).unwrap();
        client.start(&mut net.connections(0)).unwrap();
        Bench { net, client }
    }

    /// Executes everything, and returns the outcome and round trips of a transaction.
    fn run(&mut self) -> Option<(Outcome, u32)> {
        let mut ended = None;
        while self.net.has_work(0, 0) {
            self.net.step(0, 0);
            while let Some(completion) = self.net.poll(0, 0) {
                let event = self.client.complete(0, &completion, &mut self.net.connections(0)).unwrap();
                if let Some(Event::Ended { outcome, round_trips, .. }) = event {
                    ended = Some((outcome, round_trips));
                }
            }
        }
        ended
    }

    fn write(&mut self, tx: Tx, key: &[u8], value: &[u8]) {
        self.client.write(tx, key, value, &mut self.net.connections(0)).unwrap();
    }

    fn read(&mut self, tx: Tx, key: &[u8]) -> Option<Vec<u8>> {
        let entry = self.client.read(tx, key, &mut self.net.connections(0)).unwrap();
        self.run();
        self.client.value(tx, entry).expect("it is there").value().map(<[u8]>::to_vec)
    }

    fn commit(&mut self, tx: Tx) -> (Outcome, u32) {
        let ended = self.client.commit(tx, 5, &mut self.net.connections(0)).unwrap();
        let at_once = ended.map(|event| match event {
            Event::Ended { outcome, round_trips, .. } => (outcome, round_trips),
            Event::Read { .. } => panic!("a commit reads nothing"),
        });
        at_once.or_else(|| self.run()).expect("it ends")
    }
}

#[test]
fn round_trips_are_counted_and_values_come_back() {
    for (one_step, trips) in [(false, 3), (true, 2)] {
        let mut bench = Bench::new(one_step, 8);
        let tx = bench.client.begin().unwrap();
        assert_eq!(bench.read(tx, b"a"), None);
        bench.write(tx, b"a", b"one");
        assert_eq!(bench.read(tx, b"a"), Some(b"one".to_vec()), "its own");
        let (outcome, taken) = bench.commit(tx);
        assert!(matches!(outcome, Outcome::Committed(_)));
        assert_eq!(taken, trips, "one step: {one_step}");
        let tx = bench.client.begin().unwrap();
        assert_eq!(bench.read(tx, b"a"), Some(b"one".to_vec()));
        assert_eq!(bench.commit(tx).1, 1);
        let tx = bench.client.begin().unwrap();
        bench.client.delete(tx, b"a", &mut bench.net.connections(0)).unwrap();
        assert!(matches!(bench.commit(tx).0, Outcome::Committed(_)));
        let tx = bench.client.begin().unwrap();
        assert_eq!(bench.read(tx, b"a"), None);
    }
}

/// Returns a key for each of two slots.
fn keys_apart() -> [[u8; 1]; 2] {
    [0, 1].map(|home| (b'a'..).map(|key| [key]).find(|key| slot_of(key, 2) == home).expect("one of many"))
}

/// A transaction of one key need not know the address of a version. A transaction of two keys reads the
/// address, and writes it from then on.
#[test]
fn where_a_version_is_costs_a_round_trip_once() {
    let mut bench = Bench::new(true, 8);
    let change = |bench: &mut Bench, keys: &[[u8; 1]]| {
        let tx = bench.client.begin().unwrap();
        keys.iter().for_each(|key| bench.write(tx, key, b"1"));
        let (outcome, trips) = bench.commit(tx);
        assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
        trips
    };
    let [a, b] = keys_apart();
    assert_eq!([change(&mut bench, &[a]), change(&mut bench, &[a])], [2, 2]);
    // The round trips are: look up, locate, prepare, decide.
    assert_eq!(change(&mut bench, &[a, b]), 4);
    assert_eq!([change(&mut bench, &[a]), change(&mut bench, &[a, b])], [2, 3]);
    bench.client.return_buffers(0, &mut bench.net.connections(0)).unwrap();
    bench.run();
    let server = &bench.net.servers[0];
    assert_eq!((server.live().len(), server.free.len()), (2, 6), "a buffer a key, and all others are back");
}

/// Writes a key in a transaction of its own.
fn change(bench: &mut Bench, key: &[u8]) -> Outcome {
    let tx = bench.client.begin().unwrap();
    bench.write(tx, key, b"1");
    bench.commit(tx).0
}

#[test]
fn buffers_go_back_in_groups_and_when_the_client_rests() {
    let mut bench = Bench::new(true, 40);
    let free = |bench: &Bench| bench.net.servers[0].free.len();
    // The first transaction replaces no version.
    (0..MOST_RETURNED / 2).for_each(|_| assert!(matches!(change(&mut bench, b"a"), Outcome::Committed(_))));
    assert_eq!(free(&bench), 40 - MOST_RETURNED / 2, "no message has gone");
    change(&mut bench, b"a");
    bench.run();
    assert_eq!(free(&bench), 39, "a group has");
    change(&mut bench, b"a");
    let tx = bench.client.begin().unwrap();
    bench.client.return_buffers(0, &mut bench.net.connections(0)).unwrap();
    bench.run();
    assert_eq!(free(&bench), 38, "it does not rest");
    bench.client.abort(tx).unwrap();
    bench.client.return_buffers(0, &mut bench.net.connections(0)).unwrap();
    bench.run();
    assert_eq!(free(&bench), 39);
}

#[test]
fn where_a_shard_has_no_buffer_none_waits_at_the_client() {
    let mut bench = Bench::new(true, 3);
    (0..3).for_each(|_| assert!(matches!(change(&mut bench, b"a"), Outcome::Committed(_))));
    assert_eq!(change(&mut bench, b"a"), Outcome::NoBuffer);
    bench.run();
    assert!(matches!(change(&mut bench, b"a"), Outcome::Committed(_)));
}

#[test]
fn at_its_bounds_it_says_so() {
    let mut bench = Bench::new(true, 1);
    let tx = bench.client.begin().unwrap();
    let other = bench.client.begin().unwrap();
    assert_eq!(bench.client.begin(), Err(Refused::WindowFull));
    let mut connections = bench.net.connections(0);
    let too_long = [0; 33];
    assert_eq!(bench.client.write(tx, b"k", &too_long, &mut connections), Err(Refused::ValueTooLong));
    assert_eq!(bench.client.read(tx, &[0; 9], &mut connections), Err(Refused::KeyTooLong));
    for key in [b"a", b"b", b"c"] {
        bench.client.write(tx, key, b"1", &mut connections).unwrap();
    }
    assert_eq!(bench.client.read(tx, b"d", &mut connections), Err(Refused::TooManyKeys));
    assert_eq!(bench.commit(tx).0, Outcome::TableFull, "three keys for two slots");
    assert_eq!(bench.client.commit(tx, 5, &mut bench.net.connections(0)), Err(Refused::NotOpen));
    bench.write(other, b"a", b"1");
    bench.write(other, b"b", b"1");
    assert_eq!(bench.commit(other).0, Outcome::NoBuffer, "two keys for one buffer");
    let server = &mut bench.net.servers[0];
    assert!(server.live().is_empty(), "nothing of it happened");
    assert!(server.shard.accept(&server.classes).is_some());
    assert_eq!(server.shard.accept(&server.classes), None, "cells for two sessions");
    // Client numbers survive a restart.
    let mut again = Shard::open(SHARD, &server.memory).unwrap();
    assert_eq!(again.accept(&server.classes), None);
}

/// Regression: clients that never connected used up the client numbers of a shard.
#[test]
fn the_number_of_a_client_that_never_connected_is_given_again() {
    let server = &mut Bench::new(true, 1).net.servers[0];
    let grant = server.shard.accept(&server.classes).unwrap();
    assert_eq!(server.shard.accept(&server.classes), None, "cells for two sessions");
    server.shard.take_back(grant.session);
    assert_eq!(server.shard.accept(&server.classes), Some(grant));
    assert_eq!(server.shard.accept(&server.classes), None);
}

/// Returns two clients of a shard with two slots.
fn two_clients() -> (Net, Vec<Client>) {
    let config = ClientConfig { window: 2, max_keys: 3, max_key: 8, max_value: 32, ..Default::default() };
    let mut net = Net::new(1, ShardConfig { slots: 2, reach: 2, sessions: 4, window: 2 }, 16);
    let mut clients = Vec::new();
    for client in 0..2 {
        let (grants, arena) = net.join(config.arena_len(1));
        clients.push(Client::new(config, grants, arena).unwrap());
        clients[client].start(&mut net.connections(client)).unwrap();
    }
    (net, clients)
}

/// Executes everything that a client has posted, and returns the outcome and round trips of its transaction.
fn run(net: &mut Net, clients: &mut [Client], client: usize) -> Option<(Outcome, u32)> {
    let mut ended = None;
    while net.has_work(client, 0) {
        net.step(client, 0);
        while let Some(completion) = net.poll(client, 0) {
            let event = clients[client].complete(0, &completion, &mut net.connections(client)).unwrap();
            if let Some(Event::Ended { outcome, round_trips, .. }) = event {
                ended = Some((outcome, round_trips));
            }
        }
    }
    ended
}

/// Another client replaces a version after it was read and before its address is read. The address of the
/// new version must not be used.
#[test]
fn a_version_that_is_no_longer_the_latest_is_not_located() {
    let (mut net, mut clients) = two_clients();
    let [a, b] = keys_apart();
    let change = |net: &mut Net, clients: &mut [Client], client: usize, keys: &[[u8; 1]]| {
        let tx = clients[client].begin().unwrap();
        for key in keys {
            clients[client].write(tx, key, b"1", &mut net.connections(client)).unwrap();
        }
        assert_eq!(run(net, clients, client), None);
        assert_eq!(clients[client].commit(tx, 5, &mut net.connections(client)).unwrap(), None);
    };
    change(&mut net, &mut clients, 0, &[a]);
    assert!(matches!(run(&mut net, &mut clients, 0), Some((Outcome::Committed(_), 2))));
    change(&mut net, &mut clients, 1, &[a, b]);
    change(&mut net, &mut clients, 0, &[a]);
    assert!(matches!(run(&mut net, &mut clients, 0), Some((Outcome::Committed(_), 2))));
    assert_eq!(run(&mut net, &mut clients, 1), Some((Outcome::Aborted, 2)), "before anything was put in");
}

/// A key was absent, and another key has taken its slot since. The read is validated although its
/// transaction locks the slot.
#[test]
fn an_absent_key_whose_slot_another_key_took_is_not_taken_for_covered() {
    let (mut net, mut clients) = two_clients();
    let home = |key: &[u8]| slot_of(key, 2);
    let keys: Vec<Vec<u8>> = (0u8..50).map(|n| vec![b'k', n]).filter(|key| home(key) == 0).take(2).collect();
    let a = &keys[0];
    let b = &keys[1];
    let tx = clients[0].begin().unwrap();
    clients[0].read(tx, a, &mut net.connections(0)).unwrap();
    run(&mut net, &mut clients, 0);
    let other = clients[1].begin().unwrap();
    for key in [b, a] {
        clients[1].write(other, key, b"1", &mut net.connections(1)).unwrap();
    }
    run(&mut net, &mut clients, 1);
    assert_eq!(clients[1].commit(other, 5, &mut net.connections(1)).unwrap(), None);
    assert!(matches!(run(&mut net, &mut clients, 1), Some((Outcome::Committed(_), _))));
    let entry = clients[0].read(tx, b, &mut net.connections(0)).unwrap();
    run(&mut net, &mut clients, 0);
    assert_eq!(clients[0].value(tx, entry), Some(Known::Value(b"1")));
    clients[0].write(tx, b, b"2", &mut net.connections(0)).unwrap();
    let at_once = clients[0].commit(tx, 9, &mut net.connections(0)).unwrap();
    assert_eq!(at_once, None);
    assert_eq!(
        run(&mut net, &mut clients, 0).map(|(outcome, _)| outcome),
        Some(Outcome::Aborted),
        "it has read that a is absent, and what b has with it"
    );
}

/// A key is absent when it is read. The lookup continues, since another key has taken its slot, and may find
/// that the key was inserted.
#[test]
fn an_absent_key_that_turns_up_further_on_is_not_what_was_read() {
    let (mut net, mut clients) = two_clients();
    let keys: Vec<Vec<u8>> =
        (0u8..50).map(|n| vec![b'k', n]).filter(|key| slot_of(key, 2) == 0).take(2).collect();
    let a = &keys[0];
    let b = &keys[1];
    let tx = clients[0].begin().unwrap();
    clients[0].write(tx, a, b"2", &mut net.connections(0)).unwrap();
    let entry = clients[0].read(tx, b, &mut net.connections(0)).unwrap();
    run(&mut net, &mut clients, 0);
    assert_eq!(clients[0].value(tx, entry), Some(Known::Absent));
    let other = clients[1].begin().unwrap();
    for key in [a, b] {
        clients[1].write(other, key, b"1", &mut net.connections(1)).unwrap();
    }
    run(&mut net, &mut clients, 1);
    assert_eq!(clients[1].commit(other, 5, &mut net.connections(1)).unwrap(), None);
    assert!(matches!(run(&mut net, &mut clients, 1), Some((Outcome::Committed(_), _))));
    clients[0].read(tx, a, &mut net.connections(0)).unwrap();
    run(&mut net, &mut clients, 0);
    clients[0].write(tx, b, b"2", &mut net.connections(0)).unwrap();
    assert_eq!(clients[0].commit(tx, 9, &mut net.connections(0)).unwrap(), None);
    let ended = run(&mut net, &mut clients, 0).map(|(outcome, _)| outcome);
    assert_eq!(ended, Some(Outcome::Aborted), "it has read that b is absent");
}
