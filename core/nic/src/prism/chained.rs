//! Chains of short operations: one packet there, one back.
//!
//! As packets in a bundle each would be parsed, judged, executed, remembered and answered by itself, which takes longer than what they do. A
//! chain's operations come together or not at all, and nothing stands between them, so that all of this is done once. Each keeps
//! its sequence number, its place and its end.

use remora_memory::{Mem, Pd};
use remora_transport::rc::prism::{ChainResult, Output, Rules};
use remora_transport::rc::{Links, Message, count};
use remora_transport::{Instant, Status};
use remora_wire::prism::chain::{self, Target};
use remora_wire::prism::{Flags, Verdict};
use remora_wire::{NakCode, Opcode, Psn, Qpn, bth, packet};

use super::bundle::Head;
use super::egress::put_result;
use super::execute::ResultSink;
use super::free_list::FreeLists;
use super::reach::Reach;
use super::{Prism, ResponderState};
use crate::gather;
use crate::ingress::malformed;
use crate::nic::Shared;
use crate::queue_pair::{Connection, QueuePair, WqeContext};
use crate::reliable::GoBackN;
use crate::ring::Ring;

/// The BTH of a chain of so many operations.
pub(super) fn chain_bth(count: usize, remote: Qpn, psn: Psn) -> bth::Repr {
    bth::Repr { ack_req: true, resv7: count as u8, ..bth::Repr::new(Opcode::CHAIN, remote, psn) }
}

/// Writes an operation at the start of `out`; the bytes that it took. None: its memory may not be read.
#[inline(always)]
pub(super) fn put_operation(
    out: &mut [u8],
    message: &Message<WqeContext>,
    place: (Mem<'_>, Pd, &Ring),
) -> Option<usize> {
    let head = Head::of(message, place.2)?;
    let (bytes, len) = chain::emit((head.opcode, head.flags), &head.target, head.payload, out)?;
    head.fill(bytes, &message.context, place).then_some(len)
}

impl QueuePair {
    /// A chain, or what came of one.
    #[inline(never)]
    pub(crate) fn take_chain(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        packet: &packet::View<'_>,
        shared: &mut Shared,
    ) {
        match packet.bth.opcode {
            // Over IRN there are none.
            _ if self.connection.is_none() => malformed(shared),
            Opcode::CHAIN => self.serve_chain(now, mem, packet, shared),
            _ => self.answer_chain(now, mem, packet, shared),
        }
    }

    fn serve_chain(&mut self, now: Instant, mem: Mem<'_>, packet: &packet::View<'_>, shared: &mut Shared) {
        self.establish(shared);
        let (pd, owner) = (self.pd, self.owner);
        let (Some(Connection { responder, .. }), Some(prism)) = (&mut self.connection, &mut self.prism)
        else {
            return;
        };
        let (counters, lists) = (&mut shared.counters, &mut shared.free_lists);
        let Some(passed) = responder.receive_chain(packet, counters) else { return };
        let (number, kept_from) = responder.fetches();
        prism.begin(now, mem, (kept_from, responder.msn()), lists);
        let Prism { scratch, state, .. } = &mut **prism;
        let reach = Reach { mem, pd, owner, key: 0, scratch: scratch.as_ref() };
        let (rules, room) = (responder.rules(), responder.room());
        let mut links = Links::default();
        let mut sink = ChainAnswerWriter { room, len: 0, verdict: Verdict::Done, fits: true };
        let mut operations = chain::operations(packet.payload);
        for at in 0..usize::from(packet.bth.resv7) {
            let operation = operations.next().and_then(Result::ok).ok_or(NakCode::INVALID_REQUEST);
            if at < passed && operation.is_ok() {
                continue;
            }
            let linked = operation.and_then(|operation| {
                state.link(reach, (number, rules), &operation, (lists, &mut sink))?;
                Ok(operation.opcode)
            });
            match linked {
                Ok(opcode) => {
                    count(opcode, counters);
                    links.done += 1;
                }
                Err(code) => {
                    state.abandon(lists);
                    links.fault = Some(code);
                    break;
                }
            }
        }
        links.len = sink.len;
        responder.conclude_chain(links, counters);
        prism.counted = responder.msn();
    }

    fn answer_chain(&mut self, now: Instant, mem: Mem<'_>, packet: &packet::View<'_>, shared: &mut Shared) {
        let (pd, ring) = (self.pd, self.send.ring());
        let Some(Connection { requester, .. }) = &mut self.connection else { return };
        requester.receive_chain_answer(now, packet, &mut shared.counters, |context, result| {
            let fine = match result {
                ChainResult::Number(head, rest) => put_result(mem, pd, ring, context, head, rest),
                ChainResult::Bytes(bytes) => gather::scatter(mem, pd, ring, context, 0, bytes),
            };
            if fine { Ok(()) } else { Err(Status::LocalProtection) }
        });
        if let Some(congestion) = &mut self.congestion {
            congestion.answered(now, requester.progress());
        }
        self.retire::<GoBackN>(shared);
    }
}

impl ResponderState {
    /// The next operation of a chain. A plain WRITE has no answer.
    #[inline(always)]
    fn link(
        &mut self,
        reach: Reach<'_, '_>,
        (number, rules): (u64, Rules),
        operation: &chain::Operation<'_>,
        (lists, sink): (&mut FreeLists, &mut ChainAnswerWriter<'_>),
    ) -> Result<(), NakCode> {
        let (request, behind) = rules.judge(operation)?;
        let eth = if let Target::Atomic(eth) = operation.target { Some(eth) } else { None };
        let (reach, before) = (Reach { key: request.key, ..reach }, sink.len);
        self.perform(reach, number, &request, eth, behind, (lists, sink))?;
        self.last = sink.verdict;
        if operation.opcode == Opcode::RC_RDMA_WRITE_ONLY && operation.flags == Flags::NONE {
            sink.len = before;
        }
        if sink.fits { Ok(()) } else { Err(NakCode::INVALID_REQUEST) }
    }
}

/// The answers to a chain, one behind the other.
struct ChainAnswerWriter<'r> {
    room: &'r mut [u8],
    len: usize,
    /// How the last operation ended.
    verdict: Verdict,
    /// Were all short enough?
    fits: bool,
}

impl ResultSink for ChainAnswerWriter<'_> {
    #[inline(always)]
    fn put(&mut self, verdict: Verdict, output: Output) {
        let room = &mut self.room[self.len..];
        let put = match &output {
            Output::Number(number) => chain::emit_answer(verdict, &number.to_be_bytes(), room),
            Output::Wide { bytes, size } => chain::emit_answer(verdict, &bytes[..usize::from(*size)], room),
            Output::Snapshot { bytes, len } => chain::emit_answer(verdict, &bytes[..usize::from(*len)], room),
            Output::Memory { .. } => None,
        };
        self.verdict = verdict;
        self.len += put.unwrap_or(0);
        self.fits &= put.is_some();
    }
}
