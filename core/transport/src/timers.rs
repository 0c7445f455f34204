//! The two timers that packets and attributes express as 5-bit codes: the RNR NAK timer and the local ACK
//! timeout.

/// A duration that never ends.
pub const NEVER_NS: u64 = u64::MAX;

/// RNR NAK timers by code, in units of 10 µs (IBTA vol. 1 §9.7.5.2.8), from code 1 on. Code 0 is the
/// longest.
const RNR_TEN_US: [u16; 31] = [
    1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12288, 16384, 24576, 32768, 49152,
];
const RNR_CODE_0_NS: u64 = 655_360_000;

/// Unit of the local ACK timeout: 4.096 µs.
const ACK_UNIT_NS: u64 = 4_096;

/// Returns the nanoseconds that a requester waits after an RNR NAK with this code. Only the low 5 bits
/// count, as on the wire.
#[inline]
pub const fn rnr_timer_ns(code: u8) -> u64 {
    match code & 31 {
        0 => RNR_CODE_0_NS,
        code => RNR_TEN_US[code as usize - 1] as u64 * 10_000,
    }
}

/// Returns the local ACK timeout in nanoseconds: 4.096 µs times 2 to the power of `code` (IBTA vol. 1
/// §9.7.6.1.3), or [`NEVER_NS`] for code 0. Only the low 5 bits count.
#[inline]
pub const fn ack_timeout_ns(code: u8) -> u64 {
    match code & 31 {
        0 => NEVER_NS,
        code => ACK_UNIT_NS << code,
    }
}

/// Maximum duration of a local ACK timeout, in multiples of the attribute's value (IBTA vol. 1 §9.7.6.1.3).
pub const MAX_ACK_TIMEOUTS: u64 = 4;

/// Returns the timeout after one of `current_ns` in which the peer sent only duplicate ACKs. It is twice as
/// long, up to the maximum that the specification allows for the attribute's value `timeout_ns`. Such a peer
/// is still processing duplicates, and each retransmission adds to its work.
#[inline]
pub const fn ack_timeout_backoff(current_ns: u64, timeout_ns: u64) -> u64 {
    let (twice, longest) = (current_ns.saturating_mul(2), timeout_ns.saturating_mul(MAX_ACK_TIMEOUTS));
    if twice < longest { twice } else { longest }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The milliseconds printed in the specification, for codes 0 to 31.
    const PRINTED_MS: &str = "655.36 0.01 0.02 0.03 0.04 0.06 0.08 0.12 0.16 0.24 0.32 0.48 0.64 0.96 1.28 1.92 \
         2.56 3.84 5.12 7.68 10.24 15.36 20.48 30.72 40.96 61.44 81.92 122.88 163.84 245.76 327.68 491.52";

    fn ns(milliseconds: &str) -> u64 {
        let (whole, parts) = milliseconds.split_once('.').expect("a decimal point");
        whole.parse::<u64>().expect("digits") * 1_000_000 + parts.parse::<u64>().expect("two digits") * 10_000
    }

    #[test]
    fn rnr_timers_are_the_32_values_of_the_specification() {
        let printed: Vec<u64> = PRINTED_MS.split_whitespace().map(ns).collect();
        let ours: Vec<u64> = (0..32).map(rnr_timer_ns).collect();
        assert_eq!(ours, printed);
    }

    #[test]
    fn ack_timeouts_double_from_8_192_us_to_2_4_hours_and_code_0_never_passes() {
        assert_eq!(ack_timeout_ns(0), NEVER_NS);
        assert_eq!(ack_timeout_ns(1), 8_192);
        assert_eq!(ack_timeout_ns(14), 67_108_864);
        assert_eq!(ack_timeout_ns(31), 8_796_093_022_208);
    }

    #[test]
    fn bits_above_the_fifth_do_not_count() {
        assert_eq!(rnr_timer_ns(0x25), rnr_timer_ns(5));
        assert_eq!(ack_timeout_ns(0xe0), NEVER_NS);
    }
}
