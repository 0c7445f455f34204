//! A broker and the programs that borrow from it: real processes, sockets and namespaces. This binary runs
//! itself as each program.
#![allow(unsafe_code, reason = "a program of the tests forks")]

mod clients;
mod cm;
mod ends;
mod gids;
mod guests;
mod namespaces;
mod neighbours;
mod nic_server;
mod own;
mod port_events;
mod program;
mod sharing;

use remora_broker::client::{self, Options, Report, Start};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Time limit of a test: longer means that it hangs.
const LONG: Duration = Duration::from_secs(60);

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// The options of a program that starts no broker.
fn never() -> Options {
    Options { start: Start::Never, ..Options::default() }
}

fn report(address: SocketAddr) -> Report {
    client::report(address, &never()).unwrap()
}

/// Waits until the broker's report satisfies `holds`.
#[track_caller]
fn until(address: SocketAddr, holds: impl Fn(&Report) -> bool) -> Report {
    let limit = Instant::now() + LONG;
    loop {
        let report = report(address);
        if holds(&report) {
            return report;
        }
        assert!(Instant::now() < limit, "{report:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
