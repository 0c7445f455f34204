//! The consistency kernel (StRoM paper, §6.3): reads an object, checks its CRC64, and reads it again if it
//! was modified concurrently.

use crc_fast::{CrcAlgorithm, Digest};
use remora_wire::strom::Status;

use super::number::{long, word};
use super::{Check, DMA, Kernel, Progress, Streams, Verdict, What};

/// Size in bytes of the CRC after an object, stored little-endian.
pub const CRC_LEN: usize = 8;

/// Returns the CRC of `bytes`: CRC-64/NVME, as in Remora's stores.
pub fn crc64(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// Parameters of the kernel: 16 bytes, little-endian.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Address of the object; the CRC follows the object.
    pub address: u64,
    /// Length of the object in bytes, without the CRC.
    pub len: u32,
    /// Maximum number of readings.
    pub tries: u32,
}

impl Object {
    /// Returns the encoded parameters.
    pub fn emit(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[12..].copy_from_slice(&self.tries.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Object> {
        (bytes.len() == 16).then_some(())?;
        Some(Object { address: long(bytes, 0)?, len: word(bytes, 8)?, tries: word(bytes, 12)? })
    }
}

/// The object that is being read.
struct Reading {
    object: Object,
    /// Number of bytes read so far.
    offset: u32,
    /// Treats this reading as torn, independent of its CRC.
    torn: bool,
}

/// The consistency kernel.
#[derive(Default)]
pub struct Consistency {
    reading: Option<Reading>,
    /// Intermediate CRC of an object that is read in several pieces.
    digest: Option<Digest>,
    /// Per mille of first readings that are treated as torn, followed by the state of the random number
    /// generator that selects them.
    failing: u32,
    random: u32,
}

impl Consistency {
    /// Creates a kernel that treats `per_mille` of first readings as torn, as in the paper's Figure 10.
    pub fn failing(per_mille: u32) -> Consistency {
        Consistency { failing: per_mille, random: 1, ..Consistency::default() }
    }

    /// Returns true if the first reading of an object is treated as torn.
    fn is_torn(&mut self) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random % 1000 < self.failing
    }

    fn begin(&mut self, object: Object, torn: bool, streams: &mut Streams<'_, '_>) {
        if !streams.answer(Status::DONE, object.len) {
            return;
        }
        let reading = Reading { object, offset: 0, torn };
        self.digest = None;
        reading.ask(streams);
        self.reading = Some(reading);
    }

    /// Returns the CRC, including the last piece.
    fn sum_with(&mut self, piece: &[u8]) -> u64 {
        match &mut self.digest {
            None => crc64(piece),
            Some(digest) => {
                digest.update(piece);
                digest.finalize()
            }
        }
    }

    /// Processes a piece that was read.
    fn check(&mut self, mut reading: Reading, streams: &mut Streams<'_, '_>) {
        let object = reading.object;
        let left = (object.len - reading.offset) as usize;
        let Some(data) = streams.data() else { return };
        let piece = left.min(data.len());
        let sum = long(data, piece).filter(|_| piece == left);
        let wanted = sum.map(|_| self.sum_with(&data[..piece]));
        reading.offset += piece as u32;
        match sum {
            None => {
                let digest = self.digest.get_or_insert_with(|| Digest::new(CrcAlgorithm::Crc64Nvme));
                digest.update(&data[..piece]);
                streams.forward(piece);
                reading.ask(streams);
                self.reading = Some(reading);
            }
            Some(_) if sum == wanted && !reading.torn => streams.forward(piece),
            Some(_) => {
                streams.withdraw();
                let tries = object.tries - 1;
                if tries == 0 {
                    streams.answer(Status::INCONSISTENT, 0);
                } else {
                    self.begin(Object { tries, ..object }, false, streams);
                }
            }
        }
    }
}

impl Reading {
    /// Requests the next piece. The last piece has the CRC and at least one byte of the object, because a
    /// complete answer is sent immediately.
    fn ask(&self, streams: &mut Streams<'_, '_>) {
        let left = (self.object.len - self.offset) as usize + CRC_LEN;
        let len = if left <= DMA { left } else { DMA.min(left - CRC_LEN - 1) };
        streams.read(self.object.address.wrapping_add(u64::from(self.offset)), len as u32);
    }
}

impl Kernel for Consistency {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        if let Some(reading) = self.reading.take() {
            self.check(reading, streams);
            return Progress::Rests;
        }
        let Some(input) = streams.input() else { return Progress::Rests };
        streams.take();
        match (input.what, Object::parse(input.bytes)) {
            (What::Params, Some(object)) if object.tries > 0 && object.len > 0 => {
                let torn = self.failing > 0 && self.is_torn();
                self.begin(object, torn, streams);
            }
            _ if input.last => {
                streams.answer(Status::BAD_PARAMS, 0);
            }
            _ => {}
        }
        Progress::Rests
    }

    fn reset(&mut self) {
        self.reading = None;
    }

    fn checks(&mut self) -> Option<&mut dyn Check> {
        Some(self)
    }
}

/// Checks that a READ returns an unmodified object, whose CRC follows it.
impl Check for Consistency {
    fn behind(&self) -> usize {
        CRC_LEN
    }

    fn check(&mut self, bytes: &[u8], behind: &[u8], before: u32) -> Verdict {
        let torn = before == 0 && self.failing > 0 && self.is_torn();
        if long(behind, 0) == Some(crc64(bytes)) && !torn { Verdict::Leave } else { Verdict::Again }
    }
}
