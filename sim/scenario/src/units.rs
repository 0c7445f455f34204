//! Rates, times and sizes with units, as exact integers.
//!
//! A value is written in the largest unit that divides it, so it reads back as an equal value.

mod decimal;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

pub use decimal::{WholeError, decimal, parse_saturating, parse_scaled, whole};

/// A rate, in bit/s.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

/// A time or duration, in picoseconds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

/// A size, in bytes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// Names of units with their factors to the smallest unit. A value is written in the first unit that divides
/// it.
type Units = &'static [(&'static str, u64)];

const RATES: Units =
    &[("Tbps", 1_000_000_000_000), ("Gbps", 1_000_000_000), ("Mbps", 1_000_000), ("kbps", 1_000), ("bps", 1)];

/// Further rate units that ns-3's `DataRate` accepts: `b/s` for `bps`, `B` for bytes, and powers of two.
const MORE_RATES: Units = &[
    ("Tb/s", 1_000_000_000_000),
    ("Gb/s", 1_000_000_000),
    ("Mb/s", 1_000_000),
    ("kb/s", 1_000),
    ("Kb/s", 1_000),
    ("Kbps", 1_000),
    ("b/s", 1),
    ("GBps", 8_000_000_000),
    ("GB/s", 8_000_000_000),
    ("MBps", 8_000_000),
    ("MB/s", 8_000_000),
    ("kBps", 8_000),
    ("kB/s", 8_000),
    ("KBps", 8_000),
    ("KB/s", 8_000),
    ("Bps", 8),
    ("B/s", 8),
    ("Gib/s", 1 << 30),
    ("GiB/s", 8 << 30),
    ("Mib/s", 1 << 20),
    ("MiB/s", 8 << 20),
    ("Kib/s", 1 << 10),
    ("KiB/s", 8 << 10),
];

const TIMES: Units =
    &[("s", 1_000_000_000_000), ("ms", 1_000_000_000), ("us", 1_000_000), ("ns", 1_000), ("ps", 1)];

const SIZES: Units =
    &[("GB", 1_000_000_000), ("MiB", 1 << 20), ("MB", 1_000_000), ("KiB", 1 << 10), ("KB", 1_000), ("B", 1)];

/// Parses a number with one of these units. `bare` is the factor of a number without unit, which is an error
/// with `None`.
fn parse(text: &str, units: &[Units], bare: Option<u64>) -> Option<u64> {
    let (number, scale) = split(text, units, bare)?;
    parse_scaled(number, scale)
}

/// Splits a text into its number and the factor of its unit.
fn split<'a>(text: &'a str, units: &[Units], bare: Option<u64>) -> Option<(&'a str, u64)> {
    let end = text.rfind(|c: char| c.is_ascii_digit() || c == '.').map_or(0, |index| index + 1);
    let (number, unit) = text.split_at(end);
    let unit = unit.trim_start();
    let scale = match unit {
        "" => bare?,
        _ => units.iter().flat_map(|units| units.iter()).find(|(name, _)| *name == unit)?.1,
    };
    Some((number, scale))
}

/// Returns the message for a text that is not a value with a unit. `says` names what was expected, and `most`
/// is the largest value.
fn fault(text: &str, units: &[Units], says: &str, most: &dyn fmt::Display) -> String {
    let excerpt = crate::error::excerpt(text);
    let is_too_large = split(text.trim(), units, None)
        .is_some_and(|(number, scale)| parse_saturating(number, scale).is_some());
    if is_too_large {
        format!("`{excerpt}` is more than {most}")
    } else {
        format!("`{excerpt}` is not {says}")
    }
}

fn show(f: &mut fmt::Formatter<'_>, value: u64, units: Units) -> fmt::Result {
    let divides = |unit: &&(&str, u64)| value.is_multiple_of(unit.1) && value > 0;
    let (name, scale) = units.iter().find(divides).or(units.last()).copied().unwrap_or(("", 1));
    write!(f, "{}{name}", value / scale)
}

impl Rate {
    /// Parses a rate in the notation of ns-3: `100Gbps`, `50Mb/s`, `10MB/s`. A number without unit is in
    /// bit/s.
    pub fn parse(text: &str) -> Option<Rate> {
        parse(text, &[RATES, MORE_RATES], Some(1)).map(Rate)
    }
}

impl Time {
    /// Parses a time in the notation of ns-3: `1000ns`, `0.001ms`. A number without unit is in seconds.
    pub fn parse(text: &str) -> Option<Time> {
        parse(text, &[TIMES, &[("min", 60_000_000_000_000), ("h", 3_600_000_000_000_000)]], Some(TIMES[0].1))
            .map(Time)
    }
}

/// Implements parsing, formatting and serde for one of the three types. A number without unit is rejected.
macro_rules! with_units {
    ($type:ident, $units:expr, $more:expr, $says:literal) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                show(f, self.0, $units)
            }
        }

        impl FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<$type, String> {
                let value = parse(text.trim(), &[$units, $more], None);
                value.map($type).ok_or_else(|| fault(text, &[$units, $more], $says, &$type(u64::MAX)))
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
                text.parse().map_err(D::Error::custom)
            }
        }
    };
}

with_units!(Rate, RATES, MORE_RATES, "a rate: write one like \"100Gbps\"");
with_units!(Time, TIMES, &[], "a time: write one like \"2us\"");
with_units!(Size, SIZES, &[], "a size: write one like \"240KB\"");

#[cfg(test)]
mod tests;
