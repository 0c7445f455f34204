//! A kernel's reads, and the storage of their bytes. Bytes that are read while a message is being built
//! arrive after it; the caller of a kernel must not notice this.

use remora_nic::kernel::{Kernel, Progress, Status, Streams};

use crate::bench::{Bench, LONGEST, OPCODE};

/// A step of the kernel, with the address of the server's memory.
type Step = fn(&mut Streams<'_, '_>, u64) -> Progress;

/// A kernel that performs these steps for a request, one after the other.
struct Scripted {
    steps: &'static [Step],
    memory: u64,
    index: usize,
}

impl Kernel for Scripted {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        if self.index == 0 && streams.input().is_none() {
            return Progress::Rests;
        }
        streams.take();
        let step = self.steps[self.index];
        self.index = (self.index + 1) % self.steps.len();
        step(streams, self.memory)
    }

    fn reset(&mut self) {
        self.index = 0;
    }
}

/// Returns the contents of the server's memory.
fn memory() -> Vec<u8> {
    (0..=255).cycle().take(3 * LONGEST as usize).collect()
}

/// Returns the answer to these steps. They are repeated once, because the buffers are not fresh then.
fn answered(steps: &'static [Step]) -> (Status, Vec<u8>) {
    let mut answers = Vec::new();
    for mut bench in Bench::arms() {
        bench.there.store(0, &memory());
        let kernel = Scripted { steps, memory: bench.there.remote(0).addr, index: 0 };
        bench.deploy(vec![Box::new(kernel)]);
        for tag in 0..2 {
            bench.rpc(OPCODE, tag, b"");
            let answer = bench.run().remove(&tag).unwrap();
            answers.push((answer.status, answer.bytes));
        }
    }
    assert!(
        answers.iter().all(|one| *one == answers[0]),
        "{:?}",
        answers.iter().map(|one| one.0).collect::<Vec<_>>()
    );
    answers.remove(0)
}

#[test]
fn what_was_read_is_the_same_whatever_is_sent_before_it_is() {
    let steps: &[Step] = &[
        |streams, memory| {
            streams.answer(Status::DONE, 16);
            streams.put(b"ab");
            streams.read(memory + 10, 12);
            Progress::Again
        },
        |streams, _| {
            assert_eq!(streams.data().unwrap(), (10..22).collect::<Vec<u8>>());
            streams.put(b"cd");
            assert_eq!(streams.data().unwrap(), (10..22).collect::<Vec<u8>>());
            streams.forward(4);
            streams.put(b"ef");
            streams.forward(2);
            assert_eq!(streams.data().unwrap(), (10..22).collect::<Vec<u8>>());
            streams.forward(4);
            Progress::Rests
        },
    ];
    let wanted = [b"abcd", &[10, 11, 12, 13][..], b"ef", &[10, 11], &[10, 11, 12, 13]].concat();
    assert_eq!(answered(steps), (Status::DONE, wanted));
}

#[test]
fn what_was_read_may_be_sent_again_and_then_straight_from_memory() {
    let steps: &[Step] = &[
        |streams, memory| {
            streams.answer(Status::DONE, 20);
            streams.read(memory + 100, 5);
            Progress::Again
        },
        |streams, memory| {
            streams.forward(5);
            streams.forward(3);
            streams.read(memory + 50, 6);
            Progress::Again
        },
        |streams, memory| {
            streams.forward(2);
            streams.read_to_wire(memory + 200, 4);
            Progress::Again
        },
        |streams, _| {
            assert_eq!(streams.data().unwrap(), [50, 51, 52, 53, 54, 55]);
            streams.forward(6);
            Progress::Rests
        },
    ];
    let sent = [100, 101, 102, 103, 104, 100, 101, 102, 50, 51, 200, 201, 202, 203, 50, 51, 52, 53, 54, 55];
    assert_eq!(answered(steps), (Status::DONE, sent.to_vec()));
}

#[test]
fn what_was_read_outlives_the_message_that_it_came_for() {
    let left: Step = |streams, _| {
        assert_eq!(streams.data().unwrap(), [1, 2, 3, 4, 5, 6, 7, 8]);
        Progress::Rests
    };
    let sent: &[Step] = &[
        |streams, memory| {
            streams.answer(Status::DONE, 4);
            streams.read(memory + 1, 8);
            Progress::Again
        },
        |streams, _| {
            streams.forward(4);
            Progress::Again
        },
        // The answer has been sent, and its buffer belongs to another one.
        left,
    ];
    let withdrawn: &[Step] = &[
        |streams, memory| {
            streams.answer(Status::DONE, 300);
            streams.read(memory + 1, 8);
            Progress::Again
        },
        |streams, _| {
            streams.withdraw();
            streams.answer(Status::MISS, 8);
            streams.put(b"1234");
            streams.forward(4);
            Progress::Again
        },
        left,
    ];
    assert_eq!(answered(Box::leak(sent.into())), (Status::DONE, vec![1, 2, 3, 4]));
    assert_eq!(answered(Box::leak(withdrawn.into())), (Status::MISS, [&b"1234"[..], &[1, 2, 3, 4]].concat()));
}

/// Offset of the rest of the longest answer, which is read with `MORE` further bytes.
const BEHIND: u32 = 12_000;

fn read_the_rest<const MORE: u32>(streams: &mut Streams<'_, '_>, memory: u64) -> Progress {
    assert!(streams.data().unwrap() == &self::memory()[4000..BEHIND as usize]);
    streams.forward(BEHIND as usize - 4000);
    streams.read(memory + u64::from(BEHIND), LONGEST - BEHIND + MORE);
    Progress::Again
}

fn with_more<const MORE: u32>() -> [Step; 4] {
    [
        |streams, memory| {
            streams.answer(Status::DONE, LONGEST);
            streams.read(memory, 4000);
            Progress::Again
        },
        |streams, memory| {
            streams.forward(4000);
            streams.read(memory + 4000, 8000);
            Progress::Again
        },
        read_the_rest::<MORE>,
        |streams, _| {
            let start = BEHIND as usize;
            let len = (LONGEST - BEHIND + MORE) as usize;
            assert!(streams.data().unwrap() == &self::memory()[start..start + len]);
            streams.forward((LONGEST - BEHIND) as usize);
            Progress::Rests
        },
    ]
}

#[test]
fn more_may_be_read_than_is_answered_and_than_a_room_holds() {
    for steps in
        [with_more::<0>(), with_more::<8>(), with_more::<64>(), with_more::<65>(), with_more::<3000>()]
    {
        let (status, bytes) = answered(Box::leak(Box::new(steps)));
        assert!(status == Status::DONE && bytes == memory()[..LONGEST as usize], "{status}");
    }
}

#[test]
fn no_more_can_be_sent_than_was_read_or_than_the_message_has_room_for() {
    let begin: Step = |streams, memory| {
        streams.answer(Status::DONE, 8);
        streams.read(memory, 4);
        Progress::Again
    };
    let too_many: Step = |streams, _| {
        streams.forward(5);
        Progress::Rests
    };
    let too_long: Step = |streams, _| {
        (0..3).for_each(|_| streams.forward(4));
        Progress::Rests
    };
    let cases: [&'static [Step]; 2] =
        [Box::leak(Box::new([begin, too_many])), Box::leak(Box::new([begin, too_long]))];
    for steps in cases {
        assert_eq!(answered(steps), (Status::FAILED, Vec::new()));
    }
}
