//! Tests against independent decoders. tshark must decode each field of this crate's frames to its value.
//! scapy's RoCE layer must decode the BTH and compute the same ICRC.
//!
//! The tests cover every op-code with four sets of field values, over IPv4 and IPv6.
//! `independent/expected.rs` lists the headers that tshark does not decode. Both tools are required; `make
//! setup` installs them.
#![cfg(not(miri))]

#[path = "independent/cases.rs"]
mod cases;
#[path = "independent/expected.rs"]
mod expected;
mod pcap;

use std::path::{Path, PathBuf};
use std::process::Command;

use cases::{Case, cases};
use remora_wire::{Opcode, icrc};

/// Writes the frames of all cases to a capture file for the tools.
fn capture(name: &str, cases: &[Case]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let frames: Vec<_> = cases.iter().map(|case| case.frame.clone()).collect();
    std::fs::write(&path, pcap::write(&frames)).unwrap();
    path
}

/// Returns the output of a tool. Panics with a clear message if the tool is missing.
fn output(tool: &str, command: &mut Command) -> String {
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => panic!("{tool} cannot be run ({error}): `make setup` installs it"),
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    let errors = errors.trim().lines().last().unwrap_or_default();
    assert!(output.status.success(), "{tool} failed ({errors}): `make setup` installs what it needs");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn tshark_reads_every_field_as_we_meant_it() {
    let cases = cases();
    let path = capture("tshark.pcap", &cases);
    let mut command = Command::new("tshark");
    // The payloads are random, so heuristic dissectors must be disabled.
    command.arg("-r").arg(path).args(["--disable-protocol", "rpcordma", "-o", "ip.check_checksum:TRUE"]);
    command.args(["-T", "fields", "-E", "separator=/t", "-E", "occurrence=a", "-E", "aggregator=,"]);
    for field in expected::FIELDS {
        command.args(["-e", field]);
    }
    let text = output("tshark", &mut command);
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows.len(), cases.len(), "a row for each frame");

    let mut extension_fields = 0;
    for (case, row) in cases.iter().zip(&rows) {
        let shown = |name: &str| row[expected::FIELDS.iter().position(|field| *field == name).unwrap()];
        extension_fields += expected::compare(case, &shown);
    }
    // tshark 4.0 decodes 37 of 61 op-codes; their extension headers have 65 fields, in eight cases each.
    assert!(extension_fields >= 8 * 65, "only {extension_fields} fields of extension headers were compared");
}

/// Returns the Python interpreter: that of the environment, or the one that `make setup` prepares.
fn python() -> PathBuf {
    let prepared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/python/bin/python3");
    std::env::var_os("REMORA_PYTHON").map_or(prepared, PathBuf::from)
}

#[test]
fn scapy_reads_the_bth_and_computes_the_same_icrc() {
    let cases = cases();
    let path = capture("scapy.pcap", &cases);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/independent/roce.py");
    let text = output("scapy's Python", Command::new(python()).arg(script).arg(path));
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(rows.len(), cases.len(), "a row for each frame");
    for (case, row) in cases.iter().zip(rows) {
        let bth = &case.packet().bth;
        let wire_order = icrc::read(&case.frame).unwrap().to_le_bytes();
        let expected = format!(
            "{} {} {} {} {} {} {} {} {} {} {} {} {} {} same",
            bth.opcode.0,
            u8::from(bth.solicited),
            u8::from(bth.mig_req),
            bth.pad,
            bth.tver,
            bth.pkey,
            u8::from(bth.fecn),
            u8::from(bth.becn),
            bth.resv6,
            bth.dest_qp.get(),
            u8::from(bth.ack_req),
            bth.resv7,
            bth.psn.get(),
            wire_order.map(|byte| format!("{byte:02x}")).concat(),
        );
        assert_eq!(row, expected, "{}", case.name());
    }
}

/// Checks that the comparison can fail, because scapy computes the ICRC instead of returning the received
/// one.
#[test]
fn scapy_sees_a_wrong_icrc() {
    let mut cases = cases();
    cases.truncate(4);
    cases.iter_mut().for_each(|case| *case.frame.last_mut().unwrap() ^= 1);
    let path = capture("wrong.pcap", &cases);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/independent/roce.py");
    let text = output("scapy's Python", Command::new(python()).arg(script).arg(path));
    assert_eq!(text.lines().filter(|line| line.ends_with("other")).count(), 4);
}

#[test]
fn the_cases_hold_every_op_code_over_both_versions() {
    let cases = cases();
    for opcode in (0..=255).map(Opcode).filter(|opcode| opcode.is_known()) {
        let count = |is_ipv4: bool| {
            cases
                .iter()
                .filter(|case| case.packet().bth.opcode == opcode && case.is_ipv4() == is_ipv4)
                .count()
        };
        assert_eq!((count(true), count(false)), (4, 4), "{opcode}");
    }
}
