//! Hosts whose network changes: namespaces joined by a veth pair, and programs in C.

use remora_netns::{Error, Namespace};

use crate::library::{c_program, program_at};

/// The addresses of the two hosts.
const NEAR: &str = "10.96.0.1";
const FAR: &str = "10.96.0.2";

fn hosts() -> Result<[Namespace; 2], Error> {
    let near = Namespace::new("near")?;
    let far = Namespace::new("far")?;
    near.add_veth("eth0", &far, "eth0", "")?;
    for (host, address) in [(&near, NEAR), (&far, FAR)] {
        host.ip(&format!("address add {address}/24 dev eth0"))?;
        host.ip("link set eth0 up")?;
    }
    near.wait_until_up("eth0")?;
    Ok([near, far])
}

#[test]
fn a_port_that_goes_down_an_address_that_goes_and_a_narrow_way_are_told() {
    let [near, far] = remora_netns::require!(hosts());
    let words = [NEAR, far.name(), FAR];
    let output = c_program("network", &words, &|words| {
        let script = ["sh", "-c", "exec \"$@\" 2>&1", "sh"];
        let mut command = program_at(NEAR, &[&near.exec()[..], &script, words].concat());
        command.env("REMORA_EXPLAIN", "1");
        command
    });
    assert_eq!(output.lines().last(), Some("told"), "{output}");
    // Of the three queue pairs that ended, one had a path MTU too large for its path.
    let narrow = "takes packets of 1000 bytes";
    assert_eq!(output.lines().filter(|line| line.contains(narrow)).count(), 1, "{output}");
    assert_eq!(output.lines().filter(|line| line.contains("status 12")).count(), 3, "{output}");
}
