//! Static rates: numbers of `enum ibv_rate`, multiples of 2.5 Gbit/s, and Mbit/s.

use std::ffi::c_int;

/// The rates: number, multiple of 2.5 Gbit/s (0 if there is none), and Mbit/s.
const RATES: [(c_int, c_int, c_int); 23] = [
    (2, 1, 2_500),
    (5, 2, 5_000),
    (3, 4, 10_000),
    (6, 8, 20_000),
    (4, 12, 30_000),
    (7, 16, 40_000),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (10, 48, 120_000),
    (11, 0, 14_062),
    (12, 0, 56_250),
    (13, 0, 112_500),
    (14, 0, 168_750),
    (15, 0, 25_781),
    (16, 0, 103_125),
    (17, 0, 206_250),
    (18, 0, 309_375),
    (19, 11, 28_125),
    (20, 20, 53_125),
    (21, 160, 425_000),
    (22, 240, 637_500),
    (23, 320, 850_000),
    (24, 480, 1_275_000),
];

/// Returns a rate as a multiple of 2.5 Gbit/s, or -1.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_rate_to_mult(rate: c_int) -> c_int {
    let entry = RATES.iter().find(|(number, mult, _)| *number == rate && *mult > 0);
    entry.map_or(-1, |(_, mult, _)| *mult)
}

/// Returns the rate of a multiple of 2.5 Gbit/s, or 0 (the fastest) if there is none.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mult_to_ibv_rate(mult: c_int) -> c_int {
    RATES.iter().find(|(_, known, _)| *known == mult && mult > 0).map_or(0, |(number, _, _)| *number)
}

/// Returns a rate in Mbit/s, or -1.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_rate_to_mbps(rate: c_int) -> c_int {
    RATES.iter().find(|(number, _, _)| *number == rate).map_or(-1, |(_, _, mbps)| *mbps)
}

/// Returns the rate of this number of Mbit/s, or 0 (the fastest) if there is none.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
    RATES.iter().find(|(_, _, known)| *known == mbps).map_or(0, |(number, _, _)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_come_back_from_both_units() {
        for (number, mult, mbps) in RATES {
            assert_eq!(
                (mbps_to_ibv_rate(ibv_rate_to_mbps(number)), mbps),
                (number, ibv_rate_to_mbps(number))
            );
            let back = mult_to_ibv_rate(ibv_rate_to_mult(number));
            assert_eq!(back, if mult > 0 { number } else { 0 });
        }
        assert_eq!([ibv_rate_to_mult(0), ibv_rate_to_mbps(1), mult_to_ibv_rate(3)], [-1, -1, 0]);
    }
}
