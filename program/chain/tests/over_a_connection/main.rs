//! Tests of a client that calls a chain over a connection that loses, duplicates, delays and reorders
//! packets. The client has no key. Its message is scattered into the chain's variables, the chain decides,
//! and the server's NIC sends the answer.

mod install;
mod offloads;

use remora_chain::{Code, Location, Operand, Program, Queue, Test, Work};
use remora_fabric::{Config, Settings, World};
use remora_fault::{Action, Rule, Rules};
use remora_nic::{Fetching, Flags, Operation, Payload, ReceiveRequest, WorkRequest};

use install::install;

const SIGNALED: Flags = Flags { signaled: true, fence: false, solicited: false };

/// The chain: after a message arrived, it compares the value and enables the answer.
fn program(test: Test) -> (Program, [Location; 3]) {
    let mut program = Program::new();
    program.queues.push(Queue::new("port", Fetching::Enabled));
    let mut code = Code::once(&mut program, "main");
    let [x, y, one, answer] =
        [("x", 0), ("y", 0), ("one", 1), ("answer", 0)].map(|(name, value)| code.var(name, value));
    code.push(Work::wait_received(0, 1));
    code.when(x, test, Operand::Var(y), Work::write(one, answer, 8));
    code.barrier();
    code.push(Work::enable(0, 1));
    code.end();
    (program, [x, y, answer])
}

/// Returns links that lose, duplicate and reorder one frame in ten each.
fn unruly(seed: u64) -> World {
    let chances = [Action::Drop, Action::Duplicate, Action::Reorder { frames: 2 }];
    let rules = chances.into_iter().map(|action| Rule::chance(action, 0.1)).collect();
    World::new(&Config { rules: Rules::of(rules), seed, ..Config::default() })
}

/// Returns the answer to a client's request with `x` and `y`.
fn ask(seed: u64, test: Test, x: u64, y: u64) -> u64 {
    let mut world = unruly(seed);
    let settings =
        Settings { fetching: Fetching::Enabled, access: remora_memory::Access::NONE, ..Settings::default() };
    let server_cqs = [world.create_counted_cq(0, 16), world.create_counted_cq(0, 16)];
    let server = world.create_qp(server_cqs[0], server_cqs[1], &settings).unwrap();
    let client_cq = world.create_cq(1, 16);
    let client =
        world.create_qp(client_cq, client_cq, &Settings { fetching: Fetching::Posted, ..settings }).unwrap();
    world.connect(server, client, &settings);

    let (program, [x_at, y_at, answer]) = program(test);
    let installed = install(&mut world, &program, server, server_cqs, &[]);
    let pieces = [installed.sge(x_at, 8), installed.sge(y_at, 8)];
    world.post_receive(server, &ReceiveRequest { id: 0, sges: &pieces }).unwrap();
    let payload = [installed.sge(answer, 8)];
    let request =
        WorkRequest { id: 0, operation: Operation::Send, payload: Payload::Sges(&payload), flags: SIGNALED };
    world.post(server, &request).unwrap();
    assert!(world.settle(1_000_000));

    let here = world.register(1, 64, remora_memory::Access::LOCAL_WRITE);
    here.store(0, &x.to_le_bytes());
    here.store(8, &y.to_le_bytes());
    world.post_receive(client, &ReceiveRequest { id: 1, sges: &[here.sge(16, 8)] }).unwrap();
    let list = [here.sge(0, 16)];
    let request =
        WorkRequest { id: 2, operation: Operation::Send, payload: Payload::Sges(&list), flags: SIGNALED };
    world.post(client, &request).unwrap();
    assert!(world.settle(1_000_000));
    let ends = world.drain(client_cq);
    assert!(ends.len() == 2 && ends.iter().all(|end| end.status == remora_nic::Status::Success), "{ends:?}");
    u64::from_le_bytes(here.load(16, 8).try_into().unwrap())
}

#[test]
fn comparisons_are_right_whatever_the_network_does() {
    for seed in 0..120_u64 {
        let test = Test::ALL[seed as usize % 6];
        for (x, y) in [(seed, seed), (seed, seed + 1), (seed << 20, 3)] {
            assert_eq!(ask(seed, test, x, y), u64::from(test.holds(x, y)), "{x} {test:?} {y}, seed {seed}");
        }
    }
}
