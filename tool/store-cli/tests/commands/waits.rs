//! Waits that end with a message, and ends by signals that leave nothing behind.

use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use remora_check::{History, linearizable};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::cache::Served;
use crate::running::{Ended, Lender, Scratch, Server, command, finish, free_addresses, remora};

/// Signals that users end servers with. Each would kill a process without a handler.
const ENDING: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("a signal");
}

/// Waits until `so` returns true.
#[track_caller]
fn until(condition: &str, mut so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < Duration::from_secs(60), "{condition}: not within a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Exercises a store for three seconds, and sends a signal to its server once operations were completed.
#[track_caller]
fn exercised(words: &[&str], server: &Child, gets: Signal) -> Ended {
    let history = Scratch::new(b"");
    let mut command = command(words);
    command.args(["--seconds", "3", "--history", history.path()]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until("operations", || std::fs::metadata(&history.0).is_ok_and(|facts| facts.len() > 2000));
            signal(server, gets);
        });
        finish(&mut command)
    })
}

/// Checks that the exercise reported its wait for `words`, and ended at last.
#[track_caller]
fn gave_up(ended: Ended, words: &str) {
    let lines: Vec<&str> = ended.err.lines().collect();
    let last = lines.last().expect("a line");
    assert_eq!(ended.status, 1, "{lines:?}");
    assert!(lines[0].starts_with("waiting for an answer, 10 seconds at most: "), "{lines:?}");
    assert!(last.starts_with("error: nothing was answered for 10 seconds: "), "{lines:?}");
    assert!(last.contains(words), "{lines:?}");
    assert!(ended.out.contains("operations: "), "what was done is told: {}", ended.out);
}

/// Regression: `remora kv exercise --seconds 3` ran on without output after its server had died.
#[test]
fn an_exercise_of_keys_ends_with_a_word_after_its_server_has_died() {
    let server = Server::start("farm", "shm", &[]);
    let ended = exercised(&server.words("exercise", &[]), server.child(), Signal::KILL);
    gave_up(ended, &format!("start one with `remora serve kv --listen {}`", server.address));
}

#[test]
fn an_exercise_of_keys_ends_with_a_word_while_its_server_is_stopped() {
    let server = Server::start("farm", "udp", &[]);
    gave_up(exercised(&server.words("exercise", &[]), server.child(), Signal::STOP), &server.address);
}

/// Starts the only replica of a block store.
fn replica(address: &str) -> Server {
    let words = ["serve", "block", "--replica", "0", "--new", "--servers", address, "--listen", address];
    Server::of(command(&words), "", "shm")
}

/// Starts the only shard of a transactional store.
fn shard() -> Server {
    Server::of(command(&["serve", "txn", "--listen", "127.0.0.1:0"]), "", "shm")
}

#[test]
fn an_exercise_of_blocks_ends_with_a_word_after_its_replica_has_died() {
    let address = free_addresses(1).remove(0);
    let server = replica(&address);
    let ended = exercised(&["block", "exercise", "--servers", &address], server.child(), Signal::KILL);
    gave_up(ended, "0 of 1 replicas answer, too few for a majority: start the others");
}

#[test]
fn an_exercise_of_transactions_ends_with_a_word_after_its_shard_has_died() {
    let server = shard();
    let words = ["txn", "exercise", "--shards", &server.address];
    let ended = exercised(&words, server.child(), Signal::KILL);
    gave_up(ended, &format!("no shard answers at {}: start it with", server.address));
}

#[test]
fn a_command_at_a_stopped_server_is_told_so_in_one_line() {
    let server = Server::start("farm", "shm", &[]);
    signal(server.child(), Signal::STOP);
    server.kv("get", &["key"]).one_line("the server may be overloaded");
    let shard = shard();
    signal(shard.child(), Signal::STOP);
    remora(&["txn", "get", "key", "--shards", &shard.address]).one_line("the server may be overloaded");
    let cache = Served::remora(&["--chains", "127.0.0.1:0"]);
    signal(cache.child(), Signal::STOP);
    let chains = cache.chains.as_deref().expect("it was started so");
    remora(&["cache", "get", "key", "--connect", chains]).one_line("the server may be overloaded");
}

#[test]
fn metrics_that_do_not_come_are_not_taken_for_metrics_that_are_none() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    remora(&["top", &address, "--once"]).one_line("has not answered for 2 seconds");
}

/// Regression: `remora devinfo --nicd` and every request of an attached program waited for a stopped
/// daemon for ever.
#[test]
fn a_stopped_daemon_is_told_in_one_line() {
    let lender = Lender::start("stopped", &[]);
    lender.signal(Signal::STOP);
    remora(&["devinfo", "--nicd", lender.at()]).one_line("continue it by `kill -CONT`");
    let words = ["serve", "kv", "--nicd", lender.at(), "--keep", "store", "--listen", "127.0.0.1:0"];
    remora(&words).one_line("has not answered for 10 seconds");
}

/// Regression: `remora serve nic` left its socket behind on SIGHUP.
#[test]
fn a_daemon_takes_its_socket_away_whatever_signal_ends_it() {
    for (number, ends) in ENDING.into_iter().enumerate() {
        let mut lender = Lender::start(&format!("signal-{number}"), &[]);
        lender.signal(ends);
        assert!(lender.child.wait().expect("its end").success(), "{ends:?}");
        assert!(!lender.path.exists(), "the socket is left after {ends:?}");
    }
}

#[test]
fn what_nohup_has_a_daemon_ignore_does_not_end_it() {
    let mut nohup = std::process::Command::new("sh");
    let script = format!("trap '' HUP; exec {} \"$@\"", crate::running::binary());
    nohup.args(["-c", &script, "sh", "nicd", "--json", "--socket"]).stdin(Stdio::null());
    let mut lender = Lender::of(nohup, "nohup", &[]);
    lender.signal(Signal::HUP);
    remora(&["devinfo", "--nicd", lender.at()]).good();
    lender.signal(Signal::TERM);
    assert!(lender.child.wait().expect("its end").success());
}

/// Returns whether the capture was completed: its last block then has the statistics of the interface.
fn is_whole(capture: &Scratch) -> bool {
    let bytes = std::fs::read(&capture.0).expect("a capture");
    let word = |offset: usize| u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"));
    let mut offset = 0;
    let mut last = 0;
    while offset + 8 <= bytes.len() {
        last = word(offset);
        offset += word(offset + 4) as usize;
    }
    offset == bytes.len() && last == 5
}

#[test]
fn a_server_closes_its_capture_whatever_signal_ends_it() {
    for ends in ENDING {
        let capture = Scratch::ending(".pcapng", b"");
        let mut server = Server::start("farm", "udp", &["--capture", capture.path()]);
        server.kv("put", &["colour", "blue"]).good();
        signal(server.child(), ends);
        assert!(server.end().success(), "{ends:?}");
        assert!(is_whole(&capture), "{ends:?}");
    }
}

#[test]
fn replicas_and_shards_close_their_captures_when_a_signal_ends_them() {
    let capture = Scratch::ending(".pcapng", b"");
    let words = ["serve", "txn", "--listen", "127.0.0.1:0", "--capture", capture.path()];
    let mut server = Server::of(command(&words), "", "shm");
    remora(&["txn", "put", "colour", "blue", "--shards", &server.address]).good();
    signal(server.child(), Signal::TERM);
    assert!(server.end().success() && is_whole(&capture));

    let capture = Scratch::ending(".pcapng", b"");
    let address = free_addresses(1).remove(0);
    let words = ["serve", "block", "--replica", "0", "--new", "--servers", &address];
    let mut starts = command(&words);
    starts.args(["--capture", capture.path()]);
    let mut server = Server::of(starts, "", "shm");
    remora(&["block", "write", "7", "hello", "--servers", &address]).good();
    signal(server.child(), Signal::HUP);
    assert!(server.end().success() && is_whole(&capture));
}

#[test]
fn a_cache_ends_well_by_each_signal() {
    for ends in ENDING {
        let mut cache = Served::remora(&["--chains", "127.0.0.1:0"]);
        signal(cache.child(), ends);
        assert!(cache.end().success(), "{ends:?}");
    }
}

#[test]
fn what_ends_a_recorded_command_is_passed_on_to_it() {
    let output = Scratch::ending(".pcapng", b"");
    let listen = free_addresses(1).remove(0);
    let mut command = command(&["capture", "-o", output.path(), "--", "remora", "serve", "kv", "--listen"]);
    let mut capture = command.arg(&listen).stderr(Stdio::null()).spawn().expect("the binary");
    until("a server", || remora(&["kv", "put", "colour", "blue", "--connect", &listen]).status == 0);
    signal(&capture, Signal::TERM);
    assert!(capture.wait().expect("its end").success());
    // The recorded process has ended before the capture, so its port is free.
    TcpListener::bind(&listen).expect("nobody listens any more");
    assert!(is_whole(&output));
}

#[test]
fn a_cache_that_chains_read_and_tcp_writes_is_linearizable_and_its_exercise_says_how_it_goes() {
    for port in ["shm", "udp"] {
        let server = Served::remora(&["--chains", "127.0.0.1:0", "--port", port]);
        let chains = server.chains.as_deref().expect("it was started so");
        let history = Scratch::new(b"");
        let clients: Vec<Child> = (0..3)
            .map(|number| {
                let number = number.to_string();
                let words = ["cache", "exercise", "--connect", chains, "--port", port, "--operations", "300"];
                let mut command = command(&words);
                command.args(["--keys", "3", "--number", &number, "--seed", &number, "--every", "0.1"]);
                command.args(["--seconds", "60", "--history", history.path()]);
                command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary")
            })
            .collect();
        let mut done = 0;
        for client in clients {
            let output = client.wait_with_output().expect("a client");
            assert!(output.status.success());
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                let report: Value =
                    serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
                let operations = report["operations"].as_u64().expect("a number");
                let times = report["times_us"].as_array().expect("a list").iter();
                let counted: u64 = times.map(|pair| pair[1].as_u64().expect("a number")).sum();
                assert_eq!(
                    (&report["refused"], &report["unknown"], counted),
                    (&0.into(), &0.into(), operations)
                );
                done += operations;
            }
        }
        assert!(done > 0, "nobody has said anything");
        let file = std::fs::File::open(&history.0).expect("a history");
        linearizable(&History::read(std::io::BufReader::new(file)).expect("a history"))
            .expect("linearizable");
    }
}
