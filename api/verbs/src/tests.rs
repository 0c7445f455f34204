//! Tests with an engine that stands still, as on a busy machine. A program outside the crate cannot cause
//! such stalls.

mod devices;

use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::{
    Access, CompletionQueue, Context, Device, EMPTY, MemoryRegion, QpOptions, QueuePair, Status, work,
};

/// Queue pairs with one outstanding READ each: more answers than one engine pass processes frames.
const PAIRS: usize = 100;
/// Timeout code of 537 ms.
const TIMEOUT: u8 = 17;
/// A stall longer than [`TIMEOUT`].
const STALL: Duration = Duration::from_millis(700);
/// Time limit of a test: longer means that it hangs.
const LONG: Duration = Duration::from_secs(60);
/// Time limit for a READ that is not delayed.
const PATIENCE: Duration = Duration::from_secs(20);

/// Connections that allow no retries.
struct Connections {
    here: Context,
    there: Context,
    cq: CompletionQueue,
    pairs: Vec<[QueuePair; 2]>,
    memory: MemoryRegion,
    source: MemoryRegion,
}

fn ends(device: impl Fn() -> Device, irn: bool) -> Connections {
    let here = device().open().unwrap();
    let there = device().open().unwrap();
    let domains = [&here, &there].map(|context| context.alloc_pd().unwrap());
    let cq = here.create_cq(2 * PAIRS as u32).unwrap();
    let far_cq = there.create_cq(16).unwrap();
    let options = QpOptions { timeout: TIMEOUT, retry_cnt: 0, irn, ..QpOptions::default() };
    let pair = |_| {
        let near = domains[0].create_qp(&cq, &cq, &options).unwrap();
        let far = domains[1].create_qp(&far_cq, &far_cq, &options).unwrap();
        let (near, far) = QueuePair::connect_pair(near, far).unwrap();
        [near, far]
    };
    let pairs = (0..PAIRS).map(pair).collect();
    let memory = domains[0].allocate(4096, Access::LOCAL_WRITE).unwrap();
    let source = domains[1].allocate(4096, Access::REMOTE_READ).unwrap();
    Connections { here, there, cq, pairs, memory, source }
}

/// Frames that an engine has sent.
fn sent(context: &Context) -> u64 {
    context.counters().sent_pkts
}

/// READs are answered while the requester's engine stands still for longer than their timeout. When it
/// continues, it finds the answers as well as expired timers.
fn answers_count_that_came_before_their_timers_were_looked_at(device: impl Fn() -> Device, irn: bool) {
    let mut ends = ends(device, irn);
    let before = sent(&ends.there);
    // The server is held until the client's engine stands still, so that all answers come during the stall.
    ends.there.own_engines()[0]
        .inside(|_| {
            for (id, [pair, _]) in ends.pairs.iter_mut().enumerate() {
                let sges = [ends.memory.sge(0, 64)];
                pair.post_send(&work::read(id as u64, &sges, ends.source.remote_memory().at(0))).unwrap();
            }
        })
        .unwrap();
    ends.here.own_engines()[0]
        .inside(|_| {
            let began = Instant::now();
            while sent(&ends.there) < before + PAIRS as u64 || began.elapsed() < STALL {
                assert!(began.elapsed() < LONG, "the peer did not answer in time");
                std::thread::sleep(Duration::from_millis(1));
            }
        })
        .unwrap();
    let mut done = [EMPTY; 16];
    let mut over = 0;
    while over < PAIRS {
        let came = ends.cq.wait(&mut done, LONG).unwrap();
        assert!(came > 0, "only {over} of {PAIRS} transfers have ended");
        for completion in &done[..came] {
            assert_eq!(completion.status, Status::Success, "of READ {}", completion.id);
        }
        over += came;
    }
}

/// Regression: an engine that nobody drove for longer than its timers blamed its peers before it took
/// the frames that had arrived. After a suspend every READ over IRN failed.
#[test]
fn an_engine_that_stood_still_takes_what_came_before_it_blames_its_peers() {
    let udp = || Device::udp("127.0.0.1:0").unwrap();
    for irn in [false, true] {
        answers_count_that_came_before_their_timers_were_looked_at(Device::shm, irn);
        answers_count_that_came_before_their_timers_were_looked_at(udp, irn);
    }
}

/// Two clients of one server over shared memory. The engine of one stands still, so the server's answers
/// fill the ring to it.
///
/// Regression: over shared memory a peer that took no frames held up all other peers of the NIC.
#[test]
fn a_client_that_stands_still_holds_up_no_other() {
    const LEN: usize = 64 << 10;
    const READS: u64 = 16;
    let [server, still, lively] = [(); 3].map(|()| Device::shm().open().unwrap());
    let domain = server.alloc_pd().unwrap();
    let source = domain.allocate(LEN, Access::REMOTE_READ).unwrap();
    let far_cq = server.create_cq(16).unwrap();
    let mut pairs = Vec::new();
    let mut connect = |context: &Context| {
        let near = context.alloc_pd().unwrap();
        let cq = context.create_cq(64).unwrap();
        let memory = near.allocate(LEN, Access::LOCAL_WRITE).unwrap();
        let patient = QpOptions { timeout: 0, ..QpOptions::default() };
        let far = domain.create_qp(&far_cq, &far_cq, &patient).unwrap();
        let near = near.create_qp(&cq, &cq, &patient).unwrap();
        let (near, far) = QueuePair::connect_pair(near, far).unwrap();
        pairs.push(far);
        (near, cq, memory)
    };
    let (mut asking, mut its_cq, its_memory) = connect(&still);
    let (mut other, mut cq, memory) = connect(&lively);
    let ask = |pair: &mut QueuePair, memory: &MemoryRegion, id| {
        let sges = [memory.sge(0, LEN)];
        pair.post_send(&work::read(id, &sges, source.remote_memory().at(0))).unwrap();
    };
    let mut done = [EMPTY; 16];
    std::thread::scope(|scope| {
        let (stands, stalled) = mpsc::channel();
        let (go_on, until) = mpsc::channel::<()>();
        let engine = &still.own_engines()[0];
        // The server answers only once the client stands still.
        server.own_engines()[0]
            .inside(|_| {
                (0..READS).for_each(|id| ask(&mut asking, &its_memory, id));
                let stand =
                    move |_: &mut remora_host::Inside<'_>| (stands.send(()), until.recv_timeout(LONG));
                scope.spawn(move || engine.inside(stand));
                stalled.recv_timeout(LONG).unwrap();
            })
            .unwrap();
        let began = Instant::now();
        while server.port_counters().no_room == 0 {
            assert!(began.elapsed() < LONG, "sixteen answers of 64 KiB did not fill the ring");
            std::thread::sleep(Duration::from_millis(1));
        }
        ask(&mut other, &memory, 99);
        let came = cq.wait(&mut done, PATIENCE).unwrap();
        drop(go_on);
        assert_eq!(came, 1, "the other client's READ waits for this one's ring");
        assert_eq!((done[0].id, done[0].status), (99, Status::Success));
    });
    let mut over = 0;
    while over < READS as usize {
        let came = its_cq.wait(&mut done, LONG).unwrap();
        assert!(came > 0 && done[..came].iter().all(|done| done.status == Status::Success), "{done:?}");
        over += came;
    }
}
