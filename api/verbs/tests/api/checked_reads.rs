//! A client READs an object that its owner writes all the time. A kernel on the owner's NIC rejects torn
//! copies.

use remora_verbs::kernel::{Consistency, Kernel, crc64};
use remora_verbs::{Access, Device, EMPTY, KernelOptions, QpOptions, QueuePair, Status, work};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);
const WORDS: usize = 128;
/// The least number of READs, and the least number of changes of the object meanwhile.
const READS: usize = 2000;
const CHANGES: usize = 20;

/// An object of eight repeated bytes, so that a torn copy is recognised, with its checksum.
fn object(number: u64) -> Vec<u8> {
    let bytes = number.to_le_bytes().repeat(WORDS);
    let sum = crc64(&bytes).to_le_bytes();
    [bytes, sum.to_vec()].concat()
}

fn read_while_it_is_written(device: impl Fn() -> Device, irn: bool) {
    let near = device().open().unwrap();
    let far = device().open().unwrap();
    let client = near.alloc_pd().unwrap();
    let server = far.alloc_pd().unwrap();
    let here = client.allocate(4096, Access::LOCAL_WRITE).unwrap();
    let there = server.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_READ).unwrap();
    there.write(0, &object(1)).unwrap();
    let mut cq = near.create_cq(16).unwrap();
    let far_cq = far.create_cq(16).unwrap();
    let options = QpOptions { irn, ..QpOptions::default() };
    let one = client.create_qp(&cq, &cq, &options).unwrap();
    let two = server.create_qp(&far_cq, &far_cq, &options).unwrap();
    let (mut one, two) = QueuePair::connect_pair(one, two).unwrap();
    let lanes: Vec<Box<dyn Kernel>> = vec![Box::<Consistency>::default()];
    let whole = server.deploy_kernel(lanes, &KernelOptions::default()).unwrap();
    two.check_reads(Some(&whole)).unwrap();
    let done = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in (2..).take_while(|_| !done.load(Ordering::Relaxed)) {
                // Written word by word, as by a program's stores.
                for (index, word) in object(number).as_chunks::<8>().0.iter().enumerate() {
                    there.write(8 * index, word).unwrap();
                }
                // Without a pause, the writer would nearly always be preempted in the middle of an object.
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        let mut seen: Vec<(Status, [u64; WORDS])> = Vec::new();
        // On a busy machine the writer may run late.
        let mut changes = 0;
        let started = Instant::now();
        while (seen.len() < READS || changes < CHANGES) && started.elapsed() < LONG {
            let local = [here.sge(0, 8 * WORDS)];
            one.post_send(&work::read(1, &local, there.remote(0))).unwrap();
            let mut completion = [EMPTY];
            cq.wait(&mut completion, LONG).unwrap();
            let words = here.get::<[u64; WORDS]>(0).unwrap();
            let changed = seen.last().is_some_and(|(_, before)| before[0] != words[0]);
            changes += usize::from(changed);
            if seen.len() < READS || changed {
                seen.push((completion[0].status, words));
            }
            if completion[0].status != Status::Success {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
        seen
    });
    for (number, (status, words)) in seen.iter().enumerate() {
        assert_eq!(*status, Status::Success, "READ {number}");
        assert_eq!(*words, [words[0]; WORDS], "READ {number} is torn");
    }
    let changes = seen.windows(2).filter(|pair| pair[0].1[0] != pair[1].1[0]).count();
    assert!(changes >= CHANGES, "the object has changed only {changes} times");
    assert!(
        seen.is_sorted_by_key(|(_, words)| words[0]),
        "a READ returned an older version than the READ before it"
    );
}

#[test]
fn a_plain_read_of_an_object_that_is_being_written_is_whole() {
    for irn in [false, true] {
        read_while_it_is_written(Device::shm, irn);
        read_while_it_is_written(|| Device::udp("127.0.0.1:0").unwrap(), irn);
    }
}
