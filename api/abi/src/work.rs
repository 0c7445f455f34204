//! Packet headers and data buffers of the program.

use super::device::IbvGid;
use std::ffi::c_void;

abi! {
    /// A global route header, as it precedes a received datagram.
    struct IbvGrh = "struct ibv_grh" {
        version_tclass_flow: u32,
        paylen: u16,
        next_hdr: u8,
        hop_limit: u8,
        sgid: IbvGid,
        dgid: IbvGid,
    }

    /// A buffer of the program.
    struct IbvDataBuf = "struct ibv_data_buf" {
        addr: *mut c_void,
        length: usize,
    }
}
