//! Tests of the attendant, which serves the NIC while the program sleeps and must not interfere while it
//! polls; and of dedicated threads.

use remora_verbs::{
    Access, CompletionQueue, Context, CqOptions, Device, DriverCounters, EMPTY, MemoryRegion, Mode, Notify,
    PollError, QpOptions, QueuePair, ReceiveRequest, Remote, Status, work,
};
use std::time::{Duration, Instant};

/// Time limit of a test: longer means that it hangs.
const LONG: Duration = Duration::from_secs(60);

struct Side {
    context: Context,
    cq: CompletionQueue,
    pair: QueuePair,
    memory: MemoryRegion,
}

impl Side {
    fn drivers(&self) -> DriverCounters {
        self.context.driver_counters()[0]
    }

    /// Polls once. Returns true if a completion came.
    fn polled(&mut self) -> bool {
        let mut done = [EMPTY; 1];
        let came = self.cq.poll(&mut done).unwrap() == 1;
        assert!(!came || done[0].status == Status::Success, "{:?}", done[0]);
        came
    }
}

fn ends(devices: [Device; 2]) -> (Side, Side) {
    let [a, b] = devices.map(|device| {
        let context = device.open().unwrap();
        let domain = context.alloc_pd().unwrap();
        let cq = context.create_cq(64).unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let memory = domain.allocate(4096, access).unwrap();
        let pair = domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
        (context, cq, memory, pair)
    });
    let (one, two) = QueuePair::connect_pair(a.3, b.3).unwrap();
    let end = |context, cq, memory, pair| Side { context, cq, pair, memory };
    (end(a.0, a.1, a.2, one), end(b.0, b.1, b.2, two))
}

fn udp() -> Device {
    Device::udp("127.0.0.1:0").unwrap()
}

fn read_from_a_sleeper(devices: [Device; 2]) {
    let (mut a, b) = ends(devices);
    b.memory.write(0, b"awake").unwrap();
    // The pauses cover a sleeping driver thread of the other side as well as one that is awake.
    for pause in [30, 0, 0, 5, 120] {
        std::thread::sleep(Duration::from_millis(pause));
        a.pair.post_send(&work::read(1, &[a.memory.sge(0, 5)], b.memory.remote(0))).unwrap();
        let mut done = [EMPTY; 1];
        assert_eq!(a.cq.wait(&mut done, LONG), Ok(1));
        assert_eq!(done[0].status, Status::Success);
        assert_eq!(a.memory.get::<[u8; 5]>(0), Ok(*b"awake"));
    }
    let drivers = b.drivers();
    assert!(drivers.passes + drivers.packet_wakes > 0, "no thread has served the NIC: {drivers:?}");
}

#[test]
fn a_sleeping_program_is_served_by_the_attendant() {
    read_from_a_sleeper([Device::shm(), Device::shm()]);
    read_from_a_sleeper([udp(), udp()]);
}

#[test]
fn a_sleeping_program_is_served_by_a_dedicated_engine() {
    read_from_a_sleeper([Device::shm().mode(Mode::Dedicated), Device::shm().mode(Mode::Dedicated)]);
    read_from_a_sleeper([Device::shm(), Device::shm().mode(Mode::Dedicated)]);
    read_from_a_sleeper([udp(), udp().mode(Mode::Dedicated)]);
}

/// Performs READs in one thread that polls both sides, so that both sides pause together.
fn traffic(a: &mut Side, b: &mut Side, reads: u64) {
    for id in 0..reads {
        a.pair.post_send(&work::read(id, &[a.memory.sge(0, 64)], b.memory.remote(0))).unwrap();
        while !a.polled() {
            b.polled();
        }
    }
}

fn packets_do_not_wake(devices: [Device; 2]) {
    const READS: u64 = 100_000;
    let (mut a, mut b) = ends(devices);
    // The attendants sleep when the traffic begins, so they must notice it without wakes by packets.
    std::thread::sleep(Duration::from_millis(30));
    traffic(&mut a, &mut b, 1000);
    // The count need not be 0: if this thread does not run for a millisecond, nobody polls. On a busy machine
    // that is frequent, so one good run of three suffices.
    let mut runs = Vec::new();
    let few = (0..3).any(|_| {
        runs.push(wakes(&mut a, &mut b, READS));
        runs.last().unwrap().iter().all(|wakes| wakes * 10 < READS)
    });
    assert!(few, "{runs:?} wakes by {READS} reads");
}

/// The number of packet wakes of each side's attendant during `reads` READs.
fn wakes(a: &mut Side, b: &mut Side, reads: u64) -> [u64; 2] {
    let before = [a.drivers(), b.drivers()];
    traffic(a, b, reads);
    let after = [a.drivers(), b.drivers()];
    [0, 1].map(|side| after[side].packet_wakes - before[side].packet_wakes)
}

#[test]
fn packets_do_not_wake_the_attendant_while_a_caller_polls() {
    packets_do_not_wake([Device::shm(), Device::shm()]);
    packets_do_not_wake([udp(), udp()]);
}

/// Runs a side of a ping-pong by WRITE. Each side waits by reading its memory, and polls only for its own
/// completions, as `ib_write_lat` of perftest does.
fn spin_on_memory(side: &mut Side, peer: Remote, begins: bool, rounds: u64) {
    for round in 1..=rounds {
        for sends in [begins, !begins] {
            if sends {
                side.memory.put(8, &round).unwrap();
                side.pair.post_send(&work::write(1, &[side.memory.sge(8, 8)], peer)).unwrap();
                while !side.polled() {}
            } else {
                let started = Instant::now();
                while side.memory.get::<u64>(0) != Ok(round) {
                    assert!(started.elapsed() < LONG, "nobody serves a program that spins on memory");
                    std::hint::spin_loop();
                }
            }
        }
    }
}

fn packets_wake_for_a_spinner(devices: [Device; 2]) {
    const ROUNDS: u64 = 500;
    let (mut a, mut b) = ends(devices);
    let to_a = a.memory.remote(0);
    let to_b = b.memory.remote(0);
    std::thread::scope(|scope| {
        scope.spawn(|| spin_on_memory(&mut a, to_b, true, ROUNDS));
        spin_on_memory(&mut b, to_a, false, ROUNDS);
    });
    let wakes = a.drivers().packet_wakes + b.drivers().packet_wakes;
    // With its timer alone, the attendant finds each message after a millisecond. It finds the first few in
    // this way.
    assert!(wakes > ROUNDS, "{wakes} wakes by {ROUNDS} round trips");
    // One side no longer calls the API, but requests to it are still answered.
    for id in 0..100 {
        let sges = [a.memory.sge(16, 8)];
        let there = b.memory.remote(16);
        let request = if id % 2 == 0 { work::write(id, &sges, there) } else { work::read(id, &sges, there) };
        a.pair.post_send(&request).unwrap();
        let started = Instant::now();
        while !a.polled() {
            assert!(started.elapsed() < LONG, "no thread answers for a program that spins on memory");
        }
    }
}

#[test]
fn packets_wake_the_attendant_while_a_program_spins_on_memory() {
    packets_wake_for_a_spinner([Device::shm(), Device::shm()]);
    packets_wake_for_a_spinner([udp(), udp()]);
}

#[test]
fn the_attendant_serves_again_when_the_caller_stops() {
    let (mut a, mut b) = ends([Device::shm(), Device::shm()]);
    for _ in 0..5 {
        traffic(&mut a, &mut b, 500);
        let before = b.drivers().passes;
        // From now on only one side polls.
        a.pair.post_send(&work::read(1, &[a.memory.sge(0, 64)], b.memory.remote(0))).unwrap();
        while !a.polled() {}
        // The attendant counts a pass at its end, which may be after the answer has been sent.
        let patience = Instant::now();
        while b.drivers().passes == before {
            assert!(patience.elapsed() < LONG, "whoever answered was not the attendant");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_channel_wakes_a_program_that_sleeps() {
    for device in [Device::shm(), udp(), Device::shm().mode(Mode::Dedicated), udp().mode(Mode::Dedicated)] {
        channel_wakes(&device);
    }
}

fn channel_wakes(device: &Device) {
    let context = device.open().unwrap();
    let sender = device.open().unwrap();
    let channel = context.create_channel().unwrap();
    let options = CqOptions { depth: 16, channel: Some(&channel), ..CqOptions::default() };
    let mut cq = context.create_cq_with(&options).unwrap();
    let domain = context.alloc_pd().unwrap();
    let inbox = domain.allocate(64, Access::LOCAL_WRITE).unwrap();
    let mut pair = domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
    for id in 0..8 {
        pair.post_recv(&ReceiveRequest { id, sges: &[inbox.sge(0, 64)] }).unwrap();
    }
    let mut sent = sender.create_cq(16).unwrap();
    let far = sender.alloc_pd().unwrap().create_qp(&sent, &sent, &QpOptions::default()).unwrap();
    let (_pair, mut far) = QueuePair::connect_pair(pair, far).unwrap();
    let mut done = [EMPTY; 4];
    for round in 0..4u64 {
        cq.arm(Notify::Any).unwrap();
        assert_eq!(cq.poll(&mut done), Ok(0));
        assert_eq!(channel.wait(Some(Duration::ZERO)), Err(PollError::Timeout));
        far.post_send(&work::send_inline(round, b"knock")).unwrap();
        assert_eq!(channel.wait(Some(LONG)), Ok(cq.tag()));
        assert_eq!(cq.poll(&mut done), Ok(1));
        assert_eq!((done[0].id, done[0].byte_len), (round, 5));
        assert_eq!(sent.wait(&mut done, LONG), Ok(1));
    }
    // No report while the queue is not armed, and none for an unsolicited message if armed for solicited
    // ones.
    far.post_send(&work::send_inline(9, b"")).unwrap();
    assert_eq!(sent.wait(&mut done, LONG), Ok(1));
    assert_eq!(cq.wait(&mut done, LONG), Ok(1));
    cq.arm(Notify::Solicited).unwrap();
    far.post_send(&work::send_inline(10, b"")).unwrap();
    assert_eq!(sent.wait(&mut done, LONG), Ok(1));
    assert_eq!(cq.wait(&mut done, LONG), Ok(1));
    assert_eq!(channel.poll(), None);
    let solicited = remora_verbs::Flags { signaled: true, solicited: true, fence: false };
    far.post_send(&remora_verbs::WorkRequest { flags: solicited, ..work::send_inline(11, b"") }).unwrap();
    assert_eq!(channel.wait(Some(LONG)), Ok(cq.tag()));
}

#[test]
fn an_idle_pair_sleeps() {
    sleeps([Device::shm(), Device::shm()]);
    sleeps([udp(), udp()]);
    let dedicated = |device: Device| device.mode(Mode::Dedicated);
    sleeps([dedicated(Device::shm()), dedicated(Device::shm())]);
    sleeps([dedicated(udp()), dedicated(udp())]);
}

fn sleeps(devices: [Device; 2]) {
    let (mut a, mut b) = ends(devices);
    traffic(&mut a, &mut b, 1000);
    std::thread::sleep(Duration::from_millis(200));
    let before = [a.drivers(), b.drivers()];
    let began = Instant::now();
    std::thread::sleep(Duration::from_millis(1000));
    for (before, after) in before.into_iter().zip([a.drivers(), b.drivers()]) {
        let wakes = after.timer_wakes + after.packet_wakes + after.calls
            - before.timer_wakes
            - before.packet_wakes
            - before.calls;
        // About twenty wakes per second once the timer has backed off, of some microseconds each. On a busy
        // machine a second takes longer.
        let seconds = began.elapsed().as_secs() + 1;
        assert!(wakes < 60 * seconds, "{wakes} wakes in {seconds} idle seconds");
    }
}

#[test]
fn queue_pairs_of_several_engines_work_side_by_side() {
    for device in [Device::shm(), udp(), Device::shm().mode(Mode::Dedicated), udp().mode(Mode::Dedicated)] {
        let near = device.clone().engines(3).open().unwrap();
        let far = device.engines(2).open().unwrap();
        let near_domain = near.alloc_pd().unwrap();
        let far_domain = far.alloc_pd().unwrap();
        let memory = near_domain.allocate(4096, Access::LOCAL_WRITE).unwrap();
        let table = far_domain.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
        let mut ends = Vec::new();
        for number in 0..6 {
            let cq = near.create_cq(16).unwrap();
            let far_cq = far.create_cq(16).unwrap();
            assert_eq!(
                (cq.engine(), far_cq.engine()),
                (number % 3, number % 2),
                "the engines are used in turn"
            );
            let one = near_domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
            let two = far_domain.create_qp(&far_cq, &far_cq, &QpOptions::default()).unwrap();
            let (one, two) = QueuePair::connect_pair(one, two).unwrap();
            ends.push((cq, one, two));
        }
        for (number, (cq, one, _)) in ends.iter_mut().enumerate() {
            memory.write(number * 64, &[number as u8 + 1; 64]).unwrap();
            let place = table.remote(number as u64 * 64);
            one.post_send(&work::write(number as u64, &[memory.sge(number * 64, 64)], place)).unwrap();
            let mut done = [EMPTY; 1];
            assert_eq!(cq.wait(&mut done, LONG), Ok(1));
            assert_eq!(done[0].status, Status::Success);
        }
        for number in 0..6 {
            assert_eq!(table.get::<[u8; 64]>(number * 64), Ok([number as u8 + 1; 64]));
        }
        let one = near.create_cq(16).unwrap();
        let two = near.create_cq(16).unwrap();
        let refused = near_domain.create_qp(&one, &two, &QpOptions::default());
        assert_eq!(refused.err(), Some(remora_verbs::CreateError::DifferentEngines));
    }
}
