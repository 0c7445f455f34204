//! The report page of the demo, with its tables and a plot of each column.

use std::fmt::Write as _;

use anyhow::{Result, anyhow};

use super::{Args, Line, cells};
use remora_options::device::PortName;
use remora_plot as plot;
use remora_plot::bars::{Bars, Series};

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:78em;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .9em;border-bottom:1px solid #ddd;text-align:right}\
td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}";

/// A column of the table, drawn as bars.
struct Column {
    title: &'static str,
    y: &'static str,
    value: fn(&Line) -> f64,
}

const COLUMNS: [Column; 4] = [
    Column { title: "One GET at a time, median", y: "us", value: |line| line.latency_p50_ns / 1e3 },
    Column { title: "One GET at a time, 99th percentile", y: "us", value: |line| line.latency_p99_ns / 1e3 },
    Column { title: "64 GETs in flight", y: "million GETs a second", value: |line| line.rate_per_s / 1e6 },
    Column { title: "CPU of the server's core", y: "ns a GET", value: |line| line.server_cpu_ns_per_get },
];

/// Returns the HTML page, which loads no other files.
pub(crate) fn page(args: &Args, lines: &[Line]) -> Result<String> {
    let mut body = String::new();
    for len in &args.value_len {
        let lines: Vec<&Line> = lines.iter().filter(|line| line.value_len == *len).collect();
        let records = args.records_of(*len);
        write!(body, "<h2>Values of {len} B, {records} records</h2>")?;
        body.push_str(&table(&lines));
        for column in &COLUMNS {
            let bars = bars(column, &lines);
            body.push_str(
                &plot::svg(&[&bars]).map_err(|words| anyhow!("drawing {}: {words}", column.title))?,
            );
        }
    }
    Ok(format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Remora: one GET, every way</title>\
         <style>{STYLE}</style><h1>One GET, every way</h1><p>YCSB C, zipfian 0.99: a server process and a client on a core \
         each, every value checked. <code>remora demo</code> made this page.</p>{body}</html>\n"
    ))
}

fn table(lines: &[&Line]) -> String {
    let mut rows = String::from(
        "<table><tr><th>port, system<th>round trips<th>median<th>p99<th>GETs/s (64 in flight)<th>server CPU per GET",
    );
    for line in lines {
        let [system, cells @ ..] = cells(line);
        rows.push_str(&format!("<tr><td>{}, {system}<td>{}", line.port.name(), cells.join("<td>")));
    }
    rows.push_str("</table>");
    rows
}

/// Returns a chart with a group of bars for each port, and a bar for each system.
fn bars<'a>(column: &'a Column, lines: &[&Line]) -> Bars<'a> {
    let mut ports: Vec<PortName> = lines.iter().map(|line| line.port).collect();
    ports.dedup();
    let mut systems: Vec<&str> = Vec::new();
    for line in lines {
        if !systems.contains(&line.system) {
            systems.push(line.system);
        }
    }
    let value = |system: &str, port: PortName| {
        let row = lines.iter().find(|line| line.system == system && line.port == port);
        row.map(|line| (column.value)(line))
    };
    let series = systems.iter().map(|system| Series {
        name: (*system).to_owned(),
        values: ports.iter().map(|port| value(system, *port)).collect(),
        stated: Vec::new(),
    });
    Bars {
        title: column.title,
        y: column.y,
        groups: ports.iter().map(|port| port.name()).collect(),
        series: series.collect(),
        stated: "",
    }
}
