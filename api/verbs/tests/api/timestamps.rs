//! Completions with the time at which the NIC wrote them.

use remora_verbs::nicd::{Daemon, Options};
use remora_verbs::{CqOptions, CreateError, Device, Mode, QpOptions, QueuePair, StampedCompletion, work};

const NONE: StampedCompletion = StampedCompletion { completion: remora_verbs::EMPTY, timestamp: 0 };

fn each_lies_between_its_post_and_its_poll(device: &Device) {
    let context = device.open().unwrap();
    let domain = context.alloc_pd().unwrap();
    let options = CqOptions { depth: 16, timestamps: true, ..CqOptions::default() };
    let mut cq = context.create_cq_with(&options).unwrap();
    let pair = || domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
    let (mut near, _far) = QueuePair::connect_pair(pair(), pair()).unwrap();
    let mut before = cq.clock().unwrap();
    for id in 1..100 {
        near.post_send(&work::nop(id)).unwrap();
        let mut done = [NONE; 1];
        while cq.poll_stamped(&mut done).unwrap() == 0 {}
        let after = cq.clock().unwrap();
        assert_eq!(done[0].completion.id, id);
        assert!(
            (before..=after).contains(&done[0].timestamp),
            "{before} <= {} <= {after}",
            done[0].timestamp
        );
        before = done[0].timestamp;
    }
}

#[test]
fn each_timestamp_lies_between_its_post_and_its_poll() {
    each_lies_between_its_post_and_its_poll(&Device::shm());
    each_lies_between_its_post_and_its_poll(&Device::shm().mode(Mode::Dedicated));
    each_lies_between_its_post_and_its_poll(&Device::udp("127.0.0.1:0").unwrap());
}

#[test]
fn a_queue_has_timestamps_only_if_it_was_created_with_them() {
    let context = Device::shm().open().unwrap();
    let domain = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(16).unwrap();
    let mut one = domain.create_loopback(&cq, &cq, &QpOptions::default()).unwrap();
    one.post_send(&work::nop(3)).unwrap();
    let mut done = [NONE; 2];
    while cq.poll_stamped(&mut done).unwrap() == 0 {}
    assert_eq!((done[0].completion.id, done[0].timestamp), (3, 0));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nicd.sock");
    let _daemon = Daemon::open(&Device::shm(), &path, &Options::default()).unwrap();
    let lent = Device::nicd(&path).open().unwrap();
    let mut cq = lent.create_cq_with(&CqOptions { timestamps: true, ..CqOptions::default() }).unwrap();
    assert_eq!(cq.clock().err(), Some(CreateError::NotByDaemon));
    let domain = lent.alloc_pd().unwrap();
    let mut one = domain.create_loopback(&cq, &cq, &QpOptions::default()).unwrap();
    one.post_send(&work::nop(3)).unwrap();
    while cq.poll_stamped(&mut done).unwrap() == 0 {}
    assert_eq!((done[0].completion.id, done[0].timestamp > 0), (3, true));
}
