//! What a program cannot do to its own NIC, and a machine can: let its engine stand still.

use std::time::{Duration, Instant};

use crate::{
    Access, CompletionQueue, Context, Device, EMPTY, MemoryRegion, QpOptions, QueuePair, Status, work,
};

/// Queue pairs that wait for an answer each: more than one pass of an engine takes frames.
const PAIRS: usize = 100;
/// Code of 537 ms.
const TIMEOUT: u8 = 17;
/// Longer than that.
const STALL: Duration = Duration::from_millis(700);
/// No test waits so long unless it hangs.
const LONG: Duration = Duration::from_secs(60);

/// Connections of which none has a second try.
struct Ends {
    here: Context,
    there: Context,
    cq: CompletionQueue,
    pairs: Vec<[QueuePair; 2]>,
    memory: MemoryRegion,
    source: MemoryRegion,
}

fn ends(device: impl Fn() -> Device, irn: bool) -> Ends {
    let (here, there) = (device().open().unwrap(), device().open().unwrap());
    let domains = [&here, &there].map(|context| context.alloc_pd().unwrap());
    let (cq, far_cq) = (here.create_cq(2 * PAIRS as u32).unwrap(), there.create_cq(16).unwrap());
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
    Ends { here, there, cq, pairs, memory, source }
}

/// Frames that an engine has sent.
fn sent(context: &Context) -> u64 {
    context.counters().sent_pkts
}

/// READs are answered while their engine stands still for longer than they wait. Their answers are there when it goes on, and so are
/// their timers.
fn answers_count_that_came_before_their_timers_were_looked_at(device: impl Fn() -> Device, irn: bool) {
    let mut ends = ends(device, irn);
    let before = sent(&ends.there);
    // Nothing is answered yet, so that all of it comes in the pause.
    ends.there.own_engines()[0].control(|_| {
        for (id, [pair, _]) in ends.pairs.iter_mut().enumerate() {
            let into = [ends.memory.sge(0, 64)];
            pair.post_send(&work::read(id as u64, &into, ends.source.remote_memory().at(0))).unwrap();
        }
    });
    ends.here.own_engines()[0].control(|_| {
        let began = Instant::now();
        while sent(&ends.there) < before + PAIRS as u64 || began.elapsed() < STALL {
            assert!(began.elapsed() < LONG, "the peer answers");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let (mut done, mut over) = ([EMPTY; 16], 0);
    while over < PAIRS {
        let came = ends.cq.wait(&mut done, LONG).unwrap();
        assert!(came > 0, "{over} of {PAIRS} are over");
        for completion in &done[..came] {
            assert_eq!(completion.status, Status::Success, "of READ {}", completion.id);
        }
        over += came;
    }
}

#[test]
fn an_engine_that_stood_still_takes_what_came_before_it_blames_its_peers() {
    let udp = || Device::udp("127.0.0.1:0").unwrap();
    for irn in [false, true] {
        answers_count_that_came_before_their_timers_were_looked_at(Device::shm, irn);
        answers_count_that_came_before_their_timers_were_looked_at(udp, irn);
    }
}
