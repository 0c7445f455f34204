//! The shuffling kernel (StRoM paper, §6.4): values of 8 bytes that arrive go each to the partition of its
//! lowest bits, through buffers of 16 values: two lines of memory, which go there together, past the caches.
//!
//! Parameters set a part of the histogram: with 1024 partitions it is longer than one packet, which the paper
//! does not mention. Those from partition 0 on begin anew. The bytes of RPC WRITEs are the values; each is
//! answered when all of it is in memory.

use remora_memory::Lines;
use remora_wire::strom::Status;

use super::number::{long, word};
use super::{Kernel, Progress, Streams, What};

/// Partitions at most, and values that each buffers.
const PARTITIONS: usize = 1 << 10;
const BUFFERED: usize = 16;
/// Partitions that are emptied in one step.
const EMPTIED: usize = 64;
/// Bytes of a partition in the histogram, and of what is before them.
const ENTRY: usize = 16;
const HEAD: usize = 8;

/// A partition of the values.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    /// Address of its first byte.
    pub address: u64,
    /// Capacity in values of 8 bytes.
    pub values: u64,
}

/// Parameters that set `partitions` of 2^`bits`, the first of them being number `first`.
///
/// ```text
///  0 bits (4)   4 first (4)   8 for each: address (8), values (8)
/// ```
pub fn histogram(bits: u32, first: u32, partitions: &[Partition]) -> Vec<u8> {
    let mut bytes = [bits.to_le_bytes(), first.to_le_bytes()].concat();
    for partition in partitions {
        bytes.extend(partition.address.to_le_bytes());
        bytes.extend(partition.values.to_le_bytes());
    }
    bytes
}

/// Kernel that distributes tuples to partitions.
pub struct Shuffle {
    mask: u64,
    partitions: Box<[Partition; PARTITIONS]>,
    /// Values stand where they will in the two lines that they go to.
    buffers: Box<[Lines; PARTITIONS]>,
    /// Of each buffer, where the first value is that has not gone to memory, and where the next one comes.
    begin: Box<[u8; PARTITIONS]>,
    end: Box<[u8; PARTITIONS]>,
    /// The next partition to be emptied, when all of a message is here.
    emptying: Option<usize>,
    /// A partition was full.
    full: bool,
}

/// On the heap from the start: they are too large for a stack.
fn boxed<T: Clone, const N: usize>(one: T) -> Box<[T; N]> {
    let all = vec![one; N].into_boxed_slice();
    all.try_into().unwrap_or_else(|_| unreachable!("there are as many"))
}

impl Default for Shuffle {
    fn default() -> Shuffle {
        Shuffle {
            mask: 0,
            partitions: boxed(Partition::default()),
            buffers: boxed(Lines([0; 8 * BUFFERED])),
            begin: boxed(0),
            end: boxed(0),
            emptying: None,
            full: false,
        }
    }
}

/// Which of the values of two lines stands at an address.
fn place(address: u64) -> u8 {
    (address / 8 % BUFFERED as u64) as u8
}

impl Shuffle {
    /// The status of a message whose values did not all fit.
    pub const FULL: Status = Status(64);

    fn configure(&mut self, params: &[u8]) -> Option<()> {
        let bits = word(params, 0)?;
        let first = word(params, 4)? as usize;
        let entries = &params[HEAD..];
        let count = entries.len() / ENTRY;
        let fits = bits <= PARTITIONS.ilog2()
            && entries.len().is_multiple_of(ENTRY)
            && first.checked_add(count)? <= 1 << bits;
        fits.then_some(())?;
        if first == 0 {
            self.reset();
        }
        self.mask = (1 << bits) - 1;
        for (index, entry) in entries.chunks_exact(ENTRY).enumerate() {
            let address = long(entry, 0)?;
            self.partitions[first + index] = Partition { address, values: long(entry, 8)? };
            (self.begin[first + index], self.end[first + index]) = (place(address), place(address));
        }
        Some(())
    }

    fn add(&mut self, bytes: &[u8], streams: &mut Streams<'_, '_>) {
        let mut values = bytes.as_chunks::<8>().0;
        while let Some((number, left)) = self.fill(values) {
            self.empty_full(number, streams);
            values = left;
        }
    }

    /// Buffers values until a buffer is full: which one, and the values behind.
    #[inline(always)]
    fn fill<'v>(&mut self, values: &'v [[u8; 8]]) -> Option<(usize, &'v [[u8; 8]])> {
        // Looked up once: for all the compiler knows, each value might change where the buffers are.
        let mask = self.mask as usize % PARTITIONS;
        let end = &mut *self.end;
        let buffers = &mut *self.buffers;
        let mut values = values.iter();
        while let Some(value) = values.next() {
            let number = u64::from_le_bytes(*value) as usize & mask;
            let position = usize::from(end[number]) % BUFFERED;
            buffers[number].0.as_chunks_mut::<8>().0[position] = *value;
            end[number] = position as u8 + 1;
            if position + 1 == BUFFERED {
                return Some((number, values.as_slice()));
            }
        }
        None
    }

    /// A buffer is full: two lines go to memory as they are, but for those at the ends of a partition.
    #[inline(always)]
    fn empty_full(&mut self, number: usize, streams: &mut Streams<'_, '_>) {
        let partition = &mut self.partitions[number];
        if self.begin[number] != 0 || partition.values < BUFFERED as u64 {
            return self.empty(number, streams);
        }
        streams.scatter(partition.address, &self.buffers[number]);
        partition.address = partition.address.wrapping_add(8 * BUFFERED as u64);
        partition.values -= BUFFERED as u64;
        self.end[number] = 0;
    }

    /// Writes the buffered values of a partition to memory.
    #[inline(never)]
    fn empty(&mut self, number: usize, streams: &mut Streams<'_, '_>) {
        let begin = usize::from(self.begin[number]);
        let end = usize::from(self.end[number]);
        let partition = &mut self.partitions[number];
        let values = (end - begin).min(partition.values as usize);
        self.full |= values < end - begin;
        let lines = &self.buffers[number];
        match values {
            0 => {}
            _ => streams.write(partition.address, &lines.0[8 * begin..8 * (begin + values)]),
        }
        partition.address = partition.address.wrapping_add(8 * values as u64);
        partition.values -= values as u64;
        (self.begin[number], self.end[number]) = (place(partition.address), place(partition.address));
    }

    fn empty_some(&mut self, first: usize, streams: &mut Streams<'_, '_>) -> Progress {
        let last = (first + EMPTIED).min(self.mask as usize + 1);
        for number in first..last {
            self.empty(number, streams);
        }
        if last <= self.mask as usize {
            self.emptying = Some(last);
            return Progress::Again;
        }
        self.emptying = None;
        let status = if std::mem::take(&mut self.full) { Shuffle::FULL } else { Status::DONE };
        streams.answer(status, 0);
        Progress::Waits
    }
}

impl Kernel for Shuffle {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        if let Some(first) = self.emptying {
            return self.empty_some(first, streams);
        }
        let Some(input) = streams.input() else { return Progress::Waits };
        streams.take();
        if input.what == What::Params {
            let status = self.configure(input.bytes).map_or(Status::BAD_PARAMS, |()| Status::DONE);
            streams.answer(status, 0);
            return Progress::Waits;
        }
        self.add(input.bytes, streams);
        if input.last {
            self.emptying = Some(0);
            return Progress::Again;
        }
        Progress::Waits
    }

    fn reset(&mut self) {
        self.begin.fill(0);
        self.end.fill(0);
        self.partitions.fill(Partition::default());
        (self.mask, self.emptying, self.full) = (0, None, false);
    }
}
