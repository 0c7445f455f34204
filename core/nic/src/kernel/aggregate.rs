//! The aggregation kernel: returns count, sum, minimum and maximum of a column of a table in memory, over the
//! rows that satisfy a predicate.

use remora_wire::strom::Status;

use super::filter::Scan;
use super::number::long;
use super::{Kernel, Progress, Streams, What};

/// The answer: 32 bytes, little-endian.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Number of rows that satisfy the predicate.
    pub count: u64,
    /// Sum of the column, wrapping.
    pub sum: u64,
    /// Minimum of the column; all ones if no row satisfies the predicate.
    pub least: u64,
    /// Maximum of the column; 0 if no row satisfies the predicate.
    pub greatest: u64,
}

impl Default for Sums {
    fn default() -> Sums {
        Sums { count: 0, sum: 0, least: u64::MAX, greatest: 0 }
    }
}

impl Sums {
    /// Size of an answer in bytes.
    pub const LEN: usize = 32;

    fn add(&mut self, number: u64) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(number);
        self.least = self.least.min(number);
        self.greatest = self.greatest.max(number);
    }

    fn emit(&self) -> [u8; Sums::LEN] {
        let mut bytes = [0; Sums::LEN];
        for (buffer, number) in
            bytes.chunks_exact_mut(8).zip([self.count, self.sum, self.least, self.greatest])
        {
            buffer.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Parses an answer; `None` if it has another length.
    pub fn parse(bytes: &[u8]) -> Option<Sums> {
        Some(Sums {
            count: long(bytes, 0)?,
            sum: long(bytes, 8)?,
            least: long(bytes, 16)?,
            greatest: long(bytes, 24)?,
        })
    }
}

/// The aggregation kernel.
#[derive(Copy, Clone, Debug, Default)]
pub struct Aggregate {
    scan: Option<Scan>,
    sums: Sums,
}

impl Aggregate {
    /// Continues with the remaining rows, or sends the answer.
    fn go_on(&mut self, scan: Scan, streams: &mut Streams<'_, '_>) {
        if scan.ask(streams) {
            self.scan = Some(scan);
        } else if streams.answer(Status::DONE, Sums::LEN as u32) {
            streams.put(&self.sums.emit());
        }
    }
}

impl Kernel for Aggregate {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        if let Some(scan) = self.scan.take() {
            let mut rows = 0;
            for row in streams.data().unwrap_or_default().chunks_exact(usize::from(scan.row)) {
                rows += 1;
                if let Some(number) = long(row, usize::from(scan.sum)).filter(|_| scan.counts(row)) {
                    self.sums.add(number);
                }
            }
            self.go_on(scan.after(rows), streams);
            return Progress::Rests;
        }
        let Some(input) = streams.input() else { return Progress::Rests };
        streams.take();
        match (input.what, Scan::parse(input.bytes)) {
            (What::Params, Some(scan)) => {
                self.sums = Sums::default();
                self.go_on(scan, streams);
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
