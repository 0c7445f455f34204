//! A link that loses, duplicates and reorders messages, and the two managers at its ends. One seed
//! determines everything.

use std::collections::BTreeMap;

use remora_cm::{CmEvent, Instant};
use remora_fault::Random;

use crate::node::{Mad, Node, SECOND, config};

/// Prints the seed of a history that fails.
pub(crate) struct Seed(pub u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed is {}", self.0);
        }
    }
}

/// Two managers on a bad link.
pub(crate) struct World {
    pub nodes: [Node; 2],
    pub now: Instant,
    pub random: Random,
    /// Percentage of MADs that are lost.
    pub loss: u64,
    /// MADs in flight by time of arrival, with the receiving node.
    flights: BTreeMap<(Instant, u64), (usize, Mad)>,
    sent: u64,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let loss = [0, 0, 10, 30, 50, 70][random.below(6) as usize];
        let nodes = [Node::new(1, config(1)), Node::new(2, config(2))];
        World { nodes, now: Instant(SECOND), random, loss, flights: BTreeMap::new(), sent: 0 }
    }

    /// Puts the MADs that the managers send on the link, or loses them.
    pub(crate) fn pump(&mut self) {
        for sender in 0..2 {
            for mad in self.nodes[sender].sent() {
                let copies = if self.random.chance(self.loss as f64 / 100.0) {
                    0
                } else {
                    1 + u64::from(self.random.chance(0.15))
                };
                for _ in 0..copies {
                    // Most MADs are quick; some are overtaken by their own repetition.
                    let ns = if self.random.chance(0.9) { SECOND / 100 } else { 20 * SECOND };
                    let time = self.now.after(1 + self.random.below(ns));
                    self.sent += 1;
                    self.flights.insert((time, self.sent), (1 - sender, mad));
                }
            }
        }
    }

    /// Returns the time of the next thing that happens.
    pub(crate) fn next(&self) -> Instant {
        let arrival = self.flights.keys().next().map_or(Instant::NEVER, |(time, _)| *time);
        self.nodes.iter().fold(arrival, |time, node| time.min(node.cm.next_deadline()))
    }

    /// Lets the next thing happen, if it happens until `until`. Returns false if nothing is left to happen.
    pub(crate) fn step(&mut self, until: Instant) -> bool {
        self.pump();
        let time = self.next();
        if time > until || time == Instant::NEVER {
            self.now = if until < Instant::NEVER { until } else { self.now };
            return false;
        }
        self.now = time.max(self.now);
        while let Some(entry) = self.flights.first_entry()
            && entry.key().0 <= self.now
        {
            let (receiver, mad) = entry.remove();
            let sender = self.nodes[1 - receiver].n;
            self.nodes[receiver].receive(self.now, sender, &mad);
        }
        for node in &mut self.nodes {
            node.cm.expire(self.now);
            node.cm.check();
        }
        self.pump();
        true
    }

    /// Takes the events of a node.
    pub(crate) fn events(&mut self, node: usize) -> Vec<CmEvent> {
        std::iter::from_fn(|| self.nodes[node].cm.next_event()).collect()
    }

    /// Checks that no connection is left and no timer runs.
    pub(crate) fn expect_nothing_left(&self) {
        for node in &self.nodes {
            assert_eq!((node.cm.id_count(), node.cm.next_deadline()), (0, Instant::NEVER), "node {}", node.n);
        }
    }
}
