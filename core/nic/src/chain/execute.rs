//! A loopback queue pair's turn: work requests are executed one behind the other, each whole before the next.

use remora_memory::Mem;
use remora_transport::rc::{Kind, Retired};
use remora_transport::state::State;
use remora_transport::{Instant, Notice, Outcome, Status};
use remora_wire::prism::Verdict;

use super::bytes::refused;
use super::calculate::Calculation;
use super::control::Start;
use crate::egress::{TurnEnd, TurnUsage};
use crate::event::AsyncEvent;
use crate::nic::Shared;
use crate::queue_pair::{List, QueuePair};
use crate::send_queue::Fetched;
use crate::wqe::{SLOT, Wqe, flag};

/// Work requests that a loopback queue pair executes before the next queue pair's turn if nobody says otherwise, and bytes that
/// they move.
pub(crate) const TURN: usize = 64;
const TURN_BYTES: usize = 64 << 10;
/// Work requests that count as much as a packet.
const A_PACKET: usize = 16;

impl QueuePair {
    /// Its turn. A rate that it is limited to counts the bytes that it moves, and those of its work requests.
    pub(crate) fn transmit_to_itself(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        shared: &mut Shared,
        used: &mut TurnUsage,
    ) -> TurnEnd {
        let (mut done, mut bytes, mut freed) = (0, 0, None);
        let turn = loop {
            if self.state != State::Rts {
                break TurnEnd::Done;
            }
            if done == shared.chain_turn || bytes >= TURN_BYTES {
                break TurnEnd::More;
            }
            let (wqe, index, slots) = match self.send.next() {
                Fetched::Empty => break TurnEnd::Done,
                Fetched::Malformed { wqe, index } => {
                    self.send.take(1);
                    self.ended(&wqe, (index, 1), Err(Status::LocalQpOperation), shared);
                    break TurnEnd::Done;
                }
                Fetched::Work { wqe, index, slots } => (wqe, index, slots),
            };
            let result = match self.may_begin(&wqe, shared) {
                Start::Later if self.waiting => break TurnEnd::Done,
                Start::Later => break TurnEnd::More,
                Start::Never(status) => Err(status),
                Start::Now => self.execute_whole(mem, &wqe, index, shared),
            };
            self.send.take(slots);
            done += 1;
            shared.counters.wqes_executed += 1;
            bytes += result.unwrap_or(0) as usize;
            freed = self.ended(&wqe, (index, slots), result, shared);
        };
        if let Some(end) = freed {
            self.send.free(end);
        }
        if let Some(congestion) = &mut self.congestion {
            congestion.left(now, bytes + done * SLOT);
        }
        used.packets += done.div_ceil(A_PACKET);
        used.bytes += bytes;
        turn
    }

    #[inline]
    fn may_begin(&mut self, wqe: &Wqe, shared: &mut Shared) -> Start {
        if wqe.opcode().may_have_to_wait() { self.may_start(wqe, 0, shared) } else { Start::Now }
    }

    /// A work request has ended. Says up to where slots are free and not yet said to be.
    #[inline]
    fn ended(
        &mut self,
        wqe: &Wqe,
        (index, slots): (u64, u64),
        result: Result<u32, Status>,
        shared: &mut Shared,
    ) -> Option<u64> {
        if result.is_ok() && wqe.flags() & flag::SIGNALED == 0 {
            return Some(index + slots);
        }
        self.send.free(index + slots);
        let kind = self.decode_outlined(wqe, index).map_or(Kind::Local, |(kind, _, _)| kind);
        let context = self.context(wqe, List::One, index, slots);
        let (len, status) = (result.unwrap_or(0), result.err().unwrap_or(Status::Success));
        let fine =
            self.complete_outlined(&Retired { context, len, kind, status, verdict: Verdict::Done }, shared);
        if fine && status != Status::Success {
            shared.counters.req_cqe_error += 1;
            self.fail(AsyncEvent::QpFatal(self.number), shared);
        }
        None
    }

    /// Executes a work request; how many bytes it moved.
    #[inline]
    fn execute_whole(
        &mut self,
        mem: Mem<'_>,
        wqe: &Wqe,
        index: u64,
        shared: &mut Shared,
    ) -> Result<u32, Status> {
        if let Some(calculation) = Calculation::of(wqe.opcode()) {
            return self.calculate(mem, wqe, calculation);
        }
        let (kind, len, list) = self.decode_outlined(wqe, index).ok_or(Status::LocalQpOperation)?;
        if len > 1 << 31 {
            return Err(Status::LocalLength);
        }
        let context = self.context(wqe, list, index, 1);
        let len = len as u32;
        match kind {
            Kind::Local => self.execute_locally(mem, wqe).map(|()| 0),
            Kind::Write { va, rkey } => self.write_here(mem, (va, rkey), &context, len),
            Kind::Read { va, rkey } => self.read_here(mem, (va, rkey), &context, len),
            Kind::Atomic { va, rkey, atomic } => match self.atomic(mem, rkey, va, atomic) {
                Outcome::Value(old) => self.bring_back(mem, wqe, old),
                outcome => Err(refused(outcome)),
            },
            Kind::WriteImm { va, rkey, .. } => {
                let receive = self.receive.take().ok_or(Status::RnrRetryExceeded)?;
                let written = self.write_here(mem, (va, rkey), &context, len);
                if written.is_err() {
                    self.current = Some(receive);
                    return written;
                }
                self.notify(mem, &receive, &notice(wqe, &kind, len), shared).map(|()| len)
            }
            Kind::Send | Kind::SendImm(_) | Kind::SendInv(_) => {
                self.send_here(mem, &context, notice(wqe, &kind, len), shared)
            }
            Kind::Prism(_) | Kind::Rpc { .. } | Kind::RpcWrite { .. } => Err(Status::LocalQpOperation),
        }
    }
}

/// What a message brings to the receive queue.
fn notice(wqe: &Wqe, kind: &Kind, len: u32) -> Notice {
    let (imm, invalidate) = match *kind {
        Kind::SendImm(imm) | Kind::WriteImm { imm, .. } => (Some(imm), None),
        Kind::SendInv(key) => (None, Some(key)),
        _ => (None, None),
    };
    let solicited = wqe.flags() & flag::SOLICITED != 0;
    Notice { len, imm, invalidate, solicited, write: matches!(kind, Kind::WriteImm { .. }) }
}
