use remora_wire::frame::Address;
use remora_wire::rma::{Class, Kind};

use super::*;

const NIL: Address = Address([1; 16]);

fn settings() -> CongestionSettings {
    CongestionSettings::paper()
}

fn none() -> CongestionSettings {
    CongestionSettings { kind: ControlKind::None, ..settings() }
}

fn read(id: u64, size: u64) -> Transfer {
    Transfer {
        id,
        kind: Kind::Read,
        class: Class::Latency,
        server: NIL,
        size,
        fence: false,
        on_failure: OnFailure::Report,
    }
}

fn ok(executor: &mut Executor, now: Instant, slot: u16) -> Option<TransferEnd> {
    executor.completed(now, slot, Status::Ok, 0, 2_500)
}

/// Issues all commands that are allowed at `now`.
fn issue(executor: &mut Executor, now: Instant) -> Vec<Chunk> {
    std::iter::from_fn(|| executor.next(now)).collect()
}

#[test]
fn a_transfer_is_cut_into_commands_and_ends_once() {
    let mut executor = Executor::new(8, 4, &none());
    executor.submit(Instant(0), read(9, 10_000)).unwrap();
    let chunks = issue(&mut executor, Instant(0));
    let cut: Vec<_> = chunks.iter().map(|chunk| (chunk.offset, chunk.size)).collect();
    assert_eq!(cut, [(0, 4096), (4096, 4096), (8192, 1808)]);
    // Completions may come in any order.
    assert_eq!(ok(&mut executor, Instant(1), chunks[2].slot), None);
    assert_eq!(ok(&mut executor, Instant(1), chunks[0].slot), None);
    let end = ok(&mut executor, Instant(1), chunks[1].slot).unwrap();
    assert_eq!((end.id, end.status, end.retries), (9, Status::Ok, 0));
    assert_eq!(ok(&mut executor, Instant(1), chunks[1].slot), None, "a slot completes once");
    assert_eq!(executor.in_progress(), 0);
}

#[test]
fn a_small_transfer_waits_for_one_chunk_of_a_long_one() {
    let mut executor = Executor::new(1, 4, &none());
    executor.submit(Instant(0), read(1, 4 << 20)).unwrap();
    let first = executor.next(Instant(0)).unwrap();
    executor.submit(Instant(0), read(2, 64)).unwrap();
    ok(&mut executor, Instant(1), first.slot);
    let second = executor.next(Instant(1)).unwrap();
    ok(&mut executor, Instant(2), second.slot);
    let third = executor.next(Instant(2)).unwrap();
    assert_eq!(
        [second.size, third.size].iter().min(),
        Some(&64),
        "a small transfer waits for at most one more chunk"
    );
}

#[test]
fn a_fenced_transfer_begins_when_all_before_it_have_ended() {
    let mut executor = Executor::new(8, 4, &none());
    executor.submit(Instant(0), read(1, 64)).unwrap();
    executor.submit(Instant(0), read(2, 64)).unwrap();
    executor.submit(Instant(0), Transfer { fence: true, ..read(3, 64) }).unwrap();
    executor.submit(Instant(0), read(4, 64)).unwrap();
    let chunks = issue(&mut executor, Instant(0));
    assert_eq!(chunks.len(), 3, "the fenced transfer waits, the next one does not");
    ok(&mut executor, Instant(1), chunks[0].slot);
    ok(&mut executor, Instant(1), chunks[2].slot);
    assert_eq!(executor.next(Instant(1)), None);
    ok(&mut executor, Instant(1), chunks[1].slot);
    assert!(executor.next(Instant(1)).is_some());
}

#[test]
fn failures_are_reported_at_once_or_tried_again_until_a_deadline() {
    let mut executor = Executor::new(8, 4, &none());
    executor.submit(Instant(0), read(1, 8192)).unwrap();
    let chunks = issue(&mut executor, Instant(0));
    let nack = |executor: &mut Executor, now, slot| executor.completed(now, slot, Status::Nack, 0, 5_000);
    assert_eq!(nack(&mut executor, Instant(1), chunks[0].slot), None, "another command is outstanding");
    let end = ok(&mut executor, Instant(1), chunks[1].slot).unwrap();
    assert_eq!(end.status, Status::Nack);

    let until = Instant(1_000);
    executor
        .submit(Instant(0), Transfer { on_failure: OnFailure::RetryUntil(until), ..read(2, 64) })
        .unwrap();
    let first = executor.next(Instant(0)).unwrap();
    assert_eq!(nack(&mut executor, Instant(999), first.slot), None);
    let second = executor.next(Instant(999)).unwrap();
    assert_eq!((second.offset, second.size), (first.offset, first.size));
    let end = nack(&mut executor, until, second.slot).unwrap();
    assert_eq!((end.id, end.status, end.retries), (2, Status::Nack, 1));

    executor
        .submit(until, Transfer { on_failure: OnFailure::RetryUntil(Instant(9_000)), ..read(3, 64) })
        .unwrap();
    let only = executor.next(until).unwrap();
    let refused = executor.completed(Instant(1_001), only.slot, Status::RemoteAccessError, 0, 1).unwrap();
    assert_eq!(refused.status, Status::RemoteAccessError, "an access error is not retried");
}

#[test]
fn full_tables_and_transfers_without_bytes_are_refused() {
    let mut executor = Executor::new(8, 2, &CongestionSettings { destinations: 1, ..none() });
    assert_eq!(executor.submit(Instant(0), read(1, 0)), Err(SubmitError::Malformed));
    let rekey = Transfer { kind: Kind::Rekey, ..read(1, 64) };
    assert_eq!(executor.submit(Instant(0), rekey), Err(SubmitError::Malformed));
    executor.submit(Instant(0), read(1, 64)).unwrap();
    let elsewhere = Transfer { server: Address([2; 16]), ..read(2, 64) };
    assert_eq!(
        executor.submit(Instant(0), elsewhere),
        Err(SubmitError::Full),
        "no free window for another server"
    );
    executor.submit(Instant(0), read(2, 64)).unwrap();
    assert_eq!(
        executor.submit(Instant(0), read(3, 64)),
        Err(SubmitError::Full),
        "no free place for another transfer"
    );
    for chunk in issue(&mut executor, Instant(0)) {
        ok(&mut executor, Instant(1), chunk.slot);
    }
    executor.submit(Instant(2), elsewhere).unwrap();
}

/// Returns a completion with these delays.
fn signal(status: Status, issue_delay: u64, total_delay: u64) -> Signal {
    Signal { status, issue_delay, total_delay }
}

/// Algorithm 1 by hand: additive increase 0.25, maximum decrease 0.5, β 0.8, one decrease per round trip.
#[test]
fn windows_follow_algorithm_1() {
    let settings = CongestionSettings { initial: 4.0, ..settings() };
    let mut window = Delays::new(&settings, Scope::Local);
    let signal = |status, issue_delay| signal(status, issue_delay, issue_delay);
    window.completed(Instant(0), &signal(Status::Ok, 999));
    assert_eq!(window.size(), 4.0 + 0.25 / 4.0);
    let before = window.size();
    window.completed(Instant(0), &signal(Status::Ok, 1_250));
    assert!((window.size() - before * (1.0 - 0.8 * 0.2)).abs() < 1e-9);
    let before = window.size();
    window.completed(Instant(4_999), &signal(Status::Ok, 100_000));
    assert_eq!(window.size(), before, "at most one decrease per round trip");
    window.completed(Instant(5_000), &signal(Status::Ok, 100_000));
    assert_eq!(window.size(), before * 0.5, "a decrease is at most one half");
    let before = window.size();
    window.completed(Instant(10_000), &signal(Status::Nack, 0));
    window.completed(Instant(10_000), &signal(Status::Timeout, 0));
    assert_eq!(window.size(), before, "NACKs and timeouts do not change the local window");
    window.completed(Instant(10_000), &signal(Status::DispatchTimeout, 0));
    assert_eq!(window.size(), before * 0.1);
    for round in 3..20 {
        window.completed(Instant(round * 5_000), &signal(Status::DispatchTimeout, 0));
    }
    assert_eq!(window.size(), settings.min);
    window.completed(Instant(0), &signal(Status::Ok, 0));
    assert_eq!(window.size(), settings.min + 0.25, "below one command, the window grows by a quarter");
    let mut remote = Delays::new(&settings, Scope::Remote);
    remote.completed(Instant(0), &Signal { status: Status::Ok, issue_delay: 50_000, total_delay: 57_999 });
    assert!(remote.size() > 4.0, "the issue delay does not count for the server's window");
    remote.completed(Instant(0), &signal(Status::DispatchTimeout, 0));
    assert!(remote.size() > 4.0);
    remote.completed(Instant(0), &signal(Status::Nack, 0));
    assert!(remote.size() < 0.5);
}

/// With the total delay alone, delays inside this NIC shrink the server's window.
#[test]
fn without_the_local_signal_the_servers_window_reacts_to_all_delay() {
    let settings = CongestionSettings { initial: 4.0, ..settings() };
    let mut local = TotalDelay::new(&settings, Scope::Local);
    local.completed(Instant(0), &signal(Status::DispatchTimeout, 10_000, 10_000));
    assert_eq!(local.size(), f64::INFINITY);
    let mut remote = TotalDelay::new(&settings, Scope::Remote);
    remote.completed(Instant(0), &signal(Status::Ok, 0, 8_999));
    assert_eq!(remote.size(), 4.0 + 0.25 / 4.0, "the delay is below the sum of both targets");
    let before = remote.size();
    remote.completed(Instant(0), &signal(Status::Ok, 5_000, 10_000));
    assert!(
        (remote.size() - before * (1.0 - 0.8 * 0.1)).abs() < 1e-9,
        "the local part of the delay counts too"
    );
    let before = remote.size();
    remote.completed(Instant(5_000), &signal(Status::DispatchTimeout, 10_000, 10_000));
    assert_eq!(remote.size(), before * 0.1);
}

#[test]
fn a_fixed_window_stays_and_without_one_nothing_binds() {
    for scope in [Scope::Local, Scope::Remote] {
        let mut fixed = Chosen::new(&CongestionSettings { kind: ControlKind::Fixed, ..settings() }, scope);
        let mut unlimited = Chosen::new(&none(), scope);
        for status in Status::ALL {
            fixed.completed(Instant(0), &signal(status, 100_000, 200_000));
            unlimited.completed(Instant(0), &signal(status, 100_000, 200_000));
        }
        assert_eq!((fixed.size(), unlimited.size()), (settings().initial, f64::INFINITY));
    }
}

/// A custom congestion control: one more command than have succeeded.
#[test]
fn a_program_brings_a_control_of_its_own() {
    struct Slow(f64);
    impl Control for Slow {
        fn new(_: &CongestionSettings, _: Scope) -> Slow {
            Slow(1.0)
        }
        fn size(&self) -> f64 {
            self.0
        }
        fn completed(&mut self, _: Instant, signal: &Signal) {
            self.0 += f64::from(u8::from(signal.status == Status::Ok));
        }
    }
    let mut executor = Executor::<Slow>::with_control(64, 4, &CongestionSettings { rtt: 0, ..settings() });
    executor.submit(Instant(0), read(1, 1 << 20)).unwrap();
    let mut issued = Vec::new();
    for _ in 0..3 {
        let chunks: Vec<Chunk> = std::iter::from_fn(|| executor.next(Instant(0))).collect();
        issued.push(chunks.len());
        for chunk in chunks {
            executor.completed(Instant(0), chunk.slot, Status::Ok, 0, 2_500);
        }
    }
    assert_eq!(issued, [1, 2, 4]);
    assert_eq!(
        (executor.local_window(), executor.remote_window(NIL, true, Class::Latency)),
        (8.0, Some(8.0))
    );
}

/// Regression: a short read waited for what a bulk transfer to the same server had outstanding, because
/// both classes shared one congestion window.
#[test]
fn a_short_transfer_waits_for_no_window_and_no_pace_of_the_bulk_class() {
    let settings = CongestionSettings { initial: 4.0, kind: ControlKind::Fixed, ..settings() };
    let mut executor = Executor::new(64, 4, &settings);
    executor.submit(Instant(0), Transfer { class: Class::Bulk, ..read(1, 1 << 20) }).unwrap();
    let of_bulk = std::iter::from_fn(|| executor.next(Instant(1_000_000))).count();
    assert!((1..=4).contains(&of_bulk), "{of_bulk}");
    assert_eq!(executor.next(Instant(1_000_000)), None, "the window of bulk is full");
    executor.submit(Instant(1_000_000), read(2, 64)).unwrap();
    assert_eq!(executor.next(Instant(1_000_000)).map(|chunk| chunk.size), Some(64));
}

#[test]
fn what_is_outstanding_stays_within_the_smaller_window_and_leaves_at_its_pace() {
    let settings = CongestionSettings { initial: 4.0, kind: ControlKind::Fixed, ..settings() };
    let mut executor = Executor::new(64, 4, &settings);
    executor.submit(Instant(0), read(1, 1 << 20)).unwrap();
    let mut now = Instant(0);
    let mut times = Vec::new();
    while times.len() < 4 {
        times.extend(issue(&mut executor, now).iter().map(|_| now.0));
        now = if executor.deadline() == Instant::NEVER { break } else { executor.deadline() };
    }
    // 4 commands per round trip of 5 µs.
    assert_eq!(times, [0, 1_250, 2_500, 3_750]);
    assert_eq!(executor.next(Instant(1_000_000)), None, "the window is full");
    assert_eq!(executor.deadline(), Instant::NEVER, "the executor waits for a completion");
    ok(&mut executor, Instant(1_000_000), 0);
    assert!(executor.next(Instant(1_000_000)).is_some());
    let mut slow = Executor::new(64, 4, &CongestionSettings { initial: 0.1, ..settings });
    slow.submit(Instant(0), read(1, 1 << 20)).unwrap();
    let chunk = slow.next(Instant(0)).unwrap();
    ok(&mut slow, Instant(5_000), chunk.slot);
    assert_eq!(slow.next(Instant(49_999)), None, "the pace is a tenth of a command per round trip");
    assert_eq!(slow.deadline(), Instant(50_000));
    assert!(slow.next(Instant(50_000)).is_some());
    // Commands less than a burst ahead of the rate leave at once, and the rate is unchanged.
    let mut together = Executor::new(64, 4, &CongestionSettings { burst: 2_500, ..settings });
    together.submit(Instant(0), read(1, 1 << 20)).unwrap();
    assert_eq!(issue(&mut together, Instant(0)).len(), 3);
    assert_eq!((together.next(Instant(1_249)), together.deadline()), (None, Instant(1_250)));
    assert_eq!(issue(&mut together, Instant(1_250)).len(), 1);
}
