use proptest::prelude::*;
use remora_wire::frame::{Address, Endpoint};
use remora_wire::rma::{Class, Kind, MAX_OPERATION, Nonce};

use super::*;
use crate::Instant;

const PEER: Endpoint = Endpoint { address: Address([10; 16]), udp_port: 4791 };
const READ: Command = Command { kind: Kind::Read, class: Class::Latency, size: 4096, server: PEER };
const WRITE: Command = Command { kind: Kind::Write, ..READ };

fn settings() -> Settings {
    Settings { slots: 64, served: 8, write_debit: WriteDebit::ServerOnly, ..Settings::paper() }
}

fn nonce(counter: u64) -> Nonce {
    Nonce { sender: 1, counter }
}

/// Returns an initiator that has sent the requests that the window admits.
fn initiator(settings: &Settings, commands: &[Command]) -> (Requester, Solicitation) {
    let mut requester = Requester::new(settings);
    let mut solicitation = Solicitation::new(settings);
    for (slot, command) in commands.iter().enumerate() {
        requester.issue(Instant(0), slot as u16, *command, &mut solicitation).unwrap();
    }
    enter(&mut requester, &mut solicitation, Instant(0));
    (requester, solicitation)
}

fn enter(requester: &mut Requester, solicitation: &mut Solicitation, now: Instant) -> Vec<u16> {
    let mut entered = Vec::new();
    solicitation.advance(now);
    while let Some(Waiting { party: Party::Command(slot), .. }) = solicitation.enter(now) {
        requester.sent(now, slot, nonce(u64::from(slot)));
        entered.push(slot);
    }
    entered
}

fn request(kind: Kind, size: u32) -> Request {
    Request { kind, class: Class::Latency, size, max_payload: 1024, nonce: nonce(7), initiator: PEER }
}

#[test]
fn an_operation_enters_service_while_4_kb_are_free_and_debits_its_size() {
    let settings = Settings { window: 8 << 10, ..settings() };
    let small = Command { size: 64, ..READ };
    let (mut requester, mut solicitation) = initiator(&settings, &[small, READ, small]);
    // 64 and 4096 bytes are debited; the remaining 4032 are too few for an operation of any size.
    assert_eq!(solicitation.free(), (8 << 10) - 64 - 4096);
    assert_eq!((solicitation.waiting(), solicitation.is_full()), (1, true));
    assert!(requester.placed(Instant(9), 0, 0, 64, &mut solicitation).is_some());
    assert_eq!(solicitation.free(), 4096, "the end of an operation refunds its debit");
    assert!(!solicitation.is_full(), "the waiting operation can enter");
    assert_eq!(enter(&mut requester, &mut solicitation, Instant(9)), [2]);
    assert!(!solicitation.is_full(), "no operation waits");
}

#[test]
fn a_head_that_waits_blocks_its_line_and_latency_goes_before_bulk_but_for_an_eighth() {
    let settings = Settings { window: 64 << 10, ..settings() };
    let bulk = Command { class: Class::Bulk, ..READ };
    let commands: Vec<Command> = (0..32).map(|index| if index < 16 { bulk } else { READ }).collect();
    let mut requester = Requester::new(&settings);
    let mut solicitation = Solicitation::new(&settings);
    for (slot, command) in commands.iter().enumerate() {
        requester.issue(Instant(0), slot as u16, *command, &mut solicitation).unwrap();
    }
    let entered = enter(&mut requester, &mut solicitation, Instant(0));
    let of_bulk = entered.iter().filter(|slot| **slot < 16).count();
    assert_eq!((entered.len(), of_bulk), (16, 2), "bulk gets 8 of 64 KB: {entered:?}");
    for slot in entered {
        requester.end(Instant(1), slot, Status::Nack, &mut solicitation);
    }
    let entered = enter(&mut requester, &mut solicitation, Instant(1));
    assert_eq!(
        entered.iter().filter(|slot| **slot < 16).count(),
        14,
        "bulk gets the rest when no latency operation waits: {entered:?}"
    );
}

#[test]
fn bulk_has_its_part_of_the_window_and_latency_enters_beside_it() {
    let settings = Settings { window: 64 << 10, bulk_window: 12 << 10, ..settings() };
    let bulk = Command { class: Class::Bulk, ..READ };
    let mut requester = Requester::new(&settings);
    let mut solicitation = Solicitation::new(&settings);
    for slot in 0..5 {
        requester.issue(Instant(0), slot, bulk, &mut solicitation).unwrap();
    }
    assert_eq!(enter(&mut requester, &mut solicitation, Instant(0)), [0, 1, 2]);
    assert!(solicitation.is_full(), "bulk has used its part of the window");
    requester.issue(Instant(1), 5, READ, &mut solicitation).unwrap();
    assert_eq!(enter(&mut requester, &mut solicitation, Instant(1)), [5]);
    requester.end(Instant(2), 1, Status::Nack, &mut solicitation);
    assert_eq!(enter(&mut requester, &mut solicitation, Instant(2)), [3]);

    let narrow = Settings { bulk_window: 0, ..settings };
    let mut requester = Requester::new(&narrow);
    let mut solicitation = Solicitation::new(&narrow);
    for slot in 0..2 {
        requester.issue(Instant(0), slot, bulk, &mut solicitation).unwrap();
    }
    assert_eq!(
        enter(&mut requester, &mut solicitation, Instant(0)),
        [0],
        "at least one bulk operation enters"
    );
}

#[test]
fn for_a_while_after_a_latency_operation_one_bulk_operation_is_in_service() {
    let settings = Settings { window: 64 << 10, bulk_holdoff: 100, ..settings() };
    let bulk = Command { class: Class::Bulk, ..READ };
    let mut requester = Requester::new(&settings);
    let mut solicitation = Solicitation::new(&settings);
    requester.issue(Instant(5), 0, READ, &mut solicitation).unwrap();
    assert_eq!(enter(&mut requester, &mut solicitation, Instant(5)), [0]);
    for slot in 1..5 {
        requester.issue(Instant(6), slot, bulk, &mut solicitation).unwrap();
    }
    assert_eq!(enter(&mut requester, &mut solicitation, Instant(6)), [1]);
    assert!(solicitation.is_full(), "one bulk operation is in service");
    requester.end(Instant(104), 1, Status::Nack, &mut solicitation);
    assert_eq!(enter(&mut requester, &mut solicitation, Instant(104)), [2]);
    assert_eq!(enter(&mut requester, &mut solicitation, Instant(105)), [3, 4], "the holdoff is over");
}

#[test]
fn a_read_ends_when_all_its_pieces_have_come_in_any_order_each_counted_once() {
    let (mut requester, mut solicitation) = initiator(&settings(), &[READ]);
    for offset in [3072, 0, 2048] {
        assert!(requester.awaits(0, offset, 1024));
        assert_eq!(requester.placed(Instant(5), 0, offset, 1024, &mut solicitation), None);
        assert!(!requester.awaits(0, offset, 1024), "a duplicate piece is refused");
        assert!(!requester.awaits(0, offset, 512), "a piece that overlaps a placed one is refused");
    }
    for (offset, len) in [(4096, 64), (32, 64), (1024, 100), (u64::MAX, 64), (1024, 0), (1024, u32::MAX)] {
        assert!(!requester.awaits(0, offset, len), "{offset} {len} is no valid piece");
    }
    let ended = requester.placed(Instant(7), 0, 1024, 1024, &mut solicitation).unwrap();
    assert_eq!(ended, OperationEnd { slot: 0, status: Status::Ok, issue_delay: 0, total_delay: 7 });
    assert!(requester.is_free(0) && !requester.awaits(0, 0, 64));
}

#[test]
fn commands_of_no_size_or_kind_and_busy_slots_are_refused() {
    let (mut requester, mut solicitation) = initiator(&settings(), &[READ]);
    let mut issue = |slot, command| requester.issue(Instant(0), slot, command, &mut solicitation);
    assert_eq!(issue(0, READ), Err(IssueError::Busy));
    assert_eq!(issue(64, READ), Err(IssueError::NoSlot));
    for size in [0, MAX_OPERATION + 1, u32::MAX] {
        assert_eq!(issue(1, Command { size, ..WRITE }), Err(IssueError::Malformed));
    }
    assert_eq!(issue(1, Command { kind: Kind::Rekey, ..READ }), Err(IssueError::Malformed));
    assert_eq!(issue(1, Command { kind: Kind::Data, ..READ }), Err(IssueError::Malformed));
}

#[test]
fn who_waits_too_long_for_the_window_is_never_sent() {
    let settings = Settings { window: 4096, ..settings() };
    let (mut requester, mut solicitation) = initiator(&settings, &[READ, READ]);
    assert_eq!(solicitation.deadline(), Instant(10_000));
    assert_eq!(solicitation.expire(Instant(9_999)), None);
    let waiting = solicitation.expire(Instant(10_000)).unwrap();
    assert_eq!(waiting.party, Party::Command(1));
    let ended = requester.not_dispatched(Instant(10_000), 1);
    assert_eq!((ended.status, ended.issue_delay), (Status::DispatchTimeout, 10_000));
    let ended = requester.expire(Instant(20_000), &mut solicitation).unwrap();
    assert_eq!((ended.slot, ended.status, solicitation.free()), (0, Status::Timeout, 4096));
}

/// Hop 2 carries the server's timeout, so the initiator expires after the server, however long hop 2 took.
#[test]
fn the_initiator_of_a_write_expires_after_its_server() {
    let settings = Settings { guard: 3, ..settings() };
    let (mut requester, _) = initiator(&settings, &[WRITE]);
    let mut responder = Responder::<()>::new(&settings);
    let mut window = Solicitation::new(&settings);
    let Accepted::Slot(served) = responder.accept(Instant(2), request(Kind::Write, 4096), (), &mut window)
    else {
        panic!("the responder has a free slot")
    };
    assert_eq!(window.enter(Instant(0)).map(|waiting| waiting.party), Some(Party::Served(served)));
    responder.solicited(Instant(4), served, nonce(8));
    requester.solicited(Instant(19_000), 0, nonce(8), served, 4096, settings.timeout);
    assert_eq!(responder.deadline(), Instant(20_004));
    assert_eq!(requester.deadline(), Instant(39_003));
    assert!(responder.awaits(Instant(20_003), served, 0, 64));
    assert!(!responder.awaits(Instant(20_004), served, 0, 64), "a late piece is not placed");
    assert_eq!(responder.expire(Instant(20_004), &mut window), Some(served));
    assert_eq!((window.free(), responder.serving()), (settings.window, 0));
}

#[test]
fn a_server_cannot_hold_a_slot_for_ever() {
    let (mut requester, _) = initiator(&settings(), &[WRITE]);
    requester.solicited(Instant(0), 0, nonce(8), 3, 4096, u64::MAX);
    assert_eq!(requester.deadline(), Instant(settings().max_server_timeout));
}

#[test]
fn only_the_first_solicit_is_answered_and_from_the_slot_alone() {
    let (mut requester, _) = initiator(&settings(), &[WRITE, READ]);
    requester.solicited(Instant(1), 0, nonce(8), 5, 1024, 20_000);
    requester.solicited(Instant(2), 0, nonce(9), 6, 64, 20_000);
    requester.solicited(Instant(2), 1, nonce(9), 6, 64, 20_000);
    let mut offsets = Vec::new();
    while let Some(answer) = requester.plan(4096) {
        assert_eq!((answer.slot, answer.server_slot), (0, 5));
        offsets.push((answer.offset, answer.len));
        requester.answered(&answer, nonce(20 + offsets.len() as u64));
    }
    assert_eq!(offsets, [(0, 1024), (1024, 1024), (2048, 1024), (3072, 1024)]);
    let (_, tags) = requester.expects(0, Kind::Completion).unwrap();
    let sum = nonce(21).counter ^ nonce(22).counter ^ nonce(23).counter ^ nonce(24).counter;
    assert_eq!(tags.hops(), [nonce(0), nonce(8), Nonce { sender: 0, counter: sum }]);
}

#[test]
fn a_completion_before_all_bytes_were_sent_is_no_success() {
    let (mut requester, mut solicitation) = initiator(&settings(), &[WRITE, READ]);
    for slot in [0, 1] {
        assert_eq!(requester.completed(Instant(1), slot, Status::Ok, &mut solicitation), None);
    }
    requester.solicited(Instant(1), 0, nonce(8), 5, 1024, 20_000);
    let answer = requester.plan(4096).unwrap();
    requester.answered(&answer, nonce(9));
    assert_eq!(requester.completed(Instant(2), 0, Status::Ok, &mut solicitation), None);
    assert_eq!(
        requester.completed(Instant(2), 0, Status::Nack, &mut solicitation),
        None,
        "a completion after the end has no effect"
    );
    let failure = Status::RemoteAuthenticationFailure;
    let ended = requester.completed(Instant(3), 0, failure, &mut solicitation).unwrap();
    assert_eq!((ended.status, requester.has_answers()), (failure, false));
}

#[test]
fn a_write_that_fails_behind_its_data_ends_when_the_servers_time_is_over() {
    let failure = Status::RemoteAuthenticationFailure;
    let (mut requester, mut solicitation) = initiator(&settings(), &[WRITE, WRITE, WRITE]);
    for slot in [0, 1] {
        requester.solicited(Instant(1), slot, nonce(8), 5, 4096, 20_000);
    }
    for _ in [0, 1] {
        let answer = requester.plan(1024).unwrap();
        requester.answered(&answer, nonce(9));
    }
    requester.solicited(Instant(1), 2, nonce(8), 5, 4096, 20_000);
    requester.stop_answering(1);
    assert_eq!(requester.fail(Instant(2), 0, failure, &mut solicitation), None);
    assert_eq!(requester.fail(Instant(2), 1, Status::LocalError, &mut solicitation), None);
    let nothing_left = requester.fail(Instant(2), 2, failure, &mut solicitation).unwrap();
    assert_eq!((nothing_left.slot, nothing_left.status), (2, failure));
    // Slot 0 continues to send, because its data may still complete the operation.
    assert_eq!(requester.plan(1024).map(|answer| answer.slot), Some(0));
    let over = requester.deadline();
    assert!(over.since(Instant(1)) >= 20_000);
    let mut ended: Vec<_> = std::iter::from_fn(|| requester.expire(over, &mut solicitation)).collect();
    ended.sort_by_key(|end| end.slot);
    assert_eq!(ended.iter().map(|end| end.status).collect::<Vec<_>>(), [failure, Status::LocalError]);
    assert!(!requester.has_answers());
}

#[test]
fn reads_above_the_threshold_are_refused_and_one_is_always_taken() {
    let settings = Settings { served: 64, ..settings() };
    let mut responder = Responder::<()>::new(&settings);
    let mut window = Solicitation::new(&settings);
    let mut take = |responder: &mut Responder<()>| {
        responder.accept(Instant(0), request(Kind::Read, 4096), (), &mut window) != Accepted::Nack
    };
    let taken = (0..64).take_while(|_| take(&mut responder)).count();
    assert_eq!(taken, 62_500 / 4096);
    let (slot, response) = responder.plan(4096).unwrap();
    assert_eq!(response, Response::Data { offset: 0, len: 1024 });
    responder.sent(slot, response);
    assert!(!take(&mut responder), "a quarter of an operation is not enough space for another");
    let mut strict = Responder::<()>::new(&Settings { timeout: 0, ..settings });
    assert!(take(&mut strict) && !take(&mut strict));
}

#[test]
fn a_full_table_refuses_and_is_free_again_when_all_has_left() {
    let settings = Settings { bandwidth: u64::MAX, ..settings() };
    let mut responder = Responder::<()>::new(&settings);
    let mut window = Solicitation::new(&settings);
    let kinds = [Kind::Read, Kind::Write];
    for index in 0..8 {
        let taken = responder.accept(Instant(0), request(kinds[index % 2], 64), (), &mut window);
        assert_ne!(taken, Accepted::Nack);
    }
    assert_eq!(responder.accept(Instant(0), request(Kind::Read, 64), (), &mut window), Accepted::Nack);
    while let Some(Waiting { party: Party::Served(slot), .. }) = window.enter(Instant(0)) {
        responder.solicited(Instant(1), slot, nonce(3));
        assert!(responder.placed(Instant(2), slot, nonce(4), 0, 64, &mut window), "all bytes have arrived");
    }
    while let Some((slot, response)) = responder.plan(4096) {
        responder.sent(slot, response);
        responder.check();
    }
    assert_eq!((responder.serving(), window.free()), (0, settings.window));
}

#[test]
fn a_write_that_waits_too_long_for_the_servers_window_is_refused() {
    let mut responder = Responder::<()>::new(&settings());
    let mut window = Solicitation::new(&settings());
    let accepted = responder.accept(Instant(0), request(Kind::Write, 64), (), &mut window);
    let waiting = window.expire(Instant(10_000)).unwrap();
    assert_eq!(Accepted::Slot(0), accepted);
    assert_eq!(waiting.party, Party::Served(0));
    responder.not_dispatched(0);
    assert_eq!(responder.plan(4096), Some((0, Response::Nack)));
    responder.sent(0, Response::Nack);
    assert_eq!(responder.serving(), 0);
}

/// The timeouts of both ends follow their measured round trips, and hop 2 carries the server's timeout.
#[test]
fn measured_timers_follow_the_first_answer_of_each_operation() {
    let measured = Settings { timers: Timers::Measured, least_timeout: 1_000, guard: 7, ..settings() };
    let (mut requester, mut window) = initiator(&measured, &[READ, WRITE]);
    assert_eq!(
        requester.deadline(),
        Instant(20_000),
        "before the first measurement, the timeout is the one of the settings"
    );
    // A piece of the read arrives after 1000 ns, the solicit of the write after 1800 ns.
    assert_eq!(requester.placed(Instant(1_000), 0, 0, 1024, &mut window), None);
    requester.solicited(Instant(1_800), 1, nonce(8), 3, 4096, 4_000);
    assert_eq!(
        requester.deadline(),
        Instant(1_800 + 4_000 + 7),
        "the timeout is the server's plus the guard"
    );
    // Later pieces are not measured.
    requester.placed(Instant(2_500), 0, 1024, 1024, &mut window);
    requester.issue(Instant(3_000), 2, READ, &mut window).unwrap();
    assert_eq!(window.deadline(), Instant(3_000 + 5 * 1_100 / 2));
    enter(&mut requester, &mut window, Instant(3_100));
    requester.end(Instant(3_100), 0, Status::LocalError, &mut window);
    requester.end(Instant(3_100), 1, Status::LocalError, &mut window);
    assert_eq!(requester.deadline(), Instant(3_100 + 5 * 1_100));
    // A timeout doubles the times.
    assert!(requester.expire(Instant(3_100 + 5 * 1_100), &mut window).is_some());
    requester.issue(Instant(10_000), 2, READ, &mut window).unwrap();
    enter(&mut requester, &mut window, Instant(10_000));
    assert_eq!(requester.deadline(), Instant(10_000 + 2 * 5 * 1_100));

    let mut responder = Responder::<()>::new(&measured);
    let mut window = Solicitation::new(&measured);
    for (time, round, next) in [(0, 900, 4_500), (50_000, 100, 4_000)] {
        responder.accept(Instant(time), request(Kind::Write, 64), (), &mut window);
        let Some(Waiting { party: Party::Served(slot), .. }) = window.enter(Instant(0)) else {
            panic!("the operation waits for the window")
        };
        responder.solicited(Instant(time), slot, nonce(8));
        assert!(responder.placed(Instant(time + round), slot, nonce(4), 0, 64, &mut window));
        assert_eq!(responder.timeout(slot), next);
        let (slot, response) = responder.plan(4096).unwrap();
        responder.sent(slot, response);
    }
}

/// The queue is a FIFO: an operation never leaves before its predecessors, whatever was measured meanwhile.
#[test]
fn nobody_leaves_the_line_before_who_is_ahead() {
    let mut window = Solicitation::new(&settings());
    let waiting = |slot, until| Waiting {
        party: Party::Command(slot),
        class: Class::Latency,
        debit: 64,
        until: Instant(until),
    };
    window.join(waiting(0, 900));
    window.join(waiting(1, 100));
    assert_eq!((window.deadline(), window.expire(Instant(899))), (Instant(900), None));
    let left = [0, 1].map(|_| window.expire(Instant(900)).map(|waiting| waiting.party));
    assert_eq!(left, [Some(Party::Command(0)), Some(Party::Command(1))]);
}

proptest! {
    /// After all operations have ended, the whole window is free, whatever happened before.
    #[test]
    fn the_window_is_whole_when_nothing_is_in_service(
        steps in proptest::collection::vec((0_u16..8, 0_u8..12, any::<bool>(), 1_u32..=4096), 0..200),
    ) {
        let settings =
            Settings { slots: 8, served: 4, window: 12 << 10, bulk_holdoff: 3000, ..Settings::paper() };
        let mut requester = Requester::new(&settings);
        let mut responder = Responder::<()>::new(&settings);
        let mut window = Solicitation::new(&settings);
        let mut now = Instant(0);
        for (slot, step, flag, size) in steps {
            now = now.after(u64::from(size));
            window.advance(now);
            let kind = if flag { Kind::Read } else { Kind::Write };
            match step {
                0..3 => drop(requester.issue(now, slot, Command { kind, class: Class::Bulk, size, server: PEER }, &mut window)),
                3..5 => drop(responder.accept(now, request(kind, size), (), &mut window)),
                5 => match window.enter(now).map(|waiting| waiting.party) {
                    Some(Party::Command(slot)) => requester.sent(now, slot, nonce(1)),
                    Some(Party::Served(slot)) => responder.solicited(now, slot, nonce(2)),
                    None => {}
                },
                6 => requester.solicited(now, slot, nonce(3), 0, 4096, 5_000),
                7 => if let Some(answer) = requester.plan(size) { requester.answered(&answer, nonce(4)) },
                8 => if let Some((slot, response)) = responder.plan(size) { responder.sent(slot, response) },
                9 if responder.awaits(now, slot % 4, 0, 64) => drop(responder.placed(now, slot % 4, nonce(5), 0, 64, &mut window)),
                10 if requester.awaits(slot, 0, 64) => drop(requester.placed(now, slot, 0, 64, &mut window)),
                _ => responder.abort(slot % 4, &mut window),
            }
            expire(now, &mut requester, &mut responder, &mut window);
            window.check();
            responder.check();
        }
        for _ in 0..4 {
            now = now.after(1_000_000);
            expire(now, &mut requester, &mut responder, &mut window);
            while let Some((slot, response)) = responder.plan(64) {
                responder.sent(slot, response);
            }
        }
        prop_assert_eq!(window.free(), settings.window);
        prop_assert_eq!((responder.serving(), window.waiting()), (0, 0));
        prop_assert!((0..8).all(|slot| requester.is_free(slot)));
    }
}

fn expire(now: Instant, requester: &mut Requester, responder: &mut Responder<()>, window: &mut Solicitation) {
    while let Some(waiting) = window.expire(now) {
        match waiting.party {
            Party::Command(slot) => drop(requester.not_dispatched(now, slot)),
            Party::Served(slot) => responder.not_dispatched(slot),
        }
    }
    while requester.expire(now, window).is_some() {}
    while responder.expire(now, window).is_some() {}
}
