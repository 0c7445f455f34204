//! The length of a queue pair's turn.

use crate::bed::{Bed, Link, MTU};
use remora_nic::Config;

#[test]
fn queue_pairs_take_turns_of_as_many_packets_as_the_setting_says() {
    for (turn_packets, expected) in [(16, 16), (1, 1), (3, 3), (0, 1)] {
        let mut bed = Bed::new(&Config { turn_packets, ..Config::default() });
        let pairs = [0, 1, 2].map(|_| bed.connect(&Link::default()));
        pairs.iter().for_each(|pair| bed.write(0, *pair, 48 * MTU));
        while bed.transmit(0, 64) > 0 {}
        let sent = bed.sent(0);
        assert_eq!(sent.len(), 3 * 48);
        let turns: Vec<usize> = sent.chunk_by(|a, b| a.dest_qp() == b.dest_qp()).map(<[_]>::len).collect();
        assert!(turns.iter().all(|turn| *turn == expected), "{turn_packets}: {turns:?}");
    }
}
