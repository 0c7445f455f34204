//! The CPU work of a design alone: its client and server run in this thread, joined by copies in place of
//! NICs.
//!
//! The work that the NICs would do (taking requests, copying, completing) is logged and then repeated alone.
//! The difference is the design's own work: hashing, checksums, versions, building and parsing messages,
//! comparisons, the server's processing, and the check of the value.
//! handling, and the check of the value.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use remora_memory::{Bytes, Key};
use remora_nic::{
    CompletionKind, Flags, Operation, Payload, PostError, ReceiveRequest, Remote, Sge, WorkCompletion,
    WorkRequest,
};
use remora_service::kv::{Classical, Design, FarmDesign, PilafDesign, TwoSidedDesign};
use remora_store::kv::{Client, Connection, Lookup, Outcome, Post, Registered, Server, ServerConfig, Table};
use remora_store::ycsb::record::{self, KEY_LEN, Record, Values};
use remora_store::ycsb::{Mix, Operation as YcsbOperation, Stripe, Workload};
use remora_transport::Status;

use crate::median;
use remora_store_cli::measure::runner::{Plan, memory_for};

/// The number of operations of a run, which takes less than a time slice.
const OPERATIONS: usize = 400;
/// The number of runs of a round. Their median is the result.
const RUNS: usize = 25;

/// A work request in the form in which it was posted.
enum Logged {
    Send { end: usize, id: u64, operation: Operation, sges: Vec<Sge>, inline: Option<Vec<u8>>, flags: Flags },
    Receive { end: usize, id: u64, sge: Sge },
}

/// An end of a simulated wire.
#[derive(Default)]
struct End {
    receives: VecDeque<(u64, Sge)>,
    completions: VecDeque<WorkCompletion>,
}

/// Both ends and all memory. Block n is at address n * 2^32 and has the key n.
struct Wire {
    blocks: Vec<Bytes>,
    ends: [End; 2],
    through: Vec<u8>,
    log: Option<Vec<Logged>>,
}

impl Wire {
    fn register(&mut self, len: usize) -> Result<Registered> {
        let bytes = Bytes::heap(len)?;
        self.blocks.push(bytes.clone());
        let number = self.blocks.len() as u32;
        Ok(Registered { bytes, addr: u64::from(number) << 32, key: Key::new(number) })
    }

    fn place(&self, key: Key, addr: u64) -> Result<(&Bytes, usize), PostError> {
        let block = self.blocks.get((key.get() as usize).wrapping_sub(1)).ok_or(PostError::BadPayload)?;
        Ok((block, addr as u32 as usize))
    }

    /// Copies `payload` to an address through an intermediate buffer, like the frame of a NIC. Returns its
    /// length in bytes.
    fn copy(&mut self, payload: &Payload<'_>, key: Key, addr: u64) -> Result<u32, PostError> {
        let mut through = std::mem::take(&mut self.through);
        let len = match payload {
            Payload::Inline(bytes) => {
                through[..bytes.len()].copy_from_slice(bytes);
                bytes.len()
            }
            Payload::Sges(sges) => {
                let mut len = 0;
                for sge in *sges {
                    let (source, offset) = self.place(sge.lkey, sge.addr)?;
                    source
                        .read(offset, &mut through[len..len + sge.len as usize])
                        .map_err(|_| PostError::BadPayload)?;
                    len += sge.len as usize;
                }
                len
            }
        };
        let (target, offset) = self.place(key, addr)?;
        target.write(offset, &through[..len]).map_err(|_| PostError::BadPayload)?;
        self.through = through;
        Ok(len as u32)
    }
}

/// The view of the simulated wire from one end. Each request is executed when it is posted.
struct Seen<'a> {
    wire: &'a mut Wire,
    end: usize,
}

fn completion(id: u64, kind: CompletionKind, byte_len: u32, imm: Option<u32>) -> WorkCompletion {
    let status = Status::Success;
    WorkCompletion {
        id,
        status,
        kind,
        byte_len,
        imm,
        invalidated: None,
        qp_num: 1,
        outcome: remora_nic::prism::Verdict::Done,
        src_qp: 0,
        grh: None,
    }
}

impl Seen<'_> {
    /// Delivers a message to the other end: to the address in `written`, or to the buffer of the receive
    /// request.
    fn deliver(
        &mut self,
        payload: &Payload<'_>,
        kind: CompletionKind,
        written: Option<(Remote, u32)>,
    ) -> Result<(), PostError> {
        let (id, sge) = self.wire.ends[1 - self.end].receives.pop_front().ok_or(PostError::QueueFull)?;
        let (key, addr) = written.map_or((sge.lkey, sge.addr), |(remote, _)| (remote.rkey, remote.addr));
        let len = self.wire.copy(payload, key, addr)?;
        let arrived = completion(id, kind, len, written.map(|(_, imm)| imm));
        self.wire.ends[1 - self.end].completions.push_back(arrived);
        Ok(())
    }
}

impl Post for Seen<'_> {
    #[inline]
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        if let Some(log) = &mut self.wire.log {
            let (sges, inline) = match request.payload {
                Payload::Sges(sges) => (sges.to_vec(), None),
                Payload::Inline(bytes) => (Vec::new(), Some(bytes.to_vec())),
            };
            let WorkRequest { id, operation, flags, .. } = *request;
            log.push(Logged::Send { end: self.end, id, operation, sges, inline, flags });
        }
        let kind = match request.operation {
            Operation::Read(Remote { addr, rkey }) => {
                let Payload::Sges([target]) = request.payload else { return Err(PostError::BadPayload) };
                let source = [Sge { addr, len: target.len, lkey: rkey }];
                self.wire.copy(&Payload::Sges(&source), target.lkey, target.addr)?;
                CompletionKind::Read
            }
            Operation::Send => {
                self.deliver(&request.payload, CompletionKind::Receive, None)?;
                CompletionKind::Send
            }
            Operation::WriteImm(remote, imm) => {
                self.deliver(&request.payload, CompletionKind::ReceiveWriteImm, Some((remote, imm)))?;
                CompletionKind::Write
            }
            _ => return Err(PostError::BadPayload),
        };
        if request.flags.signaled {
            self.wire.ends[self.end].completions.push_back(completion(request.id, kind, 0, None));
        }
        Ok(())
    }

    #[inline]
    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        let [sge] = request.sges else { return Err(PostError::BadPayload) };
        if let Some(log) = &mut self.wire.log {
            log.push(Logged::Receive { end: self.end, id: request.id, sge: *sge });
        }
        self.wire.ends[self.end].receives.push_back((request.id, *sge));
        Ok(())
    }
}

/// Kind of operation whose CPU work is measured.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// GETs of existing records.
    Get,
    /// PUTs that overwrite a record.
    Put,
}

impl Kind {
    /// Returns the kind of a workload's operations, or `None` if the workload mixes kinds.
    pub(crate) fn of(mix: Mix) -> Option<Kind> {
        match (mix.read, mix.update) {
            (100, _) => Some(Kind::Get),
            (_, 100) => Some(Kind::Put),
            _ => None,
        }
    }
}

/// Returns records as the workloads draw them.
pub(crate) fn drawn(plan: &Plan, count: usize) -> impl Iterator<Item = Record> {
    let mut workload = Workload::new(Mix::C, plan.records, Stripe::ALONE, plan.seed);
    (0..count).map(move |_| match workload.next_operation() {
        YcsbOperation::Read(record) => record,
        other => unreachable!("a workload of reads has drawn {other:?}"),
    })
}

/// Measures the CPU work of an operation, in nanoseconds.
pub(crate) type Measured = Box<dyn FnMut(Kind) -> Result<f64>>;

/// Returns a function that measures the CPU work of a design, or `None` if that work cannot be separated from
/// the NIC's.
///
/// # Errors
/// Fails if there is not enough memory.
pub(crate) fn of(design: Design, plan: &Plan) -> Result<Option<Measured>> {
    fn measured<D: Classical>(plan: &Plan) -> Result<Option<Measured>> {
        let mut work = Work::<D>::new(plan)?;
        Ok(Some(Box::new(move |kind| work.measure(kind))))
    }
    match design {
        Design::Pilaf => measured::<PilafDesign>(plan),
        Design::Farm => measured::<FarmDesign>(plan),
        Design::TwoSided => measured::<TwoSidedDesign>(plan),
        // These operations involve others: the client alone (PRISM), or a kernel on the NIC (StRoM).
        Design::Prism | Design::Strom => Ok(None),
    }
}

/// A design's client and server, and the records they work on.
pub(crate) struct Work<D: Classical> {
    wire: Wire,
    client: Client<D::Lookup>,
    server: Server<D::Table>,
    connection: Connection,
    /// The keys of all runs, in the order in which the workload draws them.
    keys: Vec<(u64, [u8; KEY_LEN])>,
    values: Values,
    value: Vec<u8>,
    version: u64,
}

impl<D: Classical> Work<D> {
    /// Creates the client and server for the values and the window of `plan`.
    pub(crate) fn new(plan: &Plan) -> Result<Work<D>> {
        let through = vec![0; plan.value_len as usize + (1 << 12)];
        let mut wire = Wire { blocks: Vec::new(), ends: Default::default(), through, log: None };
        let keys = plan.records as u32;
        let index_len = D::table_len(keys, plan.seed);
        let index = (index_len > 0).then(|| wire.register(index_len)).transpose()?;
        let extents = wire.register(memory_for(plan.records, plan.value_len))?;
        let table = D::table(keys, plan.seed, index, extents);
        let config = ServerConfig { connections: 1, max_value: plan.value_len, ..ServerConfig::default() };
        let local = wire.register(config.local_len())?;
        let staging = wire.register(config.staging_len())?;
        let mut server = Server::new(table, config, local, staging)?;
        let config = plan.client();
        let arena = wire.register(config.arena_len::<D::Lookup>())?;
        let hello = config.hello::<D::Lookup>(&arena);
        let (connection, grant) = server.accept(&hello, &mut Seen { wire: &mut wire, end: 1 })?;
        let mut client = Client::new(config, &grant, arena)?;
        client.start(&mut Seen { wire: &mut wire, end: 0 })?;
        let values = Values::fixed(plan.value_len);
        let mut value = vec![0; plan.value_len as usize];
        for number in 0..plan.records {
            values.fill(number, 0, &mut value);
            server.table_mut().put(&record::key(number), &value)?;
        }
        let records = drawn(plan, OPERATIONS * (RUNS + 1));
        let keys = records.map(|number| (number, record::key(number))).collect();
        Ok(Work { wire, client, server, connection, keys, values, value, version: 0 })
    }

    /// Measures the time in nanoseconds that the design's own code takes per operation. For a server that is
    /// called, each run looks up other records, since the server's cache may miss them. For READs, the misses
    /// are part of the READ itself, and each run looks up the same records.
    pub(crate) fn measure(&mut self, kind: Kind) -> Result<f64> {
        let calls = kind == Kind::Put || D::Lookup::read_lens(KEY_LEN, 0).is_none();
        self.wire.log = Some(Vec::new());
        self.run(kind, 0)?;
        let log = self.wire.log.take().context("the log of what was posted")?;
        let mut own = Vec::with_capacity(RUNS);
        for run in 1..=RUNS {
            let first = if calls { run * OPERATIONS } else { 0 };
            let started = Instant::now();
            self.run(kind, first)?;
            let all = started.elapsed();
            let started = Instant::now();
            self.replay(&log)?;
            own.push((all.as_nanos() as f64 - started.elapsed().as_nanos() as f64) / OPERATIONS as f64);
        }
        Ok(median(&own).max(0.0))
    }

    /// Runs the operations of a run, one at a time.
    fn run(&mut self, kind: Kind, first: usize) -> Result<()> {
        for index in first..first + OPERATIONS {
            let (number, key) = self.keys[index];
            let nic = &mut Seen { wire: &mut self.wire, end: 0 };
            match kind {
                Kind::Get => self.client.get(&key, nic)?,
                Kind::Put => {
                    self.version += 1;
                    let len = self.values.fill(number, self.version, &mut self.value);
                    self.client.put(&key, &self.value[..len], nic)?
                }
            };
            self.finish(number)?;
        }
        self.settle()
    }

    /// Takes the completions that have not ended an operation.
    fn settle(&mut self) -> Result<()> {
        while let Some(completion) = self.wire.ends[1].completions.pop_front() {
            let nic = &mut Seen { wire: &mut self.wire, end: 1 };
            self.server.handle(self.connection, &completion, nic)?;
        }
        while let Some(completion) = self.wire.ends[0].completions.pop_front() {
            let nic = &mut Seen { wire: &mut self.wire, end: 0 };
            ensure!(
                self.client.complete(&completion, nic)?.is_none(),
                "an operation ended that was not started"
            );
        }
        Ok(())
    }

    #[inline]
    fn finish(&mut self, number: u64) -> Result<()> {
        loop {
            if let Some(completion) = self.wire.ends[1].completions.pop_front() {
                let nic = &mut Seen { wire: &mut self.wire, end: 1 };
                self.server.handle(self.connection, &completion, nic)?;
                continue;
            }
            let Some(completion) = self.wire.ends[0].completions.pop_front() else {
                bail!("an operation did not end")
            };
            let nic = &mut Seen { wire: &mut self.wire, end: 0 };
            if let Some(finished) = self.client.complete(&completion, nic)? {
                let right = match finished.outcome {
                    Outcome::Value(value) => self.values.check(number, value).is_some(),
                    outcome => outcome == Outcome::Done,
                };
                ensure!(right, "an operation gave a wrong answer");
                return Ok(());
            }
        }
    }

    /// Executes the logged requests as the NICs would.
    fn replay(&mut self, log: &[Logged]) -> Result<()> {
        for logged in log {
            match black_box(logged) {
                Logged::Receive { end, id, sge } => {
                    Seen { wire: &mut self.wire, end: *end }
                        .post_receive(&ReceiveRequest { id: *id, sges: &[*sge] })?;
                }
                Logged::Send { end, id, operation, sges, inline, flags } => {
                    let payload = inline.as_ref().map_or(Payload::Sges(sges), |bytes| Payload::Inline(bytes));
                    let request = WorkRequest { id: *id, operation: *operation, payload, flags: *flags };
                    Seen { wire: &mut self.wire, end: *end }.post_send(&request)?;
                }
            }
            for end in &mut self.wire.ends {
                while let Some(completion) = end.completions.pop_front() {
                    black_box(completion);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the designs with messages and values of each form: inline, by SEND, and by WRITE with immediate
    /// data.
    fn works<D: Classical>() {
        for value_len in [16, 64, 900, 5000] {
            let plan = Plan { records: 500, value_len, operations: 6400, window: 4, seed: 3, inserts: 0 };
            let mut work = Work::<D>::new(&plan).unwrap();
            for kind in [Kind::Get, Kind::Put, Kind::Get] {
                assert!(work.measure(kind).unwrap() >= 0.0, "{kind:?} of {value_len} bytes");
            }
            assert!(work.version > 0);
        }
    }

    #[test]
    fn each_design_gives_right_answers_when_its_work_is_measured() {
        works::<PilafDesign>();
        works::<FarmDesign>();
        works::<TwoSidedDesign>();
    }

    #[test]
    fn workloads_of_one_operation_are_known() {
        assert_eq!(Kind::of(Mix::C), Some(Kind::Get));
        assert_eq!(Kind::of(Mix { read: 0, update: 100, ..Mix::A }), Some(Kind::Put));
        assert!([Mix::A, Mix::B, Mix::D, Mix::E, Mix::F].into_iter().all(|mix| Kind::of(mix).is_none()));
    }
}
