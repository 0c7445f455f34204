//! The filter kernel: returns the rows of a table in memory that satisfy a predicate. Only these rows are
//! sent. (The paper's abstract promises filtering without defining it.)

use remora_wire::strom::Status;

use super::number::{long, word};
use super::{DMA, Kernel, Progress, Streams, What};

/// A comparison of two unsigned numbers (the paper's predicateOpCode).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Predicate {
    /// The numbers are equal.
    Equal = 0,
    /// The number in the row is less than the operand.
    Less = 1,
    /// The number in the row is greater than the operand.
    Greater = 2,
    /// The numbers differ.
    NotEqual = 3,
}

impl Predicate {
    /// Returns the predicate with this number; `None` if there is none.
    pub fn of(number: u8) -> Option<Predicate> {
        let all = [Predicate::Equal, Predicate::Less, Predicate::Greater, Predicate::NotEqual];
        all.get(usize::from(number)).copied()
    }

    /// Returns true if the number `there` from memory satisfies the predicate for the operand `asked`.
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
    /// Address of the first row.
    pub address: u64,
    /// Number of rows.
    pub rows: u32,
    /// Size of a row in bytes: 8 to [`DMA`].
    pub row: u16,
    /// Predicate that selects rows.
    pub predicate: Predicate,
    /// Operand of the predicate.
    pub operand: u64,
    /// Offset in the row of the 8-byte number that is compared.
    pub field: u16,
    /// Offset in the row of the 8-byte number that an aggregation sums.
    pub sum: u16,
}

impl Scan {
    /// Returns the encoded parameters.
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
        let within = |offset: u16| usize::from(offset) + 8 <= usize::from(scan.row);
        let fits = usize::from(scan.row) <= DMA && within(scan.field) && within(scan.sum);
        fits.then_some(scan)
    }

    /// Requests as many of the remaining rows as fit one read. Returns false if no rows remain.
    pub(super) fn ask(&self, streams: &mut Streams<'_, '_>) -> bool {
        let rows = (DMA / usize::from(self.row)).min(self.rows as usize);
        if rows > 0 {
            streams.read(self.address, (rows * usize::from(self.row)) as u32);
        }
        rows > 0
    }

    /// Returns the scan that remains after `rows` rows.
    pub(super) fn after(&self, rows: usize) -> Scan {
        let address = self.address.wrapping_add((rows * usize::from(self.row)) as u64);
        Scan { address, rows: self.rows - rows as u32, ..*self }
    }

    /// Returns true if the row satisfies the predicate.
    pub(super) fn counts(&self, row: &[u8]) -> bool {
        long(row, usize::from(self.field)).is_some_and(|there| self.predicate.holds(there, self.operand))
    }
}

/// The filter kernel.
pub struct Filter {
    scan: Option<Scan>,
    /// The selected rows of one read.
    kept: Box<[u8]>,
    /// Number of bytes that would complete the answer. They are held back because a complete answer is sent
    /// immediately, and another row may follow.
    held: usize,
}

impl Default for Filter {
    fn default() -> Filter {
        Filter { scan: None, kept: vec![0; DMA].into_boxed_slice(), held: 0 }
    }
}

impl Filter {
    /// Processes rows that were read.
    fn look(&mut self, scan: Scan, streams: &mut Streams<'_, '_>) {
        let Some(data) = streams.data() else { return };
        let row = usize::from(scan.row);
        let mut len = self.held;
        let mut rows = 0;
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
            // The table has no rows, so the answer is empty.
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
