//! Clients that connect to a server and leave it: silent connections delay nobody, places become free at
//! once, and a client waits for a free place.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use remora_netns::Process;

use crate::running::{Ended, Lender, Scratch, Server, command, finish, free_addresses, part_of, remora};

/// Returns the first message of a client. `words` gets the address of a listener and returns the arguments
/// that make the client connect there.
#[track_caller]
pub(crate) fn first_message(words: impl FnOnce(&str) -> Vec<String>) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let words = words(&address);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut client = quiet(&words);
    let (mut stream, _) = listener.accept().expect("the client");
    let mut message = vec![0; 16];
    stream.read_exact(&mut message).expect("a head");
    let len = u32::from_le_bytes(message[12..].try_into().expect("four bytes"));
    message.resize(16 + len as usize, 0);
    stream.read_exact(&mut message[16..]).expect("a body");
    client.kill();
    message
}

/// Starts a command and discards its output.
fn quiet(words: &[&str]) -> Process {
    Process::start(command(words).stdout(Stdio::null()).stderr(Stdio::null()))
}

/// Connections that send `words` and then nothing. A connection that the server closes is opened again.
pub(crate) struct Silent {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Silent {
    /// Opens `count` connections and returns when all of them are connected.
    #[track_caller]
    pub(crate) fn at(address: &str, count: usize, words: &[u8]) -> Silent {
        let over = Arc::new(AtomicBool::new(false));
        let ready = Arc::new(AtomicUsize::new(0));
        let ends = Arc::clone(&over);
        let connected = Arc::clone(&ready);
        let address = address.to_owned();
        let words = words.to_vec();
        let thread = std::thread::spawn(move || {
            let mut all: Vec<Option<TcpStream>> = (0..count).map(|_| None).collect();
            while !ends.load(Ordering::Relaxed) {
                all.iter_mut().for_each(|one| stay(one, &address, &words));
                connected.store(count, Ordering::Relaxed);
                // Thousands of immediate reconnections would load the machine, and thereby the test, more
                // than the server.
                std::thread::sleep(Duration::from_millis(250));
            }
        });
        while ready.load(Ordering::Relaxed) < count {
            std::thread::sleep(Duration::from_millis(5));
        }
        Silent { over, thread: Some(thread) }
    }
}

fn stay(one: &mut Option<TcpStream>, address: &str, words: &[u8]) {
    if let Some(stream) = one {
        match stream.read(&mut [0; 512]) {
            Ok(1..) => return,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            _ => {}
        }
    }
    *one = TcpStream::connect(address).ok();
    if let Some(stream) = one {
        let _ = stream.write_all(words);
        let _ = stream.set_nonblocking(true);
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Pairs to load, which keep a client busy for a while.
struct Pairs {
    file: Scratch,
    /// Output of a client that has stored all pairs.
    stored: String,
}

fn pairs() -> Pairs {
    let count = part_of(2000);
    let lines: String =
        (0..count).map(|number| format!("key{} value{}\n", number % 200, number % 200)).collect();
    Pairs { file: Scratch::new(lines.as_bytes()), stored: format!("{count} keys stored, 0 lines left out\n") }
}

/// Checks that a busy client finishes and new clients are served, beside connections that send nothing and
/// connections that send only their first message.
#[track_caller]
fn holds_up_nobody(design: &str, port: &str) {
    holds_up_nobody_at(&Server::start(design, port, &[]), design, port);
}

#[track_caller]
fn holds_up_nobody_at(server: &Server, design: &str, port: &str) {
    let request = first_message(|address| {
        let words = ["kv", "get", "--connect", address, "--design", design, "--port", port, "key"];
        words.map(str::to_owned).to_vec()
    });
    let pairs = pairs();
    for (count, words) in
        [(1, &[][..]), (1, &request[..]), (64, &[][..]), (64, &request[..]), (4, &request[..20])]
    {
        let silent = Silent::at(&server.address, count, words);
        assert_eq!(server.kv("load", &[pairs.file.path()]).good(), pairs.stored);
        assert_eq!(server.kv("get", &["key7"]).good(), "value7\n");
        drop(silent);
    }
}

#[test]
fn silent_connections_hold_up_no_client_of_pilaf() {
    holds_up_nobody("pilaf", "shm");
    holds_up_nobody("pilaf", "udp");
}

/// Regression: a connection that asked to be connected and fell silent took the serving thread for a
/// second, over and over.
#[test]
fn silent_connections_hold_up_no_client_of_farm() {
    holds_up_nobody("farm", "shm");
    holds_up_nobody("farm", "udp");
}

#[test]
fn silent_connections_hold_up_no_client_of_two_sided() {
    holds_up_nobody("two-sided", "shm");
    holds_up_nobody("two-sided", "udp");
}

#[test]
fn silent_connections_hold_up_no_client_of_prism() {
    holds_up_nobody("prism", "shm");
    holds_up_nobody("prism", "udp");
}

#[test]
fn silent_connections_hold_up_no_client_of_strom() {
    holds_up_nobody("strom", "shm");
    holds_up_nobody("strom", "udp");
}

#[test]
fn silent_connections_hold_up_no_client_of_a_store_on_the_nic_daemon() {
    let lender = Lender::start("silent", &[]);
    let mut command = command(&["serve", "kv", "--listen", "127.0.0.1:0", "--capacity", "1000"]);
    command.args(["--design", "farm", "--nicd", lender.at(), "--keep", "store"]);
    holds_up_nobody_at(&Server::of(command, "farm", "shm"), "farm", "shm");
}

#[test]
fn silent_connections_hold_up_no_replica_of_blocks() {
    for design in ["prism-rs", "abdlock"] {
        let servers = free_addresses(3);
        let list = servers.join(",");
        let replica = |number: usize| -> Command {
            let number = number.to_string();
            let words = ["serve", "block", "--servers", &list, "--blocks", "16", "--replica", &number];
            let mut command = command(&words);
            command.args(["--design", design, "--new"]);
            command
        };
        // The same holds while the replicas of a new store wait for each other.
        let early = Server::spawn(replica(0), design, "shm");
        while TcpStream::connect(&servers[0]).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _silent = Silent::at(&servers[0], 64, b"");
        let mut all = vec![early];
        all.extend((1..3).map(|number| Server::spawn(replica(number), design, "shm")));
        all.iter_mut().for_each(Server::wait);
        let request = first_message(|address| {
            let list = [address; 3].join(",");
            ["block", "read", "0", "--servers", &list].map(str::to_owned).to_vec()
        });
        let _silent: Vec<Silent> = servers.iter().map(|address| Silent::at(address, 64, &request)).collect();
        for round in ["one", "two", "three"] {
            remora(&["block", "write", "3", round, "--servers", &list]).good();
            assert_eq!(remora(&["block", "read", "3", "--servers", &list]).good(), format!("{round}\n"));
        }
    }
}

#[test]
fn silent_connections_hold_up_no_shard_of_transactions() {
    for design in ["prism-tx", "farm"] {
        let shard = |number: &str| {
            let words = ["serve", "txn", "--listen", "127.0.0.1:0", "--keys", "200", "--shards", "2"];
            let mut command = command(&words);
            command.args(["--shard", number, "--design", design]);
            Server::of(command, design, "shm")
        };
        let shards = [shard("0"), shard("1")];
        let list = format!("{},{}", shards[0].address, shards[1].address);
        let request = first_message(|address| {
            ["txn", "get", "a", "--shards", &format!("{address},{address}")].map(str::to_owned).to_vec()
        });
        let _silent = [
            Silent::at(&shards[0].address, 64, b""),
            Silent::at(&shards[0].address, 64, &request),
            Silent::at(&shards[1].address, 64, b""),
        ];
        for round in 1..=3 {
            let sum = remora(&["txn", "add", "a", "1", "b", "1", "--shards", &list]).good();
            assert_eq!(sum, format!("{round}\n{round}\n"));
        }
    }
}

#[test]
fn a_thousand_silent_connections_lock_no_newcomer_out() {
    for port in ["shm", "udp"] {
        let server = Server::start("farm", port, &[]);
        let pairs = pairs();
        let _silent = Silent::at(&server.address, 1000, b"");
        for _ in 0..5 {
            server.kv("put", &["key", "value"]).good();
            assert_eq!(server.kv("get", &["key"]).good(), "value\n");
        }
        assert_eq!(server.kv("load", &[pairs.file.path()]).good(), pairs.stored);
    }
}

/// Regression: 40 `remora kv get` killed 5 to 45 ms after their start silenced a connected client over
/// `shm` for 22 s, because stale requests were answered first.
#[test]
fn clients_killed_while_they_connect_over_shm_silence_nobody() {
    let server = Server::start("farm", "shm", &[]);
    server.kv("put", &["key", "value"]).good();
    let pairs = pairs();
    let words = server.words("load", &[pairs.file.path()]);
    let mut killed = 0;
    let done = std::thread::scope(|scope| {
        let at_work = scope.spawn(|| (0..5).map(|_| remora(&words).good()).collect::<Vec<String>>());
        for after in 5..45 {
            let mut client = quiet(&server.words("get", &["key"]));
            std::thread::sleep(Duration::from_millis(after));
            client.kill();
            killed += usize::from(!client.wait().expect("a client").success());
        }
        at_work.join().expect("the client at work")
    });
    assert!(killed > 0, "all had ended before they were killed");
    assert!(done.iter().all(|output| *output == pairs.stored), "{done:?}");
    assert_eq!(server.kv("get", &["key"]).good(), "value\n");
}

/// Runs `count` calls of `kv get`, `together` at the same time, and checks that every one is served.
#[track_caller]
fn all_are_served(server: &Server, count: usize, together: usize) {
    server.kv("put", &["colour", "blue"]).good();
    let left = AtomicUsize::new(count);
    std::thread::scope(|scope| {
        for _ in 0..together {
            scope.spawn(|| {
                let took = |left: &AtomicUsize| {
                    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                };
                while took(&left).is_ok() {
                    assert_eq!(server.kv("get", &["colour"]).good(), "blue\n");
                }
            });
        }
    });
}

/// Regression: a client that had ended kept its place for 1.55 s, so that of 120 `remora kv get`, eight
/// at a time, 56 were refused.
#[test]
fn of_120_gets_2_3_4_or_8_at_a_time_none_is_refused() {
    for together in [2, 3, 4, 8] {
        let server = Server::start("farm", "shm", &[]);
        all_are_served(&server, 120, together);
    }
}

#[test]
fn of_500_gets_one_after_another_none_is_refused() {
    all_are_served(&Server::start("farm", "shm", &[]), part_of(500) as usize, 1);
}

/// Repeats a GET until it is refused because another client has the last place.
#[track_caller]
fn refused(server: &Server) -> Ended {
    for _ in 0..100 {
        let ended = server.kv("get", &["none"]);
        if !ended.err.contains("no such key") {
            return ended;
        }
    }
    panic!("the client that stays does not come")
}

#[track_caller]
fn full_is_said_and_a_turn_comes(design: &str, port: &str) {
    let server = Server::start(design, port, &["--clients", "1"]);
    let history = Scratch::new(b"");
    let mut staying = quiet(&server.words("exercise", &["--seconds", "600", "--history", history.path()]));
    let full = refused(&server);
    full.one_line("server full: 1 of 1 clients: try again when one has ended, or start the server with more");
    // A client that waits is served once the other one is killed.
    let mut waiting = command(&server.words("put", &["colour", "blue"]));
    let waits = std::thread::spawn(move || finish(&mut waiting));
    std::thread::sleep(Duration::from_millis(500));
    staying.kill();
    waits.join().expect("the client that waits").good();
    assert_eq!(server.kv("get", &["colour"]).good(), "blue\n");
}

/// Regression: a full server was reported as one that had closed the connection.
#[test]
fn a_full_server_says_so_and_who_waits_has_its_turn_over_shm() {
    full_is_said_and_a_turn_comes("farm", "shm");
    full_is_said_and_a_turn_comes("prism", "shm");
}

#[test]
fn a_full_server_says_so_and_who_waits_has_its_turn_over_udp() {
    full_is_said_and_a_turn_comes("two-sided", "udp");
    full_is_said_and_a_turn_comes("prism", "udp");
}

#[test]
fn a_server_with_one_place_serves_one_after_another() {
    for port in ["shm", "udp"] {
        let server = Server::start("strom", port, &["--clients", "1"]);
        all_are_served(&server, 40, 3);
    }
}
