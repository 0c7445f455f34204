//! The memory of the requester to which a kernel sends answers.

use remora_wire::strom::HEAD_LEN;

/// The destination of answers in the requester's memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address of the first byte.
    pub addr: u64,
    /// Remote key of the accessed region.
    pub rkey: u32,
    /// Size in bytes.
    pub len: u32,
}

impl Place {
    /// Returns the encoding with which the parameters of a request begin.
    pub fn emit(&self) -> [u8; HEAD_LEN] {
        let mut bytes = [0; HEAD_LEN];
        remora_wire::reth::Repr { va: self.addr, rkey: self.rkey, dma_len: self.len }.emit(&mut bytes);
        bytes
    }
}
