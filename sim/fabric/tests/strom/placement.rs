//! Kernels on the path of plain WRITEs to memory, and between a program and its peer.

use remora_fabric::Settings;
use remora_fault::Random;
use remora_nic::kernel::{
    Ask, HyperLogLog, Invocation, Kernel, LOOKED_AT, Look, Progress, Status, Streams, What,
};
use remora_nic::{Command, CompletionKind, NicError, Operation, Payload, ReceiveRequest, WorkRequest};

use crate::bench::{Bench, OPCODE, SIGNALED, arms, bad_links};
use crate::seeds;

/// A kernel that counts passing bytes and reports the count.
#[derive(Default)]
struct Counts {
    /// True if it only observes the bytes that pass, and does not know their addresses.
    looks: bool,
    bytes: u64,
    sum: u64,
}

/// Returns a sum of the bytes weighted by their addresses: each byte must pass once, at its address.
fn weighed(bytes: &[u8], va: u64) -> u64 {
    bytes.iter().zip(va..).map(|(byte, address)| u64::from(*byte) * (address % 8191)).sum()
}

fn plain(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

impl Kernel for Counts {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        let Some(input) = streams.input() else { return Progress::Waits };
        streams.take();
        match input.what {
            What::Passing(va) => {
                self.bytes += input.bytes.len() as u64;
                self.sum += if self.looks { plain(input.bytes) } else { weighed(input.bytes, va) };
            }
            What::Params => {
                streams.answer(Status::DONE, 16);
                streams.put(&self.bytes.to_le_bytes());
                streams.put(&self.sum.to_le_bytes());
            }
            What::Data => {
                streams.answer(Status::BAD_PARAMS, 0);
            }
        }
        Progress::Waits
    }

    fn reset(&mut self) {}

    fn looks(&mut self) -> Option<&mut dyn Look> {
        if self.looks { Some(self) } else { None }
    }
}

impl Look for Counts {
    fn look(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= LOOKED_AT);
        self.bytes += bytes.len() as u64;
        self.sum += plain(bytes);
    }
}

fn attach(bench: &mut Bench, kernel: Option<u32>) -> Result<(), NicError> {
    let qp = bench.right.number;
    bench.world.ask::<()>(1, Command::AttachKernel { qp, kernel })
}

/// Writes random bytes to consecutive addresses; some WRITEs consume a receive.
fn seed(seed: u64, settings: &Settings, looks: bool) -> u64 {
    let mut bench = Bench::new(seed, settings);
    let number = bench.deploy(vec![Box::new(Counts { looks, ..Counts::default() })]);
    attach(&mut bench, Some(number)).unwrap();
    bench.world.set_rules(&bad_links(seed), seed);
    let mut random = Random::new(seed);
    let mut offset = 0;
    let mut sum = 0u64;
    let mut written = Vec::new();
    for id in 0..16 {
        let bytes: Vec<u8> = (0..random.below(1500)).map(|_| random.below(256) as u8).collect();
        bench.here.store(offset, &bytes);
        let sges = [bench.here.sge(offset, bytes.len())];
        let target = bench.there.remote(offset);
        let tells = random.below(2) == 0;
        let operation = if tells { Operation::WriteImm(target, 7) } else { Operation::Write(target) };
        if tells {
            bench.world.post_receive(bench.right, &ReceiveRequest { id, sges: &[] }).unwrap();
        }
        let request = WorkRequest { id, operation, payload: Payload::Sges(&sges), flags: SIGNALED };
        bench.world.post(bench.left, &request).unwrap();
        sum += if looks { plain(&bytes) } else { weighed(&bytes, target.addr) };
        offset += bytes.len();
        written.extend(bytes);
    }
    bench.rpc(OPCODE, 1, b"");
    let answer = bench.run().remove(&1).unwrap();
    let wanted = [(offset as u64).to_le_bytes(), sum.to_le_bytes()].concat();
    assert_eq!((answer.status, answer.bytes), (Status::DONE, wanted), "seed {seed}");
    assert_eq!(bench.there.load(0, offset), written, "seed {seed}");
    bench.world.counters(1).duplicate_request
}

#[test]
fn what_is_written_passes_the_kernel_once_and_is_in_memory_too() {
    for (settings, looks) in
        arms().into_iter().flat_map(|settings| [false, true].map(|looks| (settings, looks)))
    {
        let mut repeated = 0;
        seeds::each(0..100, |number| seed(number, &settings, looks), |_, more| repeated += more);
        assert!(repeated > 0);
    }
}

#[test]
fn what_does_not_get_to_memory_is_not_looked_at() {
    for mut bench in Bench::arms() {
        let number = bench.deploy(vec![Box::new(Counts { looks: true, ..Counts::default() })]);
        attach(&mut bench, Some(number)).unwrap();
        let sges = [bench.here.sge(0, 8)];
        let target =
            remora_nic::Remote { rkey: remora_memory::Key::new(0x1234_5678), ..bench.there.remote(0) };
        let operation = Operation::Write(target);
        let request = WorkRequest { id: 1, operation, payload: Payload::Sges(&sges), flags: SIGNALED };
        bench.world.post(bench.left, &request).unwrap();
        assert!(bench.world.settle(1_000_000));
        let done = bench.world.drain(bench.left_cq);
        assert_eq!(done[0].status, remora_nic::Status::RemoteAccess);
        assert_eq!(bench.facts()[0].steps, 0);
    }
}

#[test]
fn an_estimate_is_a_by_product_of_receiving() {
    for mut bench in Bench::arms() {
        let number = bench.deploy(vec![Box::new(HyperLogLog::default())]);
        attach(&mut bench, Some(number)).unwrap();
        let values: Vec<u8> = (0..20_000u64).flat_map(|number| (number % 5000).to_le_bytes()).collect();
        bench.here.store(0, &values);
        let sges = [bench.here.sge(0, values.len())];
        let target = bench.there.remote(0);
        let payload = Payload::Sges(&sges);
        let request = WorkRequest { id: 1, operation: Operation::Write(target), payload, flags: SIGNALED };
        bench.world.post(bench.left, &request).unwrap();
        bench.rpc(OPCODE, 1, &[Ask::Estimate as u8]);
        let answer = bench.run().remove(&1).unwrap();
        let estimate = f64::from_le_bytes(answer.bytes.try_into().unwrap());
        assert!((estimate - 5000.0).abs() < 4.0 * 0.0081 * 5000.0, "{estimate}");
        assert_eq!(bench.there.load(0, values.len()), values);

        // No kernel observes any more, or there is none.
        attach(&mut bench, None).unwrap();
        bench.world.post(bench.left, &request).unwrap();
        assert!(bench.run().is_empty());
        assert_eq!(attach(&mut bench, Some(number + 1)), Err(NicError::Unknown));
    }
}

/// A kernel that sends each even value of the program to the peer, at the address in the parameters.
#[derive(Default)]
struct Evens {
    target: Option<(u64, u32)>,
}

impl Kernel for Evens {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        let Some(input) = streams.input() else { return Progress::Waits };
        streams.take();
        if input.what == What::Params {
            let word =
                |offset: usize| u64::from_le_bytes(input.bytes[offset..offset + 8].try_into().unwrap());
            self.target = Some((word(0), word(8) as u32));
            streams.answer(Status::DONE, 0);
        } else if let Some((address, key)) = &mut self.target {
            let evens: Vec<u8> =
                input.bytes.chunks_exact(8).filter(|value| value[0] % 2 == 0).flatten().copied().collect();
            streams.send(*address, *key, evens.len() as u32);
            streams.put(&evens);
            *address += evens.len() as u64;
        }
        Progress::Waits
    }

    fn reset(&mut self) {}
}

#[test]
fn a_program_invokes_its_own_nic_and_the_kernel_sends_to_the_peer() {
    for mut bench in Bench::arms() {
        bench.deploy(vec![Box::new(Evens::default())]);
        let target = bench.here.remote(0);
        let qp = bench.right.number;
        let place = remora_nic::kernel::Place { addr: 0, rkey: 0, len: 0 };
        let target_bytes = [target.addr.to_le_bytes(), u64::from(target.rkey.get()).to_le_bytes()].concat();
        let params = [&place.emit()[..], &target_bytes].concat();
        let invoke = |bench: &mut Bench, opcode, params, bytes: &[u8]| {
            let left = bytes.len() as u32;
            let invocation = Invocation { opcode, tag: 5, params, left, first: true, bytes: bytes.to_vec() };
            bench.world.ask::<()>(1, Command::InvokeKernel { qp, invocation })
        };
        assert_eq!(invoke(&mut bench, OPCODE + 1, true, &params), Err(NicError::Unknown));
        assert_eq!(invoke(&mut bench, OPCODE, false, &[0; 4097]), Err(NicError::TooSmall));
        invoke(&mut bench, OPCODE, true, &params).unwrap();
        for part in 0..4u64 {
            let values: Vec<u8> = (64 * part..64 * part + 64).flat_map(u64::to_le_bytes).collect();
            invoke(&mut bench, OPCODE, false, &values).unwrap();
        }
        let answers = bench.run();
        assert_eq!(answers.keys().copied().collect::<Vec<_>>(), [5], "the peer is told");
        let evens: Vec<u8> = (0..128u64).flat_map(|number| (2 * number).to_le_bytes()).collect();
        assert_eq!(bench.here.load(0, evens.len()), evens);
        let done = bench.world.drain(bench.right_cq);
        assert!(done.iter().all(|wc| wc.kind != CompletionKind::Write), "no work of the program's: {done:?}");
    }
}
