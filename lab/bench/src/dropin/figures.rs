//! The plots: programs compared with the native API, and libraries over Remora and over TCP.

use std::path::Path;

use anyhow::Result;

use crate::{Row, plot};
use remora_options::output;
use remora_plot::bars::{Bars, Series};

/// The ports over which programs are measured, as the first part of a case's path.
const PORTS: [&str; 2] = ["udp", "shm"];

/// Writes the plots into a folder.
///
/// # Errors
/// Fails if a file cannot be written.
pub(crate) fn draw(folder: &Path, rows: &[Row]) -> Result<()> {
    output::folder(folder)?;
    let programs = ratios(rows);
    let libraries = latencies(rows);
    plot::write(&folder.join("dropin.svg"), &[&programs, &libraries])
}

/// Returns the port of a case, and the rest of its path.
fn parts(row: &Row) -> Option<(&str, &str)> {
    row.case.split_once('/')
}

/// Draws the ratios of the programs' results on Remora's libraries to those of the native API, with the
/// bounds.
fn ratios(rows: &[Row]) -> Bars<'_> {
    let mut groups: Vec<&str> = Vec::new();
    let compared = || rows.iter().filter(|row| row.ratio.is_some());
    for (_, name) in compared().filter_map(parts).filter(|(port, _)| *port != "veth") {
        if !groups.contains(&name) {
            groups.push(name);
        }
    }
    let series = PORTS.map(|port| {
        let row_of = |name: &&str| compared().find(|row| parts(row) == Some((port, *name)));
        let bound = |row: &Row| row.limit.or(row.least).map(|bound| (bound, bound));
        Series {
            name: if port == "shm" { "by links".to_owned() } else { "over udp".to_owned() },
            values: groups.iter().map(|name| row_of(name).and_then(|row| row.ratio)).collect(),
            stated: groups.iter().map(|name| row_of(name).and_then(bound)).collect(),
        }
    });
    Bars {
        title: "Programs on our libraries, over the native API",
        y: "ratio",
        groups,
        series: series.into(),
        stated: "asked",
    }
}

/// Draws the round trips of UCX and libfabric.
fn latencies(rows: &[Row]) -> Bars<'_> {
    let veth_rows = || rows.iter().filter(|row| row.ratio.is_some() && row.case.starts_with("veth/"));
    let groups = veth_rows().filter_map(|row| row.case.split('/').nth(1)).collect();
    let us = |value: Option<f64>| value.map(|ns| ns / 1e3);
    let series =
        |name: &str, values: Vec<Option<f64>>| Series { name: name.to_owned(), values, stated: Vec::new() };
    let udp = series("our udp", veth_rows().map(|row| us(Some(row.value))).collect());
    let tcp = series("tcp", veth_rows().map(|row| us(row.baseline_value)).collect());
    Bars {
        title: "Their ping-pong of 64 B between namespaces",
        y: "round trip, us",
        groups,
        series: vec![udp, tcp],
        stated: "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_a_group_and_a_port_a_bar_of_it() {
        let row = |case: &str, value: f64| Row::new("dropin", case, "m", "ns", &[value]);
        let rows = [
            row("udp/ib_read_lat/64", 110.0).against("native", &[100.0]).within(1.15),
            row("udp/ib_read_lat/64/native", 100.0),
            row("shm/ib_read_lat/64", 150.0).against("native", &[100.0]),
            row("udp/ib_write_bw/64", 80.0).against("native", &[100.0]).at_least(0.9),
            row("veth/ucx/64", 5000.0).against("tcp", &[10_000.0]).within(0.5),
        ];
        let bars = ratios(&rows);
        assert_eq!(bars.groups, ["ib_read_lat/64", "ib_write_bw/64"]);
        assert_eq!(bars.series[0].values, [Some(1.1), Some(0.8)]);
        assert_eq!(bars.series[0].stated, [Some((1.15, 1.15)), Some((0.9, 0.9))]);
        assert_eq!(bars.series[1].values, [Some(1.5), None]);
        let libraries = latencies(&rows);
        assert_eq!((libraries.groups.as_slice(), libraries.series[1].values[0]), (&["ucx"][..], Some(10.0)));
        let folder = tempfile::tempdir().unwrap();
        draw(folder.path(), &rows).unwrap();
        let svg = std::fs::read_to_string(folder.path().join("dropin.svg")).unwrap();
        for word in ["ib_read_lat", "by links", "asked", "ucx", "our udp"] {
            assert!(svg.contains(word), "{word}");
        }
        draw(folder.path(), &[]).unwrap();
    }
}
