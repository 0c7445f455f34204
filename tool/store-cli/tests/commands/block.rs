//! Replicated blocks on the command line: three replica processes, of which one is killed.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use crate::running::{Ended, Scratch, Server, command, finish, free_addresses, remora};

/// A store with three replicas.
struct Replicas {
    alive: Vec<Server>,
    servers: String,
    port: String,
}

/// Returns the command that starts one of three replicas.
fn replica(design: &str, port: &str, number: usize, servers: &str, more: &[&str]) -> Command {
    let number = number.to_string();
    let words = ["serve", "block", "--servers", servers, "--blocks", "16", "--replica", &number];
    let mut command = command(&words);
    command.args(["--design", design, "--port", port]).args(more);
    command
}

impl Replicas {
    #[track_caller]
    fn start(design: &str, port: &str, more: &[&str]) -> Replicas {
        let servers = free_addresses(3).join(",");
        let more = [more, &["--new"]].concat();
        let all = (0..3).map(|number| replica(design, port, number, &servers, &more)).collect();
        let alive = Server::together(all, design, port);
        Replicas { alive, servers, port: port.to_owned() }
    }

    /// Runs `remora block` with these arguments.
    #[track_caller]
    fn block(&self, words: &[&str]) -> Ended {
        let all = [&["block"], words, &["--servers", &self.servers, "--port", &self.port]].concat();
        remora(&all)
    }

    /// Kills the replica that was started first among the live ones.
    fn kill(&mut self) {
        self.alive.remove(0);
    }
}

#[track_caller]
fn one_may_die(design: &str, port: &str) {
    let mut replicas = Replicas::start(design, port, &[]);
    assert_eq!(replicas.block(&["read", "7"]).good(), "\n");
    replicas.block(&["write", "7", "before"]).good();
    assert_eq!(replicas.block(&["read", "7"]).good(), "before\n");
    replicas.kill();
    assert_eq!(replicas.block(&["read", "7"]).good(), "before\n");
    replicas.block(&["write", "7", "after, and longer"]).good();
    replicas.block(&["write", "15", "another"]).good();
    assert_eq!(replicas.block(&["read", "7"]).good(), "after, and longer\n");
    assert_eq!(replicas.block(&["read", "15"]).good(), "another\n");
    replicas.kill();
    replicas.block(&["read", "7"]).one_line("2 of 3 replicas do not answer, too many for a majority");
    replicas.block(&["write", "7", "lost"]).one_line("too many for a majority");
}

/// Three replica processes: after the SIGKILL of one clients go on, after a second one they report that
/// the majority is gone.
#[test]
fn of_three_replicas_of_prism_rs_over_shm_one_may_die() {
    one_may_die("prism-rs", "shm");
}

#[test]
fn of_three_replicas_of_prism_rs_over_udp_one_may_die() {
    one_may_die("prism-rs", "udp");
}

#[test]
fn of_three_replicas_of_abdlock_over_shm_one_may_die() {
    one_may_die("abdlock", "shm");
}

#[test]
fn of_three_replicas_of_abdlock_over_udp_one_may_die() {
    one_may_die("abdlock", "udp");
}

#[test]
fn whole_blocks_come_from_standard_input_and_the_replicas_from_a_map() {
    let replicas = Replicas::start("prism-rs", "shm", &["--block-len", "512"]);
    let mut map = String::new();
    for (name, server) in replicas.alive.iter().enumerate() {
        writeln!(map, "[[server]]\nname = \"{name}\"\naddress = \"{}\"", server.address).expect("a string");
    }
    let map = Scratch::new(map.as_bytes());
    let value: String = (0..512).map(|index| char::from(b'a' + (index % 26) as u8)).collect();
    let file = Scratch::new(value.as_bytes());
    let mut write = command(&["block", "write", "0", "-", "--members", map.path()]);
    finish(write.stdin(Stdio::from(std::fs::File::open(file.path()).expect("it")))).good();
    let read = |more: &[&str]| remora(&[&["block", "read", "0", "--members", map.path()], more].concat());
    assert_eq!(read(&["--whole"]).good(), value);
    replicas.block(&["write", "0", "short"]).good();
    assert_eq!(read(&[]).good(), "short\n");
    assert_eq!(read(&["--whole"]).good().trim_end_matches('\0').len(), 5);
    assert_eq!(read(&["--whole"]).good().len(), 512);
}

#[test]
fn clients_that_left_make_room_for_others() {
    for design in ["prism-rs", "abdlock"] {
        let replicas = Replicas::start(design, "shm", &["--clients", "2"]);
        for round in 0..6 {
            let value = round.to_string();
            replicas.block(&["write", "3", &value]).good();
        }
    }
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let replicas = Replicas::start("prism-rs", "shm", &["--block-len", "512"]);
    replicas.block(&["read", "16"]).one_line("there is no block 16: there are 16");
    replicas.block(&["write", "0", &"x".repeat(513)]).one_line("longer than a block of 512 bytes");
    let [a, b, c] = [0, 1, 2].map(|index| replicas.alive[index].address.as_str());
    let read = |servers: &str| remora(&["block", "read", "0", "--servers", servers]);
    read(&format!("{a},{b}")).one_line("1, 3, 5 or 7 replicas, not 2");
    read(&format!("{a},{a},{a}")).one_line("are both replica 0");
    let other = Replicas::start("abdlock", "shm", &["--block-len", "512"]);
    let stranger = other.alive[2].address.as_str();
    let ended = read(&format!("{a},{stranger},127.0.0.1:1"));
    ended.one_line("2 of 3 replicas do not answer");
    read(a).one_line("this store has 3 replicas, not 1: name all of them");
    let kv = Server::start("farm", "shm", &[]);
    read(&format!("{},{},{c}", kv.address, kv.address)).one_line("2 of 3 replicas do not answer");
    remora(&["kv", "get", "key", "--connect", a]).one_line("this is a replica of blocks");
    remora(&["block", "read", "0"]).bad_arguments("required");
    remora(&["block", "read", "0", "--servers", "nonsense"]).bad_arguments("nonsense");
    remora(&["block", "read", "0", "--members", "/there/is/none"]).one_line("/there/is/none");
    let serve = |more: &[&str]| {
        remora(
            &[&["serve", "block", "--replica", "0", "--servers", &replicas.servers, "--new"], more].concat(),
        )
    };
    serve(&["--block-len", "1001"]).bad_arguments("a multiple of 8 from 512 to 65536");
    serve(&["--blocks", "0"]).bad_arguments("0");
    serve(&["--blocks", "16000000"]).one_line("ask for fewer --blocks");
    let serve = |replica: &str, servers: &str| {
        remora(&["serve", "block", "--replica", replica, "--servers", servers, "--new"])
    };
    serve("7", a).bad_arguments("7");
    serve("0", &format!("{a},{b}")).one_line("1, 3, 5 or 7 replicas, not 2");
    serve("3", &replicas.servers).one_line("there is no replica 3 among 3");
}

/// Returns the rows of a short benchmark run, or `None` if it needs root.
#[track_caller]
fn bench(port: &str, more: &[&str]) -> Result<Vec<serde_json::Value>, &'static str> {
    let words = ["bench", "block", "--port", port, "--rounds", "1", "--blocks", "256", "--clients", "8"];
    // A tenth of the usual number of operations is enough to run everything.
    let ended = remora(&[words.as_slice(), &["--operations", "2000", "--json"], more].concat());
    if ended.err.contains("which needs root") {
        return Err("making network namespaces needs root");
    }
    Ok(ended.good().lines().map(|line| serde_json::from_str(line).expect("a row")).collect())
}

#[track_caller]
fn value(rows: &[serde_json::Value], case: &str, metric: &str) -> f64 {
    let row = rows.iter().find(|row| row["case"] == case && row["metric"] == metric);
    row.unwrap_or_else(|| panic!("{case}, {metric}: {rows:?}"))["value"].as_f64().expect("a number")
}

#[track_caller]
fn whole_over(port: &str) {
    let rows = remora_netns::require!(bench(port, &["--no-rivals"]));
    for keys in ["uniform", "zipf-0.99"] {
        let trips = |design: &str| value(&rows, &format!("{port}/{design}/512/{keys}"), "round_trips");
        // Half of the operations are writes. PRISM-RS needs two round trips for a write and one for a read,
        // ABDLOCK four and three. There are more if replicas differ, or if the client waits in vain for a
        // slow replica.
        assert!((1.4..2.1).contains(&trips("prism-rs")), "{rows:?}");
        assert!(trips("abdlock") >= 3.0, "{rows:?}");
        for metric in ["latency_p50", "latency_p99", "rate"] {
            assert!(value(&rows, &format!("{port}/prism-rs/512/{keys}"), metric) > 0.0);
        }
    }
    // The baseline is compared with its floor, PRISM-RS with the baseline, and the median with many clients
    // with the one for uniform keys.
    let judged = |case: &str, baseline: &str| {
        rows.iter().any(|row| row["case"] == case && row["baseline"] == baseline && row["holds"].is_boolean())
    };
    assert!(judged(&format!("{port}/abdlock/512/uniform"), "round trips x bare READ of all replicas"));
    assert!(judged(&format!("{port}/prism-rs/512/uniform"), "abdlock"));
    assert!(judged(&format!("{port}/prism-rs/512/zipf-1.2/clients-8"), "uniform keys"));
}

#[test]
fn the_benchmark_counts_fewer_round_trips_for_prism_rs_than_for_abdlock() {
    whole_over("shm");
    whole_over("udp");
}

#[test]
fn over_xdp_the_benchmark_reaches_three_replicas_by_a_bridge() {
    whole_over("xdp");
}

#[test]
fn etcd_stands_beside_the_replicas_with_its_files_on_the_disk_and_in_memory() {
    let etcd = std::process::Command::new("etcd").arg("--version").stdout(Stdio::null()).status();
    remora_netns::require!(etcd.is_ok(), "etcd is not installed: run `make setup`");
    let rows = bench("shm", &[]).expect("nothing that needs root");
    for place in ["fsync", "files-in-memory"] {
        for clients in [1, 8] {
            let case = format!("tcp/etcd/512/uniform/{place}/clients-{clients}");
            assert!(value(&rows, &case, "rate") > 0.0 && value(&rows, &case, "latency_p50") > 0.0);
        }
    }
}
