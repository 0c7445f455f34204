//! The responder's side: does what the packets of a PRISM operation ask for.

use memory::{Access, Mem};
use transport::rc::prism::{Answer, Output, Request, Verb, is_scratch};
use transport::{Instant, Outcome};
use wire::prism::addresses::Repr as Addresses;
use wire::prism::operands::{Number, Operand, Repr as Operands, put};
use wire::prism::{Flags, Verdict};
use wire::{NakCode, atomic_eth, packet};

use super::allocate::{allocate, take};
use super::free_list::{FreeLists, Taken};
use super::number::{add, and, blend, cut, to_memory};
use super::reach::Reach;
use super::{Course, Prism, Under};
use crate::nic::Shared;
use crate::queue_pair::{Connection, QueuePair};

/// The longest READ that is of one moment.
const SNAPSHOT: u32 = 32;

type Done = Result<Option<Answer>, NakCode>;

impl QueuePair {
    /// One packet of an operation.
    #[cold]
    #[inline(never)]
    pub(crate) fn serve_prism(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        request: &Request,
        packet: &packet::View<'_>,
        shared: &mut Shared,
    ) {
        let (pd, owner) = (self.pd, self.owner);
        let Some(prism) = &mut self.prism else { return };
        let lists = &mut shared.free_lists;
        let ((number, kept_from), msn) = match (&self.connection, &self.irn) {
            (Some(connection), _) => (connection.responder.fetches(), connection.responder.msn()),
            (None, Some(irn)) => (irn.responder.fetches(), irn.responder.msn()),
            (None, None) => return,
        };
        prism.course.unpin(kept_from, lists);
        prism.released = now.after(prism.patience_ns);
        prism.lend_scratch(mem);
        if msn != prism.counted {
            prism.course.last = Verdict::Done;
        }
        let Prism { scratch, course, .. } = &mut **prism;
        let reach = Reach { mem, pd, owner, key: request.key, scratch: scratch.as_ref() };
        let done = course.perform(reach, number, request, packet, lists);
        match &done {
            Ok(Some(answer)) => prism.course.last = answer.verdict,
            Ok(None) => {}
            Err(_) => prism.course.abandon(lists),
        }
        let counters = &mut shared.counters;
        prism.counted = match (&mut self.connection, &mut self.irn) {
            (Some(Connection { responder, .. }), _) => {
                responder.conclude_prism(done, counters);
                responder.msn()
            }
            (None, Some(irn)) => {
                irn.responder.conclude_prism(done, counters);
                irn.responder.msn()
            }
            (None, None) => 0,
        };
    }
}

impl QueuePair {
    /// A plain WRITE to where no key leads: the connection's scratch memory, or nowhere.
    #[cold]
    #[inline(never)]
    pub(crate) fn place_in_scratch(&mut self, mem: Mem<'_>, va: u64, payload: &[u8]) -> Outcome {
        let refused = Outcome::Nak(NakCode::REMOTE_ACCESS_ERROR);
        let (pd, owner) = (self.pd, self.owner);
        let Some(prism) = self.prism.as_mut().filter(|_| is_scratch(va)) else { return refused };
        let scratch = prism.lend_scratch(mem);
        let reach = Reach { mem, pd, owner, key: 0, scratch };
        match reach.span(va, payload.len(), Access::REMOTE_WRITE) {
            Ok(span) => {
                span.write(payload);
                Outcome::Done
            }
            Err(code) => Outcome::Nak(code),
        }
    }
}

impl Course {
    fn perform(
        &mut self,
        reach: Reach<'_, '_>,
        number: u64,
        request: &Request,
        packet: &packet::View<'_>,
        lists: &mut FreeLists,
    ) -> Done {
        let flags = request.flags;
        let split = Addresses::split(packet.bth.opcode, flags, packet.payload);
        let (addresses, payload) = split.map_err(|_| NakCode::INVALID_REQUEST)?;
        let passed = request.first && flags.has(Flags::CONDITIONAL) && self.last != Verdict::Done;
        match (request.verb, packet.atomic()) {
            (Verb::Read, _) if passed => Ok(Some(pass_read(flags))),
            (Verb::Read, _) => self.read(reach, number, request, &addresses, lists).map(Some),
            (Verb::Write, _) if allocates(request) && !passed && addresses.source.is_none() => {
                allocate(&reach, request, addresses.redirect, payload, lists).map(Some)
            }
            (Verb::Write, _) => {
                if passed {
                    self.under = Under::Passed(Verdict::Skipped);
                } else if request.first {
                    begin_write(&mut self.under, reach, request, &addresses, lists)?;
                }
                self.write(reach, request, &addresses, payload, lists)
            }
            (Verb::CompareSwap | Verb::FetchAdd, Some(eth)) => {
                let operands = operands(request, &eth, payload)?;
                if passed {
                    return Ok(Some(pass_atomic(flags, &operands)));
                }
                atomic(reach, request, &operands, addresses.redirect).map(Some)
            }
            _ => Err(NakCode::INVALID_REQUEST),
        }
    }

    fn read(
        &mut self,
        reach: Reach<'_, '_>,
        number: u64,
        request: &Request,
        addresses: &Addresses,
        lists: &mut FreeLists,
    ) -> Result<Answer, NakCode> {
        let (va, len) = target(reach, request)?;
        if let Some(to) = addresses.redirect {
            reach.copy(va, to, len)?;
            return Ok(done(Output::Number(u64::from(len))));
        }
        if len <= SNAPSHOT {
            let bytes = reach.read(va, len as usize)?;
            return Ok(done(Output::Snapshot { bytes, len: len as u8 }));
        }
        // What is read later must still be there then, and better near.
        reach.span(va, len as usize, Access::REMOTE_READ)?.prefetch();
        if let Some(pin) = lists.pin(reach.pd, va) {
            self.pins.push_back((number, pin));
        }
        Ok(done(Output::Memory { key: request.key, va, len }))
    }

    /// Payload to where the operation's first packet found that it goes.
    fn write(
        &mut self,
        mut reach: Reach<'_, '_>,
        request: &Request,
        addresses: &Addresses,
        payload: &[u8],
        lists: &mut FreeLists,
    ) -> Done {
        if let Under::Writing { key, va, limit, .. } = &self.under {
            reach.key = *key;
            let left = limit.saturating_sub(request.offset) as usize;
            let payload = &payload[..left.min(payload.len())];
            let at = va.wrapping_add(u64::from(request.offset));
            if let Some(from) = addresses.source {
                reach.copy(from, at, *limit)?;
            } else if !payload.is_empty() {
                reach.span(at, payload.len(), Access::REMOTE_WRITE)?.write(payload);
            }
        }
        if !request.last {
            return Ok(None);
        }
        match &self.under {
            Under::Writing { va, limit, buffer, redirect, .. } => {
                let output = if buffer.is_some() { *va } else { u64::from(*limit) };
                if let Some(to) = redirect {
                    reach.write(*to, &output.to_le_bytes())?;
                }
                if let Under::Writing { pin: Some(pin), .. } = std::mem::take(&mut self.under) {
                    lists.unpin(pin);
                }
                Ok(Some(done(Output::Number(output))))
            }
            Under::Passed(verdict) => {
                let verdict = *verdict;
                self.under = Under::Nothing;
                Ok(Some(Answer { verdict, output: Output::Number(0) }))
            }
            Under::Nothing => Err(NakCode::INVALID_REQUEST),
        }
    }
}

/// Is it all of an ALLOCATE?
fn allocates(request: &Request) -> bool {
    request.first && request.last && request.flags.has(Flags::ALLOCATE)
}

/// The first packet of a WRITE or ALLOCATE: where all its bytes go. Written where it stays.
fn begin_write(
    under: &mut Under,
    reach: Reach<'_, '_>,
    request: &Request,
    addresses: &Addresses,
    lists: &mut FreeLists,
) -> Result<(), NakCode> {
    let Request { key, flags, len, .. } = *request;
    if let Some(from) = addresses.source {
        reach.span(from, len as usize, Access::REMOTE_READ)?;
    }
    if !flags.has(Flags::ALLOCATE) {
        let (va, limit) = target(reach, request)?;
        reach.span(va, limit as usize, Access::REMOTE_WRITE)?;
        let pin = lists.pin(reach.pd, va);
        *under = Under::Writing { key, va, limit, pin, buffer: None, redirect: None };
        return Ok(());
    }
    // Nothing is taken for an address that could not be told.
    if let Some(to) = addresses.redirect {
        reach.span(to, size_of::<u64>(), Access::REMOTE_WRITE)?;
    }
    *under = match take(&reach, request, lists).0 {
        Taken::Buffer { va, pin } => {
            let redirect = addresses.redirect;
            Under::Writing { key, va, limit: len, pin: None, buffer: Some(pin), redirect }
        }
        Taken::Nothing => Under::Passed(Verdict::NoBuffer),
        Taken::TooLong => Under::Passed(Verdict::TooLong),
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

fn atomic(
    reach: Reach<'_, '_>,
    request: &Request,
    operands: &Operands,
    redirect: Option<u64>,
) -> Result<Answer, NakCode> {
    let size = usize::from(operands.size);
    let load = |operand: &Operand| match operand {
        Operand::Immediate(number) => Ok(*number),
        Operand::At(va) => reach.number(*va, size),
    };
    // Arguments may be loaded one after the other: only the operation itself is atomic (§3.3).
    let (compare, swap_add) = (load(&operands.compare)?, load(&operands.swap_add)?);
    let va = match request.flags.has(Flags::ADDR_INDIRECT) {
        true => reach.follow(request.va, false, 0)?.0,
        false => request.va,
    };
    if let Some(to) = redirect {
        reach.span(to, size, Access::REMOTE_WRITE)?;
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
    let output = match redirect {
        Some(to) => {
            reach.write(to, &to_memory(&old)[..size])?;
            Output::Number(u64::from(operands.size))
        }
        None => value(&old, operands.size),
    };
    Ok(Answer { verdict, output })
}

/// A number as an answer carries it.
fn value(number: &Number, size: u8) -> Output {
    if size == 8 {
        return Output::Number(number[0]);
    }
    let mut bytes = [0; 32];
    put(number, &mut bytes[..usize::from(size)]);
    Output::Wide { bytes, size }
}

fn done(output: Output) -> Answer {
    Answer { verdict: Verdict::Done, output }
}

fn pass_read(flags: Flags) -> Answer {
    let output = match flags.has(Flags::REDIRECT) {
        true => Output::Number(0),
        false => Output::Snapshot { bytes: [0; 32], len: 0 },
    };
    Answer { verdict: Verdict::Skipped, output }
}

fn pass_atomic(flags: Flags, operands: &Operands) -> Answer {
    let size = if flags.has(Flags::REDIRECT) { 8 } else { operands.size };
    Answer { verdict: Verdict::Skipped, output: value(&[0; 4], size) }
}
