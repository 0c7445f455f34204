//! Windows, acknowledgements, timeouts and retries.

use crate::bed::{Bed, Frame, Link, MTU};
use remora_nic::{Config, Modify, Status};
use remora_transport::rc::irn;
use remora_transport::{Instant, timers::NEVER_NS};

fn over_irn() -> Link {
    Link { rtr: Modify { irn: Some(128), ..Modify::default() }, ..Link::default() }
}

/// Sends all that the first host may send now.
fn send_all(bed: &mut Bed) -> Vec<Frame> {
    while bed.transmit(0, 64) > 0 {}
    bed.sent(0)
}

#[test]
fn go_back_n_may_have_65536_packets_in_flight_and_irn_keeps_its_cap() {
    for (window, expected) in [(256, 256), (1 << 16, 1 << 16), (u32::MAX, 1 << 16)] {
        let mut bed = Bed::new(&Config { window, ..Config::default() });
        let rtr = Modify { path_mtu: Some(256), ..Modify::default() };
        let pair = bed.connect(&Link { rtr, ..Link::default() });
        // 2048 packets each.
        for _ in 0..40 {
            bed.write(0, pair, 1 << 19);
        }
        assert_eq!(send_all(&mut bed).len(), expected, "{window}");
    }
    let mut bed = Bed::new(&Config { window: 1 << 16, ..Config::default() });
    let pair = bed.connect(&over_irn());
    bed.write(0, pair, 1 << 19);
    assert_eq!(send_all(&mut bed).len(), 110);
}

#[test]
fn an_acknowledgement_is_asked_for_as_often_as_the_setting_says() {
    for (ack_every, asked) in [(32, 2), (1, 64), (4, 16)] {
        let mut bed = Bed::new(&Config { ack_every, ..Config::default() });
        let pair = bed.connect(&Link::default());
        bed.write(0, pair, 64 * MTU);
        let sent = send_all(&mut bed);
        assert_eq!(sent.iter().filter(|frame| frame.ack_req()).count(), asked);
        let mut acks = 0;
        for frame in &sent {
            bed.arrive(1, frame);
            bed.transmit(1, 64);
            acks += bed.sent(1).len();
        }
        assert_eq!(acks, asked, "each is answered");
    }
}

#[test]
fn go_back_n_waits_for_the_nanoseconds_that_the_setting_says_and_for_ever_without_a_timeout() {
    for (rto_ns, deadline) in [(Some(320_000), Instant(1 + 320_000)), (Some(NEVER_NS), Instant::NEVER)] {
        let mut bed = Bed::new(&Config { rto_ns, ..Config::default() });
        let pair = bed.connect(&Link::default());
        bed.write(0, pair, 100);
        send_all(&mut bed);
        assert_eq!(bed.deadline(0), deadline);
        // A later change of the attribute does not bring it back.
        bed.modify(0, pair, &Modify { min_rnr_timer: Some(1), ..Modify::default() });
        bed.write(0, pair, 100);
        send_all(&mut bed);
        assert_eq!(bed.deadline(0), deadline);
    }
}

#[test]
fn irn_without_a_timeout_has_no_timer_and_recovers_by_nacks_alone() {
    let irn = irn::Settings { rto_low_ns: NEVER_NS, rto_high_ns: NEVER_NS, ..irn::Settings::default() };
    let mut bed = Bed::new(&Config { irn, retries_forever: true, ..Config::default() });
    let pair = bed.connect(&over_irn());
    bed.write(0, pair, 20 * MTU);
    bed.read(0, pair, 20 * MTU);
    let mut sent = send_all(&mut bed);
    assert_eq!(bed.deadline(0), Instant::NEVER);
    sent.remove(3);
    sent.iter().for_each(|frame| bed.arrive(1, frame));
    bed.settle();
    assert_eq!(ends(&mut bed), [Status::Success; 2]);
    assert_eq!((bed.deadline(0), bed.deadline(1)), (Instant::NEVER, Instant::NEVER));
}

#[test]
fn retries_for_ever_outlast_any_silence() {
    let irn = irn::Settings { timers: irn::Timers::Fixed, ..irn::Settings::default() };
    for link in [Link::default(), over_irn()] {
        for (retries_forever, survives) in [(false, false), (true, true)] {
            let mut bed = Bed::new(&Config { irn, retries_forever, ..Config::default() });
            let rts = Modify { timeout: Some(1), retry_cnt: Some(2), ..Modify::default() };
            let pair = bed.connect(&Link { rts, ..link });
            bed.write(0, pair, 100);
            // All copies are lost, 1000 of them.
            for _ in 0..1000 {
                send_all(&mut bed);
                let deadline = bed.deadline(0);
                if deadline < Instant::NEVER {
                    bed.expire(0, deadline.0);
                }
            }
            bed.settle();
            let expected = if survives { Status::Success } else { Status::RetryExceeded };
            assert_eq!(ends(&mut bed), [expected], "{:?}", link.rtr.irn);
        }
    }
}

#[test]
fn a_packet_is_sent_again_after_the_delay_of_figure_12_and_nothing_before_it() {
    for retransmit_delay_ns in [0, 2_000] {
        let irn = irn::Settings { retransmit_delay_ns, ..irn::Settings::default() };
        let mut bed = Bed::new(&Config { irn, turn_packets: 1, ..Config::default() });
        let pair = bed.connect(&over_irn());
        bed.write(0, pair, 200 * MTU);
        let mut first = send_all(&mut bed);
        assert_eq!(first.len(), 110, "what is new does not wait");
        let lost = [first.remove(7), first.remove(3)];
        let psn = |frame: &Frame| frame.psn();
        first.iter().for_each(|frame| bed.arrive(1, frame));
        while bed.transmit(1, 64) > 0 {}
        bed.deliver(1);
        for lost in lost.iter().rev() {
            if retransmit_delay_ns > 0 {
                assert_eq!(send_all(&mut bed).len(), 0);
                let due = bed.now + retransmit_delay_ns;
                assert_eq!(bed.deadline(0), Instant(due));
                bed.expire(0, due - 1);
                assert_eq!(send_all(&mut bed).len(), 0);
                bed.expire(0, due);
            }
            bed.transmit(0, 1);
            assert_eq!(bed.sent(0).iter().map(psn).next(), Some(lost.psn()));
            bed.arrive(1, lost);
        }
        assert_eq!(bed.counters(0).retransmitted_pkts, 2);
        bed.settle();
        assert_eq!(ends(&mut bed), [Status::Success]);
    }
}

/// Returns the statuses of the first host's work requests.
fn ends(bed: &mut Bed) -> Vec<Status> {
    bed.poll(0).iter().map(|cqe| cqe.completion.status).collect()
}
