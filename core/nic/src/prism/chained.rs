//! Chains of short operations: one request packet and one response packet.
//!
//! In a bundle of packets, each operation would be parsed, checked, executed, recorded and answered
//! separately, which takes longer than the operation itself. The operations of a chain arrive together or not
//! at all, so this work is done once per chain. Each operation has its own sequence number, its position in
//! the order and its verdict.

use remora_memory::Mem;
use remora_transport::rc::prism::{ChainResult, Output, Rules};
use remora_transport::rc::{ChainOutcome, Message, count};
use remora_transport::{Instant, Status};
use remora_wire::prism::chain::{self, Target};
use remora_wire::prism::{Flags, Verdict};
use remora_wire::{NakCode, Opcode, Psn, Qpn, bth, packet};

use super::egress::put_result;
use super::free_list::FreeLists;
use super::packet::RequestPacket;
use super::reach::Reach;
use super::result::ResultSink;
use super::{Prism, ResponderState};
use crate::context::WqeContext;
use crate::gather::{self, LocalMemory};
use crate::machine::Connection;
use crate::queue_pair::QueuePair;
use crate::reliable::GoBackN;
use crate::shared::Shared;

/// Returns the BTH of a chain of `count` operations.
pub(super) fn chain_bth(count: usize, remote: Qpn, psn: Psn) -> bth::Repr {
    bth::Repr { ack_req: true, resv7: count as u8, ..bth::Repr::new(Opcode::CHAIN, remote, psn) }
}

/// Writes an operation at the start of `out` and returns its size. `None` if its memory must not be read.
#[inline(always)]
pub(super) fn put_operation(
    out: &mut [u8],
    message: &Message<WqeContext>,
    local: LocalMemory<'_>,
) -> Option<usize> {
    let head = RequestPacket::of(message, local.ring)?;
    let (bytes, len) = chain::emit(head.opcode, head.flags, &head.target, head.payload, out)?;
    head.fill(bytes, &message.context, local).then_some(len)
}

/// Processes a chain, or the response to one.
#[inline(never)]
pub(crate) fn take_chain(
    qp: &mut QueuePair,
    now: Instant,
    mem: Mem<'_>,
    packet: &packet::View<'_>,
    shared: &mut Shared,
) {
    match packet.bth.opcode {
        // IRN does not use chains.
        _ if !qp.machine.is_rc() => shared.counters.malformed_pkts += 1,
        Opcode::CHAIN => serve_chain(qp, now, mem, packet, shared),
        _ => answer_chain(qp, now, mem, packet, shared),
    }
}

fn serve_chain(
    qp: &mut QueuePair,
    now: Instant,
    mem: Mem<'_>,
    packet: &packet::View<'_>,
    shared: &mut Shared,
) {
    qp.establish(shared);
    let (pd, owner) = (qp.pd, qp.owner);
    let (Some(Connection { responder, .. }), Some(prism)) = (qp.machine.rc_mut(), &mut qp.prism) else {
        return;
    };
    let (counters, lists) = (&mut shared.counters, &mut shared.free_lists);
    let Some(passed) = responder.receive_chain(packet, counters) else { return };
    let (number, kept_from) = responder.fetches();
    prism.begin(now, mem, kept_from, responder.msn(), lists);
    let Prism { scratch, state, .. } = &mut **prism;
    let reach = Reach { mem, pd, owner, key: 0, scratch: scratch.as_ref() };
    let (rules, buffer) = (responder.rules(), responder.chain_answer_buffer());
    let mut outcome = ChainOutcome::default();
    let mut sink = ChainAnswerWriter { buffer, len: 0, verdict: Verdict::Done, fits: true };
    let mut operations = chain::operations(packet.payload);
    for at in 0..usize::from(packet.bth.resv7) {
        let operation = operations.next().and_then(Result::ok).ok_or(NakCode::INVALID_REQUEST);
        if at < passed && operation.is_ok() {
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
    responder.conclude_chain(outcome, counters);
    prism.counted = responder.msn();
}

fn answer_chain(
    qp: &mut QueuePair,
    now: Instant,
    mem: Mem<'_>,
    packet: &packet::View<'_>,
    shared: &mut Shared,
) {
    let (pd, ring) = (qp.pd, qp.send.ring());
    let Some(Connection { requester, .. }) = qp.machine.rc_mut() else { return };
    requester.receive_chain_answer(now, packet, &mut shared.counters, |context, result| {
        let fine = match result {
            ChainResult::Number(head, rest) => put_result(mem, pd, ring, context, head, rest),
            ChainResult::Bytes(bytes) => gather::scatter(mem, pd, ring, context, 0, bytes),
        };
        if fine { Ok(()) } else { Err(Status::LocalProtection) }
    });
    if let Some(congestion) = &mut qp.congestion {
        congestion.answered(now, requester.progress());
    }
    qp.retire::<GoBackN>(shared);
}

impl ResponderState {
    /// Executes the next operation of a chain. A plain WRITE has no response of its own.
    #[inline(always)]
    fn execute_operation(
        &mut self,
        reach: Reach<'_, '_>,
        number: u64,
        rules: Rules,
        operation: &chain::Operation<'_>,
        lists: &mut FreeLists,
        sink: &mut ChainAnswerWriter<'_>,
    ) -> Result<(), NakCode> {
        let (request, (addresses, payload)) = rules.judge(operation)?;
        let eth = if let Target::Atomic(eth) = operation.target { Some(eth) } else { None };
        let (reach, before) = (Reach { key: request.key, ..reach }, sink.len);
        self.perform(reach, number, &request, eth, addresses, payload, lists, sink)?;
        self.last = sink.verdict;
        if operation.opcode == Opcode::RC_RDMA_WRITE_ONLY && operation.flags == Flags::NONE {
            sink.len = before;
        }
        if sink.fits { Ok(()) } else { Err(NakCode::INVALID_REQUEST) }
    }
}

/// Writer of the responses to a chain, one after the other.
struct ChainAnswerWriter<'r> {
    buffer: &'r mut [u8],
    len: usize,
    /// Verdict of the last operation.
    verdict: Verdict,
    /// True while all responses fit.
    fits: bool,
}

impl ResultSink for ChainAnswerWriter<'_> {
    #[inline(always)]
    fn put(&mut self, verdict: Verdict, output: Output) {
        let buffer = &mut self.buffer[self.len..];
        let put = match &output {
            Output::Number(number) => chain::emit_answer(verdict, &number.to_be_bytes(), buffer),
            Output::Wide { bytes, size } => chain::emit_answer(verdict, &bytes[..usize::from(*size)], buffer),
            Output::Snapshot { bytes, len } => {
                chain::emit_answer(verdict, &bytes[..usize::from(*len)], buffer)
            }
            Output::Memory { .. } => None,
        };
        self.verdict = verdict;
        self.len += put.unwrap_or(0);
        self.fits &= put.is_some();
    }
}
