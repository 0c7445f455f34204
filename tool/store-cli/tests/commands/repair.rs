//! Replicas that restart without their memory: three processes, of which one after the other is killed and
//! started again, and clients that stay connected.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::running::{Scratch, Server, command, finish, free_addresses, remora};

/// A store with three replicas that can be killed and restarted.
struct Store {
    replicas: Vec<Option<Server>>,
    addresses: Vec<String>,
    design: &'static str,
    port: &'static str,
    more: Vec<&'static str>,
}

impl Store {
    #[track_caller]
    fn begin(design: &'static str, port: &'static str, more: &[&'static str]) -> Store {
        let more = [&["--block-len", "512"], more].concat();
        let mut store = Store { replicas: Vec::new(), addresses: free_addresses(3), design, port, more };
        let all = (0..3).map(|replica| store.serve(replica, &["--new"])).collect();
        store.replicas = Server::together(all, design, port).into_iter().map(Some).collect();
        store
    }

    fn servers(&self) -> String {
        self.addresses.join(",")
    }

    /// Returns the command that starts a replica.
    fn serve(&self, replica: usize, more: &[&str]) -> Command {
        let servers = self.servers();
        let replica = replica.to_string();
        let mut command = command(&["serve", "block", "--servers", &servers, "--replica", &replica]);
        command.args(["--design", self.design, "--port", self.port]).args(&self.more).args(more);
        command
    }

    /// Kills a replica with SIGKILL, so that it loses its memory.
    fn kill(&mut self, replica: usize) {
        drop(self.replicas[replica].take().expect("it is there"));
    }

    /// Starts a replica again without its memory, and waits until it serves.
    #[track_caller]
    fn come_back(&mut self, replica: usize) {
        let back = Server::of(self.serve(replica, &[]), self.design, self.port);
        assert!(back.messages.iter().any(|line| line.starts_with("repairing ")), "{:?}", back.messages);
        self.replicas[replica] = Some(back);
    }

    /// Opens a client that stays connected.
    fn client(&self) -> Shell {
        Shell::open(&["--servers", &self.servers(), "--port", self.port])
    }

    /// Reads a block with a client of its own.
    #[track_caller]
    fn read(&self, block: usize) -> String {
        let words = ["block", "read", &block.to_string(), "--servers", &self.servers(), "--port", self.port];
        remora(&words).good()
    }
}

/// A running `remora block shell`.
struct Shell {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Shell {
    fn open(words: &[&str]) -> Shell {
        let mut command = command(&[&["block", "shell"], words].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the binary");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        Shell { orders: child.stdin.take(), child, answers }
    }

    #[track_caller]
    fn ask(&mut self, order: &str) -> String {
        let orders = self.orders.as_mut().expect("it is there");
        writeln!(orders, "{order}").expect("a pipe");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("a pipe");
        assert!(answer.ends_with('\n'), "the client ended at {order:?}");
        answer.trim_end().to_owned()
    }

    #[track_caller]
    fn write(&mut self, block: usize, value: &str) {
        assert_eq!(self.ask(&format!("write {block} {value}")), "done");
    }

    #[track_caller]
    fn holds(&mut self, block: usize, value: &str) {
        assert_eq!(self.ask(&format!("read {block}")), value, "block {block}");
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // The shell ends when its input ends.
        drop(self.orders.take());
        if std::thread::panicking() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Kills each replica in turn, writes meanwhile, and starts the replica again. At the end only restarted
/// replicas are left.
#[track_caller]
fn all_come_back(design: &'static str, port: &'static str) {
    let mut store = Store::begin(design, port, &["--blocks", "40"]);
    let mut one = store.client();
    let mut other = store.client();
    (0..40).for_each(|block| one.write(block, &format!("first {block}")));
    for replica in 0..3 {
        store.kill(replica);
        one.write(replica, &format!("without {replica}"));
        other.holds(replica, &format!("without {replica}"));
        store.come_back(replica);
        other.write(10 + replica, &format!("with {replica} again"));
        one.holds(10 + replica, &format!("with {replica} again"));
    }
    store.kill(2);
    for block in 0..40 {
        let value = match block {
            0..3 => format!("without {block}"),
            10..13 => format!("with {} again", block - 10),
            _ => format!("first {block}"),
        };
        one.holds(block, &value);
        other.holds(block, &value);
    }
    assert_eq!(store.read(1), "without 1\n");
    let mut late = store.client();
    late.write(39, "a writer that came last");
    one.holds(39, "a writer that came last");
}

/// Kills each of three replica processes and starts it again without its memory, while two clients
/// continue. Every acknowledged write is read afterwards.
#[test]
fn replicas_of_prism_rs_over_shm_come_back_one_after_the_other() {
    all_come_back("prism-rs", "shm");
}

#[test]
fn replicas_of_prism_rs_over_udp_come_back_one_after_the_other() {
    all_come_back("prism-rs", "udp");
}

#[test]
fn replicas_of_abdlock_over_shm_come_back_one_after_the_other() {
    all_come_back("abdlock", "shm");
}

#[test]
fn replicas_of_abdlock_over_udp_come_back_one_after_the_other() {
    all_come_back("abdlock", "udp");
}

#[test]
fn an_empty_replica_cannot_pass_for_one_of_a_new_store() {
    let mut store = Store::begin("prism-rs", "shm", &["--blocks", "16"]);
    store.client().write(7, "kept");
    let mut taken = store.serve(0, &[]);
    finish(&mut taken).one_line("listening at");
    for replica in 0..3 {
        store.kill(replica);
        let ended = finish(&mut store.serve(replica, &["--new"]));
        assert!(
            ended.err.contains("start this replica without --new, and it will be repaired"),
            "{}",
            ended.err
        );
        ended.one_line("the store lives");
        store.come_back(replica);
    }
    store.kill(0);
    store.more = vec!["--block-len", "512", "--blocks", "17"];
    finish(&mut store.serve(0, &[])).one_line("has another design or other blocks");
    store.more = vec!["--block-len", "512", "--blocks", "16"];
    store.addresses.swap(1, 2);
    finish(&mut store.serve(0, &[])).one_line("name all replicas in the same order everywhere");
    store.addresses.swap(1, 2);
    store.come_back(0);
    store.kill(1);
    assert_eq!(store.read(7), "kept\n");
}

#[test]
fn with_too_few_others_a_repair_says_so() {
    let mut store = Store::begin("prism-rs", "shm", &["--blocks", "16"]);
    store.kill(0);
    store.kill(1);
    let ended = finish(&mut store.serve(0, &[]));
    ended.one_line("is repaired from 2 others, and 1 of them serve the store");
    let alone = free_addresses(1).join("");
    remora(&["serve", "block", "--replica", "0", "--servers", &alone]).one_line("nobody has a copy");
    // A store that has not begun cannot repair a replica.
    let fresh = free_addresses(3);
    let servers = fresh.join(",");
    let mut waits = command(&["serve", "block", "--new", "--replica", "1", "--servers", &servers]);
    let mut waits = waits.stderr(Stdio::null()).spawn().expect("the binary");
    let end = Instant::now() + Duration::from_secs(60);
    let ended = loop {
        let ended = remora(&["serve", "block", "--replica", "0", "--servers", &servers]);
        // The replica needs a moment until it listens.
        if ended.err.contains("waits for a new store") || Instant::now() > end {
            break ended;
        }
    };
    let _ = (waits.kill(), waits.wait());
    ended.one_line("start this one with --new too");
}

#[test]
fn a_repair_that_was_killed_in_the_middle_begins_again() {
    for design in ["prism-rs", "abdlock"] {
        let mut store = Store::begin(design, "shm", &["--blocks", "4096"]);
        let mut client = store.client();
        (0..64).for_each(|block| client.write(block * 64, &format!("value {block}")));
        store.kill(1);
        for _ in 0..3 {
            let mut child = store.serve(1, &[]).stderr(Stdio::piped()).spawn().expect("the binary");
            let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
            let line = lines.next().expect("a line").expect("text");
            let _ = (child.kill(), child.wait());
            assert!(line.starts_with("repairing 4096 blocks from 2 other replicas"), "{line}");
            assert!(
                !lines.any(|line| line.is_ok_and(|line| line.contains("serving"))),
                "it was over already"
            );
            client.write(64, "while it is not there");
        }
        store.come_back(1);
        store.kill(0);
        client.holds(64, "while it is not there");
        (2..64).for_each(|block| client.holds(block * 64, &format!("value {block}")));
    }
}

/// Returns the map of a store as TOML.
fn map(addresses: &[String]) -> String {
    addresses.iter().enumerate().fold(String::new(), |mut text, (name, address)| {
        writeln!(text, "[[server]]\nname = \"{name}\"\naddress = \"{address}\"").expect("a string");
        text
    })
}

/// Checks that a replica that was stopped and replaced by another one is not used after it continues.
#[test]
fn a_replica_whose_place_was_taken_is_not_used_when_it_wakes_up() {
    let mut store = Store::begin("prism-rs", "shm", &["--blocks", "16"]);
    // These clients know only the address of the old replica.
    let mut before = store.client();
    let old = store.servers();
    before.write(3, "one");
    let sleeper = store.replicas[0].take().expect("it is there");
    let process = Pid::from_child(sleeper.child());
    kill_process(process, Signal::STOP).expect("a process");
    store.addresses[0] = free_addresses(1).remove(0);
    store.come_back(0);
    let mut after = store.client();
    after.write(3, "two");
    kill_process(process, Signal::CONT).expect("a process");
    before.holds(3, "two");
    // Replica 0 and one other have this value; without the latter, the old replica's memory would be half
    // of a majority.
    store.kill(2);
    after.write(3, "three");
    store.kill(0);
    let refused = before.ask("read 3");
    assert!(refused.starts_with("error: 1 of 3 replicas answer"), "{refused}");
    let ended = remora(&["block", "read", "3", "--servers", &old]);
    assert_ne!(ended.status, 0, "it read {:?}", ended.out);
}

/// A real etcd with one server.
struct Etcd {
    child: Child,
    client: u16,
    data: PathBuf,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

impl Etcd {
    fn start() -> Etcd {
        let port = || remora_netns::free_port().expect("a port");
        let client = port();
        let peer = port();
        let data = Scratch::new(b"").0.with_extension("etcd");
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let mut etcd = Command::new("etcd");
        etcd.arg("--data-dir").arg(&data).args(["--name", "one", "--log-level", "error"]);
        etcd.args(["--listen-client-urls", &url(client), "--advertise-client-urls", &url(client)]);
        etcd.args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)]);
        etcd.args(["--initial-cluster", &format!("one={}", url(peer))]);
        let child = etcd.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let etcd = Etcd { child: child.expect("etcd is installed: run scripts/setup test"), client, data };
        let end = Instant::now() + Duration::from_secs(60);
        while !etcd.ctl(&["endpoint", "health"]) {
            assert!(Instant::now() < end, "etcd does not come up");
            std::thread::sleep(Duration::from_millis(50));
        }
        etcd
    }

    fn ctl(&self, arguments: &[&str]) -> bool {
        let mut etcdctl = Command::new("etcdctl");
        etcdctl.env("ETCDCTL_API", "3").args(["--endpoints", &format!("127.0.0.1:{}", self.client)]);
        let status = etcdctl.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.expect("etcdctl is installed: run scripts/setup test").success()
    }
}

#[test]
fn clients_follow_replicas_that_move_by_a_map_in_etcd() {
    let etcd = Etcd::start();
    let source = format!("etcd://127.0.0.1:{}/blocks", etcd.client);
    let mut addresses = free_addresses(3);
    assert!(etcd.ctl(&["put", "blocks", &map(&addresses)]));
    let serve = |replica: usize, more: &[&str]| {
        let replica = replica.to_string();
        let mut command = command(&["serve", "block", "--members", &source, "--replica", &replica]);
        command.args(["--blocks", "16", "--block-len", "512"]).args(more);
        command
    };
    let all = (0..3).map(|replica| serve(replica, &["--new"])).collect();
    let mut replicas: Vec<Option<Server>> =
        Server::together(all, "prism-rs", "shm").into_iter().map(Some).collect();
    let mut client = Shell::open(&["--members", &source]);
    client.write(5, "at first");
    for replica in 0..3 {
        // Each replica moves to another port, so that none keeps its first address.
        replicas[replica] = None;
        addresses[replica] = free_addresses(1).remove(0);
        assert!(etcd.ctl(&["put", "blocks", &map(&addresses)]));
        let back = Server::of(serve(replica, &[]), "prism-rs", "shm");
        assert_eq!(back.address, addresses[replica]);
        replicas[replica] = Some(back);
        client.write(replica, &format!("{replica} has moved"));
    }
    replicas[0] = None;
    client.holds(5, "at first");
    (0..3).for_each(|replica| client.holds(replica, &format!("{replica} has moved")));
}
