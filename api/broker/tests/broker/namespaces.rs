//! An unprivileged user in a fresh user and network namespace, and two hosts.

use remora_broker::client;
use remora_broker::{Broker, Options, SteeredBy};
use remora_netns::{Namespace, require};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::program::Program;
use crate::sharing::two_programs_work;
use crate::{at, never};

/// A user that owns nothing. It is not the overflow uid, which stands for users without an id in the
/// namespace.
const NOBODY: &str = "61001";

/// The entry point of an unprivileged user's process in a namespace where only the loopback interface is up.
#[test]
#[ignore = "the entry point of a process that another test starts"]
fn only_loopback() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        for steered in [SteeredBy::Kernel, SteeredBy::Reader] {
            let tally = two_programs_work(address, &Options { steered, ..Options::default() });
            assert_eq!((tally.strays, tally.forwarded), (0, 0), "{tally:?}");
            assert_eq!(tally.relayed > 0, steered == SteeredBy::Reader, "{tally:?}");
        }
    }
    println!("worked as user {}", rustix::process::getuid().as_raw());
}

/// Runs a test of this binary in a shell, with the command words `before`.
fn shell(before: &[&str], test: &str, variable: &str) -> std::process::Output {
    let own = std::env::current_exe().unwrap();
    let script = format!("ip link set lo up && exec {} --ignored --exact {test} --nocapture", own.display());
    let mut command = Command::new(before[0]);
    command.args(&before[1..]).args(["sh", "-c", &script]).env(variable, "1");
    command.output().unwrap()
}

#[test]
fn an_unprivileged_user_shares_loopback_addresses_in_a_fresh_namespace_over_both_families() {
    let privileged = rustix::process::geteuid().is_root();
    let user = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "unshare", "-Urn"];
    let before = if privileged { &user[..] } else { &user[6..] };
    let allowed = Command::new(before[0]).args(&before[1..]).arg("true").output().unwrap();
    require!(allowed.status.success(), String::from_utf8_lossy(&allowed.stderr));
    let output = shell(before, "namespaces::only_loopback", "REMORA_TEST_LOOPBACK");
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.contains("worked as user"), "{out}{}", String::from_utf8_lossy(&output.stderr));
}

/// The entry point of a process that tries to reach the broker of another user.
#[test]
#[ignore = "the entry point of a process that another test starts"]
fn as_another_user() {
    let address = std::env::var("REMORA_TEST_STRANGER").expect("set by the test that starts this process");
    match client::open(at(&address), &never()) {
        Ok(range) => println!("admitted to range {}", range.number()),
        Err(error) => println!("told: {error}"),
    }
}

/// Returns the answer that an unprivileged user's program gets from the broker at this address.
fn nobody_hears(address: &str) -> String {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "namespaces::as_another_user", "--nocapture"]);
    let output = command.env("REMORA_TEST_STRANGER", address).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_program_of_another_user_is_told_what_to_do_and_an_allowed_one_is_admitted() {
    require!(rustix::process::geteuid().is_root(), "only root can run programs of two users");
    let _broker = Broker::open(at("127.95.0.1:0"), &Options::default()).unwrap();
    let output = nobody_hears("127.95.0.1:0");
    assert!(output.contains("does not admit user 61001") && output.contains("--allow-uid 61001"), "{output}");
    let options = Options { allow: vec![61_001], ..Options::default() };
    let _other = Broker::open(at("127.95.0.2:0"), &options).unwrap();
    let admitted = nobody_hears("127.95.0.2:0");
    assert!(admitted.contains("admitted to range 1"), "{admitted}");
}

#[test]
fn where_users_have_no_ids_a_program_trusts_no_broker_of_another_user() {
    let _broker = Broker::open(at("127.95.0.4:0"), &Options::default()).unwrap();
    let mut command = Command::new("unshare");
    // In that namespace both users are 65534: the broker's and the program's.
    command.arg("--user").arg(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "namespaces::as_another_user", "--nocapture"]);
    let output = command.env("REMORA_TEST_STRANGER", "127.95.0.4:0").output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let is_refused = printed.contains("told: 127.95.0.4 is taken by process")
        && printed.contains("without an id in this user namespace");
    assert!(is_refused, "{printed}{}", String::from_utf8_lossy(&output.stderr));
}

/// The entry point of a process that keeps RoCE's UDP port until its input ends.
#[test]
#[ignore = "the entry point of a process that another test starts"]
fn has_the_port() {
    let address = std::env::var("REMORA_TEST_PORT").expect("set by the test that starts this process");
    let _port = std::net::UdpSocket::bind(address).unwrap();
    println!("bound");
    let _ = std::io::stdin().lines().count();
}

#[test]
fn a_udp_port_that_another_user_has_is_one_line_that_names_the_user() {
    require!(rustix::process::geteuid().is_root(), "only root can run programs of two users");
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "namespaces::has_the_port", "--nocapture"]);
    command.env("REMORA_TEST_PORT", "127.95.0.3:4791").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = command.spawn().unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("bound")));
    let words = Broker::open(at("127.95.0.3:0"), &Options::default()).unwrap_err().to_string();
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert!(words.contains("is taken by user 61001") && words.contains("127.0.0.2"), "{words}");
    assert!(!words.contains('\n'), "{words}");
    Broker::open(at("127.95.0.3:0"), &Options::default()).unwrap();
}

#[test]
fn brokers_of_two_hosts_serve_programs_that_meet_over_the_network() {
    let [near, far] = require!(Namespace::new("near").and_then(|near| Ok([near, Namespace::new("far")?])));
    near.add_veth("eth0", &far, "eth0", "").unwrap();
    for (host, end) in [(&near, 1), (&far, 2)] {
        host.ip(&format!("address add 10.97.0.{end}/24 dev eth0")).unwrap();
        host.ip(&format!("address add fd97::{end}/64 dev eth0 nodad")).unwrap();
        host.ip("link set eth0 up").unwrap();
    }
    for [one, two] in [["10.97.0.1:0", "10.97.0.2:0"], ["[fd97::1]:0", "[fd97::2]:0"]] {
        let start = |host: &Namespace, address: &str| {
            host.inside(|| {
                let broker = Broker::open(at(address), &Options::default()).unwrap();
                // Both hosts lend their first range, so range numbers alone do not distinguish the programs.
                (broker, Program::start_at(address), Program::start_at(address))
            })
        };
        let (_near, mut a, mut b) = start(&near, one).unwrap();
        let (_far, c, d) = start(&far, two).unwrap();
        assert_eq!((a.range, c.range), (1, 1));
        near.inside(|| a.ask(&format!("connect {}", c.listens))).unwrap();
        near.inside(|| b.ask(&format!("connect {}", d.listens))).unwrap();
        a.tell("work 100");
        b.tell("work 100");
        assert_eq!((a.hear("work: "), b.hear("work: ")), ("right".to_owned(), "right".to_owned()));
    }
}
