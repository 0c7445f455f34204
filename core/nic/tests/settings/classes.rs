//! Traffic classes: what leaves in which, and that a class that is stopped holds up no other.

use crate::bed::{Bed, Frame, Link, MTU};
use remora_nic::{Command, Config, Modify};
use remora_wire::Opcode;
use remora_wire::frame::Class;

const DATA: usize = 3;
const ACK: usize = 5;
const CNP: usize = 6;

/// Connections whose data are of class 3, over go-back-N or IRN.
fn link(irn: bool) -> Link {
    let rtr = Modify { irn: irn.then_some(128), ..Modify::default() };
    Link { class: Class::new(DATA as u8), rtr, ..Link::default() }
}

fn config() -> Config {
    let [ack_class, cnp_class] = [ACK, CNP].map(|class| Some(Class::new(class as u8)));
    Config { ack_class, cnp_class, ..Config::default() }
}

fn classes(frames: &[Frame]) -> Vec<usize> {
    frames.iter().map(|frame| usize::from(frame.class.number())).collect()
}

#[test]
fn acks_and_cnps_have_the_class_of_the_queue_pair_unless_the_nic_gives_them_another() {
    for irn in [false, true] {
        for (config, ack, cnp) in [(Config::default(), DATA, DATA), (config(), ACK, CNP)] {
            let mut bed = Bed::new(&config);
            let pair = bed.connect(&link(irn));
            bed.write(0, pair, 100);
            bed.transmit(0, 64);
            let mut frames = bed.sent(0);
            assert_eq!(classes(&frames), [DATA]);
            frames[0].mark();
            bed.arrive(1, &frames[0]);
            bed.transmit(1, 64);
            let answers = bed.sent(1);
            assert_eq!(classes(&answers), [cnp, ack], "{irn}");
            assert_eq!(answers[0].opcode(), Opcode::CNP);
            bed.read(0, pair, 100);
            bed.transmit(0, 64);
            bed.deliver(0);
            bed.transmit(1, 64);
            let mut response = bed.sent(1);
            response.retain(|frame| frame.opcode() == Opcode::RC_RDMA_READ_RESPONSE_ONLY);
            assert_eq!(classes(&response), [DATA]);
            if irn {
                bed.arrive(0, &response[0]);
                bed.transmit(0, 64);
                assert_eq!(classes(&bed.sent(0)), [ack], "the ACK of the response");
            }
        }
    }
}

#[test]
fn an_ack_and_a_cnp_leave_while_the_class_of_data_is_stopped() {
    for irn in [false, true] {
        let mut bed = Bed::new(&config());
        let pair = bed.connect(&link(irn));
        bed.hosts[1].port.space[DATA] = 0;
        bed.write(1, pair, 10 * MTU);
        assert_eq!(bed.transmit(1, 64), 0);
        assert_eq!(awaited(&mut bed, 1), (1 << DATA, false));
        for _ in 0..3 {
            bed.write(0, pair, 100);
            bed.transmit(0, 64);
            let mut frames = bed.sent(0);
            frames.iter_mut().for_each(Frame::mark);
            frames.iter().for_each(|frame| bed.arrive(1, frame));
            bed.now += 100_000;
            bed.transmit(1, 64);
            assert_eq!(classes(&bed.sent(1)), [CNP, ACK], "{irn}");
        }
        bed.hosts[1].port.space[DATA] = 4;
        assert_eq!((bed.transmit(1, 64), awaited(&mut bed, 1)), (4, (1 << DATA, false)));
        bed.hosts[1].port.space[DATA] = 100;
        assert_eq!((bed.transmit(1, 64), awaited(&mut bed, 1)), (6, (0, false)));
    }
}

#[test]
fn data_and_cnps_leave_while_the_class_of_acks_is_stopped() {
    let mut bed = Bed::new(&config());
    let pair = bed.connect(&link(false));
    bed.hosts[1].port.space[ACK] = 0;
    bed.write(0, pair, 100);
    bed.transmit(0, 64);
    let mut frames = bed.sent(0);
    frames[0].mark();
    bed.arrive(1, &frames[0]);
    bed.write(1, pair, 100);
    bed.transmit(1, 64);
    assert_eq!(classes(&bed.sent(1)), [CNP, DATA]);
    bed.hosts[1].port.space[ACK] = 1;
    bed.transmit(1, 64);
    assert_eq!(classes(&bed.sent(1)), [ACK]);
}

#[test]
fn a_queue_pair_of_another_class_goes_on_and_those_of_one_class_share_it_equally() {
    for tenant in [None, Some(2)] {
        let mut bed = Bed::new(&config());
        let other = Link { class: Class::new(1), ..link(false) };
        let (stopped, free): (Vec<_>, _) =
            ((0..8).map(|_| bed.connect(&link(false))).collect(), bed.connect(&other));
        if let Some(tenant) = tenant {
            let number = bed.number(0, free);
            bed.hosts[0].engine.ask::<()>(Command::SetTenant { qp: number, tenant }).unwrap();
        }
        bed.hosts[0].port.space[DATA] = 0;
        stopped.iter().for_each(|pair| bed.write(0, *pair, 200 * MTU));
        bed.write(0, free, 10 * MTU);
        assert_eq!(bed.transmit(0, 64), 10);
        assert!(classes(&bed.sent(0)).iter().all(|class| *class == 1));
        // Two frames at a time, as the uplink drains.
        for _ in 0..80 {
            bed.hosts[0].port.space[DATA] = 2;
            assert_eq!(bed.transmit(0, 64), 2);
        }
        let sent = bed.sent(0);
        let count =
            |pair: &usize| sent.iter().filter(|frame| frame.dest_qp() == bed.number(1, *pair).get()).count();
        assert_eq!(stopped.iter().map(count).collect::<Vec<_>>(), [20; 8]);
    }
}

#[test]
fn a_queue_pair_that_goes_waits_for_no_class() {
    let mut bed = Bed::new(&config());
    let pairs = [0, 1].map(|_| bed.connect(&link(false)));
    bed.hosts[0].port.space[DATA] = 0;
    pairs.iter().for_each(|pair| bed.write(0, *pair, 100));
    bed.transmit(0, 64);
    for pair in pairs {
        assert_eq!(awaited(&mut bed, 0), (1 << DATA, false));
        let number = bed.number(0, pair);
        bed.hosts[0].engine.ask::<()>(Command::DestroyQp(number)).unwrap();
    }
    bed.hosts[0].port.space[DATA] = 10;
    assert_eq!((awaited(&mut bed, 0), bed.transmit(0, 64)), ((0, false), 0));
}

/// The transmit queues that a host's queue pairs wait for, and whether it has other work.
fn awaited(bed: &mut Bed, host: usize) -> (u64, bool) {
    let mut engine = bed.hosts[host].engine.enter();
    let (nic, _) = engine.parts();
    (nic.awaited_queues(), nic.has_work())
}
