//! READs whose bytes a kernel checks before they are sent.

use remora_fabric::Settings;
use remora_fault::Random;
use remora_nic::kernel::{
    AGAIN_NS, BEHIND, CRC_LEN, Check, Consistency, HyperLogLog, Kernel, Progress, READINGS, Streams,
    UNFIT_NS, Verdict, crc64,
};
use remora_nic::{Command, CompletionKind, NicError, Operation, Payload, Status, WorkRequest};

use crate::bench::{Bench, SIGNALED, arms, bad_links};
use crate::seeds;

fn check(bench: &mut Bench, kernel: Option<u32>) -> Result<(), NicError> {
    let qp = bench.right.number;
    bench.world.ask::<()>(1, Command::CheckReads { qp, kernel })
}

/// Posts a READ of `len` bytes from the server's memory to the same offset of the client's.
fn read(bench: &mut Bench, id: u64, offset: usize, len: usize) {
    let sges = [bench.here.sge(offset, len)];
    let operation = Operation::Read(bench.there.remote(offset));
    let request = WorkRequest { id, operation, payload: Payload::Sges(&sges), flags: SIGNALED };
    bench.world.post(bench.left, &request).unwrap();
}

/// Returns the statuses of the READs in the order in which they were posted.
fn ends(bench: &mut Bench) -> Vec<Status> {
    assert!(bench.world.settle(20_000_000), "the world never comes to rest");
    let done = bench.world.drain(bench.left_cq);
    // Receives are flushed when a connection ends.
    done.iter().filter(|done| done.kind == CompletionKind::Read).map(|done| done.status).collect()
}

fn object(random: &mut Random, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
    bytes.extend(crc64(&bytes).to_le_bytes());
    bytes
}

/// Reads objects of up to a packet over bad links; half of them count as torn on the first read.
fn seed(seed: u64, settings: &Settings) -> u64 {
    let mut bench = Bench::new(seed, settings);
    let number = bench.deploy(vec![Box::new(Consistency::failing(500))]);
    check(&mut bench, Some(number)).unwrap();
    bench.world.set_rules(&bad_links(seed), seed);
    let mut random = Random::new(seed);
    let objects: Vec<_> = (0..24usize)
        .map(|index| {
            let len = 1 + random.below(256) as usize;
            let bytes = object(&mut random, len);
            bench.there.store(index * 512, &bytes);
            read(&mut bench, index as u64, index * 512, bytes.len() - CRC_LEN);
            bytes
        })
        .collect();
    assert_eq!(ends(&mut bench), [Status::Success; 24], "seed {seed}");
    for (index, bytes) in objects.iter().enumerate() {
        let len = bytes.len() - CRC_LEN;
        assert_eq!(bench.here.load(index * 512, len), bytes[..len], "seed {seed}");
        assert_eq!(
            bench.here.load(index * 512 + len, CRC_LEN),
            [0; CRC_LEN],
            "seed {seed}: it does not travel"
        );
    }
    bench.world.counters(1).duplicate_request
}

#[test]
fn who_reads_an_object_gets_it_whole_and_needs_no_check_value() {
    for settings in arms() {
        let mut repeated = 0;
        seeds::each(0..100, |number| seed(number, &settings), |_, more| repeated += more);
        assert!(repeated > 0);
    }
}

#[test]
fn an_object_that_stays_torn_is_an_error_of_the_responders_and_nothing_of_it_leaves() {
    for mut bench in Bench::arms() {
        let number = bench.deploy(vec![Box::new(Consistency::default())]);
        check(&mut bench, Some(number)).unwrap();
        bench.there.store(0, &[7; 72]);
        read(&mut bench, 1, 0, 64);
        assert_eq!(ends(&mut bench), [Status::RemoteOperation]);
        assert_eq!(bench.here.load(0, 64), [0; 64]);
    }
}

#[test]
fn what_may_not_be_read_or_is_longer_than_a_packet_is_refused_when_it_comes() {
    let cases: [(usize, usize, Status); 3] = [
        (0, 257, Status::RemoteInvalidRequest),
        (1 << 20, 8, Status::RemoteAccess),
        (0, 64, Status::Success),
    ];
    for settings in arms() {
        for (offset, len, wanted) in cases {
            let mut bench = Bench::new(1, &settings);
            let number = bench.deploy(vec![Box::new(Consistency::default())]);
            check(&mut bench, Some(number)).unwrap();
            bench.there.store(0, &object(&mut Random::new(1), 64));
            let sges = [bench.here.sge(0, len)];
            let target = bench.there.remote(0);
            let operation =
                Operation::Read(remora_nic::Remote { addr: target.addr + offset as u64, ..target });
            let request = WorkRequest { id: 1, operation, payload: Payload::Sges(&sges), flags: SIGNALED };
            bench.world.post(bench.left, &request).unwrap();
            assert_eq!(ends(&mut bench), [wanted], "{len} bytes at {offset}");
        }
        // Its check value would be beyond the region.
        let mut bench = Bench::new(1, &settings);
        let number = bench.deploy(vec![Box::new(Consistency::default())]);
        check(&mut bench, Some(number)).unwrap();
        read(&mut bench, 1, (1 << 20) - 64, 64);
        assert_eq!(ends(&mut bench), [Status::RemoteOperation]);
    }
}

#[test]
fn an_object_that_is_whole_again_in_time_leaves_then_and_what_was_asked_behind_it_follows() {
    for mut bench in Bench::arms() {
        let number = bench.deploy(vec![Box::new(Consistency::default())]);
        check(&mut bench, Some(number)).unwrap();
        let whole = object(&mut Random::new(1), 64);
        bench.there.store(0, &[7; 72]);
        bench.there.store(512, &whole);
        read(&mut bench, 1, 0, 64);
        read(&mut bench, 2, 512, 64);
        bench.world.run_for(UNFIT_NS / 2);
        assert_eq!(bench.world.drain(bench.left_cq).len(), 0, "both wait");
        let readings = bench.facts()[0].steps;
        assert!((UNFIT_NS / AGAIN_NS / 4..=UNFIT_NS / AGAIN_NS).contains(&readings), "{readings}");
        bench.there.store(0, &whole);
        assert_eq!(ends(&mut bench), [Status::Success; 2]);
        assert_eq!(bench.here.load(0, 64), whole[..64]);
        // The next READ has the full number of attempts.
        bench.there.store(0, &[7; 72]);
        read(&mut bench, 3, 0, 64);
        bench.world.run_for(UNFIT_NS * 3 / 4);
        bench.there.store(0, &whole);
        assert_eq!(ends(&mut bench), [Status::Success]);
    }
}

/// Accepts a READ at a given attempt. The bytes that it passes show the number of attempts.
struct Patient {
    content_at: u32,
}

impl Kernel for Patient {
    fn step(&mut self, _: &mut Streams<'_, '_>) -> Progress {
        Progress::Rests
    }

    fn reset(&mut self) {}

    fn checks(&mut self) -> Option<&mut dyn Check> {
        Some(self)
    }
}

impl Check for Patient {
    fn behind(&self) -> usize {
        BEHIND + 1
    }

    fn check(&mut self, bytes: &[u8], behind: &[u8], before: u32) -> Verdict {
        assert_eq!((bytes.len(), behind.len()), (8, BEHIND), "no more than may be seen");
        match before {
            _ if bytes[0] == 9 => Verdict::Refuse,
            _ if before == self.content_at => Verdict::Leave,
            _ => Verdict::Again,
        }
    }
}

#[test]
fn bytes_are_read_again_as_often_as_there_is_a_bound_and_refused_at_once() {
    for settings in arms() {
        for (content_at, first, wanted) in [
            (READINGS - 1, 0, Status::Success),
            (READINGS, 0, Status::RemoteOperation),
            (0, 9, Status::RemoteOperation),
        ] {
            let mut bench = Bench::new(1, &settings);
            let number = bench.deploy(vec![Box::new(Patient { content_at })]);
            check(&mut bench, Some(number)).unwrap();
            bench.there.store(0, &[first; 8]);
            read(&mut bench, 1, 0, 8);
            assert_eq!(ends(&mut bench), [wanted], "{content_at}");
        }
    }
}

#[test]
fn a_judge_can_be_taken_away_and_one_that_is_removed_lets_nothing_leave() {
    for mut bench in Bench::arms() {
        let number = bench.deploy(vec![Box::new(Consistency::default())]);
        let init = bench.init(Some(7), vec![Box::new(HyperLogLog::default())]);
        let other = bench.try_deploy(init).unwrap();
        assert_eq!(check(&mut bench, Some(other)), Err(NicError::NotThisService), "it does not judge");
        assert_eq!(check(&mut bench, Some(other + 1)), Err(NicError::Unknown));
        assert_eq!(bench.facts().iter().map(|facts| facts.steps).sum::<u64>(), 0, "nobody has judged");
        check(&mut bench, Some(number)).unwrap();
        check(&mut bench, None).unwrap();
        bench.there.store(0, &[7; 72]);
        read(&mut bench, 1, 0, 64);
        assert_eq!(ends(&mut bench), [Status::Success], "nobody judges");
        assert_eq!(bench.here.load(0, 64), [7; 64]);

        bench.there.store(0, &object(&mut Random::new(1), 64));
        check(&mut bench, Some(number)).unwrap();
        bench.world.ask::<()>(1, Command::RemoveKernel { kernel: number }).unwrap();
        read(&mut bench, 2, 0, 64);
        assert_eq!(ends(&mut bench), [Status::RemoteOperation]);
    }
}

#[test]
fn reads_that_are_parts_of_chains_are_not_judged() {
    for settings in arms() {
        let mut bench = Bench::new(1, &Settings { prism: true, ..settings });
        let number = bench.deploy(vec![Box::new(Consistency::default())]);
        assert_eq!(check(&mut bench, Some(number)), Err(NicError::NotThisService));
    }
}

#[test]
fn what_waits_leaves_when_its_judge_is_taken_away_and_the_next_judge_has_all_its_time() {
    for mut bench in Bench::arms() {
        let number = bench.deploy(vec![Box::new(Consistency::default())]);
        check(&mut bench, Some(number)).unwrap();
        bench.there.store(0, &[7; 72]);
        read(&mut bench, 1, 0, 64);
        bench.world.run_for(UNFIT_NS / 2);
        check(&mut bench, None).unwrap();
        read(&mut bench, 2, 0, 64);
        assert_eq!(ends(&mut bench), [Status::Success; 2]);
        bench.world.run_for(UNFIT_NS);
        check(&mut bench, Some(number)).unwrap();
        read(&mut bench, 3, 0, 64);
        bench.world.run_for(UNFIT_NS / 2);
        bench.there.store(0, &object(&mut Random::new(1), 64));
        assert_eq!(ends(&mut bench), [Status::Success]);
    }
}
