//! The `HyperLogLog` kernel (StRoM paper, §7.2): how many different values of 8 bytes have come by, in 16
//! KiB.
//!
//! 2^14 registers, so a standard error of 0.81 %. The estimate is Ertl's (*New cardinality estimation
//! algorithms for HyperLogLog sketches*, 2017, algorithm 6): one formula from few values to many, without the
//! tables that the original needs between.

use pulp::{Arch, Simd, WithSimd};
use remora_wire::strom::Status;

use super::{Kernel, Look, Progress, Streams, What};

/// Bits of a hash that choose a register.
const BITS: u32 = 14;
const REGISTERS: usize = 1 << BITS;
/// Number of hash bits that do not choose a register; a register holds 0 to `REST` + 1.
const REST: usize = 64 - BITS as usize;
/// Number of values that are hashed together. The bits of a word mark the values of a batch that can raise a
/// register.
const BATCH: usize = 64;
/// Minimum of all registers from which on only a few values can raise a register, so that these are selected
/// first.
const FEW: u8 = 2;
/// Number of selected values that are counted between two tests for the end of a batch.
const TOGETHER: usize = 2;
/// Number of batches between two computations of the minimum of all registers.
const LOOK_EVERY: u32 = (REGISTERS / BATCH) as u32;

/// The command in the parameters, one byte.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Ask {
    /// The estimate, as the 8 bytes of an IEEE 754 number, little-endian.
    Estimate = 0,
    /// Clear all registers.
    Clear = 1,
}

/// The kernel that counts distinct values. Values arrive by RPC WRITE, or in WRITEs to memory.
pub struct HyperLogLog {
    registers: Registers,
    /// Vector extension of this CPU.
    vectors: Arch,
}

impl Default for HyperLogLog {
    fn default() -> HyperLogLog {
        HyperLogLog { registers: Registers::default(), vectors: Arch::new() }
    }
}

/// The registers, and what all of them held at least when that was looked at: a hash that ends in fewer zeros
/// changes nothing.
struct Registers {
    all: Box<[u8; REGISTERS]>,
    least: u8,
    /// Batches since then.
    since: u32,
}

impl Default for Registers {
    fn default() -> Registers {
        Registers { all: Box::new([0; REGISTERS]), least: 0, since: 0 }
    }
}

/// A number whose bits look random, however regular the values: turned against itself before it is multiplied
/// (as Evensen's mixers are), since what a plain shift takes in front of a multiplication, values of the same
/// shape lose. A CPU's vectors have all of it.
#[inline(always)]
fn hash(value: u64) -> u64 {
    let turned = value ^ value.rotate_right(25) ^ value.rotate_right(50);
    let spread = turned.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let folded = (spread ^ spread >> 32).wrapping_mul(0x8bb8_4b93_962e_acc9);
    folded ^ folded >> 28
}

impl Registers {
    /// The highest bits choose a register, the zeros below the lowest bit that is set count. The register is
    /// written whether it is higher or not: no branch predictor foresees that, and a store is cheaper than a
    /// wrong guess.
    #[inline(always)]
    fn count(&mut self, hash: u64) {
        let zeros = hash.trailing_zeros() as u8;
        let register = &mut self.all[(hash >> REST) as usize];
        *register = (*register).max(zeros + 1);
    }

    #[inline(always)]
    fn count_batch(&mut self, batch: &[u8; 8 * BATCH]) {
        let mut hashes = [0; BATCH];
        for (hashed, value) in hashes.iter_mut().zip(batch.as_chunks::<8>().0) {
            *hashed = hash(u64::from_le_bytes(*value));
        }
        match self.least < FEW {
            true => hashes.iter().for_each(|hash| self.count(*hash)),
            false => self.count_few(&hashes),
        }
        self.since += 1;
        if self.since == LOOK_EVERY {
            self.since = 0;
            self.least = self.all.iter().copied().fold(u8::MAX, u8::min);
        }
    }

    /// Counts the values that can raise a register, `TOGETHER` at a time. If fewer remain, a value of the
    /// batch is counted twice, which has no effect.
    #[inline(always)]
    fn count_few(&mut self, hashes: &[u64; BATCH]) {
        let zeros = (1 << self.least) - 1;
        let mut raising = 0u64;
        for (index, hash) in hashes.iter().enumerate() {
            raising |= u64::from(hash & zeros == 0) << index;
        }
        while raising != 0 {
            for _ in 0..TOGETHER {
                self.count(hashes[raising.trailing_zeros() as usize % BATCH]);
                raising &= raising.wrapping_sub(1);
            }
        }
    }
}

/// Values about to be taken in. What is inlined here is compiled once for each kind of vectors, and the CPU's
/// is chosen.
struct Batches<'b> {
    registers: &'b mut Registers,
    batches: &'b [[u8; 8 * BATCH]],
}

impl WithSimd for Batches<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for batch in self.batches {
            self.registers.count_batch(batch);
        }
    }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let mut y = 1.0;
    let mut z = x;
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let mut y = 1.0;
    let mut z = 1.0 - x;
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

impl HyperLogLog {
    /// Takes values in.
    pub fn add(&mut self, bytes: &[u8]) {
        let (batches, rest) = bytes.as_chunks::<{ 8 * BATCH }>();
        let registers = &mut self.registers;
        self.vectors.dispatch(Batches { registers, batches });
        for value in rest.as_chunks::<8>().0 {
            registers.count(hash(u64::from_le_bytes(*value)));
        }
    }

    /// Returns the estimated number of distinct values.
    pub fn estimate(&self) -> f64 {
        let mut counts = [0u32; REST + 2];
        for register in self.registers.all.iter() {
            // Bits that choose a register may have been counted too.
            counts[usize::from(*register).min(REST + 1)] += 1;
        }
        let m = REGISTERS as f64;
        let mut z = m * tau(1.0 - f64::from(counts[REST + 1]) / m);
        for count in counts[1..=REST].iter().rev() {
            z = 0.5 * (z + f64::from(*count));
        }
        z += m * sigma(f64::from(counts[0]) / m);
        m * m / (2.0 * std::f64::consts::LN_2 * z)
    }
}

impl Kernel for HyperLogLog {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        let Some(input) = streams.input() else { return Progress::Waits };
        streams.take();
        match (input.what, input.bytes) {
            (What::Params, [0]) => {
                let estimate = self.estimate().to_le_bytes();
                if streams.answer(Status::DONE, estimate.len() as u32) {
                    streams.put(&estimate);
                }
            }
            (What::Params, [1]) => {
                self.reset();
                streams.answer(Status::DONE, 0);
            }
            (What::Params, _) => {
                streams.answer(Status::BAD_PARAMS, 0);
            }
            (What::Data, bytes) => {
                self.add(bytes);
                if input.last {
                    streams.answer(Status::DONE, 0);
                }
            }
            (What::Passing(_), bytes) => self.add(bytes),
        }
        Progress::Waits
    }

    fn reset(&mut self) {
        self.registers.all.fill(0);
        (self.registers.least, self.registers.since) = (0, 0);
    }

    fn looks(&mut self) -> Option<&mut dyn Look> {
        Some(self)
    }
}

impl Look for HyperLogLog {
    fn look(&mut self, bytes: &[u8]) {
        self.add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_whose_last_bits_are_none_count_as_much_as_a_hash_can() {
        let estimate = |hash| {
            let mut kernel = HyperLogLog::default();
            kernel.registers.count(hash);
            kernel.estimate()
        };
        let most = estimate(1 << REST);
        assert!((most - 1.0).abs() < 0.01, "{most}");
        for hash in [0, 1 << 63, 5 << REST] {
            assert_eq!(estimate(hash), most, "{hash:x}");
        }
    }

    #[test]
    fn regular_values_are_estimated_as_well_as_any() {
        let strides =
            (0..64).flat_map(|bit| [0, 1, 3, u64::MAX].map(|more| (1u64 << bit).wrapping_add(more)));
        for stride in strides.filter(|stride| *stride != 0) {
            for values in
                [1000u64, 20_000].into_iter().filter(|values| *values <= u64::MAX >> stride.trailing_zeros())
            {
                let mut kernel = HyperLogLog::default();
                let bytes: Vec<u8> =
                    (0..values).flat_map(|value| value.wrapping_mul(stride).to_le_bytes()).collect();
                kernel.add(&bytes);
                let off = kernel.estimate() / values as f64 - 1.0;
                assert!(off.abs() < 5.0 * 0.0081, "{values} values, {stride} apart: {off}");
            }
        }
    }

    #[test]
    fn a_register_that_can_be_raised_is_also_when_all_of_them_hold_something() {
        let mut kernel = HyperLogLog::default();
        let mut plain = vec![0; REGISTERS];
        let mut seen = 0;
        for batch in 0u64..1 << 14 {
            let values = (0..BATCH as u64).map(|index| batch << 6 | index);
            kernel.add(&values.clone().flat_map(u64::to_le_bytes).collect::<Vec<u8>>());
            for hash in values.map(hash) {
                let register = &mut plain[(hash >> REST) as usize];
                *register = (hash.trailing_zeros() as u8 + 1).max(*register);
            }
            seen = seen.max(kernel.registers.least);
        }
        assert!(seen > FEW, "{seen}");
        assert_eq!(kernel.registers.all[..], plain[..]);
        kernel.reset();
        kernel.add(&[0; 8 * BATCH]);
        assert!((kernel.estimate() - 1.0).abs() < 0.01, "{}", kernel.estimate());
    }

    #[test]
    fn values_count_wherever_they_stand_and_a_rest_of_one_does_not() {
        let bytes: Vec<u8> =
            (0..8 * BATCH as u64 * 3 + 5).flat_map(|value| (value * 3).to_le_bytes()).collect();
        let counted = |bytes: &[u8]| {
            let mut kernel = HyperLogLog::default();
            kernel.add(bytes);
            kernel.registers.all
        };
        let mut one_by_one = HyperLogLog::default();
        bytes.chunks(8).for_each(|value| one_by_one.add(value));
        assert_eq!(counted(&bytes), one_by_one.registers.all);
        assert_eq!(counted(&bytes[..bytes.len() - 1]), counted(&bytes[..bytes.len() - 8]));
    }
}
