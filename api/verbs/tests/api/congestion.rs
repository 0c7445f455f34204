//! Congestion control on real ports: queue pairs obey its decisions. Fairness between flows is tested in the
//! simulator (`sim/fabric/src/share`).

use remora_verbs::congestion::{Algorithm, Settings};
use remora_verbs::{Access, Device, EMPTY, Modify, QpOptions, QueuePair, Status, work};
use std::time::{Duration, Instant};

const LEN: usize = 1 << 20;
/// A line rate at which a mebibyte takes 42 ms.
const LINE_RATE: u64 = 200_000_000;

/// Measures the time of a WRITE of [`LEN`] bytes, and checks that all bytes arrive.
fn write(device: &Device) -> Duration {
    let near = device.open().unwrap();
    let far = device.open().unwrap();
    let near_domain = near.alloc_pd().unwrap();
    let far_domain = far.alloc_pd().unwrap();
    let source = near_domain.allocate(LEN, Access::LOCAL_WRITE).unwrap();
    let target = far_domain.allocate(LEN, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let mut cq = near.create_cq(16).unwrap();
    let far_cq = far.create_cq(16).unwrap();
    let one = near_domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
    let two = far_domain.create_qp(&far_cq, &far_cq, &QpOptions::default()).unwrap();
    let (mut one, _two) = QueuePair::connect_pair(one, two).unwrap();
    source.write(LEN - 4, &[1, 2, 3, 4]).unwrap();
    let begun = Instant::now();
    one.post_send(&work::write(1, &[source.sge(0, LEN)], target.remote(0))).unwrap();
    let mut done = [EMPTY; 1];
    while cq.poll(&mut done).unwrap() == 0 {}
    assert_eq!(done[0].status, Status::Success);
    let took = begun.elapsed();
    let mut tail = [0; 4];
    target.read(LEN - 4, &mut tail).unwrap();
    assert_eq!(tail, [1, 2, 3, 4]);
    took
}

#[test]
fn a_controlled_queue_pair_never_exceeds_its_line_rate() {
    for algorithm in [Algorithm::Dcqcn, Algorithm::Timely] {
        let settings = Settings { algorithm, line_rate: LINE_RATE, ..Settings::default() };
        for device in [Device::shm(), Device::udp("127.0.0.1:0").unwrap()] {
            let took = write(&device.congestion(settings));
            // A busy machine can lengthen the time, but nothing can shorten it.
            assert!(took > Duration::from_millis(40), "{algorithm:?}: {took:?}");
        }
    }
}

/// At this rate a packet of 4 KiB takes 33 ms. 32 packets, of which possibly only one requests an
/// acknowledgement, take twice the timeout.
const LIMIT: u64 = 1_000_000;

#[test]
fn a_limited_write_is_not_taken_for_a_silent_peer() {
    const LIMITED: usize = 256 << 10;
    for irn in [false, true] {
        for device in [Device::shm(), Device::udp("127.0.0.1:0").unwrap()] {
            let near = device.open().unwrap();
            let far = device.open().unwrap();
            let near_domain = near.alloc_pd().unwrap();
            let far_domain = far.alloc_pd().unwrap();
            let source = near_domain.allocate(LIMITED, Access::LOCAL_WRITE).unwrap();
            let target = far_domain.allocate(LIMITED, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
            let mut cq = near.create_cq(16).unwrap();
            let far_cq = far.create_cq(16).unwrap();
            let options = QpOptions { timeout: 17, retry_cnt: 0, irn, ..QpOptions::default() };
            let one = near_domain.create_qp(&cq, &cq, &options).unwrap();
            let two = far_domain.create_qp(&far_cq, &far_cq, &options).unwrap();
            let (mut one, _two) = QueuePair::connect_pair(one, two).unwrap();
            one.modify(&Modify { rate_limit: Some(LIMIT), ..Modify::default() }).unwrap();
            source.write(LIMITED - 4, &[1, 2, 3, 4]).unwrap();
            let begun = Instant::now();
            one.post_send(&work::write(1, &[source.sge(0, LIMITED)], target.remote(0))).unwrap();
            let mut done = [EMPTY; 1];
            while cq.poll(&mut done).unwrap() == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(done[0].status, Status::Success);
            // The time of all packets but the last at the limited rate.
            assert!(begun.elapsed() > Duration::from_secs(2), "{:?}", begun.elapsed());
            let mut tail = [0; 4];
            target.read(LIMITED - 4, &mut tail).unwrap();
            assert_eq!(tail, [1, 2, 3, 4]);
            if !irn {
                let counters = near.counters();
                let again = (counters.local_ack_timeout_err, counters.retransmitted_pkts);
                assert_eq!(again, (0, 0), "go-back-N neither times out nor retransmits here");
            }
        }
    }
}
