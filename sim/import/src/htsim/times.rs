//! Completion times that runs of htsim produced: tables with one row per flow and run, including the path of
//! the flow.

use crate::table::Table;
use remora_scenario::error::{ScenarioError, Source, excerpt};
use remora_scenario::units::parse_scaled;

/// Columns of the table. `agg` and `core` are switch numbers within their tiers; `-1` means that the path has
/// no such switch.
pub const COLUMNS: [&str; 11] =
    ["set", "run", "seed", "path_id", "flow_id", "src", "dst", "size_B", "fct_us", "agg", "core"];

/// The completion time of a flow in one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Time {
    /// Name shared by the runs of one experiment.
    pub set: String,
    /// Number of the run within the set.
    pub run: u32,
    /// Id of the flow.
    pub flow: u64,
    /// Size of the flow, in bytes.
    pub size: u64,
    /// Completion time, in ps: from the start until the sender has the last ACK.
    pub fct: u64,
}

/// Reads a table of completion times.
///
/// # Errors
/// Fails if the first line does not have exactly [`COLUMNS`], if a row has another number of columns, or if a
/// word that must be a number is not.
pub fn parse(source: Source<'_>) -> Result<Vec<Time>, ScenarioError> {
    let table = Table::parse(source, &[&COLUMNS])?;
    let time = |row| {
        let text = table.word(row, 8);
        let fct = parse_scaled(text, 1_000_000).ok_or_else(|| {
            table.error(
                row,
                format!("`{}` in column fct_us is not a time: write a number like 182.696", excerpt(text)),
            )
        })?;
        Ok(Time {
            set: table.word(row, 0).to_owned(),
            run: table.number(row, 1)?,
            flow: table.number(row, 4)?,
            size: table.number(row, 7)?,
            fct,
        })
    };
    table.rows.iter().map(time).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_picoseconds_and_what_is_none_is_named_with_its_line() {
        let head = COLUMNS.join(",");
        let read = |rows: &str| parse(Source::new("times.csv", &format!("{head}\n{rows}")));
        let time = |set: &str, run, fct| Time { set: set.into(), run, flow: 7, size: 2_000, fct };
        assert_eq!(
            read("A,1,1,-,7,0,64,2000,182.696,3,7\r\n\nB,20,1,9,7,0,4,2000,1114,-1,-1"),
            Ok(vec![time("A", 1, 182_696_000), time("B", 20, 1_114_000_000)])
        );
        for (rows, words) in [
            ("A,1,1,-,7,0,64,2000,fast,3,7", "times.csv:2: `fast` in column fct_us is not a time"),
            ("A,x,1,-,7,0,64,2000,1,3,7", "times.csv:2: `x` in column run is not a number"),
            ("A,1", "times.csv:2: the row has 2 columns, and the header 11"),
        ] {
            assert!(read(rows).unwrap_err().to_string().starts_with(words), "{rows}");
        }
        assert!(parse(Source::new("times.csv", "a,b\n")).unwrap_err().to_string().contains("set,run,seed"));
    }
}
