//! Devices, ports, and the entries of the GID table.

use std::ffi::{c_char, c_int, c_void};

abi! {
    /// A device in the list. The library puts 1 KiB of zeros after it, because libmlx5 and libefa read their
    /// own mark there.
    struct IbvDevice = "struct ibv_device" {
        _ops: [*mut c_void; 2],
        node_type: c_int,
        transport_type: c_int,
        name: [c_char; 64],
        dev_name: [c_char; 64],
        dev_path: [c_char; 256],
        ibdev_path: [c_char; 256],
    }

    /// The attributes of a device.
    struct IbvDeviceAttr = "struct ibv_device_attr" {
        fw_ver: [c_char; 64],
        node_guid: u64,
        sys_image_guid: u64,
        max_mr_size: u64,
        page_size_cap: u64,
        vendor_id: u32,
        vendor_part_id: u32,
        hw_ver: u32,
        max_qp: c_int,
        max_qp_wr: c_int,
        device_cap_flags: u32,
        max_sge: c_int,
        max_sge_rd: c_int,
        max_cq: c_int,
        max_cqe: c_int,
        max_mr: c_int,
        max_pd: c_int,
        max_qp_rd_atom: c_int,
        max_ee_rd_atom: c_int,
        max_res_rd_atom: c_int,
        max_qp_init_rd_atom: c_int,
        max_ee_init_rd_atom: c_int,
        atomic_cap: c_int,
        max_ee: c_int,
        max_rdd: c_int,
        max_mw: c_int,
        max_raw_ipv6_qp: c_int,
        max_raw_ethy_qp: c_int,
        max_mcast_grp: c_int,
        max_mcast_qp_attach: c_int,
        max_total_mcast_qp_attach: c_int,
        max_ah: c_int,
        max_fmr: c_int,
        max_map_per_fmr: c_int,
        max_srq: c_int,
        max_srq_wr: c_int,
        max_srq_sge: c_int,
        max_pkeys: u16,
        local_ca_ack_delay: u8,
        phys_port_cnt: u8,
    }

    /// The on-demand paging capabilities of a device.
    struct IbvOdpCaps = "struct ibv_odp_caps" {
        general_caps: u64,
        per_transport_caps: [u32; 3],
    }

    /// The capabilities of receive-side scaling, which this device does not support.
    struct IbvRssCaps = "struct ibv_rss_caps" {
        supported_qpts: u32,
        max_rwq_indirection_tables: u32,
        max_rwq_indirection_table_size: u32,
        rx_hash_fields_mask: u64,
        rx_hash_function: u8,
    }

    /// The extended attributes of a device. Callers compiled with older headers pass a smaller size.
    struct IbvDeviceAttrEx = "struct ibv_device_attr_ex" {
        orig_attr: IbvDeviceAttr,
        comp_mask: u32,
        odp_caps: IbvOdpCaps,
        completion_timestamp_mask: u64,
        hca_core_clock: u64,
        device_cap_flags_ex: u64,
        tso_caps: [u32; 2],
        rss_caps: IbvRssCaps,
        max_wq_type_rq: u32,
        packet_pacing_caps: [u32; 3],
        raw_packet_caps: u32,
        tm_caps: [u32; 5],
        cq_mod_caps: [u16; 2],
        max_dm_size: u64,
        pci_atomic_caps: [u16; 3],
        xrc_odp_caps: u32,
        phys_port_cnt_ex: u32,
    }

    /// The attributes of a port.
    struct IbvPortAttr = "struct ibv_port_attr" {
        state: c_int,
        max_mtu: c_int,
        active_mtu: c_int,
        gid_tbl_len: c_int,
        port_cap_flags: u32,
        max_msg_sz: u32,
        bad_pkey_cntr: u32,
        qkey_viol_cntr: u32,
        pkey_tbl_len: u16,
        lid: u16,
        sm_lid: u16,
        lmc: u8,
        max_vl_num: u8,
        sm_sl: u8,
        subnet_timeout: u8,
        init_type_reply: u8,
        active_width: u8,
        active_speed: u8,
        phys_state: u8,
        link_layer: u8,
        flags: u8,
        port_cap_flags2: u16,
    }

    /// An entry of the GID table.
    struct IbvGidEntry = "struct ibv_gid_entry" {
        gid: IbvGid,
        gid_index: u32,
        port_num: u32,
        gid_type: u32,
        ndev_ifindex: u32,
    }

    /// The reading of the device's clock.
    struct IbvValuesEx = "struct ibv_values_ex" {
        comp_mask: u32,
        raw_clock: libc::timespec,
    }

    /// The vendor options of a connection; this device has none.
    struct IbvEce = "struct ibv_ece" {
        vendor_id: u32,
        options: u32,
        comp_mask: u32,
    }
}

/// A GID (`union ibv_gid`): 16 bytes in network order, with the alignment of the two 64-bit words in the C
/// union.
#[repr(C, align(8))]
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct IbvGid {
    pub raw: [u8; 16],
}

/// The size of the port attributes that the first version of the ABI knows (`_compat_ibv_port_attr`).
pub const COMPAT_PORT_ATTR: usize = std::mem::offset_of!(IbvPortAttr, port_cap_flags2);
