//! The structures of `sa.h`, in which a subnet administrator describes paths.

use super::device::IbvGid;
use std::ffi::c_int;

abi! {
    /// A path as a subnet administrator describes it.
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

    /// A path in the form that the kernel uses towards programs (`rdma/ib_user_sa.h`).
    struct IbUserPathRec = "struct ib_user_path_rec" {
        dgid: [u8; 16],
        sgid: [u8; 16],
        dlid: u16,
        slid: u16,
        raw_traffic: u32,
        flow_label: u32,
        reversible: u32,
        mtu: u32,
        pkey: u16,
        hop_limit: u8,
        traffic_class: u8,
        numb_path: u8,
        sl: u8,
        mtu_selector: u8,
        rate_selector: u8,
        rate: u8,
        packet_life_time_selector: u8,
        packet_life_time: u8,
        preference: u8,
    }
}
