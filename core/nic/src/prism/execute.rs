//! The responder's side: executes the packets of operations.

use remora_memory::{Access, Mem};
use remora_transport::rc::prism::{Output, Request, SNAPSHOT, Verb, is_scratch};
use remora_transport::{Instant, Outcome};
use remora_wire::prism::addresses::Repr as Addresses;
use remora_wire::prism::operands::{Number, Operand, Repr as Operands, put};
use remora_wire::prism::{Flags, Verdict};
use remora_wire::{NakCode, atomic_eth, packet};

use super::allocate::{allocate, take};
use super::free_list::{FreeLists, Taken};
use super::number::{add, and, blend, cut, to_memory};
use super::reach::Reach;
use super::result::ResultSink;
use super::{OperationInProgress, Prism, ResponderState};
use crate::machine::{Connection, Machine};
use crate::queue_pair::{QueuePair, View};
use crate::shared::{Shared, SharedView};

type Done = Result<(), NakCode>;

/// Executes one packet of an operation.
#[cold]
#[inline(never)]
pub(crate) fn serve_prism(
    qp: &mut QueuePair,
    now: Instant,
    mem: Mem<'_>,
    request: &Request,
    packet: &packet::View<'_>,
    shared: &mut Shared,
) {
    let View { id, machine, offloads, .. } = qp.view();
    let Some(prism) = &mut offloads.prism else { return };
    let SharedView { objects, counters, .. } = shared.view();
    let lists = &mut objects.free_lists;
    let ((number, kept_from), msn) = match machine {
        Machine::Plain(connection) | Machine::Rc(connection) => {
            (connection.responder.fetches(), connection.responder.msn())
        }
        Machine::Irn(irn) => (irn.responder.fetches(), irn.responder.msn()),
        _ => return,
    };
    prism.begin(now, mem, kept_from, msn, lists);
    let Prism { scratch, state, .. } = &mut **prism;
    let reach = Reach { mem, pd: id.pd, owner: id.owner, key: request.key, scratch: scratch.as_ref() };
    let behind = Addresses::split(packet.bth.opcode(), request.flags, packet.payload);
    let mut answer = None;
    let done = match behind {
        Ok((addresses, payload)) => {
            let eth = packet.atomic();
            state.perform(reach, number, request, eth, addresses, payload, lists, &mut answer)
        }
        Err(_) => Err(NakCode::INVALID_REQUEST),
    };
    match (&done, &answer) {
        (Ok(()), Some(answer)) => prism.state.last = answer.verdict,
        (Ok(()), None) => {}
        (Err(_), _) => prism.state.abandon(lists),
    }
    let done = done.map(|()| answer);
    prism.counted = match machine {
        Machine::Plain(Connection { responder, .. }) | Machine::Rc(Connection { responder, .. }) => {
            responder.conclude_prism(done, counters);
            responder.msn()
        }
        Machine::Irn(irn) => {
            irn.responder.conclude_prism(done, counters);
            irn.responder.msn()
        }
        _ => 0,
    };
}

/// A plain WRITE whose key names no region: it goes to the connection's scratch memory, or is refused.
#[cold]
#[inline(never)]
pub(crate) fn place_in_scratch(qp: &mut QueuePair, mem: Mem<'_>, va: u64, payload: &[u8]) -> Outcome {
    let refused = Outcome::Nak(NakCode::REMOTE_ACCESS_ERROR);
    let pd = qp.id().pd;
    let owner = qp.id().owner;
    let Some(prism) = qp.offloads_mut().prism.as_mut().filter(|_| is_scratch(va)) else { return refused };
    let scratch = prism.lend_scratch(mem);
    let reach = Reach { mem, pd, owner, key: 0, scratch };
    match reach.span(va, payload.len(), Access::REMOTE_WRITE) {
        Ok(span) if span.write(payload) == payload.len() => Outcome::Done,
        Ok(_) => refused,
        Err(code) => Outcome::Nak(code),
    }
}

impl ResponderState {
    /// Executes one packet of an operation. `number` counts the operations that are answered; `eth` is the
    /// header of an atomic, `addresses` and `payload` follow the headers. If the operation ends with it,
    /// `sink` gets the result.
    #[inline(always)]
    pub(super) fn perform(
        &mut self,
        reach: Reach<'_, '_>,
        number: u64,
        request: &Request,
        eth: Option<atomic_eth::Repr>,
        addresses: Addresses,
        payload: &[u8],
        lists: &mut FreeLists,
        sink: &mut impl ResultSink,
    ) -> Done {
        let flags = request.flags;
        let passed = request.first && flags.has(Flags::CONDITIONAL) && self.last != Verdict::Done;
        match (request.verb, eth) {
            (Verb::Read, _) if passed => pass_read(flags, sink),
            (Verb::Read, _) => return self.read(reach, number, request, &addresses, lists, sink),
            (Verb::Write, _) if allocates(request) && !passed && addresses.source.is_none() => {
                return allocate(&reach, request, addresses.redirect, payload, lists, sink);
            }
            (Verb::Write, _) if request.first && request.last && !passed && !flags.has(Flags::ALLOCATE) => {
                return write_whole(reach, request, &addresses, payload, sink);
            }
            (Verb::Write, _) => {
                if passed {
                    self.in_progress = OperationInProgress::Passed(Verdict::Skipped);
                } else if request.first {
                    begin_write(&mut self.in_progress, reach, request, &addresses, lists)?;
                }
                return self.write(reach, request, &addresses, payload, lists, sink);
            }
            (Verb::CompareSwap | Verb::FetchAdd, Some(eth)) => {
                let operands = operands(request, &eth, payload)?;
                if !passed {
                    return atomic(reach, request, &operands, addresses.redirect, sink);
                }
                pass_atomic(flags, &operands, sink);
            }
            _ => return Err(NakCode::INVALID_REQUEST),
        }
        Ok(())
    }

    #[inline(always)]
    fn read(
        &mut self,
        reach: Reach<'_, '_>,
        number: u64,
        request: &Request,
        addresses: &Addresses,
        lists: &mut FreeLists,
        sink: &mut impl ResultSink,
    ) -> Done {
        let (va, len) = target(reach, request)?;
        if let Some(redirect) = addresses.redirect {
            reach.copy(va, redirect, len)?;
            sink.put(Verdict::Done, Output::Number(u64::from(len)));
            return Ok(());
        }
        if len <= SNAPSHOT {
            let bytes = reach.read(va, len as usize)?;
            sink.put(Verdict::Done, Output::Snapshot { bytes, len: len as u8 });
            return Ok(());
        }
        // What is read later must still be there then, and better near.
        reach.span(va, len as usize, Access::REMOTE_READ)?.prefetch();
        if let Some(pin) = lists.pin(reach.pd, va) {
            self.pins.push_back((number, pin));
        }
        sink.put(Verdict::Done, Output::Memory { key: request.key, va, len });
        Ok(())
    }

    /// Writes payload to the target that the operation's first packet has resolved.
    fn write(
        &mut self,
        mut reach: Reach<'_, '_>,
        request: &Request,
        addresses: &Addresses,
        payload: &[u8],
        lists: &mut FreeLists,
        sink: &mut impl ResultSink,
    ) -> Done {
        if let OperationInProgress::Writing { key, va, limit, .. } = &self.in_progress {
            reach.key = *key;
            let left = limit.saturating_sub(request.offset) as usize;
            let payload = &payload[..left.min(payload.len())];
            let address = va.wrapping_add(u64::from(request.offset));
            if let Some(source) = addresses.source {
                reach.copy(source, address, *limit)?;
            } else if !payload.is_empty() {
                reach.place(address, payload)?;
            }
        }
        if !request.last {
            return Ok(());
        }
        match &self.in_progress {
            OperationInProgress::Writing { va, limit, buffer, redirect, .. } => {
                let output = if buffer.is_some() { *va } else { u64::from(*limit) };
                if let Some(redirect) = redirect {
                    reach.write(*redirect, &output.to_le_bytes())?;
                }
                if let OperationInProgress::Writing { pin: Some(pin), .. } =
                    std::mem::take(&mut self.in_progress)
                {
                    lists.unpin(pin);
                }
                sink.put(Verdict::Done, Output::Number(output));
            }
            OperationInProgress::Passed(verdict) => {
                sink.put(*verdict, Output::Number(0));
                self.in_progress = OperationInProgress::Nothing;
            }
            OperationInProgress::Nothing => return Err(NakCode::INVALID_REQUEST),
        }
        Ok(())
    }
}

/// Returns true if the packet is a whole ALLOCATE.
fn allocates(request: &Request) -> bool {
    request.first && request.last && request.flags.has(Flags::ALLOCATE)
}

/// A WRITE that is one packet.
#[inline(always)]
fn write_whole(
    reach: Reach<'_, '_>,
    request: &Request,
    addresses: &Addresses,
    payload: &[u8],
    sink: &mut impl ResultSink,
) -> Done {
    if let Some(source) = addresses.source {
        reach.span(source, request.len as usize, Access::REMOTE_READ)?;
    }
    let (va, limit) = target(reach, request)?;
    match addresses.source {
        Some(source) => reach.copy(source, va, limit)?,
        None => {
            let bytes = &payload[..payload.len().min(limit as usize)];
            reach.place(va, bytes)?;
        }
    }
    sink.put(Verdict::Done, Output::Number(u64::from(limit)));
    Ok(())
}

/// The first packet of a WRITE or ALLOCATE: where all its bytes go. Written where it stays.
fn begin_write(
    in_progress: &mut OperationInProgress,
    reach: Reach<'_, '_>,
    request: &Request,
    addresses: &Addresses,
    lists: &mut FreeLists,
) -> Result<(), NakCode> {
    let Request { key, flags, len, .. } = *request;
    if let Some(source) = addresses.source {
        reach.span(source, len as usize, Access::REMOTE_READ)?;
    }
    if !flags.has(Flags::ALLOCATE) {
        let (va, limit) = target(reach, request)?;
        reach.span(va, limit as usize, Access::REMOTE_WRITE)?;
        let pin = lists.pin(reach.pd, va);
        *in_progress = OperationInProgress::Writing { key, va, limit, pin, buffer: None, redirect: None };
        return Ok(());
    }
    // No buffer is taken whose address could not be written.
    if let Some(redirect) = addresses.redirect {
        reach.span(redirect, size_of::<u64>(), Access::REMOTE_WRITE)?;
    }
    *in_progress = match take(&reach, request, lists).0 {
        Taken::Buffer { va, pin } => {
            let redirect = addresses.redirect;
            OperationInProgress::Writing { key, va, limit: len, pin: None, buffer: Some(pin), redirect }
        }
        Taken::Nothing => OperationInProgress::Passed(Verdict::NoBuffer),
        Taken::TooLong => OperationInProgress::Passed(Verdict::TooLong),
        Taken::Foreign => return Err(NakCode::REMOTE_ACCESS_ERROR),
    };
    Ok(())
}

/// The target of a READ or WRITE, behind its pointer if it has one, and how many bytes of it are meant.
fn target(reach: Reach<'_, '_>, request: &Request) -> Result<(u64, u32), NakCode> {
    let Request { flags, va, len, .. } = *request;
    if !flags.has(Flags::ADDR_INDIRECT) {
        return Ok((va, len));
    }
    reach.follow(va, flags.has(Flags::ADDR_BOUNDED), len)
}

/// The operands of an atomic; a FetchAdd that is not extended has them in its AtomicETH alone.
fn operands(request: &Request, eth: &atomic_eth::Repr, payload: &[u8]) -> Result<Operands, NakCode> {
    let swaps = request.verb == Verb::CompareSwap;
    if request.flags.has(Flags::EXTENDED) {
        let parsed = Operands::parse(swaps, request.flags, eth, payload);
        return parsed.map_err(|_| NakCode::INVALID_REQUEST);
    }
    let swap_add = match request.flags.has(Flags::DATA_INDIRECT) {
        true => Operand::At(eth.swap_add),
        false => Operand::Immediate([eth.swap_add, 0, 0, 0]),
    };
    Ok(Operands {
        mode: Default::default(),
        size: 8,
        compare_mask: [0; 4],
        swap_mask: [0; 4],
        compare: Operand::default(),
        swap_add,
    })
}

#[inline(always)]
fn atomic(
    reach: Reach<'_, '_>,
    request: &Request,
    operands: &Operands,
    redirect: Option<u64>,
    sink: &mut impl ResultSink,
) -> Done {
    let size = usize::from(operands.size);
    let load = |operand: &Operand| match operand {
        Operand::Immediate(number) => Ok(*number),
        Operand::At(va) => reach.number(*va, size),
    };
    // Arguments may be loaded one after the other: only the operation itself is atomic (§3.3).
    let compare = load(&operands.compare)?;
    let swap_add = load(&operands.swap_add)?;
    let va = match request.flags.has(Flags::ADDR_INDIRECT) {
        true => reach.follow(request.va, false, 0)?.0,
        false => request.va,
    };
    if let Some(redirect) = redirect {
        reach.span(redirect, size, Access::REMOTE_WRITE)?;
    }
    let expected = and(&compare, &operands.compare_mask);
    let mut verdict = Verdict::Done;
    let old = reach.update(va, size, |old| {
        if request.verb == Verb::FetchAdd {
            return Some(cut(&add(&old, &swap_add, &operands.compare_mask), size));
        }
        let swaps = operands.mode.holds(&expected, &and(&old, &operands.compare_mask));
        verdict = if swaps { Verdict::Done } else { Verdict::NotSwapped };
        swaps.then(|| blend(&old, &swap_add, &operands.swap_mask))
    })?;
    match redirect {
        Some(redirect) => {
            reach.write(redirect, &to_memory(&old)[..size])?;
            sink.put(verdict, Output::Number(u64::from(operands.size)));
        }
        None => put_number(verdict, &old, operands.size, sink),
    }
    Ok(())
}

/// A number as an answer carries it.
#[inline(always)]
fn put_number(verdict: Verdict, number: &Number, size: u8, sink: &mut impl ResultSink) {
    if size == 8 {
        return sink.put(verdict, Output::Number(number[0]));
    }
    let mut bytes = [0; 32];
    put(number, &mut bytes[..usize::from(size)]);
    sink.put(verdict, Output::Wide { bytes, size });
}

fn pass_read(flags: Flags, sink: &mut impl ResultSink) {
    let output = match flags.has(Flags::REDIRECT) {
        true => Output::Number(0),
        false => Output::Snapshot { bytes: [0; 32], len: 0 },
    };
    sink.put(Verdict::Skipped, output);
}

fn pass_atomic(flags: Flags, operands: &Operands, sink: &mut impl ResultSink) {
    let size = if flags.has(Flags::REDIRECT) { 8 } else { operands.size };
    put_number(Verdict::Skipped, &[0; 4], size, sink);
}
