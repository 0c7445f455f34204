//! Remora clients of a cache, by the chains of its NIC.

use super::Served;
use crate::running::{Ended, remora};

fn get(server: &Served, port: &str, key: &str) -> Ended {
    let chains = server.chains.as_deref().expect("it was started so");
    remora(&["cache", "get", key, "--connect", chains, "--port", port, "--explain"])
}

/// Nanoseconds that the thread which serves TCP has run: it is the process's first.
fn worked(server: &Served) -> u64 {
    let pid = server.pid();
    let path = format!("/proc/{pid}/task/{pid}/schedstat");
    let text = std::fs::read_to_string(path).expect("a thread");
    text.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("nanoseconds")
}

/// The same, once it sleeps.
fn rested(server: &Served) -> u64 {
    let mut before = worked(server);
    loop {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let now = worked(server);
        if now == std::mem::replace(&mut before, now) {
            return now;
        }
    }
}

fn is_served(port: &str) {
    let server = Served::remora(&["--chains", "127.0.0.1:0", "--port", port]);
    let mut talk = server.talk();
    let long = "x".repeat(700_000);
    for (key, value) in [("colour", "crimson"), ("empty", ""), ("long", &long)] {
        assert_eq!(talk.tell(&format!("set {key} 5 0 {}\r\n{value}", value.len())), "STORED");
    }
    let gets = talk.stat("cmd_get");
    let before = rested(&server);
    for (key, value) in [("colour", "crimson"), ("long", &long), ("empty", ""), ("colour", "crimson")] {
        let ended = get(&server, port, key);
        assert_eq!(ended.err, "by the chain\n");
        assert_eq!(ended.good(), format!("{value}\n"));
    }
    assert_eq!(worked(&server), before, "the cache's own thread has not run");
    assert_eq!(talk.stat("cmd_get"), gets);

    // What the chain does not find is asked for by TCP, and not there either.
    let missing = get(&server, port, "shape");
    assert_eq!((missing.status, missing.out.as_str()), (1, ""));
    assert!(
        missing.err.starts_with("by TCP") && missing.err.contains("no such key: shape"),
        "{}",
        missing.err
    );
    assert_eq!(talk.stat("cmd_get"), gets + 1);

    // What TCP clients do is seen.
    assert_eq!(talk.tell("set colour 0 0 4\r\nblue"), "STORED");
    assert_eq!(get(&server, port, "colour").good(), "blue\n");
    assert_eq!(talk.tell("incr colour 1"), "CLIENT_ERROR cannot increment or decrement non-numeric value");
    assert_eq!(talk.tell("set colour 0 0 2\r\n41"), "STORED");
    assert_eq!(talk.tell("incr colour 1"), "42");
    let ended = get(&server, port, "colour");
    assert_eq!((ended.err.as_str(), ended.out.as_str()), ("by the chain\n", "42\n"));
    assert_eq!(talk.tell("delete colour"), "DELETED");
    assert_eq!(get(&server, port, "colour").status, 1);
    assert_eq!(talk.tell("touch long -1"), "TOUCHED");
    assert_eq!(get(&server, port, "long").status, 1);
    assert_eq!(talk.tell("flush_all"), "OK");
    assert_eq!(get(&server, port, "empty").status, 1);
}

#[test]
fn gets_over_shm_are_answered_while_the_caches_thread_sleeps() {
    is_served("shm");
}

#[test]
fn gets_over_udp_are_answered_while_the_caches_thread_sleeps() {
    is_served("udp");
}

#[test]
fn more_clients_than_chains_take_the_place_of_the_idle_one() {
    let server = Served::remora(&["--chains", "127.0.0.1:0", "--clients", "2"]);
    assert_eq!(server.talk().tell("set colour 0 0 4\r\nblue"), "STORED");
    for _ in 0..5 {
        assert_eq!(get(&server, "shm", "colour").good(), "blue\n");
    }
}

#[test]
fn what_is_wrong_with_a_get_is_one_line() {
    remora(&["cache", "get", "colour", "--connect", "127.0.0.1:1"])
        .one_line("no cache takes Remora clients at 127.0.0.1:1");
    remora(&["cache", "get", "two words"]).one_line("a key has 1 to 250 bytes, and no spaces");
}
