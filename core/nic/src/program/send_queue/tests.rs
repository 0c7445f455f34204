use remora_memory::Key;
use std::collections::VecDeque;

use super::*;
use crate::request::{Flags, Operation, Payload, Remote, Sge};

const SLOTS: u32 = 32;
const BOUNDS: Bounds = Bounds { max_sge: 3, max_inline: 0 };
const FLAGS: Flags = Flags { fence: false, signaled: true, solicited: false };
const REMOTE: Remote = Remote { addr: 0, rkey: Key::new(2) };

fn queue() -> SendQueue {
    SendQueue::new(Ring::heap(SLOTS).unwrap(), BOUNDS)
}

/// Pushes a SEND of `elements` list elements, which takes one slot, or two for two and three elements.
fn send(queue: &mut SendQueue, elements: usize) -> Result<(), PostError> {
    let list = [Sge { addr: 0, len: 1, lkey: Key::new(1) }; 3];
    let payload = Payload::Sges(&list[..elements]);
    queue.push(&WorkRequest { id: 1, operation: Operation::Send, payload, flags: FLAGS })
}

/// Pushes a READ through a pointer, which takes two slots.
fn indirect_read(queue: &mut SendQueue) -> Result<(), PostError> {
    let from = prism::Address::indirect(REMOTE);
    let into = [Sge { addr: 0, len: 8, lkey: Key::new(1) }];
    let operation = prism::Operation::Read { from, len: 8, into: &into };
    queue.push_prism(&prism::WorkRequest {
        id: 1,
        operation,
        conditional: false,
        redirect: None,
        result: None,
        flags: FLAGS,
    })
}

/// Pushes an encoded SEND of one element twice.
fn two_slots(queue: &mut SendQueue) -> Result<(), PostError> {
    let mut copies = [[0; SLOT]; 2];
    for copy in &mut copies {
        let mut source = self::queue();
        send(&mut source, 1).unwrap();
        source.ring().load(0, copy);
    }
    queue.push_slots(&copies)
}

/// Regression: a send queue of 10 requests took 32.
#[test]
fn a_limited_send_queue_holds_so_many_requests_of_any_length() {
    let mut queue = queue().limited(3);
    let ring = queue.ring().clone();
    let mut starts = VecDeque::new();
    let mut random = 1u32;
    for _ in 0..1000 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let before = queue.produced;
        match send(&mut queue, 1 + 2 * (random >> 31) as usize) {
            Ok(()) => starts.push_back(before),
            Err(error) => assert_eq!((error, starts.len()), (PostError::QueueFull, 3)),
        }
        assert!(starts.len() <= 3);
        if random >> 28 & 3 == 0 {
            // Nothing was published since: what was pushed is taken back.
            queue.take_back();
            starts.retain(|start| *start < queue.published);
        } else {
            queue.publish();
        }
        if random >> 27 & 1 == 0 && starts.front().is_some_and(|start| *start < queue.published) {
            starts.pop_front();
            ring.set_word(Word::Consumed, starts.front().copied().unwrap_or(queue.produced));
        }
    }
    assert!(queue.produced > 320, "fewer than ten rounds of the ring");
}

/// Regression: PRISM operations and encoded slots were neither limited nor counted.
#[test]
fn the_limit_counts_requests_of_every_kind() {
    for (name, push, requests) in [
        ("SEND", (|queue| send(queue, 3)) as fn(&mut SendQueue) -> Result<(), PostError>, 1),
        ("PRISM", indirect_read, 1),
        ("slots", two_slots, 2),
    ] {
        let mut queue = queue().limited(4);
        for round in 0..40 {
            for number in 0..4 / requests {
                assert_eq!(push(&mut queue), Ok(()), "{name} {number} of round {round}");
            }
            assert_eq!(push(&mut queue), Err(PostError::QueueFull), "{name}, round {round}");
            queue.publish();
            queue.ring().set_word(Word::Consumed, queue.produced());
        }
    }
}

#[test]
fn a_resumed_queue_continues_at_its_slot_and_counts_the_requests_in_it() {
    let mut first = queue().limited(4);
    for _ in 0..3 {
        send(&mut first, 3).unwrap();
    }
    first.publish();
    first.ring().set_word(Word::Consumed, 2);
    let mut second = SendQueue::new(first.ring().clone(), BOUNDS).limited(4).resumed();
    assert_eq!((second.produced(), second.published()), (6, 6));
    assert_eq!([send(&mut second, 1), send(&mut second, 1)], [Ok(()), Ok(())]);
    assert_eq!(send(&mut second, 1), Err(PostError::QueueFull), "two of four requests are the first's");
}

#[test]
fn a_withdrawn_request_leaves_no_trace() {
    let mut queue = queue().limited(2);
    send(&mut queue, 1).unwrap();
    queue.publish();
    let published = queue.published();
    send(&mut queue, 3).unwrap();
    assert!(queue.publish());
    queue.withdraw(published);
    assert_eq!((queue.produced(), queue.ring().word(Word::Produced)), (1, 1));
    assert!(!queue.publish());
    assert_eq!([send(&mut queue, 3), send(&mut queue, 1)], [Ok(()), Err(PostError::QueueFull)]);
}

#[test]
fn a_closed_queue_is_full() {
    assert_eq!(send(&mut queue().closed(), 1), Err(PostError::QueueFull));
}

/// Regression: the list of a request without data was written over the slots behind the request.
#[test]
fn a_list_of_a_request_without_data_takes_no_slot() {
    let mut queue = queue();
    for _ in 0..SLOTS - 1 {
        send(&mut queue, 1).unwrap();
    }
    let mut first = [0; SLOT];
    queue.ring().load(0, &mut first);
    let list = [Sge { addr: 7, len: 7, lkey: Key::new(7) }; 3];
    let payload = Payload::Sges(&list);
    queue.push(&WorkRequest { id: 1, operation: Operation::Nop, payload, flags: FLAGS }).unwrap();
    let mut now = [0; SLOT];
    queue.ring().load(0, &mut now);
    assert_eq!((queue.produced(), now), (SLOTS.into(), first));
}
