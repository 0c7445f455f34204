//! A client calls a chain over a connection that loses, doubles, delays and reorders. It holds no key to anything: its message
//! is scattered into the chain's variables, the chain decides, and the server's NIC sends the answer.

use fabric::fault::{Action, Rule, Rules};
use fabric::{ALL, Config, Region, Settings, World};
use nic::{Fetching, Flags, Operation, Payload, ReceiveRequest, Sge, WorkRequest};
use remora_chain::{
    Code, Home, Numbers, Operand, Place, Program, Queue, QueueNumbers, Test, Work, layout, link,
};

const SIGNALED: Flags = Flags { signaled: true, fence: false, solicited: false };

/// A program's memory on node 0 of a world.
struct Installed {
    numbers: Numbers,
    sections: Vec<Region>,
}

impl Installed {
    fn sge(&self, at: Place, len: u32) -> Sge {
        let Home::Section(section) = at.home else { panic!("only data is asked for") };
        Sge { addr: self.numbers.address(at), len, lkey: self.sections[section].key }
    }
}

/// Queue 0 of the program stands for a connection that is there already; the others are made. Every section and code region
/// has a key of its own, so that the work requests of only one region and one queue can be linked.
fn install(world: &mut World, program: &Program, port: QueueNumbers) -> Installed {
    let mut numbers = layout(program);
    let mut made = Vec::new();
    for queue in &program.queues[1..] {
        let settings =
            Settings { fetching: queue.fetching, send_slots: queue.ring_slots(), ..Settings::default() };
        let cq = world.create_counted_cq(0, 64);
        let qp = world.create_loopback(cq, cq, &settings).unwrap();
        made.push((qp, cq));
    }
    // One region over everything: the sections, then the slots of each queue.
    let pd = world.pd(0);
    let sections: Vec<_> =
        program.sections.iter().map(|section| memory::Bytes::heap(section.bytes.len()).unwrap()).collect();
    let mut ranges: Vec<_> = sections
        .iter()
        .zip(&numbers.sections)
        .map(|(bytes, address)| memory::Range::at(bytes, *address))
        .collect();
    for ((qp, _), numbers) in made.iter().zip(&numbers.queues[1..]) {
        let ring = world.send_ring(*qp);
        let (bytes, len) = (ring.bytes().clone(), ring.slots() as usize * 64);
        ranges.push(memory::Range { bytes, offset: 64, len, iova: numbers.code });
    }
    let key = world.table(0).register(pd, &ranges, ALL).unwrap();
    numbers.key = key.get();
    numbers.queues[0] = QueueNumbers { code: numbers.queues[0].code, ..port };
    for ((qp, cq), numbers) in made.iter().zip(&mut numbers.queues[1..]) {
        *numbers = QueueNumbers {
            qp: qp.number.get(),
            send_cq: cq.number,
            receive_cq: cq.number,
            code: numbers.code,
        };
    }
    let image = link(program, &numbers);
    for (bytes, content) in sections.iter().zip(&image.sections) {
        bytes.write(0, content).unwrap();
    }
    let regions = sections.into_iter().zip(&numbers.sections);
    let regions: Vec<_> =
        regions.map(|(bytes, address)| Region { node: 0, key, address: *address, bytes }).collect();
    for (((qp, _), slots), queue) in made.iter().zip(&image.queues[1..]).zip(&program.queues[1..]) {
        slots.iter().for_each(|slot| world.post_slot(*qp, slot));
        world.ring(*qp);
        if queue.enabled > 0 {
            world.with_nic(0, |nic, _| nic.enable(qp.number, queue.enabled)).unwrap();
        }
    }
    Installed { numbers, sections: regions }
}

/// The chain: when a message has come, compare what it brought, and let the answer go.
fn program(test: Test) -> (Program, [Place; 3]) {
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

/// What the client is told when it asks about x and y.
fn ask(seed: u64, test: Test, x: u64, y: u64) -> u64 {
    let chances = [Action::Drop, Action::Duplicate, Action::Reorder { frames: 2 }];
    let rules = chances.into_iter().map(|action| Rule::chance(action, 0.1)).collect();
    let mut world = World::new(&Config { rules: Rules::of(rules), seed, ..Config::default() });
    let settings =
        Settings { fetching: Fetching::Enabled, access: memory::Access::NONE, ..Settings::default() };
    let (server_cq, client_cq) = (world.create_counted_cq(0, 16), world.create_cq(1, 16));
    let server = world.create_qp(server_cq, server_cq, &settings).unwrap();
    let client =
        world.create_qp(client_cq, client_cq, &Settings { fetching: Fetching::Posted, ..settings }).unwrap();
    world.connect(server, client, &settings);

    let (program, [x_at, y_at, answer]) = program(test);
    let cq = server_cq.number;
    let port = QueueNumbers { qp: server.number.get(), send_cq: cq, receive_cq: cq, code: 0 };
    let installed = install(&mut world, &program, port);
    let pieces = [installed.sge(x_at, 8), installed.sge(y_at, 8)];
    world.post_receive(server, &ReceiveRequest { id: 0, sges: &pieces }).unwrap();
    let told = [installed.sge(answer, 8)];
    let request =
        WorkRequest { id: 0, operation: Operation::Send, payload: Payload::Sges(&told), flags: SIGNALED };
    world.post(server, &request).unwrap();
    assert!(world.settle(1_000_000));

    let here = world.register(1, 64, memory::Access::LOCAL_WRITE);
    here.store(0, &x.to_le_bytes());
    here.store(8, &y.to_le_bytes());
    world.post_receive(client, &ReceiveRequest { id: 1, sges: &[here.sge(16, 8)] }).unwrap();
    let list = [here.sge(0, 16)];
    let request =
        WorkRequest { id: 2, operation: Operation::Send, payload: Payload::Sges(&list), flags: SIGNALED };
    world.post(client, &request).unwrap();
    assert!(world.settle(1_000_000));
    let ends = world.drain(client_cq);
    assert!(ends.len() == 2 && ends.iter().all(|end| end.status == nic::Status::Success), "{ends:?}");
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
