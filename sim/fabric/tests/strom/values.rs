//! The kernels for objects and for streams of values: consistency, shuffle, `HyperLogLog`.

use std::collections::BTreeSet;

use datasketches::hll::{HllSketch, HllType};
use remora_nic::kernel::{
    Ask, CRC_LEN, Consistency, HyperLogLog, Kernel, Object, Partition, Progress, Shuffle, Status, Streams,
    crc64, histogram,
};

use remora_fault::Random;

use crate::bench::{Answer, Bench, OPCODE, arms, every_seed};

#[test]
fn an_object_comes_whole_or_not_at_all() {
    every_seed::<2, Consistency>(|bench, random| {
        let mut seen = [0; 2];
        for tag in 0..4 {
            let len = 1 + random.below(12_000) as usize;
            let bytes: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
            bench.there.store(0, &bytes);
            bench.there.store(len, &crc64(&bytes).to_le_bytes());
            let torn = random.below(3) == 0;
            if torn {
                let index = random.below((len + CRC_LEN) as u64) as usize;
                let byte = bench.there.load(index, 1)[0];
                bench.there.store(index, &[byte ^ 1 << random.below(8)]);
            }
            let object = Object { address: bench.there.remote(0).addr, len: len as u32, tries: 3 };
            bench.rpc(OPCODE, tag, &object.emit());
            let wanted = match torn {
                true => Answer { status: Status::INCONSISTENT, bytes: Vec::new() },
                false => Answer { status: Status::DONE, bytes },
            };
            assert_eq!(bench.run()[&tag], wanted, "{len} bytes");
            seen[usize::from(torn)] += 1;
        }
        seen
    });
}

#[test]
fn a_torn_object_whose_check_value_is_read_apart_is_not_answered() {
    for settings in arms() {
        let mut bench = Bench::new(1, &settings);
        bench.deploy(vec![Box::new(Consistency::default())]);
        for (tag, len) in (4088..=4096).chain(8180..=8200).chain(16_370..=16_384).enumerate() {
            let bytes = vec![7; len];
            bench.there.store(0, &bytes);
            bench.there.store(len, &crc64(&bytes).to_le_bytes());
            let object = Object { address: bench.there.remote(0).addr, len: len as u32, tries: 2 };
            bench.rpc(OPCODE, 2 * tag as u32, &object.emit());
            let whole = Answer { status: Status::DONE, bytes };
            assert_eq!(bench.run()[&(2 * tag as u32)], whole, "{len} bytes");
            bench.there.store(len / 2, &[8]);
            bench.rpc(OPCODE, 2 * tag as u32 + 1, &object.emit());
            let torn = Answer { status: Status::INCONSISTENT, bytes: Vec::new() };
            assert_eq!(bench.run()[&(2 * tag as u32 + 1)], torn, "{len} bytes");
        }
    }
}

/// The consistency kernel, with a writer that completes the object after a number of reads.
struct Mended {
    kernel: Consistency,
    reads: u32,
    torn_address: u64,
    byte: u8,
}

impl Kernel for Mended {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        if streams.data().is_some() && self.reads > 0 {
            self.reads -= 1;
            if self.reads == 0 {
                streams.write(self.torn_address, &[self.byte]);
            }
        }
        self.kernel.step(streams)
    }

    fn reset(&mut self) {
        self.kernel.reset();
    }
}

#[test]
fn an_object_that_comes_to_rest_is_read_again_until_it_has() {
    // The object is completed after the third read, so the fourth is consistent, and three are too few.
    for (tries, status) in [(3, Status::INCONSISTENT), (4, Status::DONE)] {
        for mut bench in Bench::arms() {
            let bytes = [7; 600];
            bench.there.store(0, &bytes);
            bench.there.store(bytes.len(), &crc64(&bytes).to_le_bytes());
            bench.there.store(5, &[8]);
            let torn_address = bench.there.remote(5).addr;
            let kernel = Consistency::default();
            bench.deploy(vec![Box::new(Mended { kernel, reads: 3, torn_address, byte: 7 })]);
            let address = bench.there.remote(0).addr;
            bench.rpc(OPCODE, 1, &Object { address, len: bytes.len() as u32, tries }.emit());
            let bytes = if status == Status::DONE { bytes.to_vec() } else { Vec::new() };
            assert_eq!(bench.run()[&1], Answer { status, bytes });
        }
    }
}

#[test]
fn each_value_comes_into_its_partition_in_order() {
    every_seed::<2, Shuffle>(|bench, random| {
        let bits = random.below(7) as u32;
        let count = 1usize << bits;
        let values: Vec<u64> = (0..random.below(900)).map(|_| random.below(1 << 40)).collect();
        let mask = (1u64 << bits) - 1;
        let values_of =
            |partition: usize| values.iter().copied().filter(move |value| value & mask == partition as u64);
        // Sometimes one partition has space for one value too few.
        let short = (random.below(3) == 0 && !values.is_empty()).then(|| (values[0] & mask) as usize);
        let mut partitions = Vec::new();
        let mut next = 0;
        for partition in 0..count {
            let here = values_of(partition).count() as u64 - u64::from(short == Some(partition));
            partitions.push(Partition { address: bench.there.remote(8 * next).addr, values: here });
            // A gap that must stay empty.
            next += here as usize + 1;
        }
        for (number, part) in partitions.chunks(8).enumerate() {
            bench.rpc(OPCODE, number as u32, &histogram(bits, 8 * number as u32, part));
        }
        let half = values.len() / 2;
        for (tag, part) in [&values[..half], &values[half..]].into_iter().enumerate() {
            let bytes: Vec<u8> = part.iter().flat_map(|value| value.to_le_bytes()).collect();
            bench.rpc_write(OPCODE, 32 + tag as u32, &bytes);
        }
        let answers = bench.run();
        let statuses: BTreeSet<u8> = answers.values().map(|answer| answer.status.0).collect();
        assert_eq!(statuses.contains(&Shuffle::FULL.0), short.is_some());
        assert!(statuses.iter().all(|status| [0, Shuffle::FULL.0].contains(status)));
        for (number, partition) in partitions.iter().enumerate() {
            let offset = (partition.address - bench.there.remote(0).addr) as usize;
            let wanted: Vec<u8> = values_of(number)
                .take(partition.values as usize)
                .flat_map(u64::to_le_bytes)
                .chain([0; 8])
                .collect();
            assert_eq!(bench.there.load(offset, wanted.len()), wanted, "partition {number} of {count}");
        }
        [u64::from(short.is_some()), u64::from(short.is_none())]
    });
}

#[test]
fn an_estimate_is_near_the_number_of_different_values() {
    every_seed::<1, HyperLogLog>(|bench, random| {
        let mut different = BTreeSet::new();
        let most = 1 + random.below(1 << 14);
        for tag in 0..8 {
            let values: Vec<u64> = (0..random.below(1000)).map(|_| random.below(most)).collect();
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            bench.rpc_write(OPCODE, tag, &bytes);
            different.extend(values);
        }
        assert!(bench.run().values().all(|answer| answer.status == Status::DONE));
        let estimate = |bench: &mut Bench| {
            bench.rpc(OPCODE, 9, &[Ask::Estimate as u8]);
            let bytes = bench.run().remove(&9).unwrap().bytes;
            f64::from_le_bytes(bytes.try_into().unwrap())
        };
        // Few values rarely collide: four standard errors.
        let count = different.len() as f64;
        let error = (estimate(bench) - count).abs();
        assert!(error <= 4.0 * 0.0081 * count + 1.0, "{error} of {count}");
        bench.rpc(OPCODE, 10, &[Ask::Clear as u8]);
        assert_eq!(bench.run()[&10].status, Status::DONE);
        assert!(estimate(bench).abs() < 1e-9);
        [different.len() as u64]
    });
}

/// From few values to millions, compared with the exact number.
#[test]
fn estimates_are_within_three_standard_errors_of_the_numbers_of_values() {
    for (number, exact) in [0u64, 1, 10, 1000, 20_000, 60_000, 400_000, 2_000_000].into_iter().enumerate() {
        let mut kernel = HyperLogLog::default();
        for value in 0..exact {
            let value = (value << 8 | number as u64).to_le_bytes();
            kernel.add(&[value, value].concat());
        }
        let error = (kernel.estimate() - exact as f64).abs();
        assert!(error <= 3.0 * 0.0081 * exact as f64 + 0.01, "{} instead of {exact}", kernel.estimate());
    }
}

/// Apache `DataSketches` hashes, counts and estimates in its own way, with the same number of registers. Over
/// equal values, both errors match their standard errors.
#[test]
fn estimates_are_as_good_as_those_of_an_independent_library() {
    const STREAMS: u64 = 16;
    // The library's standard error depends on the order of the values: 0.83 / 2^7, according to its
    // documentation.
    let standard = [0.0081, 0.0065];
    for count in [100, 3000, 40_000, 150_000_u64] {
        let mut squares = [0.0; 2];
        for seed in 0..STREAMS {
            let mut random = Random::new(1000 * count + seed);
            let mut ours = HyperLogLog::default();
            let mut theirs = HllSketch::new(14, HllType::Hll8).unwrap();
            let mut exact = BTreeSet::new();
            let most = 2 * count;
            for _ in 0..count {
                // Many values repeat, and are close to each other.
                let value = random.below(most);
                exact.insert(value);
                ours.add(&value.to_le_bytes());
                theirs.update(value);
            }
            let exact = exact.len() as f64;
            let errors = [ours.estimate(), theirs.estimate()].map(|estimate| estimate / exact - 1.0);
            for ((square, error), standard) in squares.iter_mut().zip(errors).zip(standard) {
                assert!(error.abs() <= 4.0 * standard, "{count}, seed {seed}: {errors:?}");
                *square += error * error;
            }
        }
        let typical = squares.map(|sum| (sum / STREAMS as f64).sqrt());
        for (typical, standard) in typical.into_iter().zip(standard) {
            assert!(typical <= 1.5 * standard, "{count} values: {typical} beside {standard}");
        }
    }
}
