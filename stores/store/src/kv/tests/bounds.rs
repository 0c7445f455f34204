//! Tests of every limit.

use super::wire::{Side, below};
use super::world::{Arm, FarmArm, PilafArm, TwoSidedArm, World};
use crate::kv::farm::{Config as FarmConfig, FarmTable};
use crate::kv::pilaf::{Config as PilafConfig, PilafTable};
use crate::kv::{
    Broken, Client, ClientConfig, Design, Grant, Hello, Lookup, Outcome, PostError, Refusal, Refused,
    ServerConfig, SessionError, Table,
};
use crate::on_every_design;
use remora_transport::Status;

fn small(window: u32) -> (ClientConfig, ServerConfig) {
    let client = ClientConfig { window, max_key: 16, max_value: 4096, eager: 256, inline: 0 };
    let server = ServerConfig {
        connections: 1,
        window: 8,
        max_key: 16,
        max_value: 4096,
        eager: 256,
        inline: 0,
        staging: 1,
    };
    (client, server)
}

fn world<A: Arm>(window: u32, keys: u32, extents: usize) -> World<A> {
    let (client, server) = small(window);
    World::new(client, server, keys, extents, 1)
}

#[test]
fn a_full_table_refuses_and_recovers() {
    on_every_design!(a_full_table_refuses_and_recovers_by);
}

fn a_full_table_refuses_and_recovers_by<A: Arm>() {
    let mut world = world::<A>(1, 30, 1 << 20);
    let mut stored = Vec::new();
    let mut refused = 0;
    for number in 0..200u64 {
        let key = number.to_le_bytes();
        match world.put(&key, &key).outcome {
            Outcome::Done => stored.push(key),
            outcome => {
                assert_eq!(outcome, Outcome::Refused(Refusal::TableFull));
                refused += 1;
            }
        }
    }
    assert!(stored.len() >= 30 && refused > 100, "{} stored", stored.len());
    // Refused operations took no memory, keys are unchanged, and existing keys can still be overwritten.
    for key in &stored {
        assert_eq!(world.get(key).value, Some(key.to_vec()));
        assert_eq!(world.put(key, b"new").outcome, Outcome::Done);
    }
    for key in &stored {
        assert_eq!(world.delete(key).outcome, Outcome::Done);
        assert_eq!(world.put(key, b"again").outcome, Outcome::Done);
    }
    assert_eq!(world.server.borrow().table().len(), stored.len() as u64);
    assert_eq!(world.server.borrow().counters().refused, refused);
}

#[test]
fn no_space_refuses_and_recovers() {
    on_every_design!(no_space_refuses_and_recovers_by);
}

fn no_space_refuses_and_recovers_by<A: Arm>() {
    let mut world = world::<A>(1, 100, 16 << 10);
    let value = [7; 3000];
    let stored = (0..100u64).take_while(|number| match world.put(&number.to_le_bytes(), &value).outcome {
        Outcome::Done => true,
        outcome => {
            assert_eq!(outcome, Outcome::Refused(Refusal::NoSpace));
            false
        }
    });
    let stored = stored.count() as u64;
    assert!((3..=5).contains(&stored), "{stored}");
    let free = world.free_lines();
    assert_eq!(world.put(b"more", &value).outcome, Outcome::Refused(Refusal::NoSpace));
    assert_eq!(world.free_lines(), free);
    for number in 0..stored {
        assert_eq!(world.get(&number.to_le_bytes()).value.as_deref(), Some(&value[..]));
        assert_eq!(world.delete(&number.to_le_bytes()).outcome, Outcome::Done);
    }
    assert_eq!(world.put(b"more", &value).outcome, Outcome::Done);
}

#[test]
fn a_full_window_refuses() {
    on_every_design!(a_full_window_refuses_by);
}

fn a_full_window_refuses_by<A: Arm>() {
    let mut world = world::<A>(3, 10, 1 << 16);
    let end = &mut world.wire.ends[0];
    for key in [b"a", b"b", b"c"] {
        world.client.get(key, end).unwrap();
    }
    assert_eq!(world.client.get(b"d", end), Err(Refused::WindowFull));
    assert_eq!(world.client.put(b"d", b"", end), Err(Refused::WindowFull));
    assert_eq!(world.client.in_flight(), 3);
    world.finish();
    assert_eq!(world.client.in_flight(), 2);
    assert!(world.client.get(b"d", &mut world.wire.ends[0]).is_ok());
}

/// There is one staging piece for eight concurrent long PUTs, with short operations in between.
#[test]
fn long_requests_wait_for_staging() {
    on_every_design!(long_requests_wait_for_staging_by);
}

fn long_requests_wait_for_staging_by<A: Arm>() {
    let mut world = world::<A>(8, 20, 1 << 18);
    for round in 0..20u8 {
        let long = vec![round; 2000];
        for number in 0..8u8 {
            let value = if number == 5 { &long[..10] } else { &long[..] };
            world.client.put(&[number], value, &mut world.wire.ends[0]).unwrap();
        }
        for _ in 0..8 {
            assert_eq!(world.finish().outcome, Outcome::Done);
        }
        for number in 0..8u8 {
            let len = if number == 5 { 10 } else { 2000 };
            assert_eq!(world.get(&[number]).value, Some(vec![round; len]));
        }
    }
}

#[test]
fn peers_that_do_not_fit_are_told_why() {
    on_every_design!(peers_that_do_not_fit_are_told_why_by);
}

fn peers_that_do_not_fit_are_told_why_by<A: Arm>() {
    let mut world = world::<A>(2, 10, 1 << 16);
    let hello = world.hello;
    let grant = world.grant;
    let end = &mut world.wire.ends[1];
    let mut server = world.server.borrow_mut();
    let mut answer = |hello: Hello| server.accept(&hello, end).unwrap_err();
    let other = if hello.design == Design::Farm { Design::Pilaf } else { Design::Farm };
    assert_eq!(answer(Hello { design: other, ..hello }), SessionError::OtherDesign(A::Table::DESIGN));
    assert_eq!(answer(Hello { window: 9, ..hello }), SessionError::WindowTooLarge { allowed: 8 });
    assert_eq!(answer(Hello { eager: 15, ..hello }), SessionError::BuffersTooShort { needed: 16 });
    assert_eq!(answer(hello), SessionError::TooManyConnections);
    let (config, _) = small(2);
    let needed = config.arena_len::<A::Lookup>();
    let refuse = |config: ClientConfig, grant: Grant, len| {
        Client::<A::Lookup>::new(config, &grant, super::wire::block(950, len)).err().unwrap()
    };
    assert_eq!(refuse(config, grant, needed - 1), SessionError::ArenaTooSmall { needed });
    assert_eq!(refuse(config, Grant { design: other, ..grant }, needed), SessionError::OtherDesign(other));
    assert_eq!(refuse(config, Grant { staging_count: 0, ..grant }, needed), SessionError::Malformed);
    assert_eq!(refuse(ClientConfig { window: 0, ..config }, grant, needed), SessionError::Malformed);
    let narrow = Grant { window: 1, ..grant };
    assert_eq!(refuse(config, narrow, needed), SessionError::WindowTooLarge { allowed: 1 });
}

#[test]
fn values_longer_than_the_client_are_said_to_be() {
    on_every_design!(values_longer_than_the_client_are_said_to_be_by);
}

fn values_longer_than_the_client_are_said_to_be_by<A: Arm>() {
    let (mut client, server) = small(1);
    client.max_value = 100;
    let mut world = World::<A>::new(client, server, 10, 1 << 16, 1);
    world.server.borrow_mut().table_mut().put(b"k", &[1; 1000]).unwrap();
    assert_eq!(world.get(b"k").outcome, Outcome::TooLong);
    assert_eq!(world.put(b"k", &[1; 100]).outcome, Outcome::Done);
    assert_eq!(world.get(b"k").value, Some(vec![1; 100]));
}

#[test]
fn a_failed_queue_pair_hands_everything_back() {
    on_every_design!(a_failed_queue_pair_hands_everything_back_by);
}

fn a_failed_queue_pair_hands_everything_back_by<A: Arm>() {
    let mut world = world::<A>(4, 10, 1 << 16);
    for key in [b"a", b"b", b"c"] {
        world.client.get(key, &mut world.wire.ends[0]).unwrap();
    }
    let mut completion = loop {
        world.settle_nic();
        world.step_server();
        if let Some(completion) = world.wire.end(Side::Client).poll() {
            break completion;
        }
    };
    completion.status = Status::RetryExceeded;
    let end = &mut world.wire.ends[0];
    let broken = Broken::Completion(Status::RetryExceeded);
    assert_eq!(world.client.complete(&completion, end), Err(broken));
    assert_eq!(world.client.get(b"d", end), Err(Refused::Broken(broken)));
    for _ in 0..3 {
        assert_eq!(world.client.abandon().unwrap().outcome, Outcome::Failed(broken));
    }
    assert_eq!(world.client.abandon(), None);
    assert_eq!(world.client.in_flight(), 0);
}

#[test]
fn a_refused_post_breaks_the_client() {
    on_every_design!(a_refused_post_breaks_the_client_by);
}

fn a_refused_post_breaks_the_client_by<A: Arm>() {
    let mut world = world::<A>(4, 10, 1 << 16);
    let end = &mut world.wire.ends[0];
    world.client.get(b"a", end).unwrap();
    end.failing = Some(PostError::BadState);
    let broken = Broken::Post(PostError::BadState);
    assert_eq!(world.client.get(b"b", end), Err(Refused::Broken(broken)));
    assert_eq!(world.client.put(b"b", b"", end), Err(Refused::Broken(broken)));
    assert_eq!(world.client.in_flight(), 1);
    assert_eq!(world.client.abandon().unwrap().outcome, Outcome::Failed(broken));
}

/// A value that is being sent stays until it was sent, even if its key is overwritten or deleted. Its lines
/// are freed then.
#[test]
fn held_values_outlive_their_keys() {
    let mut world = world::<TwoSidedArm>(2, 10, 1 << 16);
    let all = world.free_lines();
    world.put(b"k", &[1; 3000]);
    world.settle();
    world.client.get(b"k", &mut world.wire.ends[0]).unwrap();
    world.client.get(b"k", &mut world.wire.ends[0]).unwrap();
    world.wire.run(Side::Client, || ());
    world.wire.run(Side::Client, || ());
    world.step_server();
    world.step_server();
    {
        let mut server = world.server.borrow_mut();
        server.table_mut().put(b"k", &[2; 3000]).unwrap();
        server.table_mut().delete(b"k").unwrap();
        // Another object in these lines would show in the value.
        server.table_mut().put(b"other", &[3; 3000]).unwrap();
    }
    assert_eq!(world.finish().value, Some(vec![1; 3000]));
    assert_eq!(world.finish().value, Some(vec![1; 3000]));
    world.settle();
    world.server.borrow_mut().table_mut().delete(b"other").unwrap();
    assert_eq!(world.free_lines(), all);
}

/// A client that is disconnected while its answers are being sent leaves nothing allocated.
#[test]
fn disconnecting_releases_what_was_held() {
    let mut world = world::<TwoSidedArm>(2, 10, 1 << 16);
    let all = world.free_lines();
    world.put(b"k", &[1; 3000]);
    world.settle();
    world.client.get(b"k", &mut world.wire.ends[0]).unwrap();
    world.wire.run(Side::Client, || ());
    world.step_server();
    let mut server = world.server.borrow_mut();
    server.table_mut().delete(b"k").unwrap();
    server.disconnect(world.connection);
    drop(server);
    assert_eq!(world.free_lines(), all);
}

/// Adds keys until 200 were refused, and returns the others.
fn filled(table: &mut impl Table) -> Vec<[u8; 8]> {
    let mut random = 1;
    let mut kept = Vec::new();
    let mut refused = 0;
    while refused < 200 {
        let key = (below(&mut random, usize::MAX) as u64).to_le_bytes();
        match table.put(&key, b"") {
            Ok(()) => kept.push(key),
            Err(refusal) => {
                assert_eq!(refusal, Refusal::TableFull);
                refused += 1;
            }
        }
    }
    kept
}

/// A table that is filled until it refuses keeps every key that it accepted, through the longest
/// displacements.
#[test]
fn cuckoo_search_is_bounded_and_loses_nothing() {
    let entries = 64;
    let config = PilafConfig { entries, hash_seed: 3 };
    let index = super::wire::block(1, config.index_len());
    let mut table = PilafTable::new(config, index, super::wire::block(2, 1 << 16));
    let kept = filled(&mut table);
    // Three choices fill a table to at least nine tenths.
    assert!(kept.len() >= entries as usize * 9 / 10, "{}", kept.len());
    for key in kept {
        assert_eq!(table.delete(&key), Ok(()));
    }
    assert_eq!(table.len(), 0);
}

#[test]
fn hopping_and_chains_are_bounded_and_lose_nothing() {
    let config = FarmConfig { buckets: 32, blocks: 6, hash_seed: 3 };
    let index = super::wire::block(1, config.index_len());
    let mut table = FarmTable::new(config, index, super::wire::block(2, 1 << 16));
    let kept = filled(&mut table);
    assert_eq!(table.blocks_used(), 6);
    assert!(kept.len() >= 33 * 3 * 9 / 10, "{}", kept.len());
    for key in kept {
        assert_eq!(table.delete(&key), Ok(()));
    }
    assert_eq!((table.len(), table.blocks_used()), (0, 6));
}

// A design's lookup and table agree on the design.
const _: () = {
    const fn check<A: Arm>() {
        assert!(A::Lookup::DESIGN as u32 == A::Table::DESIGN as u32);
    }
    check::<PilafArm>();
    check::<FarmArm>();
    check::<TwoSidedArm>();
};
