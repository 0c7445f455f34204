//! A queue pair that is destroyed or moved to RESET takes its completions with it, as with `ibv_destroy_qp`
//! and `ibv_modify_qp`.

use crate::bench::{Bench, SILENT, ends, good};
use remora_fabric::{CompletionQueue, QueuePair, Settings, World};
use remora_nic::{Command, NicError, Notify, Operation, Payload, ReceiveRequest, Status, WorkRequest};
use remora_transport::state::State;

/// Two queue pairs of node 0 that share a completion queue, each connected to one of node 1.
struct Shared {
    world: World,
    near: [QueuePair; 2],
    cq: CompletionQueue,
    far: [QueuePair; 2],
    far_cq: CompletionQueue,
}

fn shared() -> Shared {
    let mut world = World::new(&remora_fabric::Config::default());
    let settings = Settings::default();
    let cq = world.create_cq(0, 64);
    let far_cq = world.create_cq(1, 64);
    let mut pair = |psn| {
        let near = world.create_qp(cq, cq, &settings).unwrap();
        let far = world.create_qp(far_cq, far_cq, &settings).unwrap();
        world.connect(near, far, &Settings { psn, ..settings });
        (near, far)
    };
    let [(one, to_one), (two, to_two)] = [pair([1, 2]), pair([3, 4])];
    Shared { world, near: [one, two], cq, far: [to_one, to_two], far_cq }
}

impl Shared {
    fn nops(&mut self, index: usize, ids: std::ops::Range<u64>) {
        for id in ids {
            let payload = Payload::Sges(&[]);
            let request =
                WorkRequest { id, operation: Operation::Send, payload, flags: crate::bench::SIGNALED };
            self.world.post_receive(self.far[index], &ReceiveRequest { id, sges: &[] }).unwrap();
            self.world.post(self.near[index], &request).unwrap();
        }
        assert!(self.world.settle(1_000_000));
    }
}

/// Regression: completions of a queue pair outlived `ibv_destroy_qp` and a move to RESET, when its
/// number could belong to another queue pair.
#[test]
fn completions_of_a_destroyed_queue_pair_vanish_from_both_queues_and_others_stay() {
    let mut shared = shared();
    for turn in 0..3 {
        shared.nops(0, 10 * turn..10 * turn + 2);
        shared.nops(1, 100 * turn..100 * turn + 2);
    }
    let near = shared.near[0].number;
    let far = shared.far[0].number;
    let count = shared.world.ask::<u64>(0, Command::CountCompletions { cq: shared.cq.number });
    shared.world.ask::<()>(0, Command::DestroyQp(near)).unwrap();
    shared.world.ask::<()>(1, Command::DestroyQp(far)).unwrap();
    assert_eq!(
        shared.world.ask::<u64>(0, Command::CountCompletions { cq: shared.cq.number }),
        count,
        "for WAIT"
    );
    let others = good([0, 1, 100, 101, 200, 201]);
    assert_eq!(ends(&shared.world.drain(shared.cq)), others);
    assert_eq!(ends(&shared.world.drain(shared.far_cq)), others);
    shared.nops(1, 7..9);
    assert_eq!(ends(&shared.world.drain(shared.cq)), good([7, 8]));
}

#[test]
fn completions_of_a_queue_pair_that_goes_to_reset_vanish_also_flushed_ones() {
    let mut shared = shared();
    shared.nops(0, 0..2);
    shared.nops(1, 50..51);
    shared.world.post_receive(shared.near[0], &ReceiveRequest { id: 3, sges: &[] }).unwrap();
    shared.world.bring(shared.near[0], State::Err);
    shared.world.bring(shared.near[0], State::Reset);
    assert_eq!(ends(&shared.world.drain(shared.cq)), good([50]));
    // In ERR the completions stay, because a program polls them.
    shared.world.post_receive(shared.near[1], &ReceiveRequest { id: 4, sges: &[] }).unwrap();
    shared.world.bring(shared.near[1], State::Err);
    assert_eq!(ends(&shared.world.drain(shared.cq)), [(4, Status::WrFlushed)]);
}

/// A program that repeatedly creates and destroys queue pairs without polling their completions does not fill
/// its completion queue.
#[test]
fn a_completion_queue_outlives_any_number_of_queue_pairs_that_left_completions() {
    let settings = Settings { send_slots: 8, ..Settings::default() };
    let mut bench = Bench::new(&settings);
    let cq = bench.world.create_cq(0, 8);
    for turn in 0..100 {
        let qp = bench.world.create_qp(cq, cq, &settings).unwrap();
        let to_init = bench.world.way_to_rts(qp, bench.right, [0, 0], &settings)[0];
        bench.world.modify(qp, &to_init).unwrap();
        (0..8).for_each(|id| bench.world.post_receive(qp, &ReceiveRequest { id, sges: &[] }).unwrap());
        bench.world.bring(qp, State::Err);
        bench.world.ask::<()>(0, Command::DestroyQp(qp.number)).unwrap();
        assert_eq!(bench.world.drain(cq), [], "turn {turn}");
    }
    assert_eq!(bench.world.counters(0).cq_overrun, 0);
    assert_eq!(bench.world.ask::<()>(0, Command::DestroyCq { cq: cq.number }), Ok(()));
    assert_eq!(bench.world.ask::<()>(0, Command::DestroyCq { cq: cq.number }), Err(NicError::Unknown));
}

/// Unsignaled work leaves nothing to remove, and the notification of the queue pair still arrives.
#[test]
fn an_armed_queue_wakes_its_program_although_the_completion_is_gone() {
    let mut bench = Bench::new(&Settings::default());
    bench.world.ask::<()>(0, Command::NotifyCq { cq: bench.left_cq.number, notify: Notify::Any }).unwrap();
    bench.put(1, Operation::Nop, &[], SILENT).unwrap();
    bench.write(2, 8);
    assert!(bench.world.settle(1_000_000));
    bench.world.ask::<()>(0, Command::DestroyQp(bench.left.number)).unwrap();
    assert_eq!(bench.world.with_nic(0, |nic, _| nic.wake()), Some(bench.left_cq.number));
    assert_eq!(bench.world.drain(bench.left_cq), []);
}
