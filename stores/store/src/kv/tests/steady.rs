//! Tests of the machines' costs: no allocations in steady state, and few completions (one per READ step,
//! fewer for calls). A seed determines the trace.

use super::wire::{Side, below};
use super::world::{Arm, Ended, World};
use crate::kv::{ClientConfig, Design, Lookup, Outcome, ServerConfig, Slot};
use crate::on_every_design;

fn world<A: Arm>(window: u32, inline: u32, seed: u64) -> World<A> {
    let client = ClientConfig { window, max_key: 64, max_value: 2000, eager: 512, inline };
    let server = ServerConfig {
        connections: 1,
        window: 16,
        max_key: 64,
        max_value: 2000,
        eager: 512,
        inline,
        staging: 2,
    };
    World::new(client, server, 500, 1 << 20, seed)
}

fn start<A: Arm>(world: &mut World<A>, random: &mut u64, value: &[u8]) -> Option<Slot> {
    let key = (below(random, 300) as u64).to_le_bytes();
    let end = &mut world.wire.ends[0];
    match below(random, 8) {
        0 => world.client.delete(&key, end).ok(),
        1..4 => world.client.put(&key, &value[..below(random, 2000)], end).ok(),
        _ => world.client.get(&key, end).ok(),
    }
}

/// Runs the machines for `steps` steps, and returns the number of operations that ended.
fn run<A: Arm>(world: &mut World<A>, random: &mut u64, value: &[u8], steps: u32) -> u32 {
    let mut ended = 0;
    for _ in 0..steps {
        start(world, random, value);
        let moved = world.wire.run(Side::Client, || ()) | world.wire.run(Side::Server, || ());
        assert!(moved | world.step_server() | (world.client.in_flight() > 0));
        if let Some(completion) = world.wire.end(Side::Client).poll() {
            let end = &mut world.wire.ends[0];
            ended += u32::from(world.client.complete(&completion, end).unwrap().is_some());
        }
    }
    ended
}

#[test]
fn nothing_is_allocated() {
    on_every_design!(nothing_is_allocated_by);
}

fn nothing_is_allocated_by<A: Arm>() {
    for inline in [0, 256] {
        let mut world = world::<A>(8, inline, 1);
        let mut random = 5;
        let value = [9; 2000];
        run(&mut world, &mut random, &value, 5_000);
        let mut ended = 0;
        let counted = allocation_counter::measure(|| ended = run(&mut world, &mut random, &value, 20_000));
        assert_eq!(counted.count_total, 0, "inline {inline}");
        assert!(ended > 1000, "{ended}");
    }
}

/// Completions cost the client work: there is one for each step of READs. For calls, there are the response
/// and an occasional send completion.
#[test]
fn completions_are_few() {
    on_every_design!(completions_are_few_by);
}

fn completions_are_few_by<A: Arm>() {
    let mut world = world::<A>(4, 0, 1);
    for number in 0..100u64 {
        world.put(&number.to_le_bytes(), b"value");
    }
    world.settle();
    let mut completions = 0;
    let mut round_trips = 0;
    for number in 0..100u64 {
        world.client.get(&number.to_le_bytes(), &mut world.wire.ends[0]).unwrap();
        let mut done = false;
        while !done {
            world.settle_nic();
            world.step_server();
            if let Some(completion) = world.wire.end(Side::Client).poll() {
                completions += 1;
                let end = &mut world.wire.ends[0];
                if let Some(finished) = world.client.complete(&completion, end).unwrap() {
                    assert_eq!(finished.outcome, Outcome::Value(b"value"));
                    round_trips += finished.round_trips;
                    done = true;
                }
            }
        }
    }
    match A::Lookup::DESIGN {
        Design::TwoSided => assert!(round_trips == 100 && completions <= 126, "{completions}"),
        _ => assert!(round_trips >= 200 && completions == round_trips, "{completions} {round_trips}"),
    }
}

#[test]
fn one_seed_one_trace() {
    on_every_design!(one_seed_one_trace_by);
}

fn one_seed_one_trace_by<A: Arm>() {
    let trace = |seed| -> Vec<Ended> {
        let mut world = world::<A>(8, 0, seed);
        let mut random = seed;
        let value = [3; 2000];
        let mut ended = Vec::new();
        while ended.len() < 500 {
            start(&mut world, &mut random, &value);
            ended.extend(world.step(|| ()).1);
        }
        ended
    };
    assert!(trace(1) == trace(1) && trace(1) != trace(2));
}
