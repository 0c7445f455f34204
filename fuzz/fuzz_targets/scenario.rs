//! Fuzzes the parsers of each format of scenario files. A file must give a value or one line of error text,
//! and a written value must read back unchanged. The first byte of the input selects the format.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_import::hpcc::config::Config;
use remora_import::hpcc::translation::{Parts, scenario};
use remora_import::hpcc::{cdf, flows, topology, trace};
use remora_import::htsim;
use remora_scenario::format::hpcc::outputs;
use remora_scenario::format::own;
use remora_scenario::{Read, Scenario, ScenarioError, Source};

/// Returns the value, if there is one. Warnings and errors must have one line each, and be few.
fn value<T>(read: Result<Read<T>, ScenarioError>) -> Option<T> {
    match read {
        Ok(read) => {
            assert!(read.warnings.len() <= 101);
            assert!(read.warnings.iter().all(|warning| !warning.to_string().contains('\n')));
            Some(read.value)
        }
        Err(error) => {
            assert!(!error.to_string().contains('\n') && error.says.contains(' '));
            None
        }
    }
}

/// Checks that a small network can be built and its flows computed, or that the errors have texts.
fn runs(scenario: &Scenario) {
    let Ok(toml) = own::to_toml(scenario) else { return };
    let again = value(own::parse(Source::new("f", &toml))).expect("our own text");
    assert!(again == *scenario, "{toml}");
    let Ok(topology) = scenario.topology() else { return };
    // A load can ask for millions of flows, which takes long and finds nothing.
    let is_listed = |workload: &remora_scenario::workload::Workload| {
        matches!(workload.traffic, remora_scenario::workload::Traffic::Flows { .. })
    };
    if scenario.workloads.iter().all(is_listed) {
        let made = scenario.flows(&topology).map_err(|error| error.to_string());
        assert_eq!(made, again.flows(&topology).map_err(|error| error.to_string()));
    }
}

/// Splits the text at `%` into a topology, a flow file and a configuration, and converts them to a scenario.
fn translated(text: &str) {
    let mut parts = text.splitn(3, '%').map(|text| Source::new("f", text));
    let (Some(net), Some(rows), Some(config)) = (parts.next(), parts.next(), parts.next()) else { return };
    let Some(topology) = value(topology::parse(net)) else { return };
    let Some(flows) = value(flows::parse(rows, Some(&topology))) else { return };
    let Some(config) = value(Config::parse(config)) else { return };
    let parts = Parts { topology, flows, trace: Vec::new() };
    if let Some(scenario) = value(scenario(rows, &config, parts, None)) {
        runs(&scenario);
    }
}

fn matrix(text: &str) {
    let (rows, net) = text.split_once('%').unwrap_or((text, ""));
    let source = Source::new("f", rows);
    let file = value(htsim::topology::parse(Source::new("f", net)));
    if let Some(file) = &file {
        let again = value(htsim::topology::parse(Source::new("f", &file.write())));
        assert_eq!(again.as_ref(), Some(file));
    }
    let Some(matrix) = value(htsim::connections::parse(source)) else { return };
    let again = value(htsim::connections::parse(Source::new("f", &matrix.write())));
    assert_eq!(again.as_ref(), Some(&matrix));
    let options = htsim::options::Options::default();
    if let Some(scenario) = value(htsim::translation::scenario(source, &options, &matrix, file.as_ref())) {
        runs(&scenario);
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((which, bytes)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(bytes);
    let source = Source::new("f", &text);
    match which % 9 {
        0 => {
            let Some(read) = value(topology::parse(source)) else { return };
            assert_eq!(value(topology::parse(Source::new("f", &topology::write(&read)))), Some(read));
        }
        1 => {
            let Some(read) = value(flows::parse(source, None)) else { return };
            // A file without rows does not show its dialect.
            if !read.flows.is_empty() {
                assert_eq!(value(flows::parse(Source::new("f", &flows::write(&read)), None)), Some(read));
            }
        }
        2 => {
            let Some(read) = value(Config::parse(source)) else { return };
            assert_eq!(value(Config::parse(Source::new("f", &read.write()))), Some(read));
        }
        3 => {
            let Some(read) = value(cdf::parse(source)) else { return };
            assert_eq!(value(cdf::parse(Source::new("f", &cdf::write(&read)))), Some(read));
        }
        4 => {
            let _ = (value(trace::parse(source, 9)), value(outputs::parse_fct(source)));
        }
        5 => translated(&text),
        6 => matrix(&text),
        7 => {
            let words: Vec<&str> = text.split_whitespace().collect();
            let _ = htsim::options::parse(&words).map_err(|says| assert!(!says.contains('\n')));
        }
        _ => {
            if let Some(scenario) = value(own::parse(source)) {
                runs(&scenario);
            }
        }
    }
});
