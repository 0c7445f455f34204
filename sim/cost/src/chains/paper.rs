//! The measurements in the RedN paper. Numbers are from the text and Tables 3 to 5, or were read from the
//! figures with a precision of about 0.1 µs.

/// Figure 7: latency of verbs of 64 bytes in nanoseconds; all but the last over the network.
pub(crate) const FIGURE_7: [(&str, f64); 7] = [
    ("READ", 1810.0),
    ("WRITE", 1600.0),
    ("CAS", 1720.0),
    ("ADD", 1630.0),
    ("MAX", 1630.0),
    ("NOP", 1270.0),
    ("NOP, local", 1050.0),
];

/// Figure 8, from the text: nanoseconds of the first NOP of a chain and of each further one, in WQ order,
/// completion order and doorbell order.
pub(crate) const FIGURE_8: [(&str, f64, f64); 3] =
    [("WQ order", 1210.0, 170.0), ("completion order", 1210.0, 190.0), ("doorbell order", 1210.0, 540.0)];
/// Lengths of the chains in Figure 8.
pub(crate) const CHAINS: [usize; 6] = [1, 10, 20, 30, 40, 50];

/// Native verbs of Table 3, per second.
pub(crate) const TABLE_3_NATIVE: [(&str, f64); 5] =
    [("CAS", 8.4e6), ("ADD", 8.4e6), ("READ", 65e6), ("WRITE", 63e6), ("MAX", 63e6)];
/// Constructs of Table 3, per second.
pub(crate) const TABLE_3: [(&str, f64); 3] =
    [("if", 0.7e6), ("while, unrolled", 0.7e6), ("while, recycled", 0.3e6)];

/// Lengths of values in Figures 10, 11 and 14, in bytes.
pub(crate) const SIZES: [u64; 5] = [64, 1 << 10, 4 << 10, 16 << 10, 64 << 10];

/// A curve over [`SIZES`].
pub(crate) struct Curve {
    /// Figure in the paper.
    pub figure: &'static str,
    /// Name of the curve in the figure.
    pub name: &'static str,
    /// Nanoseconds for each size.
    pub ns: [f64; 5],
}

const fn curve(figure: &'static str, name: &'static str, ns: [f64; 5]) -> Curve {
    Curve { figure, name, ns }
}

/// `RedN`'s GETs: one bucket; two buckets, sequentially or in parallel; and Memcached's table.
pub(crate) const CHAIN_GETS: [Curve; 4] = [
    curve("Figure 10", "RedN", [5620.0, 5220.0, 6330.0, 10_210.0, 16_230.0]),
    curve("Figure 11", "RedN-Seq", [8750.0, 8680.0, 8750.0, 12_940.0, 20_100.0]),
    curve("Figure 11", "RedN-Parallel", [5790.0, 6470.0, 6850.0, 10_660.0, 16_520.0]),
    curve("Figure 14", "RedN", [5650.0, 5720.0, 6410.0, 10_180.0, 16_280.0]),
];
/// Figure 10: one READ.
pub(crate) const IDEAL: Curve = curve("Figure 10", "Ideal", [4350.0, 4810.0, 5190.0, 8230.0, 15_420.0]);
/// Figures 10 and 11: two READs.
pub(crate) const ONE_SIDED: [Curve; 2] = [
    curve("Figure 10", "one-sided", [10_050.0, 11_340.0, 11_590.0, 15_360.0, 19_520.0]),
    curve("Figure 14", "one-sided", [10_040.0, 11_330.0, 11_580.0, 15_360.0, 19_510.0]),
];
/// A call to a polling server.
pub(crate) const TWO_SIDED: Curve =
    curve("Figure 10", "two-sided, polling", [12_020.0, 12_530.0, 12_960.0, 17_300.0, 21_610.0]);

/// Table 4: bytes of a value, number of ports, GETs per second.
pub(crate) const TABLE_4: [(u64, usize, f64); 4] =
    [(1 << 10, 1, 500e3), (1 << 10, 2, 1e6), (64 << 10, 1, 180e3), (64 << 10, 2, 190e3)];
/// Table 5: bytes of a value, median latency in nanoseconds.
pub(crate) const TABLE_5: [(u64, f64); 2] = [(64, 5700.0), (4 << 10, 6700.0)];

/// Figure 13: number of leading nodes among which the key is.
pub(crate) const RANGES: [usize; 4] = [1, 2, 4, 8];
/// Curves of Figure 13 over [`RANGES`], in nanoseconds.
pub(crate) const FIGURE_13: [(&str, [f64; 4]); 4] = [
    ("RedN", [5850.0, 7510.0, 9160.0, 13_490.0]),
    ("RedN with a break", [8520.0, 10_430.0, 13_740.0, 24_040.0]),
    ("one-sided", [15_010.0, 18_580.0, 22_010.0, 40_460.0]),
    ("two-sided, polling", [12_980.0, 13_120.0, 13_330.0, 13_490.0]),
];
