//! `remora serve kv` and `remora kv` over 1RMA and IRN. Each server is a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use remora_grants::{Credential, Pin};
use remora_netns::Process;
use remora_service::kv::rma::{RmaServerAddress, RmaSession};
use remora_service::kv::{ClientConfig, KvSession};
use remora_store::ycsb::record::{self, Values};
use remora_verbs::Device;
use serde_json::Value;

use crate::running::{Ended, Scratch, Server, command, free_addresses, remora};

const ZEROS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// A server that is killed at the end of its test.
struct RmaServer {
    child: Process,
    address: String,
    fingerprint: String,
    token: String,
}

impl RmaServer {
    #[track_caller]
    fn start(more: &[&str]) -> RmaServer {
        let words = ["serve", "kv", "--transport", "rma", "--listen", "127.0.0.1:0", "--capacity", "1000"];
        let mut child = Process::start_piped(&mut command(&[&words[..], &["--clients", "4"], more].concat()));
        let facts: Vec<Vec<String>> =
            (0..4).map(|_| child.line().split_whitespace().map(str::to_owned).collect()).collect();
        let fact = |name: &str| {
            let row = facts.iter().find(|words| words[0] == name);
            row.unwrap_or_else(|| panic!("{name}: {facts:?}"))[1].clone()
        };
        let [address, fingerprint, token] = ["address", "fingerprint", "token"].map(fact);
        RmaServer { child, address, fingerprint, token }
    }

    /// Runs `remora kv VERB` against this server, with its token.
    #[track_caller]
    fn kv(&self, verb: &str, more: &[&str]) -> Ended {
        remora(&[&["kv", verb][..], &self.words(), more].concat())
    }

    fn words(&self) -> [&str; 8] {
        let words = ["--connect", &self.address, "--fingerprint", &self.fingerprint];
        let [a, b, c, d] = words;
        [a, b, c, d, "--token", &self.token, "--transport", "rma"]
    }

    fn known(&self) -> RmaServerAddress {
        let pin = Pin {
            address: self.address.parse().expect("an address"),
            fingerprint: self.fingerprint.parse().expect("a fingerprint"),
        };
        RmaServerAddress { pin, credential: Credential::Token(self.token.parse().expect("a token")) }
    }

    /// Kills the server with SIGKILL.
    fn kill(&mut self) {
        self.child.kill();
    }
}

#[test]
fn over_rma_pairs_are_stored_read_listed_removed_and_loaded() {
    let server = RmaServer::start(&["--records", "10"]);
    server.kv("get", &["none"]).one_line("no such key: none");
    server.kv("put", &["colour", "blue"]).good();
    assert_eq!(server.kv("get", &["colour"]).good(), "blue\n");
    server.kv("put", &["colour", "green, and longer than before"]).good();
    assert_eq!(server.kv("get", &["colour"]).good(), "green, and longer than before\n");
    assert_eq!(server.kv("scan", &[]).good().lines().count(), 11);
    server.kv("delete", &["colour"]).good();
    server.kv("delete", &["colour"]).one_line("no such key: colour");
    let file = Scratch::new(b"colour blue\nlonely\nshape round and red\n");
    let loaded = server.kv("load", &[file.path()]);
    assert!(loaded.err.contains("line 2: "), "{}", loaded.err);
    assert_eq!(loaded.good(), "2 keys stored, 1 lines left out\n");
    assert!(server.kv("dump", &["--prefix", "shape"]).good().contains("shape round and red"));
    let bench =
        server.kv("bench", &["--records", "10", "--value-len", "64", "--operations", "500", "--json"]);
    let rate = bench.good();
    assert!(
        rate.lines().any(|line| line.contains("udp/farm-rma/64/ycsb-b") && line.contains("\"rate\"")),
        "{rate}"
    );
}

#[test]
fn over_irn_both_sides_speak_it_or_a_line_says_so() {
    let server = Server::start("farm", "udp", &["--transport", "irn"]);
    server.kv("put", &["--transport", "irn", "colour", "blue"]).good();
    assert_eq!(server.kv("get", &["--transport", "irn", "colour"]).good(), "blue\n");
    assert_eq!(server.kv("get", &["colour"]).good(), "blue\n", "a client of RC finds the same");
    let rc = Server::start("farm", "udp", &[]);
    rc.kv("get", &["--transport", "irn", "colour"]).one_line("start it with --transport irn");
}

#[test]
fn who_cannot_be_served_gets_one_line() {
    let server = RmaServer::start(&[]);
    let with = |fingerprint: &str, token: &str, more: &[&str]| {
        let words = ["kv", "get", "--transport", "rma", "--connect", &server.address, "key"];
        remora(&[&words[..], &["--fingerprint", fingerprint, "--token", token], more].concat())
    };
    with(ZEROS, &server.token, &[]).one_line("has another fingerprint: take the one that the server printed");
    with(&server.fingerprint, ZEROS, &[]).one_line("take the token that it printed");
    with(&server.fingerprint, &server.token, &["--port", "shm"]).one_line("use --port udp");
    with(&server.fingerprint, &server.token, &["--design", "pilaf"]).one_line("supports only design farm");
    let free = free_addresses(1);
    let words = ["kv", "get", "--transport", "rma", "--fingerprint", ZEROS, "--connect"];
    remora(&[&words[..], &[&free[0], "--token", ZEROS, "key"]].concat())
        .one_line("start one with `remora serve kv --transport rma");
    remora(&["kv", "get", "--transport", "rma", "key"])
        .one_line("needs --fingerprint, which the server printed");
    remora(&[&words[..6], &["key"]].concat())
        .one_line("needs --token (printed by the server), --token-file or --certificate");
    remora(&["kv", "get", "--fingerprint", ZEROS, "key"]).one_line("--fingerprint needs --transport rma");
    remora(&["serve", "kv", "--rotate", "1"]).one_line("need --transport rma");
    remora(&["serve", "kv", "--transport", "rma", "--design", "prism"]).one_line("supports only design farm");
    remora(&["serve", "kv", "--transport", "rma", "--port", "shm"]).one_line("use --port udp");
    remora(&["serve", "kv", "--transport", "tcp"]).bad_arguments("--transport");
    // A server of queue pairs does not speak TLS.
    let rc = Server::start("farm", "udp", &[]);
    let words = ["kv", "get", "--transport", "rma", "--fingerprint", ZEROS, "--token", ZEROS, "--connect"];
    let ended = remora(&[&words[..], &[&rc.address, "key"]].concat());
    assert!(ended.status == 1 && ended.err.lines().count() == 1, "{}", ended.err);
}

#[test]
fn keys_rotate_while_a_client_reads() {
    let server = RmaServer::start(&["--rotate", "1", "--records", "100"]);
    let words = ["--records", "100", "--value-len", "64", "--seconds", "4", "--workload", "A", "--json"];
    let bench = server.kv("bench", &words);
    assert_eq!(bench.err, "");
    bench.good();
}

fn session(servers: &[&RmaServer]) -> RmaSession {
    let here = "127.0.0.1:0".parse::<std::net::SocketAddr>().expect("an address");
    let nic = Device::udp(here).and_then(|device| device.open()).expect("a NIC");
    let servers: Vec<_> = servers.iter().map(|server| server.known()).collect();
    RmaSession::connect(&nic, &servers, ClientConfig::default()).expect("a session")
}

/// Kills one of two servers while a client reads from it.
#[test]
fn one_of_two_servers_is_killed_under_load_and_no_get_fails() {
    const RECORDS: u64 = 100;
    let records = ["--records", "100", "--value-len", "64"];
    let mut one = RmaServer::start(&records);
    let other = RmaServer::start(&records);
    let mut session = session(&[&one, &other]);
    let values = Values::fixed(64);
    let mut read = |record: u64| {
        let began = Instant::now();
        let value = session.get(&record::key(record)).expect("no GET fails").expect("each record is there");
        assert!(values.check(record, &value).is_some(), "record {record}");
        began.elapsed()
    };
    let before = (0..20 * RECORDS).map(|number| read(number % RECORDS)).max();
    one.kill();
    let after = (0..20 * RECORDS).map(|number| read(number % RECORDS)).max();
    let _ = writeln!(std::io::stderr(), "longest GET before {before:?}, after {after:?}");
    session.put(b"later", b"value").expect("a PUT at the other one");
    assert_eq!(session.get(b"later").expect("a GET").expect("it is there"), b"value");
}

#[test]
fn the_bench_puts_three_transports_beside_each_other() {
    let words = ["bench", "kv", "--transport", "rc,irn,rma", "--records", "500", "--rounds", "1", "--json"];
    let more = ["--workload", "A", "--distribution", "uniform", "--operations", "6400"];
    let out = remora(&[&words[..], &more].concat()).good();
    let rows: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for transport in ["rc", "irn", "rma"] {
        let result = |case: &str, metric: &str| {
            let case = format!("udp/farm-{transport}/512/{case}");
            let matching = rows.iter().find(|row| row["case"] == case && row["metric"] == metric);
            matching.unwrap_or_else(|| panic!("{case} {metric}: {out}")).clone()
        };
        for metric in ["latency_p50", "latency_p99", "rate", "round_trips"] {
            let row = result("ycsb-a/uniform", metric);
            assert!(row["value"].as_f64().is_some_and(|value| value > 0.0), "{row}");
        }
        assert!(result("one-of-two-killed", "longest_gap")["value"].as_f64().is_some_and(|gap| gap > 0.0));
        assert_eq!(result("one-of-two-killed", "failed_gets")["value"], 0.0, "{transport}");
    }
    remora(&["bench", "kv", "--transport", "rma", "--port", "shm"]).one_line("choose --port udp");
}

/// Captures the loopback interface, if this process may, and searches all packets.
#[test]
fn tshark_sees_no_key_and_no_value_on_the_whole_interface() {
    const NAME: &str = "a-name-that-nobody-else-may-read";
    const VALUE: &str = "a-value-that-nobody-else-may-read";
    let server = RmaServer::start(&[]);
    let rc = Server::start("farm", "udp", &[]);
    let file = Scratch::new(b"");
    let mut tshark = Command::new("tshark");
    tshark.args(["-i", "lo", "-q", "-w", file.path(), "-a", "duration:60"]);
    let mut tshark = remora_netns::require!(tshark.stdout(Stdio::null()).stderr(Stdio::piped()).spawn());
    let mut messages = BufReader::new(tshark.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let captures = messages.any(|line| line.contains("Capturing on"));
    if !captures {
        let _ = tshark.wait();
    }
    remora_netns::require!(captures, "this process may not capture");
    std::thread::spawn(move || messages.for_each(drop));
    let holds = |part: &str| {
        let all = std::fs::read(file.path()).expect("the capture");
        all.windows(part.len()).any(|window| window == part.as_bytes())
    };
    // tshark writes packets to its file with a delay, so the test waits for RC's value before and after the
    // rest.
    let seen = |part: &str| {
        let until = Instant::now() + Duration::from_secs(40);
        while !holds(part) {
            assert!(Instant::now() < until, "{part} is not in the capture");
            rc.kv("put", &["clear", part]).good();
        }
    };
    seen("in-clear-at-first");
    server.kv("put", &[NAME, VALUE]).good();
    assert_eq!(server.kv("get", &[NAME]).good(), format!("{VALUE}\n"));
    seen("in-clear-at-last");
    for secret in [NAME, VALUE, &VALUE[..12], &server.token] {
        assert!(!holds(secret), "{secret} stands in clear");
    }
    let _ = tshark.kill();
    let _ = tshark.wait();
}
