//! Distributions of flow sizes as a scenario file names them.

use std::fmt;
use std::str::FromStr;

use remora_fault::Random;
use serde::de::Error as _;
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::distribution::{Cdf, Point, unit};
use super::tables;
use crate::units::Size;

/// The flow sizes of a workload. In a file: a name, a size (`"1MB"`), `"uniform LOW HIGH"`, `"log-uniform LOW
/// HIGH"`, or a list of `[bytes, percent]`.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// A distribution known by name.
    Named(NamedSizes),
    /// A fixed size.
    Fixed(Size),
    /// A uniform distribution from the first to the second size.
    Uniform([Size; 2]),
    /// A log-uniform distribution from the first to the second size: the logarithm of the size is uniform.
    LogUniform([Size; 2]),
    /// A cumulative distribution, given as a table.
    Table(Cdf),
}

/// A flow size distribution known by name.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum NamedSizes {
    /// `websearch`: web search at Microsoft, from DCTCP's paper.
    WebSearch,
    /// `fb-hdp`: Hadoop at Facebook, 2015.
    FbHdp,
    /// `ali-storage`: storage at Alibaba, 2019.
    AliStorage,
    /// `google-rpc`: RPCs at Google, 2008, from Homa's paper.
    GoogleRpc,
    /// `irn`: the default of IRN's evaluation. 50 % of the flows have 32 B to 1 KB, 35 % up to 200 KB, 15 %
    /// up to 3 MB, log-uniform within each range.
    Irn,
    /// `irn-uniform`: the second distribution of IRN's evaluation, uniform from 0.5 to 5 MB.
    IrnUniform,
}

const NAMES: [(NamedSizes, &str); 6] = [
    (NamedSizes::WebSearch, "websearch"),
    (NamedSizes::FbHdp, "fb-hdp"),
    (NamedSizes::AliStorage, "ali-storage"),
    (NamedSizes::GoogleRpc, "google-rpc"),
    (NamedSizes::Irn, "irn"),
    (NamedSizes::IrnUniform, "irn-uniform"),
];

/// The ranges of [`NamedSizes::Irn`]: percentage of the flows, then the smallest and the largest size in
/// bytes.
const IRN: [(f64, [u64; 2]); 3] =
    [(50.0, [32, 1_000]), (35.0, [1_000, 200_000]), (15.0, [200_000, 3_000_000])];

/// A distribution from which sizes are drawn, in bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// Uniform from the first to the second size, both included.
    Uniform([u64; 2]),
    /// Log-uniform within each range: percentage of the flows, then the smallest and the largest size.
    LogUniform(Vec<(f64, [u64; 2])>),
    /// A cumulative distribution, linear between its points.
    Table(Cdf),
}

impl Sizes {
    /// Returns the distribution.
    ///
    /// # Errors
    /// Fails if a size is 0 or if the bounds are in the wrong order.
    pub fn distribution(&self) -> Result<Distribution, String> {
        let bounds = |[low, high]: [Size; 2]| match low.0 >= 1 && low <= high {
            true => Ok([low.0, high.0]),
            false => Err(format!("sizes from {low} to {high}: choose at least 1 byte, the smaller first")),
        };
        let table = |text| tables::cdf(text).map(Distribution::Table).map_err(|error| error.to_string());
        match self {
            Sizes::Fixed(size) => bounds([*size; 2]).map(Distribution::Uniform),
            Sizes::Uniform(range) => bounds(*range).map(Distribution::Uniform),
            Sizes::LogUniform(range) => {
                bounds(*range).map(|range| Distribution::LogUniform(vec![(100.0, range)]))
            }
            Sizes::Table(cdf) => Ok(Distribution::Table(cdf.clone())),
            Sizes::Named(NamedSizes::WebSearch) => table(tables::WEBSEARCH),
            Sizes::Named(NamedSizes::FbHdp) => table(tables::FB_HDP),
            Sizes::Named(NamedSizes::AliStorage) => table(tables::ALI_STORAGE),
            Sizes::Named(NamedSizes::GoogleRpc) => table(tables::GOOGLE_RPC),
            Sizes::Named(NamedSizes::Irn) => Ok(Distribution::LogUniform(IRN.to_vec())),
            Sizes::Named(NamedSizes::IrnUniform) => Ok(Distribution::Uniform([500_000, 5_000_000])),
        }
    }
}

impl Distribution {
    /// Returns the mean size, in bytes.
    pub fn mean(&self) -> f64 {
        match self {
            Distribution::Uniform([low, high]) => (*low as f64 + *high as f64) / 2.0,
            Distribution::LogUniform(parts) => {
                let mean = |[low, high]: [u64; 2]| match (low as f64, high as f64) {
                    (low, high) if low == high => low,
                    (low, high) => (high - low) / libm::log(high / low),
                };
                parts.iter().map(|(percent, range)| percent / 100.0 * mean(*range)).sum()
            }
            Distribution::Table(cdf) => cdf.mean(),
        }
    }

    /// Draws the size of a flow, in bytes.
    pub fn draw(&self, random: &mut Random) -> u64 {
        match self {
            Distribution::Uniform([low, high]) => random.between(*low, *high),
            Distribution::LogUniform(parts) => {
                let mut percent = unit(random) * 100.0;
                let part = parts.iter().find(|(share, _)| {
                    percent -= share;
                    percent < 0.0
                });
                let [low, high] = part.or(parts.last()).map_or([1, 1], |(_, range)| *range);
                let factor = libm::pow(high as f64 / low as f64, unit(random));
                ((low as f64 * factor) as u64).clamp(low, high)
            }
            Distribution::Table(cdf) => cdf.draw(random),
        }
    }
}

impl fmt::Display for Sizes {
    /// Writes the sizes as a file has them, except for a table, which is not a string there.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sizes::Named(named) => {
                let name = NAMES.iter().find(|(known, _)| known == named).map_or("", |(_, name)| name);
                f.write_str(name)
            }
            Sizes::Fixed(size) => write!(f, "{size}"),
            Sizes::Uniform([low, high]) => write!(f, "uniform {low} {high}"),
            Sizes::LogUniform([low, high]) => write!(f, "log-uniform {low} {high}"),
            Sizes::Table(_) => f.write_str("a table"),
        }
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Sizes, String> {
        if let Some((named, _)) = NAMES.iter().find(|(_, name)| *name == text) {
            return Ok(Sizes::Named(*named));
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let bounds = |low: &str, high: &str| Ok::<_, String>([low.parse()?, high.parse()?]);
        match words[..] {
            ["uniform", low, high] => bounds(low, high).map(Sizes::Uniform),
            ["log-uniform", low, high] => bounds(low, high).map(Sizes::LogUniform),
            [size] if size.starts_with(|c: char| c.is_ascii_digit()) => size.parse().map(Sizes::Fixed),
            _ => {
                let names: Vec<_> = NAMES.iter().map(|(_, name)| *name).collect();
                let text = crate::error::excerpt(text);
                Err(format!(
                    "no sizes are called `{text}`: choose a size, \"uniform 500KB 5MB\", {}",
                    names.join(", ")
                ))
            }
        }
    }
}

impl Serialize for Sizes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Sizes::Table(cdf) = self else { return serializer.collect_str(self) };
        let mut list = serializer.serialize_seq(Some(cdf.points().len()))?;
        for Point { bytes, percent } in cdf.points() {
            list.serialize_element(&[*bytes, *percent])?;
        }
        list.end()
    }
}

/// Flow sizes as TOML has them: a string or a table.
#[derive(Deserialize)]
#[serde(untagged)]
enum SizesText {
    Text(String),
    Table(Vec<[f64; 2]>),
}

impl<'de> Deserialize<'de> for Sizes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Sizes, D::Error> {
        match SizesText::deserialize(deserializer)? {
            SizesText::Text(text) => text.parse().map_err(D::Error::custom),
            SizesText::Table(rows) => {
                let points = rows.into_iter().map(|[bytes, percent]| Point { bytes, percent }).collect();
                Cdf::new(points).map(Sizes::Table).map_err(D::Error::custom)
            }
        }
    }
}
