//! Tests of whole machines under concurrent change: between any two words that a READ copies, the server may
//! execute whole operations on the same keys. A GET must return a value that the key had while the GET ran.

use super::wire::below;
use super::world::{Arm, World};
use crate::kv::{ClientConfig, Outcome, ServerConfig, Table};
use crate::on_every_design;
use std::cell::RefCell;

const KEYS: usize = 6;

/// The history of every key: the length and fill of each value, or nothing.
#[derive(Default)]
struct States {
    states: [Vec<Option<Content>>; KEYS],
    random: u64,
    /// Mean number of copied words per executed operation.
    pace: usize,
}

/// The content of a value, apart from its key and its state.
#[derive(Copy, Clone)]
struct Content {
    len: usize,
    fill: u8,
}

fn key(number: usize) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// Returns the value of a state. Every word contains the key and the state, so a mixture is no valid value.
fn value(number: usize, state: usize, content: Content) -> Vec<u8> {
    let stamp = (number as u64) << 56 | (state as u64) << 8 | u64::from(content.fill);
    stamp.to_le_bytes().into_iter().cycle().take(content.len).collect()
}

impl States {
    fn act(&mut self, table: &mut impl Table) {
        if below(&mut self.random, self.pace) > 0 {
            return;
        }
        let number = below(&mut self.random, KEYS);
        let states = &mut self.states[number];
        if below(&mut self.random, 5) == 0 {
            let was_there = states.last().is_some_and(Option::is_some);
            assert_eq!(table.delete(&key(number)).is_ok(), was_there);
            states.push(None);
        } else {
            let len = below(&mut self.random, 300);
            let fill = below(&mut self.random, 256) as u8;
            table.put(&key(number), &value(number, states.len(), Content { len, fill })).unwrap();
            states.push(Some(Content { len, fill }));
        }
    }
}

/// Readers and writers of every design run at the same time. A GET returns a value that was stored,
/// never a mixture.
#[test]
fn no_wrong_value_is_returned() {
    on_every_design!(no_wrong_value_is_returned_by);
}

fn no_wrong_value_is_returned_by<A: Arm>() {
    let client = ClientConfig { window: 1, max_key: 16, max_value: 300, eager: 128, inline: 0 };
    let server = ServerConfig {
        connections: 1,
        window: 8,
        max_key: 16,
        max_value: 300,
        eager: 128,
        ..ServerConfig::default()
    };
    let mut torn = 0;
    let mut contended = 0;
    let mut values = 0;
    for seed in 0..4 {
        let mut world = World::<A>::new(client, server, KEYS as u32 * 2, 8 << 10, seed);
        let server = world.server.clone();
        let pace = [3, 20, 60, 400][seed as usize];
        let lives = RefCell::new(States { states: Default::default(), random: seed, pace });
        for states in &mut lives.borrow_mut().states {
            states.push(None);
        }
        for round in 0..3000 {
            let number = round % KEYS;
            let first = lives.borrow().states[number].len() - 1;
            world.client.get(&key(number), &mut world.wire.ends[0]).unwrap();
            let act = || lives.borrow_mut().act(server.borrow_mut().table_mut());
            let ended = loop {
                if let Some(ended) = world.step(act).1 {
                    break ended;
                }
                // Operations also happen between any two steps of the machines, for instance while a long
                // value is being sent.
                act();
            };
            torn += ended.tries;
            if ended.outcome == Outcome::Contended {
                contended += 1;
                continue;
            }
            values += u32::from(ended.value.is_some());
            let lives = lives.borrow();
            let mut possible = lives.states[number].iter().enumerate().skip(first);
            let known = possible.any(|(state, fill)| {
                fill.map(|fill| value(number, state, fill)) == ended.value
                    && (ended.value.is_some() || ended.outcome == Outcome::Absent)
            });
            assert!(known, "seed {seed} round {round}: {ended:?}");
        }
    }
    use crate::kv::{Design, Lookup};
    assert!(values > 3000, "{values} values, {contended} contended");
    assert_eq!(torn > 500, A::Lookup::DESIGN != Design::TwoSided, "torn reads happened: {torn}");
}
