//! Brokers that end, and addresses that cannot have a broker.

use std::net::UdpSocket;
use std::process::Command;

use remora_broker::client::{self, Options, Start};
use remora_netns::Process;

use crate::library::{address, c_program, program_at, remora};

/// Starts a broker in a process of its own.
fn broker(address: &str) -> Process {
    // The long linger covers the time in which the program is compiled before it opens the device.
    let words = ["broker", "--linger", "3600", "--address", address];
    let mut broker = Process::start(Command::new(remora()).args(words));
    let socket_address = format!("{address}:4791").parse().unwrap();
    let never = Options { start: Start::Never, ..Options::default() };
    while client::report(socket_address, &never).is_err() {
        assert!(broker.try_wait().unwrap().is_none(), "the broker has ended");
        std::thread::yield_now();
    }
    broker
}

/// Regression: a program could never open the device again after its broker was killed, because the
/// failed NIC stayed for the life of the process.
#[test]
fn a_broker_that_is_killed_under_load_is_a_fatal_event_and_nothing_hangs() {
    for port in ["udp", "shm"] {
        let address = address();
        let broker = broker(&address);
        let output = c_program("fatal", &[&broker.id().to_string()], &|words| {
            let mut command = program_at(&address, words);
            command.env("REMORA_PORT", port);
            command
        });
        assert_eq!(output, "failed", "over {port}");
    }
}

#[test]
fn a_udp_port_that_another_socket_has_is_one_line_of_the_program() {
    let address = address();
    let _taken = UdpSocket::bind(format!("{address}:4791")).unwrap();
    let output = program_at(&address, &["ibv_devinfo"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = stderr.lines().filter(|line| line.contains("remora:")).collect();
    assert!(!output.status.success() && lines.len() == 1, "{stderr}");
    assert!(
        lines[0].contains(&format!("UDP port 4791 on {address} is taken by a program of your own")),
        "{stderr}"
    );
}
