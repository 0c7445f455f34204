//! The aggregation kernel: rows of a table in memory, of which only their number, sum, least and greatest
//! come back, of those that a predicate holds for.

use remora_wire::strom::Status;

use super::filter::Scan;
use super::number::long;
use super::{Kernel, Progress, Streams, What};

/// What comes back: 32 bytes, little-endian.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Rows that count.
    pub count: u64,
    /// Their sum, wrapping.
    pub sum: u64,
    /// The least of them; all ones if there is none.
    pub least: u64,
    /// The greatest of them; 0 if there is none.
    pub greatest: u64,
}

impl Default for Sums {
    fn default() -> Sums {
        Sums { count: 0, sum: 0, least: u64::MAX, greatest: 0 }
    }
}

impl Sums {
    /// Bytes of an answer.
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

    /// From an answer.
    pub fn parse(bytes: &[u8]) -> Option<Sums> {
        Some(Sums {
            count: long(bytes, 0)?,
            sum: long(bytes, 8)?,
            least: long(bytes, 16)?,
            greatest: long(bytes, 24)?,
        })
    }
}

/// The kernel.
#[derive(Copy, Clone, Debug, Default)]
pub struct Aggregate {
    scan: Option<Scan>,
    sums: Sums,
}

impl Aggregate {
    /// Goes on with these rows, or answers.
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
