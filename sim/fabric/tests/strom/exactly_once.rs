//! A kernel receives every byte once and in order, even if packets are lost, repeated or reordered.

use remora_fabric::Settings;
use remora_fault::Random;
use remora_nic::kernel::{Kernel, Status};

use crate::bench::{Bench, Journal, OPCODE, arms, bad_links};
use crate::seeds;

fn seed(seed: u64, settings: &Settings) -> [u64; 2] {
    let mut bench = Bench::new(seed, settings);
    let start = bench.there.remote(0).addr;
    bench.deploy(vec![Box::new(Journal { position: start }) as Box<dyn Kernel>]);
    bench.world.set_rules(&bad_links(seed), seed);
    let mut random = Random::new(seed);
    let mut journal = Vec::new();
    for round in 0..2u32 {
        let mut lens = Vec::new();
        let mut place = 0;
        for number in 0..8u32 {
            let tag = 8 * round + number;
            if number > 0 && random.below(3) > 0 {
                let len = random.below(8 * 256) as usize;
                let bytes: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
                bench.rpc_write(OPCODE, tag, &bytes);
                journal.extend(bytes);
                lens.push((tag, 8));
            } else {
                let bytes: Vec<u8> = (0..random.below(200)).map(|_| random.below(256) as u8).collect();
                bench.rpc(OPCODE, tag, &bytes);
                journal.extend(bytes);
                lens.push((tag, 0));
                place = tag;
            }
        }
        let answers = bench.run();
        for (tag, len) in &lens {
            let answer = answers.get(tag).map(|answer| (answer.status, answer.bytes.len()));
            assert_eq!(answer, Some((Status::DONE, *len)), "seed {seed}, request {tag}");
        }
        // The answer is at the place that the last RPC named; over IRN, WRITEs to the same place end in any
        // order.
        if settings.irn.is_none() && lens.last().is_some_and(|(_, len)| *len > 0) {
            assert_eq!(bench.answer_at(place), start + journal.len() as u64, "seed {seed}");
        }
    }
    assert_eq!(bench.there.load(0, journal.len()), journal, "seed {seed}");
    assert!(
        bench.there.load(journal.len(), 4096).iter().all(|byte| *byte == 0),
        "seed {seed}: more than once"
    );
    assert!(bench.is_at_rest(1), "seed {seed}");
    let counters = bench.world.counters(1);
    assert_eq!(counters.rx_rpc_requests, 16, "seed {seed}: each counts once");
    [counters.duplicate_request, counters.irn_ahead_pkts]
}

fn all_seeds(settings: &Settings) -> [u64; 2] {
    let mut all = [0; 2];
    seeds::each(
        0..100,
        |number| seed(number, settings),
        |_, counts| {
            all.iter_mut().zip(counts).for_each(|(all, more)| *all += more);
        },
    );
    all
}

#[test]
fn a_kernel_gets_every_byte_once_and_in_order() {
    let [repeated, _] = all_seeds(&arms()[0]);
    assert!(repeated > 0);
}

#[test]
fn a_kernel_gets_every_byte_once_and_in_order_over_irn() {
    let [repeated, ahead] = all_seeds(&arms()[1]);
    assert!(repeated > 0 && ahead > 0, "{repeated} repeated, {ahead} ahead of the order");
}
