//! What `sa.h` shows of a subnet administrator.

use super::device::IbvGid;
use std::ffi::c_int;

abi! {
    /// A path, as a subnet manager describes it.
    struct IbvSaPathRec = "struct ibv_sa_path_rec" {
        dgid: IbvGid,
        sgid: IbvGid,
        dlid: u16,
        slid: u16,
        raw_traffic: c_int,
        flow_label: u32,
        hop_limit: u8,
        traffic_class: u8,
        reversible: c_int,
        numb_path: u8,
        pkey: u16,
        sl: u8,
        mtu_selector: u8,
        mtu: u8,
        rate_selector: u8,
        rate: u8,
        packet_life_time_selector: u8,
        packet_life_time: u8,
        preference: u8,
    }
}
