//! The experiments of the 1RMA paper's figures, compared with the paper's statements.

use remora_cipher::Aes;
use remora_fabric::rma::beside::{self, Beside};
use remora_fabric::rma::convergence::{self, Outcome, SECOND_NS, Setup};
use remora_fabric::rma::jitter::{self, Jitter, Shed};
use remora_fabric::rma::load::{self, Accepted, Load};
use remora_fabric::rma::path::{Path, chunk_ns, line_goodput};
use remora_fabric::rma::rotation::{self, Rotation};
use remora_fabric::{ALL, Config, World};
use remora_nic::rma::Cipher;
use remora_nic::{Flags, Operation, Payload, WorkRequest};
use remora_transport::rma::WriteDebit;
use remora_transport::rma::executor::ControlKind;
use remora_wire::rma::{Class, Kind};

fn cipher() -> Box<dyn Cipher> {
    Box::new(Aes::new(64))
}

const US: u64 = 1_000;

#[test]
fn a_chunk_takes_a_third_of_a_microsecond_and_a_line_carries_98_gigabits_of_data() {
    assert_eq!(chunk_ns(), 333, "the paper's 328 ns, and the headers");
    assert!((98e9..99e9).contains(&line_goodput()));
    assert_eq!(Path::simulation(0).rtt_ns, 5_000);
}

/// Returns the nanoseconds that two WRITEs of a node take, one to each of two other nodes.
fn two_writes(shared_ports: bool) -> u64 {
    let mut world = World::new(&Config { nodes: 3, shared_ports, ..Config::default() });
    let len = 1 << 20;
    let settings = remora_fabric::Settings { mtu: 4096, timeout: 14, ..Default::default() };
    let mut ends = Vec::new();
    for peer in [1, 2] {
        let [(pair, cq), _] = world.pair(0, peer, &settings);
        let source = world.register(0, len, ALL);
        let target = world.register(peer, len, ALL);
        let list = [source.sge(0, len)];
        let request = WorkRequest {
            id: 0,
            operation: Operation::Write(target.remote(0)),
            payload: Payload::Sges(&list),
            flags: Flags { signaled: true, ..Flags::default() },
        };
        world.post(pair, &request).unwrap();
        ends.push(cq);
    }
    while !ends.is_empty() {
        assert!(world.step());
        ends.retain(|cq| world.poll(*cq).is_none());
    }
    world.now().0
}

#[test]
fn what_a_node_sends_to_two_others_leaves_one_after_the_other_where_its_links_share_a_port() {
    let [own, shared] = [false, true].map(two_writes);
    let line = |bytes: u64| bytes * 8 / 100;
    assert!((line(1 << 20)..line(11 << 17)).contains(&own), "{own} ns");
    assert!((line(2 << 20)..line(5 << 19)).contains(&shared), "{shared} ns");
}

fn accepted(kind: Kind, debit: WriteDebit, offered: f64) -> Accepted {
    load::accepted(&Load { kind, debit, rtt_ns: 5 * US, offered, ns: 300 * US, seed: 1 }, &cipher)
}

/// Returns the load above which less than 97 % of the offered load is accepted.
fn bend(kind: Kind, debit: WriteDebit) -> f64 {
    let loads = (4..=11).map(|step| f64::from(step) / 10.0);
    let mut all = loads.map(|offered| (offered, accepted(kind, debit, offered)));
    let bent = all.find(|(_, load)| load.accepted < 0.97 * load.offered);
    bent.expect("no line carries 110 % of itself").0
}

/// Figure 11a. A write holds both windows for two round trips: 64 KB in 10 µs are half of the line rate.
#[test]
fn writes_leave_the_diagonal_before_reads_do() {
    let [reads, writes] = [Kind::Read, Kind::Write].map(|kind| bend(kind, WriteDebit::Both));
    assert!(writes < reads && reads >= 1.0, "writes at {writes}, reads at {reads}");
    let server_only = accepted(Kind::Write, WriteDebit::ServerOnly, 0.9);
    assert!(server_only.accepted > 0.87, "the server's window alone bears the line: {server_only:?}");
}

/// Figure 11b: the rate of 64-byte reads by the number of command slots.
#[test]
fn the_rate_is_proportional_to_the_slots() {
    let one = load::rate_of_slots(1, 200 * US, &cipher);
    for slots in [2, 4, 8, 16, 32, 64] {
        let rate = load::rate_of_slots(slots, 200 * US, &cipher);
        let parts = rate / one / f64::from(slots);
        assert!((0.98..1.02).contains(&parts), "{slots} slots: {rate} a second, one: {one}");
    }
}

/// Figure 12: small reads during a long transfer.
#[test]
fn a_small_read_waits_for_a_few_chunks_by_1rma_and_for_the_whole_transfer_by_one_queue_pair() {
    let beside = |long| Beside { long, class: Class::Latency, reads: 60, seed: 1 };
    let rma = [0, 1 << 20, 4 << 20].map(|long| beside::rma(&beside(long), &cipher));
    let most = |number: usize| rma[number].quantile(1.0).saturating_sub(rma[0].quantile(0.0));
    assert!(most(0) < 50, "alone, each takes as long: {:?}", rma[0]);
    assert!(most(1).max(most(2)) <= 5 * chunk_ns(), "beside 4 MB: {:?}", rma[2]);
    let more = [1, 2].map(|number: usize| rma[number].mean() - rma[0].mean());
    assert!(more[1] < 1.5 * more[0], "four times as long a transfer: {more:?}");

    let rc = [0, 256 << 10, 1 << 20].map(|long| beside::reliable_connection(&beside(long)));
    let more = [1, 2].map(|number: usize| rc[number].mean() - rc[0].mean());
    assert!((2.5..5.5).contains(&(more[1] / more[0])), "{more:?}");
    assert!(more[1] > 10.0 * (rma[1].mean() - rma[0].mean()));
}

/// Figure 14: the order is that of the paper. The times of the driver and of the connection are constants.
#[test]
fn a_rekey_interrupts_less_than_a_driver_and_that_less_than_connecting_again() {
    let ways = [Rotation::Announced, Rotation::Unannounced, Rotation::Driver];
    let [announced, unannounced, driver] = ways.map(|way| rotation::gap_ns(way, &cipher));
    let connected = rotation::reconnect_gap_ns();
    assert!(announced <= Path::simulation(0).rtt_ns, "one round trip: {announced} ns");
    assert!((announced + rotation::GRANT_NS).abs_diff(unannounced) <= US, "{announced}, {unannounced} ns");
    assert!(unannounced < driver && driver >= rotation::DRIVER_NS, "{unannounced}, {driver} ns");
    assert!(connected >= rotation::RECONNECT_NS, "{connected} ns");
}

fn flows(kind: ControlKind, initial: f64) -> Outcome {
    let ns = if kind == ControlKind::Delays { 700 * US } else { 1_000 * US };
    convergence::run(&Setup::new(kind, initial, ns), &cipher)
}

/// Figure 15, with the default settings. Of these statements only the first was used for calibration.
#[test]
fn two_flows_share_a_port_within_microseconds_with_the_local_signal_and_not_without() {
    let local_signal = flows(ControlKind::Delays, Path::simulation(0).congestion().initial);
    let line = local_signal.line_rate_ns().expect("it has the line");
    assert!(line <= 40 * US, "15a: line rate after {line} ns");
    let [least, most] = local_signal.cwnd(200 * US, SECOND_NS);
    assert!(least >= 14.0 && most <= 16.0, "15a: cwnd from {least} to {most}");
    assert_eq!(local_signal.failures, 0, "15a");

    let fair = local_signal.fair_ns().expect("they share");
    assert!(fair <= 30 * US, "15b: {fair} ns");
    let without = flows(ControlKind::TotalDelay, Path::simulation(0).congestion().initial);
    let slow = without.fair_ns().unwrap_or(without.ns - SECOND_NS);
    assert!(slow >= 10 * fair && slow >= 300 * US, "15c: {slow} ns, {fair} ns with the signal");

    let issue =
        |start, end| local_signal.within(start, end).iter().map(|op| op.issue_delay).max().unwrap_or(0);
    assert_eq!(issue(100 * US, SECOND_NS), 0, "15d: nothing waits before");
    assert!(issue(SECOND_NS, SECOND_NS + 10 * US) > 2 * US, "15d: and at once behind it");
    let remote =
        local_signal.within(SECOND_NS, local_signal.ns).iter().map(|op| op.remote_delay).max().unwrap_or(0);
    assert!(remote < 6 * US, "15d: the network has no part in it: {remote} ns");
}

/// Algorithm 1 grows by a quarter of an operation per round trip: to converge in eight, as in the paper, it
/// must start near the end.
#[test]
fn the_initial_window_decides_how_soon_a_flow_has_the_line_and_a_new_one_its_share() {
    let all = [1.0, 4.0, 8.0, 13.0, 16.0, 32.0].map(|initial| flows(ControlKind::Delays, initial));
    let line = all.each_ref().map(|outcome| outcome.line_rate_ns().expect("it has the line"));
    assert!(line[..5].is_sorted_by(|one, next| one >= next), "{line:?}");
    assert!(line[0] >= 50 * 5 * US, "56 round trips from 1: {line:?}");
    assert!(line[5] > line[4], "32 commands are twice the window, and the first of them cut it: {line:?}");
    let fair = all.each_ref().map(|outcome| outcome.fair_ns().expect("they share"));
    assert!(fair[0] > fair[1] && fair[1] > fair[2], "{fair:?}");
    for (initial, fair) in [1.0, 4.0, 8.0].into_iter().zip(fair) {
        let without = flows(ControlKind::TotalDelay, initial);
        let slow = without.fair_ns().unwrap_or(without.ns - SECOND_NS);
        assert!(slow > fair, "15c from {initial}: {slow} ns, {fair} ns with the signal");
    }
}

/// Figure 16a, b.
#[test]
fn larger_windows_bear_more_jitter_and_the_window_sheds_before_the_timer() {
    let jitters = [0, 2, 4, 6, 8, 12, 16, 20];
    let all = [48, 64, 96].map(|window| {
        jitters.map(|us| {
            jitter::run(&Jitter { window: window << 10, jitter_ns: us * US, ns: 150 * US, seed: 1 }, &cipher)
        })
    });
    let fallen = all.each_ref().map(|sheds| sheds.iter().position(|shed| shed.goodput < 0.7));
    let [small, middle, large] = fallen.map(|index| index.expect("20 us are too much for all"));
    assert!(small < middle && middle < large, "below 70 % of the line at {fallen:?} of {jitters:?} us");
    let first = |share: fn(&Shed) -> f64| all[1].iter().position(|shed| share(shed) > 0.01);
    let dispatch = first(|shed| shed.dispatch_timeouts).expect("the window is full");
    let timeout = first(|shed| shed.timeouts).expect("data comes too late");
    assert!(dispatch < timeout, "of {jitters:?} us: {dispatch}, {timeout}");
}

#[test]
fn one_seed_run_twice_gives_the_same_rows() {
    let setup = Jitter { window: 64 << 10, jitter_ns: 4 * US, ns: 50 * US, seed: 7 };
    assert_eq!(jitter::run(&setup, &cipher), jitter::run(&setup, &cipher));
    assert_ne!(jitter::run(&setup, &cipher), jitter::run(&Jitter { seed: 8, ..setup }, &cipher));
    assert_eq!(accepted(Kind::Write, WriteDebit::Both, 0.5), accepted(Kind::Write, WriteDebit::Both, 0.5));
    let two = || convergence::run(&Setup::new(ControlKind::Delays, 13.0, 450 * US), &cipher);
    assert_eq!(two(), two());
    let beside = Beside { long: 64 << 10, class: Class::Bulk, reads: 5, seed: 3 };
    assert_eq!(beside::rma(&beside, &cipher), beside::rma(&beside, &cipher));
}
