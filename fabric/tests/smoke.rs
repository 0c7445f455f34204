//! The first steps of a world: one verb of each kind over a clean link.

use nic::{Flags, Operation, Payload, ReceiveRequest, Status, WorkRequest};
use remora_fabric::{ALL, Config, Settings, World};

const SIGNALED: Flags = Flags { signaled: true, fence: false, solicited: false };

#[test]
fn each_verb_does_its_work_over_a_clean_link() {
    let mut world = World::new(&Config::default());
    let [(left, left_cq), (right, right_cq)] = world.pair(0, 1, &Settings::default());
    let here = world.register(0, 1 << 16, ALL);
    let there = world.register(1, 1 << 16, ALL);
    here.store(0, b"hello, world of 3000 bytes");
    let list = [here.sge(0, 3000)];
    let write = WorkRequest {
        id: 1,
        operation: Operation::Write(there.remote(100)),
        payload: Payload::Sges(&list),
        flags: SIGNALED,
    };
    world.post(left, &write).unwrap();
    assert!(world.settle(1000));
    println!("{:?}\n{:?}", world.counters(0), world.counters(1));
    let done = world.drain(left_cq);
    assert_eq!((done.len(), done[0].id, done[0].status), (1, 1, Status::Success));
    assert_eq!(there.load(100, 3000), here.load(0, 3000));

    let list = [here.sge(8192, 3000)];
    let read = WorkRequest {
        id: 2,
        operation: Operation::Read(there.remote(100)),
        payload: Payload::Sges(&list),
        flags: SIGNALED,
    };
    world.post(left, &read).unwrap();
    assert!(world.settle(1000));
    assert_eq!(world.drain(left_cq).len(), 1);
    assert_eq!(here.load(8192, 3000), here.load(0, 3000));

    let list = [there.sge(40_000, 5000)];
    world.post_receive(right, &ReceiveRequest { id: 77, sges: &list }).unwrap();
    let list = [here.sge(0, 2500)];
    let send = WorkRequest {
        id: 3,
        operation: Operation::SendImm(0xdead_beef),
        payload: Payload::Sges(&list),
        flags: SIGNALED,
    };
    world.post(left, &send).unwrap();
    assert!(world.settle(1000));
    let got = world.drain(right_cq);
    assert_eq!((got[0].id, got[0].byte_len, got[0].imm), (77, 2500, Some(0xdead_beef)));
    assert_eq!(there.load(40_000, 2500), here.load(0, 2500));
}
