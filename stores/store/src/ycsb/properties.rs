//! Workload files as YCSB ships them (`workloada` to `workloadf`): Java properties, one `name=value` a line.
//!
//! The parser reads the record and operation counts, the shares of operations, the distribution of requests,
//! the longest scan, and the bytes of a record. These are `fieldcount` times `fieldlength`; the stores have
//! no fields. An unknown property that would change the measurement is an error. One that concerns other
//! stores only is named and ignored.

use super::workload::{Distribution, Mix};
use super::zipfian::THETA;

/// The content of a workload file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Shares and distribution; the mix's name is `-`.
    pub mix: Mix,
    /// `recordcount`: number of records to load.
    pub records: Option<u64>,
    /// `operationcount`: number of operations to run.
    pub operations: Option<u64>,
    /// Bytes of a value: `fieldcount` (10) times `fieldlength` (100).
    pub value_len: u32,
    /// Properties that have no effect here.
    pub ignored: Vec<String>,
}

/// The reason for which a file is not a valid workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropertyError {
    /// Number of the line, from 1; 0 for the file as a whole.
    pub line: u32,
    /// The mistake, and the accepted values.
    pub fault: String,
}

impl core::fmt::Display for PropertyError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.line {
            0 => f.write_str(&self.fault),
            line => write!(f, "line {line}: {}", self.fault),
        }
    }
}

impl core::error::Error for PropertyError {}

/// Maximum length of a value in bytes.
const MOST_BYTES: u64 = crate::kv::MAX_VALUE as u64;

/// The properties parsed so far.
struct Reading {
    /// Shares of read, update, insert, scan and read-modify-write, as parts of their sum. The initial values
    /// are YCSB's defaults.
    shares: [f64; 5],
    distribution: Distribution,
    longest_scan: u32,
    field_count: u64,
    field_len: u64,
    records: Option<u64>,
    operations: Option<u64>,
    ignored: Vec<String>,
}

impl Properties {
    /// Parses a workload file.
    ///
    /// # Errors
    /// The first line that is not a property, or whose value is out of range or not implemented here.
    pub fn parse(text: &str) -> Result<Properties, PropertyError> {
        let mut reading = Reading {
            shares: [0.95, 0.05, 0.0, 0.0, 0.0],
            distribution: Distribution::Uniform,
            longest_scan: 1000,
            field_count: 10,
            field_len: 100,
            records: None,
            operations: None,
            ignored: Vec::new(),
        };
        for (line, text) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with(['#', '!']) {
                continue;
            }
            let error = |fault| PropertyError { line, fault };
            let (name, value) = text
                .split_once(['=', ':'])
                .ok_or_else(|| error(format!("{text:?} is no property: say name=value")))?;
            reading.take(name.trim(), value.trim()).map_err(error)?;
        }
        reading.finish().map_err(|fault| PropertyError { line: 0, fault })
    }
}

impl Reading {
    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        const SHARES: [&str; 5] = [
            "readproportion",
            "updateproportion",
            "insertproportion",
            "scanproportion",
            "readmodifywriteproportion",
        ];
        if let Some(share) = SHARES.iter().position(|share| *share == name) {
            self.shares[share] = value
                .parse()
                .ok()
                .filter(|share| (0.0..=1.0).contains(share))
                .ok_or_else(|| format!("{name} is a number from 0 to 1, not {value:?}"))?;
            return Ok(());
        }
        match name {
            "recordcount" => self.records = Some(number(name, value, 1..=u64::from(u32::MAX))?),
            "operationcount" => self.operations = Some(number(name, value, 1..=u64::MAX)?),
            "maxscanlength" => self.longest_scan = number(name, value, 1..=1_000_000)? as u32,
            "fieldcount" => self.field_count = number(name, value, 1..=MOST_BYTES)?,
            "fieldlength" => self.field_len = number(name, value, 1..=MOST_BYTES)?,
            "requestdistribution" => self.distribution = distribution(value)?,
            "fieldlengthdistribution" => only(name, value, "constant")?,
            "scanlengthdistribution" => only(name, value, "uniform")?,
            "insertorder" => only(name, value, "hashed")?,
            "insertstart" => only(name, value, "0")?,
            _ => self.ignored.push(name.to_owned()),
        }
        Ok(())
    }

    fn finish(self) -> Result<Properties, String> {
        let sum: f64 = self.shares.iter().sum();
        if sum <= 0.0 {
            return Err("the proportions are all 0: one of them must be more".to_owned());
        }
        let percents = self.shares.map(|share| share / sum * 100.0);
        if let Some(part) = percents.iter().find(|part| (*part - part.round()).abs() > 1e-6) {
            return Err(format!("proportions are whole percents of their sum, and one is {part:.3} %"));
        }
        let [read, update, insert, scan, read_modify_write] = percents.map(|part| part.round() as u8);
        let value_len = self.field_count.saturating_mul(self.field_len);
        if value_len > MOST_BYTES {
            return Err(format!(
                "fieldcount times fieldlength is {value_len} bytes: a value has at most {MOST_BYTES}"
            ));
        }
        Ok(Properties {
            mix: Mix {
                name: '-',
                read,
                update,
                insert,
                scan,
                read_modify_write,
                distribution: self.distribution,
                longest_scan: self.longest_scan,
            },
            records: self.records,
            operations: self.operations,
            value_len: value_len as u32,
            ignored: self.ignored,
        })
    }
}

fn number(name: &str, value: &str, range: core::ops::RangeInclusive<u64>) -> Result<u64, String> {
    let parsed = value.parse().ok().filter(|number| range.contains(number));
    parsed
        .ok_or_else(|| format!("{name} is a number from {} to {}, not {value:?}", range.start(), range.end()))
}

fn distribution(value: &str) -> Result<Distribution, String> {
    let theta = (THETA * 1000.0) as u16;
    match value {
        "uniform" => Ok(Distribution::Uniform),
        "zipfian" => Ok(Distribution::Zipfian(theta)),
        "latest" => Ok(Distribution::Latest(theta)),
        _ => Err(format!("requestdistribution {value:?} is not implemented: uniform, zipfian or latest")),
    }
}

/// Refuses all values except the one that is implemented.
fn only(name: &str, value: &str, implemented: &str) -> Result<(), String> {
    match value == implemented {
        true => Ok(()),
        false => Err(format!("{name} {value:?} is not implemented: {implemented}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The properties of the core workloads, in the form of the files that YCSB ships.
    const WORKLOAD_A: &str = "# a comment\nrecordcount=1000\noperationcount=1000\nworkload=site.ycsb.workloads.CoreWorkload\n\nreadallfields=true\n\nreadproportion=0.5\nupdateproportion=0.5\nscanproportion=0\ninsertproportion=0\n\nrequestdistribution=zipfian\n";
    const WORKLOAD_E: &str = "recordcount=1000\nreadproportion=0\nupdateproportion=0\nscanproportion=0.95\ninsertproportion=0.05\nrequestdistribution=zipfian\nmaxscanlength=100\nscanlengthdistribution=uniform\nfieldcount=10\nfieldlength=100\n";

    #[test]
    fn the_files_that_ycsb_ships_are_its_core_workloads() {
        let a = Properties::parse(WORKLOAD_A).unwrap();
        assert_eq!(a.mix, Mix { name: '-', longest_scan: 1000, ..Mix::A });
        assert_eq!((a.records, a.operations, a.value_len), (Some(1000), Some(1000), 1000));
        assert_eq!(a.ignored, ["workload", "readallfields"]);
        let e = Properties::parse(WORKLOAD_E).unwrap();
        assert_eq!(e.mix, Mix { name: '-', ..Mix::E });
        let d = "readproportion=0.95\r\ninsertproportion=0.05\r\nupdateproportion=0\r\nrequestdistribution = latest\r\n";
        assert_eq!(Properties::parse(d).unwrap().mix, Mix { name: '-', longest_scan: 1000, ..Mix::D });
        let f = "\u{feff}readproportion:0.5\nreadmodifywriteproportion:0.5\nupdateproportion:0\nrequestdistribution:zipfian";
        assert_eq!(Properties::parse(f).unwrap().mix, Mix { name: '-', longest_scan: 1000, ..Mix::F });
    }

    #[test]
    fn shares_are_parts_of_their_sum() {
        let mix = Properties::parse("readproportion=0.2\nupdateproportion=0.2").unwrap().mix;
        assert_eq!((mix.read, mix.update), (50, 50));
    }

    #[test]
    fn what_cannot_be_measured_as_the_file_says_is_an_error_with_its_line() {
        let cases = [
            ("recordcount=0", 1, "recordcount"),
            ("\n\nrecordcount=many", 3, "recordcount"),
            ("readproportion=1.5", 1, "from 0 to 1"),
            ("requestdistribution=hotspot", 1, "uniform, zipfian or latest"),
            ("fieldlengthdistribution=zipfian", 1, "constant"),
            ("insertorder=ordered", 1, "hashed"),
            ("hello", 1, "name=value"),
            ("readproportion=0\nupdateproportion=0", 0, "all 0"),
            ("readproportion=0.333\nupdateproportion=0.667", 0, "whole percents"),
            ("fieldcount=1000\nfieldlength=1000000", 0, "at most 1048576"),
        ];
        for (text, line, words) in cases {
            let error = Properties::parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text:?}");
            assert!(error.fault.contains(words), "{text:?}: {error}");
        }
    }
}
