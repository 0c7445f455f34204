//! The two timers that travel as 5-bit codes: how long to wait after "receiver not ready", and for an
//! acknowledgement.

/// A time that never passes.
pub const NEVER_NS: u64 = u64::MAX;

/// The RNR NAK timer by code, in units of 10 µs (IBTA vol. 1 §9.7.5.2.8). Code 0 is the longest.
const RNR_TEN_US: [u16; 31] = [
    1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12288, 16384, 24576, 32768, 49152,
];
const RNR_CODE_0_NS: u64 = 655_360_000;

/// The unit of the local ACK timeout: 4.096 µs.
const ACK_UNIT_NS: u64 = 4_096;

/// Nanoseconds that an RNR NAK with this code asks its requester to wait; only the low 5 bits count, as on
/// the wire.
#[inline]
pub const fn rnr_timer_ns(code: u8) -> u64 {
    match code & 31 {
        0 => RNR_CODE_0_NS,
        code => RNR_TEN_US[code as usize - 1] as u64 * 10_000,
    }
}

/// The code of the shortest RNR NAK timer that is no shorter than `ns`; the longest there is (code 0) for
/// more.
pub const fn rnr_timer_code(ns: u64) -> u8 {
    let mut code = 1;
    while code <= 31 {
        if rnr_timer_ns(code) >= ns {
            return code;
        }
        code += 1;
    }
    0
}

/// Nanoseconds that a requester waits for an acknowledgement before it sends again: 4.096 µs times 2 to the
/// `code` (IBTA vol. 1 §9.7.6.1.3), [`NEVER_NS`] for code 0; only the low 5 bits count.
#[inline]
pub const fn ack_timeout_ns(code: u8) -> u64 {
    match code & 31 {
        0 => NEVER_NS,
        code => ACK_UNIT_NS << code,
    }
}

/// The longest time that a requester may take for a local ACK timeout, in such timeouts (IBTA vol. 1
/// §9.7.6.1.3).
pub const MAX_ACK_TIMEOUTS: u64 = 4;

/// The timeout after one of `current_ns` in which a peer answered, but nothing new: twice as long, and no
/// longer than the specification allows for the attribute's `timeout_ns`. Such a peer is at work on packets
/// that it has twice already, and each retransmission is more work.
#[inline]
pub const fn ack_timeout_backoff(current_ns: u64, timeout_ns: u64) -> u64 {
    let (twice, longest) = (current_ns.saturating_mul(2), timeout_ns.saturating_mul(MAX_ACK_TIMEOUTS));
    if twice < longest { twice } else { longest }
}

/// The code of the shortest local ACK timeout that is no shorter than `ns`; 0, which never expires, for more
/// than code 31 (about 2.4 hours).
pub const fn ack_timeout_code(ns: u64) -> u8 {
    let mut code = 1;
    while code <= 31 {
        if ack_timeout_ns(code) >= ns {
            return code;
        }
        code += 1;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds as the specification prints them, codes 0 to 31.
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
    fn every_rnr_code_comes_back_from_its_time_and_between_two_the_longer_is_taken() {
        for code in 0..32 {
            assert_eq!(rnr_timer_code(rnr_timer_ns(code)), code);
        }
        assert_eq!(rnr_timer_code(0), 1);
        assert_eq!(rnr_timer_code(40_001), 5);
        assert_eq!(rnr_timer_code(491_520_001), 0);
        assert_eq!(rnr_timer_code(u64::MAX), 0);
    }

    #[test]
    fn ack_timeouts_double_from_8_192_us_to_2_4_hours_and_code_0_never_passes() {
        assert_eq!(ack_timeout_ns(0), NEVER_NS);
        assert_eq!(ack_timeout_ns(1), 8_192);
        assert_eq!(ack_timeout_ns(14), 67_108_864);
        assert_eq!(ack_timeout_ns(31), 8_796_093_022_208);
    }

    #[test]
    fn every_ack_timeout_code_comes_back_from_its_time() {
        for code in 0..32 {
            assert_eq!(ack_timeout_code(ack_timeout_ns(code)), code);
        }
        assert_eq!(ack_timeout_code(0), 1);
        assert_eq!(ack_timeout_code(8_193), 2);
    }

    #[test]
    fn bits_above_the_fifth_do_not_count() {
        assert_eq!(rnr_timer_ns(0x25), rnr_timer_ns(5));
        assert_eq!(ack_timeout_ns(0xe0), NEVER_NS);
    }
}
