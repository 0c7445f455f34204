//! The value of a key.

use std::collections::BTreeMap;

use remora_scenario::units::Rate;

/// The value of one key.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An unsigned whole number.
    Integer(u64),
    /// A decimal number, as a multiple of 10⁻⁹: [`ONE`](super::ONE) is 1.
    Decimal(u64),
    /// A link or sending rate.
    Rate(Rate),
    /// A single word, usually the path of a file.
    Text(String),
    /// Numbers by link rate in bit/s, each as a multiple of 10⁻⁹. If a rate occurs twice, the later number
    /// counts.
    Map(BTreeMap<u64, u64>),
    /// The value of `LINK_DOWN`: a time in µs and the two ends of the link.
    Triple([u64; 3]),
}
