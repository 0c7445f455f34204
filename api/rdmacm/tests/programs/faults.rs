//! Faults of verbs, by rules of a file, in a program of pyverbs (`examples/chaos`).

use std::path::Path;
use std::process::{Command, Output};

use crate::library::{ROOT, address, program_at};

const TRANSFER: &str = "examples/chaos/test_transfer.py";

/// Runs the test program with these rules. Returns its output, and the log of faults.
fn transfer(rules: Option<&str>) -> (Output, String) {
    python(TRANSFER, rules)
}

fn python(script: &str, rules: Option<&str>) -> (Output, String) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("faults.jsonl");
    let script = Path::new(ROOT).join(script);
    let mut command: Command = program_at(&address(), &["/usr/bin/python3", script.to_str().unwrap()]);
    if let Some(rules) = rules {
        let file = folder.path().join("rules.toml");
        std::fs::write(&file, rules).unwrap();
        command.env("REMORA_FAULT", file).env("REMORA_FAULT_LOG", &log);
    }
    let output = command.output().unwrap();
    (output, std::fs::read_to_string(log).unwrap_or_default())
}

/// Checks that the program fails by a fault. Returns the log.
fn fails(rules: &str, words: &str) -> String {
    let (output, log) = transfer(Some(rules));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains(words), "{rules}: {said}");
    log
}

/// The guide's rules, of which each alone makes the program fail. The same rules give the same log.
#[test]
fn the_rules_of_the_guide_fail_a_program_that_passes_without_them() {
    let (output, log) = transfer(None);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(log, "");
    let guide = std::fs::read_to_string(Path::new(ROOT).join("examples/chaos/chaos.toml")).unwrap();
    let rounds = if std::env::var_os("REMORA_WHOLE").is_some() { 100 } else { 2 };
    for _ in 0..rounds {
        let log = fails(&guide, "Errno: 12");
        let wanted = "{\"device\":\"remora0\",\"rule\":\"post 1\",\"qp\":1,\"work\":\"write\",\"count\":5,\"effect\":\"ENOMEM\"}\n";
        assert_eq!(log, wanted);
    }
}

#[test]
fn completions_registrations_and_the_device_fail_as_the_rules_say() {
    let completion = "[[completion]]\nstatus = 'RETRY_EXC_ERR'\nvendor_err = 0x81\nafter = 7\n";
    let log = fails(completion, "status 12, vendor_err 0x81");
    assert!(log.contains("\"rule\":\"completion 1\",\"qp\":1,\"work\":\"write\",\"count\":8"), "{log}");
    let other = format!("{completion}qp = 3\n");
    assert!(transfer(Some(&other)).0.status.success(), "there is no third queue pair");
    let log = fails("[[registration]]\nerrno = 'EAGAIN'\nafter = 1\n", "Errno: 11");
    assert!(log.contains("\"held\":4096,\"len\":4096"), "{log}");
    fails("[[registration]]\nbeyond_mib = 0\n", "Errno: 12");
    fails("[[incident]]\nat_ms = 0\ndevice_dead_ms = 60000\n", "No such device");
}

/// An event of a queue pair, a port that is down for a time, and a device that dies and comes back.
#[test]
fn incidents_are_events_in_their_order_and_the_device_comes_back() {
    let rules = "
        [[incident]]
        at_ms = 200
        event = 'QP_FATAL'
        qp = 1
        [[incident]]
        at_ms = 300
        port_down_ms = 200
        [[incident]]
        at_ms = 700
        device_dead_ms = 300";
    let (output, log) = python("api/rdmacm/tests/programs/incidents.py", Some(rules));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // IBV_EVENT_QP_FATAL, PORT_ERR, PORT_ACTIVE and DEVICE_FATAL; port states 4 (active) and 1 (down).
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[..3], ["1 4", "10 1", "9 4"], "{printed}{said}");
    assert!(lines[3].starts_with("8 ") && lines[4] == "dead and back", "{printed}{said}");
    let effects: Vec<&str> = log.lines().filter_map(|line| line.split("\"effect\":").nth(1)).collect();
    assert_eq!(effects, ["\"QP_FATAL\"}", "\"port down for 200 ms\"}", "\"device dead for 300 ms\"}"]);
}
