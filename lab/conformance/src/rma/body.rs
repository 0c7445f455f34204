//! The 1RMA test and its model.

use remora_fault::Random;
use remora_transport::Instant;
use remora_transport::rma::Status;
use remora_wire::rma::{Class, Kind, MAX_OPERATION};

use super::{CLIENT, Operation, OperationEnd, REGIONS, RmaArm, RmaReport, SERVER, SLOTS, STRIPE};

/// Number of turns without a completion after which the test fails.
const PATIENCE: u64 = 50_000_000;

/// A pending operation of a slot.
struct Running {
    issued: Instant,
    kind: Kind,
    /// Offsets in the stripe (`offset`) and in the buffer, and length in bytes.
    offset: usize,
    buffer: usize,
    len: usize,
}

struct Run<'a, A> {
    arm: &'a mut A,
    random: Random,
    /// Expected content of each slot's stripe and buffer.
    stripes: Vec<Vec<u8>>,
    buffers: Vec<Vec<u8>>,
    running: Vec<Option<Running>>,
    report: RmaReport,
}

/// Returns the region of a slot's stripe and its offset there.
fn place(slot: usize) -> (usize, usize) {
    (slot % REGIONS, slot / REGIONS * STRIPE)
}

/// Runs `operations` random operations and checks each against the model.
///
/// # Panics
/// If any result differs from the model; the message describes the difference.
pub fn run_rma<A: RmaArm>(arm: &mut A, seed: u64, operations: u64) -> RmaReport {
    let mut run = Run {
        arm,
        random: Random::new(seed ^ 0x14a),
        stripes: Vec::new(),
        buffers: Vec::new(),
        running: (0..SLOTS).map(|_| None).collect(),
        report: RmaReport::default(),
    };
    run.stripes = (0..SLOTS).map(|slot| run.stripe(slot)).collect();
    run.buffers = (0..SLOTS).map(|slot| run.buffer(slot)).collect();
    run.run(operations);
    run.report
}

impl<A: RmaArm> Run<'_, A> {
    fn stripe(&mut self, slot: usize) -> Vec<u8> {
        let (region, base) = place(slot);
        let mut bytes = vec![0; STRIPE];
        self.arm.load_served(region, base, &mut bytes);
        bytes
    }

    fn buffer(&mut self, slot: usize) -> Vec<u8> {
        let mut bytes = vec![0; STRIPE];
        self.arm.load_local(slot * STRIPE, &mut bytes);
        bytes
    }

    fn run(&mut self, operations: u64) {
        let mut issued = 0;
        let mut waited = 0;
        while issued < operations || self.running.iter().any(Option::is_some) {
            for slot in 0..SLOTS {
                if issued < operations && self.running[slot].is_none() && self.random.chance(0.7) {
                    self.issue(slot);
                    issued += 1;
                }
            }
            if self.random.chance(0.0005) {
                self.restart();
            }
            let ended = self.report.operations();
            for _ in 0..self.random.between(1, 20) {
                self.arm.pass();
                while let Some(end) = self.arm.poll() {
                    self.end(&end);
                }
            }
            waited = if ended < self.report.operations() { 0 } else { waited + 1 };
            assert!(waited < PATIENCE, "no operation ends any more");
            if self.random.chance(0.05) && ended < self.report.operations() {
                self.assert_unchanged();
            }
        }
        // Messages that a link still holds may arrive, but must not change anything.
        self.arm.quiesce();
        assert_eq!(self.arm.poll(), None, "each slot completes at most once per command");
        self.assert_unchanged();
        for (side, facts) in self.arm.facts().iter().enumerate() {
            assert_eq!((facts.free, facts.waiting, facts.serving), (facts.window, 0, 0), "side {side}");
        }
    }

    /// Issues a random operation in a free slot.
    fn issue(&mut self, slot: usize) {
        let (region, base) = place(slot);
        let kind = match self.random.below(100) {
            0..48 => Kind::Read,
            48..97 => Kind::Write,
            _ => Kind::Rekey,
        };
        let len = match kind {
            Kind::Rekey => 16,
            _ => self.random.pick(&[1, 16, 64, 100, 1000, 2048, MAX_OPERATION as usize]),
        };
        let [offset, buffer] = [0; 2].map(|_: u8| self.random.below((STRIPE - len) as u64 + 1) as usize);
        if kind != Kind::Read {
            let mut bytes = vec![0; len];
            self.random.fill(&mut bytes);
            self.arm.store_local(slot * STRIPE + buffer, &bytes);
            self.buffers[slot][buffer..buffer + len].copy_from_slice(&bytes);
        }
        let operation = Operation {
            slot,
            kind,
            class: self.random.pick(&[Class::Latency, Class::Bulk]),
            region,
            remote: if kind == Kind::Rekey { 0 } else { (base + offset) as u64 },
            local: (slot * STRIPE + buffer) as u64,
            len: len as u32,
        };
        self.running[slot] = Some(Running { issued: self.arm.now(), kind, offset, buffer, len });
        self.arm.issue(&operation);
    }

    /// Checks that memory matches the model after an operation ended.
    fn end(&mut self, end: &OperationEnd) {
        let OperationEnd { slot, kind, status } = *end;
        let running = self.running[slot].take().expect("each slot completes at most once per command");
        assert!(kind.is_none_or(|kind| kind == running.kind), "{end:?}");
        let took = self.arm.now().since(running.issued);
        let index = usize::from(running.kind != Kind::Read);
        assert!(took <= self.arm.limit(running.kind), "{end:?} took {took} ns");
        self.report.slowest[index] = self.report.slowest[index].max(took);
        self.report.ended[status as usize] += 1;
        match running.kind {
            Kind::Read => self.end_read(slot, &running, status),
            Kind::Write => self.end_write(slot, &running, status),
            _ => {}
        }
        // The key of the region has changed, or may have.
        if running.kind == Kind::Rekey || status == Status::RemoteAuthenticationFailure {
            self.arm.renew(place(slot).0);
        }
    }

    fn end_read(&mut self, slot: usize, running: &Running, status: Status) {
        let Running { offset, buffer, len, .. } = *running;
        let now = self.buffer(slot);
        let model = &mut self.buffers[slot];
        assert!(
            now[..buffer] == model[..buffer] && now[buffer + len..] == model[buffer + len..],
            "beside it"
        );
        for index in 0..len {
            let new = self.stripes[slot][offset + index];
            let got = now[buffer + index];
            let fits = got == new || status != Status::Ok && got == model[buffer + index];
            assert!(fits, "byte {index} of a read that ended with {status:?}");
        }
        *model = now;
    }

    fn end_write(&mut self, slot: usize, running: &Running, status: Status) {
        let Running { offset, buffer, len, .. } = *running;
        let now = self.stripe(slot);
        let model = &mut self.stripes[slot];
        assert!(
            now[..offset] == model[..offset] && now[offset + len..] == model[offset + len..],
            "beside it"
        );
        let untouched = matches!(
            status,
            Status::Nack | Status::DispatchTimeout | Status::LocalError | Status::RemoteAccessError
        );
        for index in 0..len {
            let new = self.buffers[slot][buffer + index];
            let got = now[offset + index];
            let fits = got == new && !untouched || status != Status::Ok && got == model[offset + index];
            assert!(fits, "byte {index} of a write that ended with {status:?}");
        }
        *model = now;
    }

    /// Checks that no stripe or buffer without a pending operation has changed.
    fn assert_unchanged(&mut self) {
        for slot in (0..SLOTS).filter(|slot| self.running[*slot].is_none()).collect::<Vec<_>>() {
            let now = self.stripe(slot);
            assert!(now == self.stripes[slot], "stripe {slot} changed after its last operation had ended");
            let now = self.buffer(slot);
            assert!(now == self.buffers[slot], "buffer {slot} changed after its last operation had ended");
        }
    }

    /// Restarts a random side like after a crash, if the arm supports it.
    fn restart(&mut self) {
        let side = self.random.pick(&[SERVER, CLIENT]);
        if !self.arm.restart(side) {
            return;
        }
        self.report.restarts += 1;
        if side == SERVER {
            return;
        }
        // Pending operations never end. Their data may still take effect for as long as the server waits.
        let had: Vec<usize> = (0..SLOTS).filter(|slot| self.running[*slot].take().is_some()).collect();
        self.arm.quiesce();
        for slot in had {
            self.stripes[slot] = self.stripe(slot);
            self.buffers[slot] = self.buffer(slot);
        }
        (0..REGIONS).for_each(|region| self.arm.renew(region));
    }
}
