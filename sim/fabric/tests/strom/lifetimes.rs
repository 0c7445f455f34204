//! Kernels are deployed and removed while the NIC runs, and there are fewer lanes than clients.

use remora_fabric::Settings;
use remora_nic::kernel::{Ending, Get, Kernel, KernelInit, Lookup, Progress, Status, Streams, What};
use remora_nic::{Command, HandedPart, NicError, Operation, Payload, ReceiveRequest, WorkRequest};

use crate::bench::{Bench, OPCODE, SIGNALED, arms, bad_links};
use crate::seeds;

/// A kernel that answers with its own number.
struct Says(u8);

impl Kernel for Says {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        if streams.input().is_some() {
            streams.take();
            streams.answer(Status(self.0), 0);
        }
        Progress::Rests
    }

    fn reset(&mut self) {}
}

/// A kernel that accepts input and never answers.
struct Silent;

impl Kernel for Silent {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        streams.take();
        Progress::Waits
    }

    fn reset(&mut self) {}
}

/// A kernel that serves a client from its parameters until its bytes.
struct Held;

impl Kernel for Held {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        let Some(input) = streams.input() else { return Progress::Waits };
        streams.take();
        if input.last {
            streams.answer(Status::DONE, 0);
        }
        if input.last && input.what == What::Data { Progress::Rests } else { Progress::Waits }
    }

    fn reset(&mut self) {}
}

#[test]
fn kernels_are_deployed_listed_replaced_and_removed_while_the_nic_runs() {
    for mut bench in Bench::arms() {
        let number = bench.deploy(vec![Box::new(Says(64)), Box::new(Says(64))]);
        let again = bench.init(Some(OPCODE), vec![Box::new(Says(65))]);
        assert_eq!(bench.try_deploy(again), Err(NicError::Busy));
        let other = bench.init(Some(OPCODE + 1), vec![Box::new(Says(66))]);
        let other = bench.try_deploy(other).unwrap();
        let facts = bench.facts();
        let listed: Vec<_> = facts.iter().map(|facts| (facts.number, facts.opcode, facts.lanes)).collect();
        assert_eq!(listed, [(number, Some(OPCODE), 2), (other, Some(OPCODE + 1), 1)]);
        assert!(facts.iter().all(|facts| facts.busy_lanes == 0), "{facts:?}");

        bench.rpc(OPCODE, 1, b"");
        assert_eq!(bench.run()[&1].status, Status(64));
        let replace = |bench: &mut Bench, kernels: Vec<Box<dyn Kernel>>| {
            let code = bench.world.hand(1, kernels);
            bench.world.ask::<()>(1, Command::ReplaceKernel { kernel: number, code })
        };
        assert_eq!(replace(&mut bench, vec![Box::new(Says(67))]), Err(NicError::TooSmall));
        replace(&mut bench, vec![Box::new(Says(67)), Box::new(Says(67))]).unwrap();
        bench.rpc(OPCODE, 2, b"");
        bench.rpc(OPCODE + 1, 3, b"");
        let answers = bench.run();
        assert_eq!((answers[&2].status, answers[&3].status), (Status(67), Status(66)));

        bench.world.ask::<()>(1, Command::RemoveKernel { kernel: number }).unwrap();
        assert_eq!(
            bench.world.ask::<()>(1, Command::RemoveKernel { kernel: number }),
            Err(NicError::Unknown)
        );
        bench.rpc(OPCODE, 4, b"");
        assert_eq!(bench.run()[&4].status, Status::NO_KERNEL);
        assert_eq!(bench.facts().len(), 1);
    }
}

#[test]
fn a_lane_at_work_is_replaced_when_it_rests() {
    for mut bench in Bench::arms() {
        let number = bench.deploy(vec![Box::new(Silent)]);
        bench.rpc(OPCODE, 1, b"");
        assert!(bench.run().is_empty());
        let code = bench.world.hand(1, HandedPart::Kernels(vec![Box::new(Says(64))]));
        bench.world.ask::<()>(1, Command::ReplaceKernel { kernel: number, code }).unwrap();
        bench.rpc(OPCODE, 2, b"");
        assert!(bench.run().is_empty(), "it goes on with the old one");
        // The connection ends, so the lane becomes free.
        bench.world.bring(bench.right, remora_transport::state::State::Err);
        assert!(bench.is_at_rest(0));
    }
}

#[test]
fn whoever_waits_for_a_kernel_that_is_removed_is_told() {
    for mut bench in Bench::arms() {
        let number = bench.deploy(vec![Box::new(Silent)]);
        bench.rpc(OPCODE, 1, b"");
        assert!(bench.run().is_empty());
        let removed = bench.world.ask::<()>(1, Command::RemoveKernel { kernel: number });
        assert_eq!(removed, Ok(()));
        assert_eq!(bench.run()[&1].status, Status::REMOVED);
    }
}

/// A kernel that never ends its work.
struct Busy;

impl Kernel for Busy {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        streams.take();
        Progress::Again
    }

    fn reset(&mut self) {}
}

/// Returns the endings that were reported, in order.
fn endings(bench: &mut Bench) -> Vec<(u32, Status)> {
    assert!(bench.world.settle(20_000_000), "the world never comes to rest");
    let came = bench.world.drain(bench.left_cq).into_iter().filter_map(|completion| completion.imm);
    came.map(|imm| (Ending::parse(imm).tag, Ending::parse(imm).status)).collect()
}

#[test]
fn a_kernel_that_is_removed_in_the_middle_of_a_message_is_told_of_once() {
    for succeeded in [false, true] {
        for mut bench in Bench::arms() {
            let number = bench.deploy(vec![Box::new(Silent)]);
            bench.rpc_write(OPCODE, 7, &[9; 14 * 256]);
            while bench.facts()[0].steps < 3 {
                bench.world.run_for(100);
            }
            bench.world.ask::<()>(1, Command::RemoveKernel { kernel: number }).unwrap();
            let after = if succeeded { Status(64) } else { Status::NO_KERNEL };
            if succeeded {
                bench.deploy(vec![Box::new(Says(64))]);
            }
            assert_eq!(endings(&mut bench), [(7, Status::REMOVED)]);
            bench.rpc(OPCODE, 8, b"");
            assert_eq!(endings(&mut bench), [(8, after)]);
        }
    }
}

#[test]
fn a_message_that_began_without_a_kernel_is_nobodys_to_its_end() {
    for mut bench in Bench::arms() {
        bench.rpc_write(OPCODE, 7, &[9; 14 * 256]);
        while bench.world.counters(1).rcvd_pkts < 3 {
            bench.world.run_for(100);
        }
        bench.deploy(vec![Box::new(Says(64))]);
        assert_eq!(endings(&mut bench), [(7, Status::NO_KERNEL)]);
    }
}

#[test]
fn requests_that_wait_for_a_kernel_that_is_removed_are_told_too() {
    for mut bench in Bench::arms() {
        let init = bench.init(Some(OPCODE), vec![Box::new(Busy)]);
        let number = bench.try_deploy(KernelInit { limit: 1 << 24, ..init }).unwrap();
        (0..4).for_each(|tag| bench.rpc(OPCODE, tag, b""));
        while bench.world.counters(1).rcvd_pkts < 4 {
            bench.world.run_for(10);
        }
        bench.world.ask::<()>(1, Command::RemoveKernel { kernel: number }).unwrap();
        let mut ended = endings(&mut bench);
        ended.sort_by_key(|(tag, _)| *tag);
        assert_eq!(ended, [0, 1, 2, 3].map(|tag| (tag, Status::REMOVED)));
    }
}

/// A kernel that answers a number of steps after it has received the whole request.
struct Slow {
    steps: u32,
    left: u32,
}

impl Kernel for Slow {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        if self.left > 0 {
            self.left -= 1;
            if self.left > 0 {
                return Progress::Again;
            }
            streams.answer(Status::DONE, 0);
            return Progress::Rests;
        }
        let Some(input) = streams.input() else { return Progress::Rests };
        streams.take();
        self.left = if input.last { self.steps } else { 0 };
        if input.last { Progress::Again } else { Progress::Waits }
    }

    fn reset(&mut self) {
        self.left = 0;
    }
}

#[test]
fn requests_around_which_their_kernel_is_removed_are_answered_once_each() {
    let mut counts = [0; 3];
    for arm in 0..2 {
        // The kernel is removed after each of the world's steps in turn, and either replaced at once or not.
        for after in 0..120 {
            let mut bench = Bench::new(1, &arms()[arm]);
            let number = bench.deploy(vec![Box::new(Slow { steps: 1500, left: 0 })]);
            bench.rpc(OPCODE, 1, b"");
            bench.rpc_write(OPCODE, 2, &[2; 2000]);
            bench.rpc(OPCODE, 3, b"");
            bench.rpc_write(OPCODE, 4, &[4; 700]);
            for _ in 0..after {
                bench.world.step();
            }
            bench.world.ask::<()>(1, Command::RemoveKernel { kernel: number }).unwrap();
            if after % 2 == 0 {
                bench.deploy(vec![Box::new(Slow { steps: 1, left: 0 })]);
            }
            let answers = bench.run();
            let statuses = [Status::REMOVED, Status::DONE, Status::NO_KERNEL];
            assert_eq!(answers.len(), 4, "arm {arm}, after {after} steps: {answers:?}");
            for answer in answers.values() {
                let place = statuses.iter().position(|status| *status == answer.status);
                counts[place.unwrap_or_else(|| panic!("after {after} steps: {answers:?}"))] += 1;
            }
            assert!(bench.is_at_rest(0), "arm {arm}, after {after} steps");
        }
    }
    assert!(counts.iter().all(|count| *count > 10), "removed, served, nobody there: {counts:?}");
}

/// A kernel that answers with a byte.
struct Brief;

impl Kernel for Brief {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        if streams.input().is_some() {
            streams.take();
            streams.answer(Status::DONE, 1);
            streams.put(&[1]);
        }
        Progress::Rests
    }

    fn reset(&mut self) {}
}

#[test]
fn requests_that_wait_for_room_when_their_kernel_is_removed_are_told() {
    for mut bench in Bench::arms() {
        let init = bench.init(Some(OPCODE), vec![Box::new(Brief)]);
        let init = KernelInit { answers: 2, ..init };
        let number = bench.try_deploy(init).unwrap();
        // No acknowledgement of an answer arrives, so the memory for answers is used up.
        bench.world.cut(1, 0, true);
        (0..8).for_each(|tag| bench.rpc(OPCODE, tag, b""));
        bench.world.run_for(200_000);
        let facts = bench.facts()[0];
        assert_eq!((facts.answers, facts.free_answers), (2, 0));
        assert_eq!(bench.world.ask::<()>(1, Command::RemoveKernel { kernel: number }), Err(NicError::Busy));
        bench.world.cut(1, 0, false);
        let answers = bench.run();
        let statuses: Vec<Status> = answers.values().map(|answer| answer.status).collect();
        let count = |status| statuses.iter().filter(|other| **other == status).count();
        assert_eq!((count(Status::DONE), statuses.len()), (2, 8), "{statuses:?}");
        assert!(count(Status::REMOVED) >= 4, "{statuses:?}");
        assert_eq!(bench.world.ask::<()>(1, Command::RemoveKernel { kernel: number }), Ok(()));
        assert!(bench.facts().is_empty());
    }
}

/// Clients share one lane over bad links, and send parameters and bytes in turn. Returns how often there was
/// no lane.
fn many_requests(seed: u64, settings: &Settings) -> u64 {
    let mut bench = Bench::new(seed, settings);
    bench.deploy(vec![Box::new(Held)]);
    let others = [0; 3].map(|_| bench.world.pair(0, 1, settings)[0]);
    let bytes = bench.here.sge(0, 700);
    for (qp, _) in others {
        (0..16).for_each(|_| {
            bench.world.post_receive(qp, &ReceiveRequest { id: 0, sges: &[] }).unwrap();
        });
    }
    bench.world.set_rules(&bad_links(seed), seed);
    for tag in 0..8 {
        bench.rpc(OPCODE, 2 * tag, b"");
        bench.rpc_write(OPCODE, 2 * tag + 1, &[9; 700]);
        for (qp, _) in others {
            let place = bench.place(2 * tag).emit();
            let params = (Operation::Rpc { opcode: OPCODE, tag: 2 * tag }, Payload::Inline(&place));
            let data = (Operation::RpcWrite { opcode: OPCODE, tag: 2 * tag + 1 }, Payload::Sges(&[bytes]));
            for (operation, payload) in [params, data] {
                let request = WorkRequest { id: 0, operation, payload, flags: SIGNALED };
                bench.world.post(qp, &request).unwrap();
            }
        }
    }
    assert_eq!(bench.run().len(), 16, "seed {seed}");
    for (_, cq) in others {
        let done = bench.world.drain(cq);
        assert!(done.iter().all(|wc| wc.status == remora_nic::Status::Success), "seed {seed}: {done:?}");
        let answers = done.iter().filter(|wc| wc.imm.is_some()).count();
        assert_eq!((done.len(), answers), (32, 16), "seed {seed}");
    }
    assert!(bench.is_at_rest(0), "seed {seed}");
    assert_eq!(bench.world.counters(1).rx_rpc_requests, 64, "seed {seed}: each counts once");
    bench.world.counters(1).kernels_busy
}

#[test]
fn clients_wait_for_a_lane_and_all_are_served() {
    for settings in arms() {
        let mut busy = 0;
        seeds::each(0..50, |seed| many_requests(seed, &settings), |_, more| busy += more);
        assert!(busy > 0, "nobody had to wait");
    }
}

#[test]
fn a_connection_that_ends_gives_back_its_lane_and_its_room() {
    for mut bench in Bench::arms() {
        bench.deploy(vec![Box::new(Get::default())]);
        let slot = bench.there.remote(0).addr;
        for tag in 0..8 {
            bench.rpc(OPCODE, tag, &Lookup { slot, key: 0 }.emit());
        }
        bench.world.run_for(3_000);
        bench.world.bring(bench.right, remora_transport::state::State::Err);
        assert!(bench.is_at_rest(0));
    }
}
