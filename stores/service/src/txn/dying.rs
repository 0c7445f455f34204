//! Tests of a FaRM client that dies between its updates: all shards must end its transaction in the same
//! way.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::thread;

use remora_store::kv::PostError;
use remora_store::txn::{Machine as _, shard_of};
use remora_store::{Connections, Post, PostPrism};
use remora_verbs::{Device, Listener, ReceiveRequest, WorkRequest, prism};

use super::client::{Session, ShardQueues, Size};
use super::farm::FarmShard;
use super::transaction::Client;
use super::{ShardConfig, ShardId};
use crate::post::Batched;
use crate::server::{Extensions, Memory, Pace, Service, StopOnDrop};

const SHARDS: usize = 2;

fn serve(shard: usize, listener: &Listener, stop: &AtomicBool) {
    let id = ShardId { shard: shard as u32, shards: SHARDS as u32 };
    let size = ShardConfig { id, ..ShardConfig::of_keys(100) };
    let context = Device::shm().open().unwrap();
    let mut memory = Memory::of(context.alloc_pd().unwrap());
    let program = FarmShard::open(&size, &context, &mut memory).unwrap();
    let mut service =
        Service::new(context, program, memory, size.connections(), Extensions::default()).unwrap();
    service.work(Pace::default(), listener, stop).unwrap();
}

/// The connections of a client, except that requests posted to one shard are discarded.
struct Mute<'a, 'b>(&'a mut ShardQueues<'b>, usize);

/// The queue pair of a shard; `None` if requests to that shard are discarded.
struct End<'a, 'b>(Option<Batched<'a, 'b>>);

impl<'b> Connections for Mute<'_, 'b> {
    type Endpoint<'e>
        = End<'e, 'b>
    where
        Self: 'e;

    fn endpoint(&mut self, server: usize) -> End<'_, 'b> {
        End((server != self.1).then(|| self.0.endpoint(server)))
    }
}

impl Post for End<'_, '_> {
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.0.as_mut().map_or(Ok(()), |end| end.post_send(request))
    }

    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.0.as_mut().map_or(Ok(()), |end| end.post_receive(request))
    }
}

impl PostPrism for End<'_, '_> {
    fn post_prism(&mut self, request: &prism::WorkRequest<'_>) -> Result<(), PostError> {
        self.0.as_mut().map_or(Ok(()), |end| end.post_prism(request))
    }
}

/// Processes `count` more completions. Requests that the last one causes are discarded if they go to shard
/// `mute`.
fn complete(session: &mut Session, count: usize, mute: Option<usize>) {
    let mut seen = 0;
    while seen < count {
        let turned = session.turn(|shard, completion, machine, connections| {
            seen += 1;
            let muted = mute.filter(|_| seen == count).unwrap_or(SHARDS);
            machine.complete(shard, completion, &mut Mute(connections, muted))?;
            Ok(())
        });
        turned.unwrap();
    }
}

/// A client writes a key of each shard and dies when one shard has its update and the other has not. The
/// other shard notices the client's death first.
fn dies_before_its_update_at(silent: usize) {
    let listeners: [Listener; SHARDS] = std::array::from_fn(|_| Listener::bind("127.0.0.1:0").unwrap());
    let addresses: Vec<SocketAddr> = listeners.iter().map(Listener::address).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stops = StopOnDrop(&stop);
        for (shard, listener) in listeners.iter().enumerate() {
            let stop = &stop;
            scope.spawn(move || serve(shard, listener, stop));
        }
        let open = || {
            Session::open(&Device::shm().open().unwrap(), &addresses, Size { window: 1, max_keys: 16 })
                .unwrap()
        };
        let key = |shard| {
            (0..).map(|number: u32| number.to_le_bytes()).find(|key| shard_of(key, SHARDS) == shard).unwrap()
        };
        let keys = [key(0), key(1)];
        let mut others = Client::new(open());
        others.transaction(|client| keys.iter().try_for_each(|key| client.put(key, b"before"))).unwrap();

        let mut dying = open();
        let (machine, mut connections) = dying.parts().unwrap();
        let tx = machine.begin().unwrap();
        for key in &keys {
            machine.write(tx, key, b"after", &mut connections).unwrap();
        }
        drop(connections);
        // For each shard, the completions of the index and of the object.
        complete(&mut dying, SHARDS * 2, None);
        let clock = dying.clock();
        let (machine, mut connections) = dying.parts().unwrap();
        assert_eq!(machine.commit(tx, clock, &mut connections).unwrap(), None);
        drop(connections);
        // Both locks are acquired; only one of the updates is sent.
        complete(&mut dying, SHARDS, Some(silent));
        complete(&mut dying, 1, None);
        dying.hang_up(silent);

        let both = others
            .transaction(|client| keys.iter().map(|key| client.get(key)).collect::<Result<Vec<_>, _>>());
        let after = Some(b"after".to_vec());
        assert_eq!(both.unwrap(), [after.clone(), after], "all or nothing");
        drop(stops);
    });
}

#[test]
fn what_one_shard_has_written_the_others_write_whoever_hears_first_that_a_client_is_dead() {
    for silent in 0..SHARDS {
        dies_before_its_update_at(silent);
    }
}
