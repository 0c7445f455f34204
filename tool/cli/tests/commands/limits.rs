//! The command run by an unprivileged user and under resource limits: what works, and the error when
//! something does not.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::running::{Ended, Server, finish, program, remora, serve};

const NOBODY: u32 = 65_534;

/// Returns a path to the program for these words through a descriptor that every command inherits. The usual
/// path may lead through folders that only their owner may enter, so that the user nobody could not start one
/// program from the other.
fn binary(words: &[&str]) -> String {
    static OPEN: OnceLock<[File; 2]> = OnceLock::new();
    let files = OPEN.get_or_init(|| {
        ["remora", "remora-store"].map(|name| {
            let file = File::open(program(name)).expect("the program");
            rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).expect("a descriptor");
            file
        })
    });
    let is_own = words.first().is_some_and(|word| ["devinfo", "doctor"].contains(word));
    format!("/proc/self/fd/{}", files[usize::from(!is_own)].as_raw_fd())
}

/// Returns the command to run after these shell commands. It runs as the user nobody if the tests run as
/// root, otherwise as the present user.
fn limited(shell: &str, words: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{shell} && exec \"$0\" \"$@\"")]).arg(binary(words)).args(words);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.current_dir("/").env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// Runs the command as an unprivileged user that cannot lock any memory.
fn nobody(words: &[&str]) -> Command {
    limited("ulimit -l 0", words)
}

fn ended(mut command: Command) -> Ended {
    finish(&mut command)
}

/// Returns the finding of `doctor` about `subject`.
fn finding(out: &str, subject: &str) -> Value {
    let mut findings = out.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    findings
        .find(|finding| finding["what"] == subject)
        .unwrap_or_else(|| panic!("nothing about {subject}: {out}"))
}

#[test]
fn nobody_serves_and_reads_over_both_ports() {
    for port in ["shm", "udp"] {
        let server = Server::of(nobody(&serve("farm", port)), "farm", port);
        ended(nobody(&server.words("put", &["key", "value"]))).good();
        assert_eq!(ended(nobody(&server.words("get", &["key"]))).good(), "value\n", "{port}");
    }
}

#[test]
fn the_doctor_tells_nobody_what_limits_matter() {
    let out = ended(nobody(&["doctor", "--json"])).good();
    let memory = finding(&out, "lockable memory");
    assert_eq!(memory["verdict"], "good");
    assert!(
        memory["found"]
            .as_str()
            .expect("words")
            .starts_with("0 KiB; it does not matter to ports shm and udp"),
        "{memory}"
    );
    // Without CAP_NET_ADMIN the system's limit applies. The kernel doubles the requested size.
    let most = std::fs::read_to_string("/proc/sys/net/core/rmem_max").expect("a sysctl");
    let short = most.trim().parse::<u64>().expect("a number") * 2 < 4 << 20;
    let buffer = finding(&out, "socket buffer");
    assert_eq!(buffer["verdict"], if short { "limited" } else { "good" }, "{buffer}");
    assert_eq!(buffer["mend"].as_str().is_some_and(|mend| mend.contains("CAP_NET_ADMIN")), short, "{buffer}");
    for port in ["port shm", "port udp"] {
        assert_eq!(finding(&out, port)["verdict"], "good");
    }
    let out = ended(limited("ulimit -n 100", &["doctor", "--json"])).good();
    let few = finding(&out, "descriptors");
    assert_eq!((&few["verdict"], &few["found"]), (&"limited".into(), &"100".into()));
    assert!(few["mend"].as_str().expect("words").contains("ulimit -n 4096"), "{few}");
}

#[test]
fn what_nobody_may_not_do_is_one_line_that_says_what_to_do() {
    let free = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or_default();
    if free.trim().parse::<u32>().unwrap_or(1024) > 81 {
        ended(nobody(&["serve", "kv", "--listen", "127.0.0.1:80"])).one_line("choose a port from 1024 up");
        let words = ["serve", "kv", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:81"];
        ended(nobody(&words)).one_line("ports below 1024 need root");
    }
    ended(nobody(&["kv", "get", "--capture", "/proc/none.pcapng", "key"]))
        .one_line("the capture /proc/none.pcapng cannot be written");
}

#[test]
fn another_users_server_over_shm_is_refused_with_its_reason() {
    let server = Server::start("farm", "shm", &[]);
    if rustix::process::geteuid().is_root() {
        ended(nobody(&server.words("get", &["key"]))).one_line("run both as one user");
    }
    // The server still works.
    server.kv("put", &["key", "value"]).good();
}

#[test]
fn limits_that_are_reached_are_named() {
    let words = ["serve", "kv", "--listen", "127.0.0.1:0", "--memory", "4000000000"];
    ended(limited("ulimit -v 2000000", &words)).one_line("raise `ulimit -v`");
    ended(limited("ulimit -n 6", &["devinfo"])).one_line("descriptors are limited by `ulimit -n`");
    ended(limited("ulimit -n 8", &serve("farm", "shm"))).one_line("descriptors are limited by `ulimit -n`");
    remora(&["devinfo"]).good();
}
