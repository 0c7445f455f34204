//! The filter kernel: rows of a table in memory, of which those come back that a predicate holds for. So many
//! as these are travel, and no more (the paper's abstract promises filtering; how, it leaves open).

use remora_wire::strom::Status;

use super::number::{long, word};
use super::{DMA, Kernel, Progress, Streams, What};

/// How two numbers are compared (the paper's predicateOpCode).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Predicate {
    /// EQUAL.
    Equal = 0,
    /// LESS THAN.
    Less = 1,
    /// GREATER THAN.
    Greater = 2,
    /// NOT EQUAL.
    NotEqual = 3,
}

impl Predicate {
    /// By its number.
    pub fn of(number: u8) -> Option<Predicate> {
        let all = [Predicate::Equal, Predicate::Less, Predicate::Greater, Predicate::NotEqual];
        all.get(usize::from(number)).copied()
    }

    /// Is what stands in memory as the predicate says, beside what was asked for?
    pub fn holds(self, there: u64, asked: u64) -> bool {
        match self {
            Predicate::Equal => there == asked,
            Predicate::Less => there < asked,
            Predicate::Greater => there > asked,
            Predicate::NotEqual => there != asked,
        }
    }
}

/// Parameters of a scan: 32 bytes, little-endian.
///
/// ```text
///  0 address (8)   8 rows (4)   12 bytes of a row (2)   14 predicate   15 0
/// 16 operand (8)   24 first byte of the number compared, in the row (2)
/// 26 first byte of the number added up (2)   28 0 (4)
/// ```
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The first row.
    pub address: u64,
    /// Rows.
    pub rows: u32,
    /// Bytes of a row: 8 to [`DMA`].
    pub row: u16,
    /// Which rows count.
    pub predicate: Predicate,
    /// What their number is compared with.
    pub operand: u64,
    /// Where that number of 8 bytes stands in a row.
    pub field: u16,
    /// Where the number of 8 bytes stands that an aggregation adds up.
    pub sum: u16,
}

impl Scan {
    /// As they travel.
    pub fn emit(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.rows.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.row.to_le_bytes());
        bytes[14] = self.predicate as u8;
        bytes[16..24].copy_from_slice(&self.operand.to_le_bytes());
        bytes[24..26].copy_from_slice(&self.field.to_le_bytes());
        bytes[26..28].copy_from_slice(&self.sum.to_le_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Scan> {
        (bytes.len() == 32).then_some(())?;
        let scan = Scan {
            address: long(bytes, 0)?,
            rows: word(bytes, 8)?,
            row: word(bytes, 12)? as u16,
            predicate: Predicate::of(bytes[14])?,
            operand: long(bytes, 16)?,
            field: word(bytes, 24)? as u16,
            sum: (word(bytes, 24)? >> 16) as u16,
        };
        let within = |at: u16| usize::from(at) + 8 <= usize::from(scan.row);
        let fits = usize::from(scan.row) <= DMA && within(scan.field) && within(scan.sum);
        fits.then_some(scan)
    }

    /// Asks for as many of the rows left as one read brings. False: there are none.
    pub(super) fn ask(&self, streams: &mut Streams<'_, '_>) -> bool {
        let rows = (DMA / usize::from(self.row)).min(self.rows as usize);
        if rows > 0 {
            streams.read(self.address, (rows * usize::from(self.row)) as u32);
        }
        rows > 0
    }

    /// So many rows have been looked at.
    pub(super) fn after(&self, rows: usize) -> Scan {
        let address = self.address.wrapping_add((rows * usize::from(self.row)) as u64);
        Scan { address, rows: self.rows - rows as u32, ..*self }
    }

    /// Does a row count?
    pub(super) fn counts(&self, row: &[u8]) -> bool {
        long(row, usize::from(self.field)).is_some_and(|there| self.predicate.holds(there, self.operand))
    }
}

/// The kernel.
pub struct Filter {
    scan: Option<Scan>,
    /// The rows of one read that count.
    kept: Box<[u8]>,
    /// Bytes of them that fill the answer to its end. An answer that is full leaves, so they wait: another
    /// row may count.
    held: usize,
}

impl Default for Filter {
    fn default() -> Filter {
        Filter { scan: None, kept: vec![0; DMA].into_boxed_slice(), held: 0 }
    }
}

impl Filter {
    /// Rows have come.
    fn look(&mut self, scan: Scan, streams: &mut Streams<'_, '_>) {
        let Some(data) = streams.data() else { return };
        let (row, mut len, mut rows) = (usize::from(scan.row), self.held, 0);
        for bytes in data.chunks_exact(row) {
            rows += 1;
            if scan.counts(bytes) {
                if self.held == 0 {
                    self.kept[len..len + row].copy_from_slice(bytes);
                }
                len += row;
            }
        }
        let missing = streams.missing() as usize;
        if len > missing {
            streams.withdraw();
            streams.answer(Status::NO_ROOM, 0);
            return;
        }
        self.held = if len == missing { len } else { 0 };
        if self.held == 0 {
            streams.put(&self.kept[..len]);
        }
        let rest = scan.after(rows);
        if rest.ask(streams) {
            self.scan = Some(rest);
        } else {
            streams.put(&self.kept[..self.held]);
            streams.close();
        }
    }
}

impl Kernel for Filter {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        if let Some(scan) = self.scan.take() {
            self.look(scan, streams);
            return Progress::Rests;
        }
        let Some(input) = streams.input() else { return Progress::Rests };
        streams.take();
        match (input.what, Scan::parse(input.bytes)) {
            (What::Params, Some(scan)) if scan.ask(streams) => {
                streams.open(Status::DONE);
                (self.scan, self.held) = (Some(scan), 0);
            }
            // No rows, none that count.
            (What::Params, Some(_)) => {
                streams.answer(Status::DONE, 0);
            }
            _ if input.last => {
                streams.answer(Status::BAD_PARAMS, 0);
            }
            _ => {}
        }
        Progress::Rests
    }

    fn reset(&mut self) {
        self.scan = None;
    }
}
