use std::collections::VecDeque;

use super::*;
use crate::prism::Verdict;
use crate::program::CompletionPoller;
use crate::request::{CompletionKind, Status, WorkCompletion};

fn ring(slots: u32) -> Ring {
    Ring::heap(slots).unwrap()
}

fn cqe(qp: u32, id: u64) -> Cqe {
    let completion = WorkCompletion {
        id,
        status: Status::Success,
        kind: CompletionKind::Write,
        byte_len: 0,
        imm: None,
        invalidated: None,
        qp_num: qp,
        src_qp: 0,
        grh: None,
        outcome: Verdict::TooLong,
    };
    Cqe { completion, solicited: false, wqe_index: 0, timestamp: 0 }
}

/// Both ends of a queue.
struct Ends {
    queue: CompletionQueue,
    poller: CompletionPoller,
}

impl Ends {
    fn of(slots: u32) -> Ends {
        let ring = ring(slots);
        Ends { queue: CompletionQueue::new(ring.clone()), poller: CompletionPoller::new(ring) }
    }

    fn write(&mut self, qp: u32, id: u64) -> Written {
        let written = self.queue.write(&cqe(qp, id), Instant(0));
        self.queue.check();
        written
    }

    fn poll(&mut self) -> Option<(u32, u64)> {
        let entry = self.poller.poll().map(|entry| (entry.completion.qp_num, entry.completion.id));
        if entry.is_some() {
            self.poller.free();
        }
        entry
    }
}

#[test]
fn completions_of_a_queue_pair_that_is_removed_are_not_polled() {
    let mut ends = Ends::of(8);
    for (id, qp) in [7, 5, 7, 7, 6, 7].into_iter().enumerate() {
        ends.write(qp, id as u64);
    }
    assert_eq!(ends.poll(), Some((7, 0)), "polled before");
    ends.queue.remove(Qpn::new(7));
    assert_eq!([ends.poll(), ends.poll(), ends.poll()], [Some((5, 1)), Some((6, 4)), None]);
    assert_eq!(ends.queue.written(), 6, "a WAIT counts them");
    // The number is another queue pair's now.
    ends.write(7, 9);
    assert_eq!(ends.poll(), Some((7, 9)));
}

/// Polling a queue that holds only removed completions frees their entries.
#[test]
fn a_queue_of_removed_completions_has_space_again_when_it_was_polled() {
    let mut ends = Ends::of(4);
    for round in 0..5 {
        (0..4).for_each(|id| assert_eq!(ends.write(3, id), Written::Quietly, "round {round}"));
        ends.queue.remove(Qpn::new(3));
        assert_eq!(ends.poll(), None);
    }
    (0..4).for_each(|id| assert_eq!(ends.write(4, id), Written::Quietly));
    assert_eq!(ends.write(4, 4), Written::Overrun, "and the bound is the same");
    ends.queue.remove(Qpn::new(4));
    assert!(ends.poller.is_overrun() && ends.poll().is_none());
}

#[test]
fn what_is_removed_is_reclaimed_without_a_poll() {
    let mut ends = Ends::of(4);
    for round in 0..5 {
        ends.write(3, 0);
        ends.write(3, 1);
        ends.queue.remove(Qpn::new(3));
        ends.poller.reclaim();
        assert_eq!(ends.write(8, round), Written::Quietly);
        assert_eq!(ends.write(3, 2), Written::Quietly);
        ends.queue.remove(Qpn::new(3));
        ends.poller.reclaim();
        // Of the four places one is taken, after a round two, and so on.
        if round == 2 {
            assert_eq!([ends.poll(), ends.poll(), ends.poll()], [0, 1, 2].map(|id| Some((8, id))));
        }
    }
    assert_eq!([ends.poll(), ends.poll(), ends.poll()], [Some((8, 3)), Some((8, 4)), None]);
    ends.poller.reclaim();
    assert_eq!(ends.poll(), None);
}

/// A queue that overwrites its oldest entries: only the ring's worth of them is looked at.
#[test]
fn a_queue_that_nobody_polls_is_looked_through_once() {
    let ring = ring(4);
    let flags = CqFlags { ignores_overrun: true, ..CqFlags::default() };
    let mut queue = CompletionQueue::with_flags(ring.clone(), flags);
    for id in 0..103 {
        queue.write(&cqe(5, id), Instant(0));
    }
    queue.remove(Qpn::new(5));
    let firsts: Vec<u64> = (99..103).map(|index| ring.words(index)[0]).collect();
    assert_eq!((firsts, queue.written()), (vec![255; 4], 103));
    // A consumer index that lies costs no more.
    ring.set_word(Word::Consumed, u64::MAX);
    queue.remove(Qpn::new(5));
}

/// Against a model, with a resize now and then.
#[test]
fn removal_reclaim_and_resize_agree_with_a_list() {
    let mut random = 88172645463325252_u64;
    let mut below = |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % bound
    };
    let mut ends = Ends::of(16);
    let mut model = VecDeque::new();
    let mut id = 0;
    for _ in 0..200_000 {
        match below(12) {
            0 => {
                let qp = below(3) as u32;
                ends.queue.remove(Qpn::new(qp));
                model.retain(|(known, _)| *known != qp);
            }
            1 => ends.poller.reclaim(),
            2 => {
                ends.poller.reclaim();
                let larger = ring(if below(2) == 0 { 16 } else { 32 });
                if ends.queue.resize(larger.clone()) {
                    ends.poller.moved(larger);
                } else {
                    assert!(model.len() > 16, "{} fit", model.len());
                }
            }
            3..8 => {
                ends.poller.reclaim();
                if model.len() < 16 {
                    id += 1;
                    let qp = below(3) as u32;
                    assert_eq!(ends.write(qp, id), Written::Quietly);
                    model.push_back((qp, id));
                }
            }
            _ => assert_eq!(ends.poll(), model.pop_front()),
        }
    }
}

/// The program's thread polls while the NIC's removes: each completion comes whole, in order, once or never,
/// and none after its removal was told.
#[test]
fn a_thread_that_polls_meanwhile_sees_each_completion_whole_or_not_at_all() {
    use std::sync::atomic::{AtomicU64, Ordering};
    const ENTRIES: u64 = if cfg!(miri) { 200 } else { 200_000 };
    let Ends { mut queue, mut poller } = Ends::of(64);
    let removed = AtomicU64::new(0);
    let polled = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Each queue pair has 16 completions, and every other one is removed behind its last.
            for id in 1..=ENTRIES {
                let qp = (id / 16) as u32;
                while queue.written - polled.load(Ordering::Acquire) >= 64 {
                    std::hint::spin_loop();
                }
                assert_eq!(queue.write(&cqe(qp, id << 20), Instant(0)), Written::Quietly);
                if id % 32 == 31 {
                    queue.remove(Qpn::new(qp));
                    removed.store(u64::from(qp), Ordering::Release);
                }
            }
            queue.write(&cqe(u32::MAX, u64::MAX), Instant(0));
        });
        let mut last = 0;
        loop {
            let gone = removed.load(Ordering::Acquire);
            let entry = poller.poll();
            poller.free();
            polled.store(poller.ring().word(Word::Consumed), Ordering::Release);
            let Some(entry) = entry else { continue };
            let WorkCompletion { id, qp_num, kind, outcome, .. } = entry.completion;
            if id == u64::MAX {
                break;
            }
            assert_eq!((kind, outcome), (CompletionKind::Write, Verdict::TooLong));
            assert_eq!((id >> 20) / 16, u64::from(qp_num), "whole");
            assert!(id > last, "in order");
            assert!(gone == 0 || qp_num % 2 == 0 || u64::from(qp_num) > gone, "{qp_num} was removed before");
            last = id;
        }
    });
}

#[test]
fn only_a_queue_with_timestamps_says_when_its_completions_were_written() {
    for timestamps in [false, true] {
        let ring = ring(4);
        let flags = CqFlags { timestamps, ..CqFlags::default() };
        let mut queue = CompletionQueue::with_flags(ring.clone(), flags);
        let mut poller = CompletionPoller::new(ring);
        for now in [0, 5, (1 << 56) - 1, (1 << 56) + 7] {
            queue.write(&cqe(1, now), Instant(now));
            let entry = poller.poll().unwrap();
            poller.free();
            let expected = if timestamps { now % (1 << 56) } else { 0 };
            assert_eq!((entry.completion, entry.timestamp), (cqe(1, now).completion, expected));
        }
    }
}
