//! Addresses of NICs on the command line: different spellings of one address, and addresses that no NIC can
//! have.

use std::process::Command;

use serde_json::Value;

use crate::running::{Server, command, finish, remora, serve};

/// Regression: `--address ::ffff:127.0.0.1` was an "Invalid argument".
#[test]
fn a_mapped_address_is_the_ipv4_address_wherever_one_is_said() {
    let mut words = command(&serve("farm", "udp"));
    words.args(["--address", "::ffff:127.0.0.1"]);
    let server = Server::of(words, "farm", "udp");
    let (host, port) = server.address.rsplit_once(':').expect("an address");
    assert_eq!(host, "127.0.0.1");
    let mapped = format!("[::ffff:{host}]:{port}");
    let own = ["--design", "farm", "--port", "udp", "--address", "::ffff:127.0.0.1"];
    remora(&[&["kv", "put", "--connect", &mapped][..], &own, &["key", "value"]].concat()).good();
    assert_eq!(server.kv("get", &["key"]).good(), "value\n", "by the other spelling");
    let out = remora(&["devinfo", "--port", "udp", "--address", "::ffff:127.0.0.1"]).good();
    assert!(out.contains("127.0.0.1") && !out.contains("ffff:127"), "{out}");
    let mapped =
        ["serve", "kv", "--listen", "[::ffff:127.0.0.1]:0", "--capacity", "1000", "--design", "farm"];
    assert!(Server::of(command(&mapped), "farm", "shm").address.starts_with("127.0.0.1:"));
}

#[test]
fn a_link_local_address_wants_its_interface() {
    let opens = |address| remora(&["devinfo", "--port", "udp", "--address", address]);
    opens("fe80::1").one_line("fe80::1 is a link-local address, which is ambiguous without its interface");
    opens("fe80::1%no-such").bad_arguments("there is no interface no-such here: choose one");
    opens("fe80::7%lo").one_line("fe80::7 is not an address of this machine");
}

/// Regression: servers at `224.0.0.1` and `255.255.255.255` started, and no client could connect.
#[test]
fn an_address_that_no_nic_can_have_is_refused_at_open() {
    let cases = [
        ("224.0.0.1", "224.0.0.1 is a multicast group's address"),
        ("ff02::1", "ff02::1 is a multicast group's address"),
        ("255.255.255.255", "255.255.255.255 is a broadcast address"),
        ("127.255.255.255", "127.255.255.255 is a broadcast address"),
        ("0.0.0.0", "0.0.0.0 means every address"),
        ("::ffff:0.0.0.0", "0.0.0.0 means every address"),
    ];
    for (address, words) in cases {
        let open = ["--listen", "127.0.0.1:0", "--port", "udp", "--address", address];
        remora(&[&["serve", "kv"][..], &open].concat()).one_line(words);
    }
    // Clients could not connect to such an address either.
    remora(&["serve", "kv", "--listen", "224.0.0.1:0"]).one_line("224.0.0.1 is a multicast group's address");
    remora(&["serve", "kv", "--listen", "127.255.255.255:0"]).one_line("is a broadcast address");
}

/// Returns the exit status and findings of `remora doctor`, run in a network namespace after these shell
/// commands. An error means that this process may not create a namespace.
fn doctor_after(words: &str) -> Result<(i32, Vec<Value>), String> {
    let script = format!("{words} || exit 77; exec \"$0\" doctor --json");
    let mut shell = Command::new("unshare");
    shell.args(["--net", "sh", "-c", &script]).arg(crate::running::binary());
    let ended = finish(&mut shell);
    if ended.out.is_empty() {
        return Err(format!("a network namespace takes CAP_SYS_ADMIN: {}", ended.err));
    }
    Ok((ended.status, ended.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()))
}

fn finding<'f>(findings: &'f [Value], subject: &str) -> &'f Value {
    findings
        .iter()
        .find(|finding| finding["what"] == subject)
        .unwrap_or_else(|| panic!("{subject}: {findings:?}"))
}

/// Regression: on a machine with IPv6 alone `remora doctor` advised 127.0.0.1, an address that it
/// reported as absent.
#[test]
fn the_doctor_of_a_machine_with_ipv6_alone_looks_at_ipv6() {
    let only_v6 = "ip link set lo up && ip address delete 127.0.0.1/8 dev lo";
    let (status, findings) = remora_netns::require!(doctor_after(only_v6));
    assert_eq!(status, 0, "{findings:?}");
    assert_eq!(finding(&findings, "port udp")["verdict"], "good");
    let other = finding(&findings, "port udp, IPv4");
    assert_eq!(other["verdict"], "limited");
    assert_eq!(
        other["found"],
        "127.0.0.1 is not an address of this machine: choose one that `ip address` lists, or ::1"
    );
    assert_ne!(finding(&findings, "socket buffer")["found"], "0 KiB");
}

#[test]
fn the_doctor_of_a_machine_without_loopback_says_how_to_have_one() {
    let down = "ip link set lo up && ip address flush dev lo && ip link set lo down";
    let (status, findings) = remora_netns::require!(doctor_after(down));
    assert_eq!(status, 1, "{findings:?}");
    let words = "127.0.0.1 is not an address of this machine: choose one that `ip address` lists, or run `ip link set lo up` as root";
    let udp = finding(&findings, "port udp");
    assert_eq!((&udp["verdict"], &udp["found"]), (&"missing".into(), &words.into()));
}
