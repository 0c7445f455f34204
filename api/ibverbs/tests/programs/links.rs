//! Programs on one address that reach each other by shared memory.

use remora_broker::Broker;
use remora_broker::client::{self, Options, Report, Start};
use remora_netns::free_port;
use std::process::{Command, Stdio};

use crate::library::{address, program_at, unlimited_at};
use crate::pairs::{pair_of, until_listening};

/// A program whose connections use links or fail.
fn linked(address: &str, words: &[&str]) -> Command {
    let mut command = program_at(address, words);
    command.env("REMORA_PORT", "shm");
    command
}

/// Returns an address whose broker is a thread of this test, and the broker.
pub(crate) fn brokered() -> (String, Broker) {
    let address = address();
    let options = remora_broker::Options { linger: None, ..remora_broker::Options::default() };
    let broker = Broker::open(format!("{address}:4791").parse().unwrap(), &options);
    (address, broker.unwrap())
}

fn report(address: &str) -> Report {
    let options = Options { start: Start::Never, ..Options::default() };
    client::report(format!("{address}:4791").parse().unwrap(), &options).unwrap()
}

/// The number of links that the broker of an address has made so far.
fn made(address: &str) -> u64 {
    report(address).broker.tally.linked
}

/// The number of packets that all programs of an address have sent, as last published.
fn sent(address: &str) -> u64 {
    let counters = report(address).counters;
    counters.into_iter().find(|(name, _)| *name == "sent_pkts").map_or(0, |(_, value)| value)
}

#[test]
fn ping_pongs_of_rc_uc_and_xrc_run_by_links_alone() {
    let (address, _broker) = brokered();
    let program = |words: &[&str]| linked(&address, words);
    for name in ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_srq_pingpong", "ibv_xsrq_pingpong"] {
        pair_of(&program, &[name, "-g", "0", "-n", "200"], "-p");
        pair_of(&program, &[name, "-g", "0", "-n", "200", "-e"], "-p");
    }
    pair_of(&program, &["ibv_rc_pingpong", "-g", "0", "-n", "200", "-c", "-m", "4096", "-s", "100000"], "-p");
    assert_eq!(made(&address), 9, "one link for each pair");
}

#[test]
fn perftest_runs_by_links_alone() {
    let (address, _broker) = brokered();
    let program = |words: &[&str]| linked(&address, words);
    let programs: [&[&str]; 6] = [
        &["ib_write_bw", "-s", "65536", "-n", "200"],
        &["ib_read_bw", "-s", "65536", "-n", "200", "-q", "4"],
        &["ib_send_bw", "-b", "-s", "4096", "-n", "500", "-e"],
        &["ib_send_lat", "-s", "64", "-n", "500", "-e"],
        &["ib_read_lat", "-s", "64", "-n", "500"],
        &["ib_atomic_bw", "-n", "200"],
    ];
    for words in programs {
        pair_of(&program, words, "-p");
    }
}

#[test]
fn datagrams_go_by_udp_until_their_link_is_there() {
    let (address, _broker) = brokered();
    let program = |words: &[&str]| program_at(&address, words);
    let printed = pair_of(&program, &["ibv_ud_pingpong", "-g", "0", "-n", "2000", "-s", "1024", "-c"], "-p");
    assert!(printed.contains("2000 iters in"), "{printed}");
    assert_eq!(made(&address), 1);
}

/// Returns whether these are the words of a pair's client.
fn is_client(words: &[&str]) -> bool {
    words.last() == Some(&"127.0.0.1")
}

#[test]
fn a_neighbour_that_takes_no_links_is_reached_by_udp_and_refused_where_links_are_demanded() {
    let (address, _broker) = brokered();
    for server_links in [false, true] {
        let program = |words: &[&str]| {
            let mut command = program_at(&address, words);
            if is_client(words) != server_links {
                command.env("REMORA_PORT", "udp");
            }
            command
        };
        pair_of(&program, &["ibv_rc_pingpong", "-g", "0", "-n", "200"], "-p");
    }
    assert_eq!(made(&address), 0);
    let port = free_port().unwrap().to_string();
    let mut server = unlimited_at(&address, &["ibv_rc_pingpong", "-g", "0", "-p", &port]);
    let mut server = server.env("REMORA_PORT", "udp").stdout(Stdio::null()).spawn().unwrap();
    until_listening(&mut server, port.parse().unwrap());
    let client =
        linked(&address, &["ibv_rc_pingpong", "-g", "0", "-p", &port, "127.0.0.1"]).output().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let stderr = String::from_utf8_lossy(&client.stderr);
    assert!(!client.status.success() && stderr.contains("takes links"), "{stderr}");
    assert!(stderr.contains("Failed to modify QP to RTR"), "{stderr}");
}

#[test]
fn peers_on_another_address_are_reached_by_udp() {
    let one = brokered();
    let other = brokered();
    let addresses = [&one.0, &other.0];
    let program = |words: &[&str]| program_at(addresses[usize::from(is_client(words))], words);
    pair_of(&program, &["ibv_rc_pingpong", "-g", "0", "-n", "200"], "-p");
    pair_of(&program, &["ibv_ud_pingpong", "-g", "0", "-n", "200", "-s", "1024"], "-p");
    assert_eq!((made(addresses[0]), made(addresses[1])), (0, 0));
}

#[test]
fn a_neighbour_that_is_killed_shows_as_retries_that_are_exceeded() {
    let (address, _broker) = brokered();
    let port = free_port().unwrap().to_string();
    let words = ["ib_send_bw", "-D", "60", "-s", "1024", "-u", "14", "-p", &port];
    let mut server = unlimited_at(&address, &words);
    let mut server = server.env("REMORA_PORT", "shm").stdout(Stdio::null()).spawn().unwrap();
    until_listening(&mut server, port.parse().unwrap());
    let client: Vec<&str> = words.iter().copied().chain(["127.0.0.1"]).collect();
    let client = linked(&address, &client).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while sent(&address) < 1000 {
        std::thread::yield_now();
    }
    assert_eq!(made(&address), 1);
    server.kill().unwrap();
    server.wait().unwrap();
    let output = client.wait_with_output().unwrap();
    let printed =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(!output.status.success() && printed.contains("status 12"), "{printed}");
}
