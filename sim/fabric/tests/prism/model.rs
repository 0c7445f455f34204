//! A model of a server without a network: bytes, scratch memory, a free list, and the result of the last
//! operation. Operations are applied one after the other, as the paper describes them.

use std::collections::VecDeque;

use remora_nic::Payload;
use remora_nic::prism::{Address, Data, Number, Operand, Operands, Operation, SCRATCH, Verdict};

/// A request, as the model understands it.
pub(crate) struct Request<'a> {
    pub operation: Operation<'a>,
    pub conditional: bool,
    pub redirect: Option<u64>,
}

/// The expected result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub outcome: Verdict,
    /// Result and the number of its bytes that count. `None` for a plain verb, or for a READ whose bytes are
    /// returned to the client.
    pub number: Option<(Number, usize)>,
    /// Bytes that a READ returns.
    pub bytes: Vec<u8>,
}

pub(crate) struct Model {
    /// Memory of the region, whose first byte is at `base`.
    pub bytes: Vec<u8>,
    pub base: u64,
    pub scratch: [u8; 32],
    pub last: Verdict,
    /// Posted buffers that were not examined yet, and buffers that can be taken, the last one first.
    pub posted: VecDeque<u64>,
    pub free: Vec<u64>,
    pub buffer: usize,
}

impl Model {
    fn place(&mut self, va: u64, len: usize) -> &mut [u8] {
        if va >= SCRATCH {
            return &mut self.scratch[(va - SCRATCH) as usize..][..len];
        }
        &mut self.bytes[(va - self.base) as usize..][..len]
    }

    pub(crate) fn number(&mut self, va: u64, size: usize) -> Number {
        let mut bytes = [0; 32];
        bytes[..size].copy_from_slice(self.place(va, size));
        std::array::from_fn(|index| u64::from_le_bytes(bytes[8 * index..8 * index + 8].try_into().unwrap()))
    }

    fn put_number(&mut self, va: u64, number: &Number, size: usize) {
        let bytes: Vec<u8> = number.iter().flat_map(|limb| limb.to_le_bytes()).collect();
        self.place(va, size).copy_from_slice(&bytes[..size]);
    }

    /// Returns the target and the length of an address.
    pub(crate) fn target(&mut self, address: &Address, len: usize) -> (u64, usize) {
        if !address.indirect {
            return (address.remote.addr, len);
        }
        let target = self.number(address.remote.addr, 8)[0];
        let bound = if address.bounded { self.number(address.remote.addr + 8, 8)[0] } else { u64::MAX };
        (target, len.min(bound as usize))
    }

    fn data(&mut self, data: &Data<'_>, local: &[u8]) -> Vec<u8> {
        match data {
            Data::Local(Payload::Inline(bytes)) => bytes.to_vec(),
            Data::Local(Payload::Sges(list)) => {
                local[..list.iter().map(|sge| sge.len as usize).sum()].to_vec()
            }
            Data::There { addr, len } => self.place(*addr, *len as usize).to_vec(),
        }
    }

    /// Executes `request`; `local` holds the bytes that the client's list names.
    pub(crate) fn apply(&mut self, request: &Request<'_>, local: &[u8]) -> Expected {
        let expected = self.execute(request, local);
        self.last = expected.outcome;
        expected
    }

    fn execute(&mut self, request: &Request<'_>, local: &[u8]) -> Expected {
        let redirected = request.redirect.is_some();
        if request.conditional && self.last != Verdict::Done {
            return skipped(&request.operation, redirected);
        }
        match &request.operation {
            Operation::Read { from, len, .. } => {
                let (va, len) = self.target(from, *len as usize);
                let bytes = self.place(va, len).to_vec();
                let Some(target) = request.redirect else { return done(None, bytes) };
                self.place(target, len).copy_from_slice(&bytes);
                done(Some(([len as u64, 0, 0, 0], 8)), Vec::new())
            }
            Operation::Write { to: target, data } => {
                let bytes = self.data(data, local);
                let (va, len) = self.target(target, bytes.len());
                self.place(va, len).copy_from_slice(&bytes[..len]);
                let plain = !target.indirect && !request.conditional && matches!(data, Data::Local(_));
                done((!plain).then_some(([len as u64, 0, 0, 0], 8)), Vec::new())
            }
            Operation::Allocate { data, .. } => {
                let bytes = self.data(data, local);
                self.allocate(&bytes, request.redirect)
            }
            Operation::CompareSwap { at: target, operands } => {
                self.atomic(target, operands, true, request.redirect)
            }
            Operation::FetchAdd { at: target, operands } => {
                self.atomic(target, operands, false, request.redirect)
            }
        }
    }

    fn allocate(&mut self, bytes: &[u8], redirect: Option<u64>) -> Expected {
        let none = |outcome| Expected { outcome, number: Some(([0; 4], 8)), bytes: Vec::new() };
        if bytes.len() > self.buffer {
            return none(Verdict::TooLong);
        }
        if self.free.is_empty() {
            let seen = self.posted.len().min(64);
            self.free.extend(self.posted.drain(..seen));
        }
        let Some(buffer) = self.free.pop() else { return none(Verdict::NoBuffer) };
        self.place(buffer, bytes.len()).copy_from_slice(bytes);
        if let Some(target) = redirect {
            self.put_number(target, &[buffer, 0, 0, 0], 8);
        }
        done(Some(([buffer, 0, 0, 0], 8)), Vec::new())
    }

    fn atomic(
        &mut self,
        address: &Address,
        operands: &Operands,
        swaps: bool,
        redirect: Option<u64>,
    ) -> Expected {
        let size = usize::from(operands.size);
        let mut load = |operand: &Operand| match operand {
            Operand::Immediate(number) => *number,
            Operand::At(va) => self.number(*va, size),
        };
        let compare = load(&operands.compare);
        let swap_add = load(&operands.swap_add);
        let (va, _) = self.target(address, 0);
        let old = self.number(va, size);
        let (holds, new) = if swaps {
            swap(operands, &compare, &swap_add, &old)
        } else {
            (true, add(operands, &swap_add, &old))
        };
        if holds {
            self.put_number(va, &new, size);
        }
        let outcome = if holds { Verdict::Done } else { Verdict::NotSwapped };
        let number = match redirect {
            Some(target) => {
                self.put_number(target, &old, size);
                ([size as u64, 0, 0, 0], 8)
            }
            None => (old, size),
        };
        Expected { outcome, number: Some(number), bytes: Vec::new() }
    }
}

fn done(number: Option<(Number, usize)>, bytes: Vec<u8>) -> Expected {
    Expected { outcome: Verdict::Done, number, bytes }
}

fn skipped(operation: &Operation<'_>, redirected: bool) -> Expected {
    let number = match operation {
        Operation::Read { .. } if !redirected => None,
        Operation::CompareSwap { operands, .. } | Operation::FetchAdd { operands, .. } if !redirected => {
            Some(([0; 4], usize::from(operands.size)))
        }
        _ => Some(([0; 4], 8)),
    };
    Expected { outcome: Verdict::Skipped, number, bytes: Vec::new() }
}

/// Returns bit `index` of a number.
fn bit(number: &Number, index: usize) -> bool {
    number[index / 64] >> (index % 64) & 1 == 1
}

/// Computes a masked swap bit by bit, from the highest bit.
fn swap(operands: &Operands, compare: &Number, swap: &Number, old: &Number) -> (bool, Number) {
    use std::cmp::Ordering;
    let masked = |number: &Number, index: usize| bit(number, index) && bit(&operands.compare_mask, index);
    let order = (0..256)
        .rev()
        .map(|index| masked(compare, index).cmp(&masked(old, index)))
        .find(|order| order.is_ne());
    let order = order.unwrap_or(Ordering::Equal);
    use remora_nic::prism::Mode;
    let holds = match operands.mode {
        Mode::Equal => order.is_eq(),
        Mode::NotEqual => order.is_ne(),
        Mode::Less => order.is_lt(),
        Mode::LessEqual => order.is_le(),
        Mode::Greater => order.is_gt(),
        Mode::GreaterEqual => order.is_ge(),
    };
    let chosen =
        |index: usize| if bit(&operands.swap_mask, index) { bit(swap, index) } else { bit(old, index) };
    (holds, number(chosen))
}

fn number(bits: impl Fn(usize) -> bool) -> Number {
    std::array::from_fn(|limb| (0..64).map(|index| u64::from(bits(64 * limb + index)) << index).sum())
}

fn add(operands: &Operands, addend: &Number, old: &Number) -> Number {
    let mut carry = false;
    let mut sum = [0u64; 4];
    for index in 0..8 * usize::from(operands.size) {
        let ones = u8::from(bit(addend, index)) + u8::from(bit(old, index)) + u8::from(carry);
        sum[index / 64] |= u64::from(ones & 1) << (index % 64);
        carry = ones > 1 && !bit(&operands.compare_mask, index);
    }
    sum
}
