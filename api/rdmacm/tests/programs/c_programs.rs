//! Programs in C, compiled with Debian's headers.

use remora_broker::PortSpace;
use remora_broker::client::{self, CmClient, Options, Start};
use std::net::SocketAddr;

use crate::library::{address, c_program, program, program_at};

/// Runs a program of `tests/c`, which shares its address with its children.
#[track_caller]
fn runs(name: &str, words: &[&str]) -> String {
    let address = address();
    c_program(name, words, &|words| program_at(&address, words))
}

#[test]
fn waits_obey_flags_return_on_signals_may_be_cancelled_and_ends_wait_for_acknowledgements() {
    assert_eq!(runs("waits", &[]), "waited");
}

#[test]
fn bad_input_is_refused_with_the_errno_of_rdma_cores_library() {
    assert_eq!(runs("refusals", &[]), "refused");
    assert_eq!(c_program("refusals", &[], &program), "refused", "the program is alone at its address");
}

#[test]
fn ids_move_with_their_events_and_are_inert_in_a_forked_child() {
    assert_eq!(runs("moves", &[]), "moved");
}

/// Regression: after `rdma_destroy_id` or `rdma_migrate_id` a channel stayed readable by unread events
/// of the id.
#[test]
fn a_channel_is_readable_only_while_an_id_of_it_has_an_event() {
    assert_eq!(c_program("unread", &[], &program), "readable");
}

#[test]
fn events_of_the_program_and_names_are_told_by_the_channel() {
    assert_eq!(c_program("user_events", &[], &program), "told");
}

#[test]
fn endpoints_wait_for_their_events_and_exchange_messages() {
    assert_eq!(runs("endpoints", &[]), "exchanged");
}

/// Maximum number of ids of all programs together.
const IDS: usize = 16_384;

/// The number of descriptors of an address's broker, once all programs are gone.
fn descriptors(address: SocketAddr) -> usize {
    let never = Options { start: Start::Never, ..Options::default() };
    loop {
        let report = client::report(address, &never).unwrap();
        if report.programs.is_empty() {
            return std::fs::read_dir(format!("/proc/{}/fd", report.broker.pid)).unwrap().count();
        }
        std::thread::yield_now();
    }
}

/// Maximum time in microseconds in which half of the peers of killed programs must get their event. The
/// other half has no limit, because the machine may be busy.
const HALF_WITHIN: u64 = 1_000_000;

/// Each tenth connection ends because its client is killed. With `REMORA_WHOLE` there are ten thousand
/// connections.
///
/// Regression: a connection to a neighbour took a second on its way to RTR: it slept on a socket from
/// which another thread had already read the link.
#[test]
fn a_thousand_connects_and_disconnects_a_tenth_of_them_by_death_are_told_and_leave_nothing() {
    let count = if std::env::var_os("REMORA_WHOLE").is_some() { 10_000 } else { 1_000 };
    let address = address();
    let run = |count: u32| {
        let output = c_program("connects", &[&count.to_string()], &|words| program_at(&address, words));
        println!("{output}");
        let numbers: Vec<u64> = output.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        assert!(numbers[0] == u64::from(count) && numbers[1] < HALF_WITHIN, "{output}");
    };
    run(10);
    let socket_address = SocketAddr::new(address.parse().unwrap(), 0);
    let before = descriptors(socket_address);
    run(count);
    // Descriptors of the last connections are closed when the broker next handles an event.
    while descriptors(socket_address) > before {
        std::thread::yield_now();
    }
    let manager =
        CmClient::open(socket_address, &Options { start: Start::Never, ..Options::default() }).unwrap();
    let channel = manager.create_channel().unwrap();
    for number in 0..IDS {
        assert!(manager.create_id(&channel, PortSpace::Tcp).is_ok(), "only {number} ids are left");
    }
}
