//! A program as a server, and once more as its client. They find each other by a TCP port.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use remora_netns::free_port;

use crate::library::{program, succeeded};

/// Returns whether a process listens at this TCP port.
fn is_listening(port: u16) -> bool {
    let listens = |table: &str| {
        let table = std::fs::read_to_string(table).unwrap_or_default();
        table.lines().any(|line| {
            let mut words = line.split_whitespace();
            let local = words.nth(1);
            let state = words.nth(1);
            local.is_some_and(|local| local.ends_with(&format!(":{port:04X}"))) && state == Some("0A")
        })
    };
    listens("/proc/net/tcp") || listens("/proc/net/tcp6")
}

/// Waits until a process listens at this TCP port, or the program has ended.
#[track_caller]
pub(crate) fn until_listening(program: &mut Child, port: u16) {
    let until = Instant::now() + Duration::from_secs(60);
    while matches!(program.try_wait(), Ok(None)) && !is_listening(port) {
        assert!(Instant::now() < until, "no program listens at TCP port {port}");
        std::thread::yield_now();
    }
}

/// A server, which is killed when this value is dropped.
struct Server(Option<Child>);

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs a program as a server, and once more as its client. `port` is the option with the TCP port by which
/// they find each other. Returns the client's output.
#[track_caller]
pub(crate) fn pair(words: &[&str], port: &str) -> String {
    pair_of(&program, words, port)
}

/// Like [`pair`], for two commands that `make` returns for their words.
#[track_caller]
pub(crate) fn pair_of(make: &dyn Fn(&[&str]) -> Command, words: &[&str], port: &str) -> String {
    let number = free_port().unwrap();
    let number_text = number.to_string();
    let words: Vec<&str> = words.iter().copied().chain([port, &number_text]).collect();
    let mut command = make(&words);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut server = Server(Some(child));
    if let Some(child) = &mut server.0 {
        until_listening(child, number);
    }
    let client: Vec<&str> = words.iter().copied().chain(["127.0.0.1"]).collect();
    let printed = make(&client).output().unwrap();
    let served = server.0.take().unwrap().wait_with_output().unwrap();
    succeeded(&command, &served);
    succeeded(&command, &printed)
}
