//! Operation lists of short operations: one request packet and one response packet.
//!
//! In a bundle of packets, each operation would be parsed, checked, executed, recorded and answered
//! separately, which takes longer than the operation itself. The operations of a list arrive together or not
//! at all, so this work is done once per operation list. Each operation has its own sequence number, its
//! position in the order and its verdict.

use remora_memory::Mem;
use remora_transport::rc::prism::{ListedResult, Output, Rules};
use remora_transport::rc::{Message, OperationListOutcome, count};
use remora_transport::{Instant, Status};
use remora_wire::prism::operation_list::{self, Target};
use remora_wire::prism::{Flags, Verdict};
use remora_wire::{NakCode, Opcode, Psn, Qpn, bth, packet};

use super::egress::put_result;
use super::free_list::FreeLists;
use super::packet::RequestPacket;
use super::reach::Reach;
use super::result::ResultSink;
use super::{Prism, ResponderState};
use crate::context::WqeContext;
use crate::extras::All;
use crate::gather::{self, LocalMemory};
use crate::machine::Connection;
use crate::queue_pair::{QueuePair, View};
use crate::reliable::GoBackN;
use crate::shared::{Shared, SharedView};

/// Returns the BTH of an operation list of `count` operations.
pub(super) fn operation_list_bth(count: usize, remote: Qpn, psn: Psn) -> bth::Repr {
    bth::Repr { ack_req: true, resv7: count as u8, ..bth::Repr::new(Opcode::OPERATION_LIST, remote, psn) }
}

/// Writes an operation at the start of `out` and returns its size. `None` if its memory must not be read.
#[inline(always)]
pub(super) fn put_operation(
    out: &mut [u8],
    message: &Message<WqeContext>,
    local: LocalMemory<'_>,
) -> Option<usize> {
    let head = RequestPacket::of(message, local.ring)?;
    let (bytes, len) = operation_list::emit(head.opcode, head.flags, &head.target, head.payload, out)?;
    head.fill(bytes, &message.context, local).then_some(len)
}

/// Processes an operation list, or the response to one.
#[inline(never)]
pub(crate) fn take_operation_list(
    qp: &mut QueuePair,
    now: Instant,
    mem: Mem<'_>,
    packet: &packet::View<'_>,
    shared: &mut Shared,
) {
    match packet.bth.opcode() {
        // IRN does not use operation lists.
        _ if !qp.machine().is_rc() => shared.counters_mut().malformed_pkts += 1,
        Opcode::OPERATION_LIST => serve_operation_list(qp, now, mem, packet, shared),
        _ => take_operation_list_answer(qp, now, mem, packet, shared),
    }
}

fn serve_operation_list(
    qp: &mut QueuePair,
    now: Instant,
    mem: Mem<'_>,
    packet: &packet::View<'_>,
    shared: &mut Shared,
) {
    qp.establish(shared);
    let View { id, machine, offloads, .. } = qp.view();
    let Some(Connection { responder, .. }) = machine.rc_mut() else { return };
    let Some(prism) = &mut offloads.prism else { return };
    let SharedView { objects, counters, .. } = shared.view();
    let lists = &mut objects.free_lists;
    let Some(passed) = responder.receive_operation_list(packet, counters) else { return };
    let (number, kept_from) = responder.fetches();
    prism.begin(now, mem, kept_from, responder.msn(), lists);
    let Prism { scratch, state, .. } = &mut **prism;
    let reach = Reach { mem, pd: id.pd, owner: id.owner, key: 0, scratch: scratch.as_ref() };
    let rules = responder.rules();
    let buffer = responder.operation_list_answer_buffer();
    let mut outcome = OperationListOutcome::default();
    let mut sink = AnswerWriter { buffer, len: 0, verdict: Verdict::Done, fits: true };
    let mut operations = operation_list::operations(packet.payload);
    for index in 0..usize::from(packet.bth.resv7()) {
        let operation = operations.next().and_then(Result::ok).ok_or(NakCode::INVALID_REQUEST);
        if index < passed && operation.is_ok() {
            continue;
        }
        let executed = operation.and_then(|operation| {
            state.execute_operation(reach, number, rules, &operation, lists, &mut sink)?;
            Ok(operation.opcode)
        });
        match executed {
            Ok(opcode) => {
                count(opcode, counters);
                outcome.done += 1;
            }
            Err(code) => {
                state.abandon(lists);
                outcome.fault = Some(code);
                break;
            }
        }
    }
    outcome.len = sink.len;
    responder.conclude_operation_list(outcome, counters);
    prism.counted = responder.msn();
}

fn take_operation_list_answer(
    qp: &mut QueuePair,
    now: Instant,
    mem: Mem<'_>,
    packet: &packet::View<'_>,
    shared: &mut Shared,
) {
    let View { id, queues, machine, offloads } = qp.view();
    let pd = id.pd;
    let ring = queues.send.ring();
    let Some(Connection { requester, .. }) = machine.rc_mut() else { return };
    requester.receive_operation_list_answer(now, packet, shared.counters_mut(), |context, result| {
        let fine = match result {
            ListedResult::Number(head, rest) => put_result(mem, pd, ring, context, head, rest),
            ListedResult::Bytes(bytes) => gather::scatter(mem, pd, ring, context, 0, bytes),
        };
        if fine { Ok(()) } else { Err(Status::LocalProtection) }
    });
    if let Some(congestion) = &mut offloads.congestion {
        congestion.answered(now, requester.progress());
    }
    qp.retire::<GoBackN, All>(shared);
}

impl ResponderState {
    /// Executes the next operation of an operation list. A plain WRITE has no response of its own.
    #[inline(always)]
    fn execute_operation(
        &mut self,
        reach: Reach<'_, '_>,
        number: u64,
        rules: Rules,
        operation: &operation_list::Operation<'_>,
        lists: &mut FreeLists,
        sink: &mut AnswerWriter<'_>,
    ) -> Result<(), NakCode> {
        let (request, (addresses, payload)) = rules.judge(operation)?;
        let eth = if let Target::Atomic(eth) = operation.target { Some(eth) } else { None };
        let reach = Reach { key: request.key, ..reach };
        let before = sink.len;
        self.perform(reach, number, &request, eth, addresses, payload, lists, sink)?;
        self.last = sink.verdict;
        if operation.opcode == Opcode::RC_RDMA_WRITE_ONLY && operation.flags == Flags::NONE {
            sink.len = before;
        }
        if sink.fits { Ok(()) } else { Err(NakCode::INVALID_REQUEST) }
    }
}

/// Writer of the responses to an operation list, one after the other.
struct AnswerWriter<'r> {
    buffer: &'r mut [u8],
    len: usize,
    /// Verdict of the last operation.
    verdict: Verdict,
    /// True while all responses fit.
    fits: bool,
}

impl ResultSink for AnswerWriter<'_> {
    #[inline(always)]
    fn put(&mut self, verdict: Verdict, output: Output) {
        let buffer = &mut self.buffer[self.len..];
        let put = match &output {
            Output::Number(number) => operation_list::emit_answer(verdict, &number.to_be_bytes(), buffer),
            Output::Wide { bytes, size } => {
                operation_list::emit_answer(verdict, &bytes[..usize::from(*size)], buffer)
            }
            Output::Snapshot { bytes, len } => {
                operation_list::emit_answer(verdict, &bytes[..usize::from(*len)], buffer)
            }
            Output::Memory { .. } => None,
        };
        self.verdict = verdict;
        self.len += put.unwrap_or(0);
        self.fits &= put.is_some();
    }
}
