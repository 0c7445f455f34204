//! Which packets switches may mark, and what a mark brings.

use crate::bed::{Bed, Frame, Link, MTU};
use remora_nic::{Config, Modify};
use remora_transport::congestion::{Algorithm, Settings};
use remora_wire::Opcode;

#[test]
fn packets_may_be_marked_for_a_control_that_reads_marks_or_when_asked_for() {
    let cases = [(Algorithm::None, 0), (Algorithm::Timely, 0), (Algorithm::Dcqcn, 2)];
    for (algorithm, expected) in cases {
        for ect in [false, true] {
            for irn in [None, Some(128)] {
                let congestion = Settings { algorithm, ect, ..Settings::default() };
                let mut bed = Bed::new(&Config { congestion, ..Config::default() });
                let rtr = Modify { irn, ..Modify::default() };
                let pair = bed.connect(&Link { rtr, ..Link::default() });
                bed.write(0, pair, 100);
                bed.transmit(0, 64);
                let expected = if ect { 2 } else { expected };
                assert_eq!(bed.sent(0)[0].ecn(), expected, "{algorithm:?} {ect} {irn:?}");
            }
        }
    }
}

#[test]
fn in_the_ns3_form_each_marked_packet_brings_a_cnp() {
    let congestion = Settings::ns3(100_000_000_000);
    let mut bed = Bed::new(&Config { congestion, ..Config::default() });
    let pair = bed.connect(&Link::default());
    for _ in 0..10 {
        bed.write(0, pair, 100);
        bed.now += 100;
        bed.transmit(0, 64);
        let mut sent = bed.sent(0);
        sent.iter_mut().for_each(Frame::mark);
        sent.iter().for_each(|frame| bed.arrive(1, frame));
        bed.transmit(1, 64);
        let answers: Vec<Opcode> = bed.sent(1).iter().map(Frame::opcode).collect();
        assert_eq!(answers, [Opcode::CNP, Opcode::RC_ACKNOWLEDGE]);
    }
}

#[test]
fn timely_slows_the_queue_pair_that_asks_for_it_and_no_other() {
    for irn in [None, Some(128)] {
        let mut bed = Bed::new(&Config::default());
        let link = Link { rtr: Modify { irn, ..Modify::default() }, ..Link::default() };
        let [timely, other] = [0, 1].map(|_| bed.connect(&link));
        let change = Modify { congestion: Some(Algorithm::Timely), ..Modify::default() };
        bed.modify(0, timely, &change);
        let mut sent = Vec::new();
        for pair in [timely, other, timely, other, timely, other] {
            // A round trip of a millisecond is twice T_high.
            bed.write(0, pair, 100);
            bed.transmit(0, 64);
            bed.deliver(0);
            bed.now += 1_000_000;
            bed.transmit(1, 64);
            bed.deliver(1);
            bed.now += 1_000_000;
            bed.write(0, pair, 100 * MTU);
            while bed.transmit(0, 64) > 0 {}
            let number = bed.number(1, pair).get();
            sent.push(bed.hosts[0].port.frames.iter().filter(|frame| frame.dest_qp() == number).count());
            // The rest arrives without delay.
            for _ in 0..100 {
                bed.expire(0, bed.now + 100_000);
                bed.settle();
            }
        }
        // A pacer saves 10 us: 48 packets at 40 Gb/s.
        let [first, _, second, _, third, _] = sent[..] else { unreachable!("six of them") };
        assert!(first < 60 && second < first && third < second, "{irn:?}: {sent:?}");
        assert!(sent.iter().skip(1).step_by(2).all(|sent| *sent == 100), "{irn:?}: {sent:?}");
    }
}
