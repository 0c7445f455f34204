//! The `HyperLogLog` kernel (StRoM paper, §7.2): how many different values of 8 bytes have come by, in 16 KiB.
//!
//! 2^14 registers, so a standard error of 0.81 %. The estimate is Ertl's (*New cardinality estimation algorithms for HyperLogLog
//! sketches*, 2017, algorithm 6): one formula from few values to many, without the tables that the original needs between.

use wire::strom::Status;

use super::{Kernel, Progress, Streams, What};

/// Bits of a hash that choose a register.
const BITS: u32 = 14;
const REGISTERS: usize = 1 << BITS;
/// Bits that are left: a register holds 0 to `REST` + 1.
const REST: usize = 64 - BITS as usize;
/// Values that are taken in without a look at how many are left.
const BATCH: usize = 8;

/// What parameters ask for: one byte.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Ask {
    /// The estimate, as the 8 bytes of an IEEE 754 number, little-endian.
    Estimate = 0,
    /// To begin anew.
    Clear = 1,
}

/// The kernel. Values come by RPC WRITE, or pass by.
pub struct HyperLogLog {
    registers: Box<[u8; REGISTERS]>,
}

impl Default for HyperLogLog {
    fn default() -> HyperLogLog {
        HyperLogLog { registers: Box::new([0; REGISTERS]) }
    }
}

/// A number whose bits look random, for two multiplications: the halves of a product folded together, and spread once more, without
/// which the folded ones of regular values are too regular (estimates half of what they should be).
#[inline(always)]
fn hash(value: u64) -> u64 {
    let product = u128::from(value ^ 0x2d35_8dcc_aa6c_78a5) * 0x9e37_79b9_7f4a_7c15;
    (product as u64 ^ (product >> 64) as u64).wrapping_mul(0x8bb8_4b93_962e_acc9)
}

/// The highest bits choose a register, the zeros below the lowest bit that is set count.
#[inline(always)]
fn count(registers: &mut [u8; REGISTERS], hash: u64) {
    let zeros = hash.trailing_zeros() as u8;
    let register = &mut registers[(hash >> REST) as usize];
    if zeros >= *register {
        *register = zeros + 1;
    }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
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
    let (mut y, mut z) = (1.0, 1.0 - x);
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
        let registers = &mut *self.registers;
        let mut take = |value: &[u8; 8]| count(registers, hash(u64::from_le_bytes(*value)));
        let (batches, rest) = bytes.as_chunks::<{ 8 * BATCH }>();
        for batch in batches {
            batch.as_chunks::<8>().0.iter().for_each(&mut take);
        }
        rest.as_chunks::<8>().0.iter().for_each(take);
    }

    /// How many different ones there were, about.
    pub fn estimate(&self) -> f64 {
        let mut counts = [0u32; REST + 2];
        for register in self.registers.iter() {
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
        self.registers.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_whose_last_bits_are_none_count_as_much_as_a_hash_can() {
        let estimate = |hash| {
            let mut kernel = HyperLogLog::default();
            count(&mut kernel.registers, hash);
            kernel.estimate()
        };
        let most = estimate(1 << REST);
        assert!((most - 1.0).abs() < 0.01, "{most}");
        for hash in [0, 1 << 63, 5 << REST] {
            assert_eq!(estimate(hash), most, "{hash:x}");
        }
    }

    #[test]
    fn values_count_wherever_they_stand_and_a_rest_of_one_does_not() {
        let bytes: Vec<u8> =
            (0..8 * BATCH as u64 * 3 + 5).flat_map(|value| (value * 3).to_le_bytes()).collect();
        let counted = |bytes: &[u8]| {
            let mut kernel = HyperLogLog::default();
            kernel.add(bytes);
            kernel.registers
        };
        let mut one_by_one = HyperLogLog::default();
        bytes.chunks(8).for_each(|value| one_by_one.add(value));
        assert_eq!(counted(&bytes), one_by_one.registers);
        assert_eq!(counted(&bytes[..bytes.len() - 1]), counted(&bytes[..bytes.len() - 8]));
    }
}
