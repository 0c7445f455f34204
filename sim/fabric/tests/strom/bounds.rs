//! Kernels at their bounds: impossible parameters, the last element and the one after it, numbers that wrap,
//! and misused streams.

use std::sync::{Arc, Mutex};

use remora_fabric::Sent;
use remora_fault::{Action, Rule, Rules};
use remora_nic::kernel::{
    Aggregate, Consistency, DMA, Filter, HyperLogLog, Kernel, Object, Partition, Predicate, Progress, STEPS,
    Scan, Shape, Shuffle, Status, Streams, Sums, Traversal, Walk, crc64, histogram,
};
use remora_wire::{Address, Endpoint, Ingress};

use crate::bench::{Answer, Bench, Endless, LONGEST, OPCODE, arms};
use crate::shapes::list;

/// Returns a bench with a kernel of this type for each transport.
fn bench_with<K: Kernel + Default + 'static>() -> [Bench; 2] {
    Bench::arms().map(|mut bench| {
        bench.deploy(vec![Box::new(K::default())]);
        bench
    })
}

/// Returns the status of the answer to these parameters.
fn status(bench: &mut Bench, params: &[u8]) -> Status {
    bench.rpc(OPCODE, 1, params);
    bench.run()[&1].status
}

/// Prepares as many rows of maximum length as fit into an answer. The compared and summed fields are at their
/// ends.
fn longest_rows(bench: &Bench) -> Scan {
    (1..=3).for_each(|row| bench.there.store(row * DMA - 8, &7u64.to_le_bytes()));
    let row = DMA as u16;
    let last = DMA as u16 - 8;
    let address = bench.there.remote(0).addr;
    let rows = LONGEST / DMA as u32;
    Scan { address, rows, row, predicate: Predicate::Equal, operand: 7, field: last, sum: last }
}

fn refused_scans<K: Kernel + Default + 'static>(bytes: usize) {
    for mut bench in bench_with::<K>() {
        let scan = longest_rows(&bench);
        bench.rpc(OPCODE, 1, &scan.emit());
        let answer = bench.run().remove(&1).unwrap();
        assert_eq!((answer.status, answer.bytes.len()), (Status::DONE, bytes));
        let cases = [
            Scan { field: scan.field + 1, ..scan },
            Scan { sum: scan.sum + 1, ..scan },
            Scan { field: u16::MAX, ..scan },
            Scan { row: scan.row + 1, ..scan },
            Scan { row: 7, field: 0, sum: 0, ..scan },
            Scan { row: 0, field: 0, sum: 0, ..scan },
        ];
        for scan in cases {
            assert_eq!(status(&mut bench, &scan.emit()), Status::BAD_PARAMS, "{scan:?}");
        }
        let mut no_predicate = scan.emit();
        no_predicate[14] = 4;
        assert_eq!(status(&mut bench, &no_predicate), Status::BAD_PARAMS);
        assert_eq!(status(&mut bench, &scan.emit()[..31]), Status::BAD_PARAMS);
    }
}

#[test]
fn scans_whose_numbers_stand_outside_their_rows_are_refused() {
    refused_scans::<Filter>(LONGEST as usize);
    refused_scans::<Aggregate>(Sums::LEN);
}

#[test]
fn rows_that_fill_the_room_for_an_answer_come_and_one_more_does_not() {
    for mut bench in bench_with::<Filter>() {
        let scan = longest_rows(&bench);
        assert_eq!(status(&mut bench, &scan.emit()), Status::DONE);
        assert_eq!(status(&mut bench, &Scan { rows: scan.rows + 1, ..scan }.emit()), Status::NO_ROOM);
    }
}

#[test]
fn a_sum_wraps_and_least_and_greatest_do_not() {
    for mut bench in bench_with::<Aggregate>() {
        let rows = [u64::MAX, 5, u64::MAX - 1, 3];
        bench.there.store(0, &rows.map(u64::to_le_bytes).concat());
        let address = bench.there.remote(0).addr;
        let scan = Scan {
            address,
            rows: 4,
            row: 8,
            predicate: Predicate::Less,
            operand: u64::MAX,
            field: 0,
            sum: 0,
        };
        let ask = |bench: &mut Bench, scan: Scan| {
            bench.rpc(OPCODE, 1, &scan.emit());
            Sums::parse(&bench.run()[&1].bytes)
        };
        // The first row is not less than itself.
        let less = Sums { count: 3, sum: 6, least: 3, greatest: u64::MAX - 1 };
        assert_eq!(ask(&mut bench, scan), Some(less));
        // No state of the previous scan remains.
        let all = Sums { count: 4, sum: 5, least: 3, greatest: u64::MAX };
        assert_eq!(ask(&mut bench, Scan { predicate: Predicate::NotEqual, operand: 4, ..scan }), Some(all));
    }
}

/// Creates a list of `elements` elements: keys from 0 on at word 0, next at word 2, value at word 4. Each
/// value is its element.
fn chain(bench: &Bench, elements: u64) -> Walk {
    let address_of = |number: u64| bench.there.remote(64 * number as usize).addr;
    for number in 0..elements {
        let next = if number + 1 < elements { address_of(number + 1) } else { 0 };
        bench
            .there
            .store(64 * number as usize, &[number, next, address_of(number)].map(u64::to_le_bytes).concat());
    }
    Walk { value_size: 8, ..list(address_of(0)) }
}

#[test]
fn a_walk_looks_at_as_many_elements_as_it_may_and_no_more() {
    for mut bench in bench_with::<Traversal>() {
        let walk = chain(&bench, 5);
        let cases = [
            (3, 4, Status::DONE),
            (3, 3, Status::TOO_LONG),
            (0, 1, Status::DONE),
            (1, 1, Status::TOO_LONG),
            (0, 0, Status::BAD_PARAMS),
            (9, 5, Status::MISS),
            (9, 4, Status::TOO_LONG),
        ];
        for (key, most, wanted) in cases {
            let result = status(&mut bench, &Walk { key, most, ..walk }.emit());
            assert_eq!(result, wanted, "key {key}, {most} elements");
        }
        assert_eq!(status(&mut bench, &Walk { element: 0, ..walk }.emit()), Status::BAD_PARAMS);
        assert_eq!(status(&mut bench, &walk.emit()[..33]), Status::BAD_PARAMS);
        for (offset, byte) in [(14, 4), (15, 4), (32, 4)] {
            let mut odd = walk.emit();
            odd[offset] = byte;
            assert_eq!(status(&mut bench, &odd), Status::BAD_PARAMS, "byte {offset}");
        }
    }
}

#[test]
fn a_graph_has_as_many_elements_as_are_remembered_and_no_more() {
    for mut bench in bench_with::<Traversal>() {
        let shape = Shape::Graph { edges: 1 };
        let walk = Walk { shape, ..chain(&bench, 256) };
        assert_eq!(status(&mut bench, &Walk { key: 255, ..walk }.emit()), Status::DONE);
        assert_eq!(status(&mut bench, &Walk { key: 256, ..walk }.emit()), Status::MISS);
        chain(&bench, 257);
        assert_eq!(status(&mut bench, &Walk { key: 255, ..walk }.emit()), Status::DONE);
        assert_eq!(status(&mut bench, &Walk { key: 256, ..walk }.emit()), Status::NO_ROOM);
    }
}

#[test]
fn of_first_reads_as_many_count_as_torn_as_are_to_and_second_ones_never_do() {
    const ASKED: u32 = 400;
    for (failing, torn) in [(0, 0..=0), (500, 160..=240), (1000, ASKED..=ASKED)] {
        for mut bench in Bench::arms() {
            bench.deploy(vec![Box::new(Consistency::failing(failing))]);
            let bytes = [7; 24];
            bench.there.store(0, &bytes);
            bench.there.store(bytes.len(), &crc64(&bytes).to_le_bytes());
            let object = Object { address: bench.there.remote(0).addr, len: 24, tries: 1 };
            let mut counts = [0; 2];
            for _ in 0..ASKED / 50 {
                (0..50).for_each(|tag| bench.rpc(OPCODE, tag, &object.emit()));
                for answer in bench.run().into_values() {
                    assert!([Status::DONE, Status::INCONSISTENT].contains(&answer.status));
                    counts[usize::from(answer.status == Status::INCONSISTENT)] += 1;
                }
            }
            assert_eq!(counts[0] + counts[1], ASKED);
            assert!(torn.contains(&counts[1]), "{failing} of a thousand: {counts:?}");
            assert_eq!(status(&mut bench, &Object { tries: 2, ..object }.emit()), Status::DONE);
            for object in [Object { tries: 0, ..object }, Object { len: 0, ..object }] {
                assert_eq!(status(&mut bench, &object.emit()), Status::BAD_PARAMS);
            }
            assert_eq!(status(&mut bench, &object.emit()[..15]), Status::BAD_PARAMS);
        }
    }
}

/// Requests that arrive together. Some start an answer and withdraw it, to read again or because it does not
/// fit.
#[test]
fn requests_behind_an_answer_that_is_taken_back_get_their_own() {
    for mut bench in Bench::arms() {
        bench.deploy(vec![Box::new(Consistency::failing(500))]);
        let init = bench.init(Some(OPCODE + 1), vec![Box::new(Filter::default())]);
        bench.try_deploy(init).unwrap();
        let object = |tag: u32| [tag as u8; 40];
        for tag in 0..20 {
            let bytes = object(tag);
            bench.there.store(64 * tag as usize, &[&bytes[..], &crc64(&bytes).to_le_bytes()].concat());
        }
        let scan = Scan { field: 0, sum: 0, ..longest_rows(&bench) };
        for _ in 0..4 {
            for tag in 0..20 {
                let address = bench.there.remote(64 * tag as usize).addr;
                bench.rpc(OPCODE, tag, &Object { address, len: 40, tries: 2 }.emit());
            }
            // Every second scan finds more rows than fit.
            for tag in 20..40 {
                let scan =
                    Scan { predicate: Predicate::NotEqual, operand: 1 << 40, rows: tag % 2 + 2, ..scan };
                bench.rpc(OPCODE + 1, tag, &scan.emit());
            }
            let answers = bench.run();
            for tag in 0..20 {
                let wanted = Answer { status: Status::DONE, bytes: object(tag).to_vec() };
                assert_eq!(answers[&tag], wanted, "tag {tag}");
            }
            for tag in 20..40 {
                let wanted = if tag % 2 == 0 { Status::DONE } else { Status::NO_ROOM };
                assert_eq!(answers[&tag].status, wanted, "tag {tag}");
            }
        }
        assert!(bench.facts().iter().all(|facts| facts.failures == 0));
    }
}

#[test]
fn a_histogram_that_makes_no_sense_is_refused() {
    for mut bench in bench_with::<Shuffle>() {
        let one = Partition { address: bench.there.remote(0).addr, values: 8 };
        let whole = histogram(2, 0, &[one; 4]);
        let cases = [
            (whole.clone(), Status::DONE),
            (histogram(2, 3, &[one]), Status::DONE),
            (histogram(10, 1023, &[one]), Status::DONE),
            (histogram(11, 0, &[one]), Status::BAD_PARAMS),
            (histogram(u32::MAX, 0, &[one]), Status::BAD_PARAMS),
            (histogram(2, 0, &[one; 5]), Status::BAD_PARAMS),
            (histogram(2, 4, &[one]), Status::BAD_PARAMS),
            (histogram(2, u32::MAX, &[one]), Status::BAD_PARAMS),
            (whole[..whole.len() - 1].to_vec(), Status::BAD_PARAMS),
            (whole[..7].to_vec(), Status::BAD_PARAMS),
        ];
        for (params, wanted) in cases {
            assert_eq!(status(&mut bench, &params), wanted, "{params:?}");
        }
    }
}

/// The maximum number of partitions, with more values each than are buffered, at any alignment.
#[test]
fn as_many_partitions_as_there_may_be_get_all_their_values_in_order() {
    const PARTITIONS: usize = 1024;
    const EACH: usize = 40;
    for mut bench in bench_with::<Shuffle>() {
        // Space for one more value each, which stays empty.
        let apart = 8 * (EACH + 1);
        let offset_of = |number: usize| number * apart;
        let all: Vec<Partition> = (0..PARTITIONS)
            .map(|number| Partition {
                address: bench.there.remote(offset_of(number)).addr,
                values: EACH as u64,
            })
            .collect();
        for some in all.chunks(14).enumerate().collect::<Vec<_>>().chunks(20) {
            for (number, part) in some {
                bench.rpc(OPCODE, *number as u32, &histogram(10, 14 * *number as u32, part));
            }
            assert!(bench.run().values().all(|answer| answer.status == Status::DONE));
        }
        // The bits above a value's partition number count the values within the partition.
        let values: Vec<u64> = (0..(PARTITIONS * EACH) as u64)
            .map(|number| number / 1024 * 1024 + number.wrapping_mul(389) % 1024)
            .collect();
        for (tag, some) in values.chunks(2000).enumerate() {
            let bytes: Vec<u8> = some.iter().flat_map(|value| value.to_le_bytes()).collect();
            bench.rpc_write(OPCODE, tag as u32, &bytes);
        }
        assert!(bench.run().values().all(|answer| answer.status == Status::DONE));
        for number in 0..PARTITIONS {
            let wanted: Vec<u8> = (0..EACH as u64)
                .flat_map(|turn| (turn << 10 | number as u64).to_le_bytes())
                .chain([0; 8])
                .collect();
            assert!(bench.there.load(offset_of(number), apart) == wanted, "partition {number}");
        }
        // Each partition is full, so the next value does not fit.
        bench.rpc_write(OPCODE, 1, &values[7].to_le_bytes());
        assert_eq!(bench.run()[&1].status, Shuffle::FULL);
    }
}

#[test]
fn a_rest_of_a_value_is_no_value() {
    for mut bench in bench_with::<HyperLogLog>() {
        bench.rpc_write(OPCODE, 1, &[1; 7]);
        assert_eq!(bench.run()[&1].status, Status::DONE);
        let estimate = |bench: &mut Bench| {
            bench.rpc(OPCODE, 2, &[0]);
            f64::from_le_bytes(bench.run()[&2].bytes[..].try_into().unwrap())
        };
        assert!(estimate(&mut bench).abs() < 0.01);
        bench.rpc_write(OPCODE, 1, &[1; 15]);
        assert_eq!(bench.run()[&1].status, Status::DONE);
        assert!((estimate(&mut bench) - 1.0).abs() < 0.01);
        for params in [&[2][..], &[0, 0], &[]] {
            assert_eq!(status(&mut bench, params), Status::BAD_PARAMS);
        }
    }
}

/// Misuses its streams in a way that a number selects.
struct Odd(u64);

impl Kernel for Odd {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        let position = self.0;
        let Some(input) = streams.input() else {
            if streams.data().is_some() {
                streams.answer(Status::DONE, 64);
                streams.forward(64);
            }
            return Progress::Rests;
        };
        streams.take();
        match input.bytes {
            // Correct use, to the last byte.
            [0] => streams.read(position, DMA as u32),
            [1] => streams.read(position, DMA as u32 + 1),
            [2] => {
                streams.answer(Status::DONE, 0);
                streams.answer(Status::DONE, 0);
            }
            [3] => streams.put(&[1]),
            [4] => {
                streams.answer(Status::DONE, 2);
                streams.put(&[1; 3]);
            }
            [5] => {
                streams.answer(Status::DONE, 2);
                streams.read_to_wire(position, 3);
            }
            [6] => {
                streams.answer(Status::DONE, 2);
                streams.put(&[1]);
            }
            [7] => streams.send(0, 0, streams.longest() + 1),
            [8] => {
                streams.answer(Status::DONE, 64);
                streams.forward(64);
            }
            // No answer.
            _ => {}
        }
        Progress::Rests
    }

    fn reset(&mut self) {}
}

#[test]
fn streams_used_as_they_must_not_be_end_the_request_and_nothing_else() {
    for mut bench in Bench::arms() {
        let address = bench.there.remote(0).addr;
        bench.there.store(0, &[9; 64]);
        bench.deploy(vec![Box::new(Odd(address))]);
        for (case, turn) in (0..=9u8).flat_map(|case| [(case, 0), (case, 1)]) {
            bench.rpc(OPCODE, 1, &[case]);
            let answer = bench.run().remove(&1).unwrap();
            let wanted = if case == 0 { (Status::DONE, vec![9; 64]) } else { (Status::FAILED, Vec::new()) };
            assert_eq!((answer.status, answer.bytes), wanted, "case {case}, turn {turn}");
        }
        assert_eq!(bench.facts()[0].failures, 18);
        assert!(bench.is_at_rest(0));
    }
}

/// Reads without end. Records the number of reads, and the steps in which it saw new input.
#[derive(Clone, Default)]
struct Reads {
    address: u64,
    seen: Arc<Mutex<Vec<bool>>>,
}

impl Kernel for Reads {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        let came = streams.input();
        self.seen.lock().unwrap().push(came.is_some());
        if came.is_some_and(|input| input.first) {
            streams.take();
        }
        streams.read(self.address, 8);
        Progress::Waits
    }

    fn reset(&mut self) {}
}

/// Sends the server the packets of a request whose answer is dropped. Returns the steps that each packet
/// caused.
fn steps_of_packets(bench: &mut Bench, ask: impl FnOnce(&mut Bench)) -> Vec<u64> {
    bench.world.set_rules(&Rules::of(vec![Rule::chance(Action::Drop, 1.0)]), 1);
    bench.world.tap();
    ask(bench);
    bench.world.run_for(10_000);
    let sent = bench.world.sent();
    let start = bench.world.start();
    let now = bench.world.now();
    let source = Endpoint { address: Address([0; 16]), udp_port: 0 };
    let mut before = bench.facts()[0].steps;
    let step = |sent: &Sent| {
        bench.world.with_nic(1, |nic, mem| {
            nic.receive(
                now,
                mem,
                &Ingress { bytes: &sent.bytes, start, sealed: true, source, destination: None, origin: None },
            );
        });
        let steps = bench.facts()[0].steps;
        steps - std::mem::replace(&mut before, steps)
    };
    sent.iter().map(step).collect()
}

/// The acknowledgement of a packet waits for no more steps than this, even if each of them reads.
#[test]
fn a_packet_gives_its_lane_so_many_steps_and_no_more() {
    for settings in arms() {
        for reads in [false, true] {
            let mut bench = Bench::new(1, &settings);
            let address = bench.there.remote(0).addr;
            bench.deploy(vec![if reads {
                Box::new(Reads { address, ..Reads::default() })
            } else {
                Box::new(Endless)
            }]);
            let steps = steps_of_packets(&mut bench, |bench| bench.rpc(OPCODE, 1, b""));
            assert_eq!(steps[0], u64::from(STEPS));
        }
    }
}

/// A kernel that reads sees input that arrived meanwhile in its next step.
#[test]
fn what_waits_is_seen_in_each_step() {
    for mut bench in Bench::arms() {
        let kernel = Reads { address: bench.there.remote(0).addr, ..Reads::default() };
        let seen = Arc::clone(&kernel.seen);
        bench.deploy(vec![Box::new(kernel)]);
        let steps = steps_of_packets(&mut bench, |bench| bench.rpc_write(OPCODE, 1, &[1; 3 * 256]));
        assert_eq!(steps[..3], [u64::from(STEPS); 3]);
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        let (first, others) = seen.split_at(STEPS as usize);
        assert!(first[0] && first[1..].iter().all(|seen| !seen), "{first:?}");
        assert!(others.iter().all(|seen| *seen), "{others:?}");
    }
}
