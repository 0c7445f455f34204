//! Requests that are refused, and which side learns of it.

use remora_fabric::Settings;
use remora_nic::kernel::{Get, Kernel, Lookup, Place, Slot, Status, TAG_MASK};
use remora_nic::{AsyncEvent, Operation, Payload, WorkRequest};

use crate::bench::{Answer, Bench, Endless, Journal, NO_KEY, OPCODE, SIGNALED, arms};

fn alone(status: Status) -> Answer {
    Answer { status, bytes: Vec::new() }
}

fn get() -> Vec<Box<dyn Kernel>> {
    vec![Box::new(Get::default())]
}

#[test]
fn an_op_code_without_a_kernel_is_told_and_the_connection_lives() {
    for mut bench in Bench::arms() {
        bench.deploy(get());
        bench.rpc(OPCODE + 1, 1, b"");
        bench.rpc_write(OPCODE + 1, 2, &[7; 1000]);
        let answers = bench.run();
        assert_eq!(answers, [(1, alone(Status::NO_KERNEL)), (2, alone(Status::NO_KERNEL))].into());
        bench.rpc(OPCODE, 3, b"what no GET takes");
        assert_eq!(bench.run(), [(3, alone(Status::BAD_PARAMS))].into());
    }
}

#[test]
fn a_fallback_takes_what_no_kernel_does() {
    for mut bench in Bench::arms() {
        bench.deploy(get());
        let start = bench.there.remote(0).addr;
        let init = bench.init(None, vec![Box::new(Journal { position: start })]);
        bench.try_deploy(init).unwrap();
        bench.rpc(OPCODE + 1, 1, b"anything");
        assert_eq!(bench.run(), [(1, alone(Status::DONE))].into());
        assert_eq!(bench.there.load(0, 8), b"anything");
    }
}

#[test]
fn a_kernel_reaches_nothing_that_was_not_granted() {
    for mut bench in Bench::arms() {
        bench.deploy(get());
        bench.guarded.store(0, &Slot { keys: [1, 2, 3], values: [4; 3], lens: [4; 3] }.emit());
        // A slot in the guarded region, a value there, and a slot at its very end.
        let slot = bench.there.remote(0).addr;
        let secret = bench.guarded.remote(0).addr;
        bench.there.store(0, &Slot { keys: [1, 2, 3], values: [secret; 3], lens: [64; 3] }.emit());
        let end = bench.there.remote((1 << 20) - 32).addr;
        for (tag, slot) in [(1, secret), (2, slot), (3, end), (4, 0), (5, u64::MAX)] {
            bench.rpc(OPCODE, tag, &Lookup { slot, key: 2 }.emit());
        }
        let answers = bench.run();
        assert_eq!(answers, (1..=5).map(|tag| (tag, alone(Status::ACCESS))).collect());
        assert!(bench.is_at_rest(0));
        assert_eq!(bench.facts()[0].failures, 5);

        let secret = bench.guarded.remote(0).addr;
        let init = bench.init(Some(OPCODE + 1), vec![Box::new(Journal { position: secret })]);
        bench.try_deploy(init).unwrap();
        let before = bench.guarded.load(0, 4096);
        bench.rpc(OPCODE + 1, 6, b"not yours");
        assert_eq!(bench.run(), [(6, alone(Status::ACCESS))].into());
        assert_eq!(bench.guarded.load(0, 4096), before);
    }
}

#[test]
fn a_kernel_of_another_domain_is_no_kernel() {
    for mut bench in Bench::arms() {
        let other = bench.world.table(1).alloc_pd().unwrap();
        let init = bench.init(Some(OPCODE), get());
        bench.try_deploy(remora_nic::kernel::KernelInit { pd: other, ..init }).unwrap();
        bench.rpc(OPCODE, 1, &Lookup { slot: 0, key: 0 }.emit());
        assert_eq!(bench.run(), [(1, alone(Status::NO_KERNEL))].into());
    }
}

#[test]
fn an_answer_longer_than_its_room_is_told_and_not_written() {
    for mut bench in Bench::arms() {
        bench.deploy(get());
        let address = bench.there.remote(0).addr;
        bench.there.store(0, &Slot { keys: [1; 3], values: [address; 3], lens: [64; 3] }.emit());
        let place = Place { len: 63, ..bench.place(1) };
        let lookup = Lookup { slot: address, key: 1 }.emit();
        bench.post(Operation::Rpc { opcode: OPCODE, tag: 1 }, 1, &[&place.emit()[..], &lookup].concat());
        assert_eq!(bench.run(), [(1, alone(Status::NO_ROOM))].into());
        assert_eq!(bench.answer_at(1), 0);
        assert!(bench.is_at_rest(0));
    }
}

#[test]
fn an_endless_kernel_ends_with_an_error_and_hurts_nobody_else() {
    for mut bench in Bench::arms() {
        let init = bench.init(Some(OPCODE + 1), vec![Box::new(Endless)]);
        bench.try_deploy(init).unwrap();
        bench.deploy(get());
        let slot = bench.there.remote(0).addr;
        for round in 0..4 {
            bench.rpc(OPCODE + 1, 2 * round, b"");
            bench.rpc(OPCODE, 2 * round + 1, &Lookup { slot, key: 1 }.emit());
        }
        let answers = bench.run();
        for round in 0..4 {
            assert_eq!(answers[&(2 * round)], alone(Status::TOO_LONG));
            assert_eq!(answers[&(2 * round + 1)], alone(Status::MISS));
        }
    }
}

#[test]
fn an_answer_to_where_the_requester_gave_no_right_ends_the_connection() {
    for mut bench in Bench::arms() {
        bench.deploy(get());
        let address = bench.there.remote(0).addr;
        bench.there.store(0, &Slot { keys: [1; 3], values: [address; 3], lens: [64; 3] }.emit());
        let place = Place { rkey: NO_KEY.get(), ..bench.place(1) };
        let lookup = Lookup { slot: address, key: 1 }.emit();
        bench.post(Operation::Rpc { opcode: OPCODE, tag: 1 }, 1, &[&place.emit()[..], &lookup].concat());
        assert!(bench.world.settle(1_000_000));
        assert_eq!(bench.answer_at(1), 0);
        let events = |bench: &mut Bench, node| {
            bench.world.with_nic(node, |nic, _| std::iter::from_fn(|| nic.event()).collect::<Vec<_>>())
        };
        assert!(events(&mut bench, 1).contains(&AsyncEvent::QpFatal(bench.right.number)));
        // The server's program did nothing for the answer.
        assert_eq!(bench.world.drain(bench.right_cq).iter().filter(|wc| wc.id == 0).count(), 0);
        assert!(bench.is_at_rest(0));
    }
}

#[test]
fn without_agreement_nothing_is_sent() {
    for settings in arms() {
        let mut bench = Bench::new(1, &Settings { strom: false, ..settings });
        bench.world.tap();
        bench.rpc(OPCODE, 1, b"");
        assert!(bench.world.settle(1_000_000));
        let done = bench.world.drain(bench.left_cq);
        assert_eq!(done[0].status, remora_nic::Status::LocalQpOperation);
        assert!(bench.world.sent().is_empty());
    }
}

#[test]
fn what_no_peer_could_take_fails_here() {
    let place = [0; 16];
    let cases: [(Operation, &[u8], remora_nic::Status); 3] = [
        (Operation::Rpc { opcode: 1, tag: TAG_MASK + 1 }, &place, remora_nic::Status::LocalQpOperation),
        (Operation::Rpc { opcode: 1, tag: 0 }, &place[..15], remora_nic::Status::LocalLength),
        (Operation::Rpc { opcode: 1, tag: 0 }, &[0; 257], remora_nic::Status::LocalLength),
    ];
    for settings in arms() {
        for (operation, bytes, status) in cases {
            let mut bench = Bench::new(1, &Settings { max_inline: 512, ..settings });
            let payload = Payload::Inline(bytes);
            let request = WorkRequest { id: 1, operation, payload, flags: SIGNALED };
            bench.world.post(bench.left, &request).unwrap();
            assert!(bench.world.settle(1_000_000));
            assert_eq!(bench.world.drain(bench.left_cq)[0].status, status);
        }
    }
}
