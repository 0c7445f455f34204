//! The attributes of the device, modelled on those of Soft-RoCE, with the values of this NIC.

use remora_abi::device::{IbvDeviceAttr, IbvDeviceAttrEx, IbvOdpCaps, IbvRssCaps, IbvValuesEx};
use remora_abi::objects::IbvContext;
use remora_verbs::TIMESTAMP_BITS;
use std::ffi::{c_int, c_void};

use crate::attributes::{
    self, MAX_AH, MAX_CQ, MAX_CQE, MAX_QP, MAX_QP_WR, MAX_SRQ, MAX_SRQ_WR, RD_ATOM, SGES,
};
use crate::context::{self, ContextObject};
use crate::device::{guid, text};
use crate::errno;

/// `IBV_DEVICE_*` capabilities: current state in `modify_qp`, system image GUID, RNR NAKs, resizing of SRQs,
/// N completion notifications, windows of types 1 and 2B, XRC, SEND with invalidate.
const CAPABILITIES: u32 =
    1 << 7 | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 14 | 1 << 17 | 1 << 20 | 1 << 21 | 1 << 24;
/// `IBV_ATOMIC_HCA`: atomic among the requests of this NIC.
const ATOMIC_HCA: c_int = 1;
/// The capability `IBV_ODP_SUPPORT`.
const ODP_SUPPORT: u64 = 1;
/// The capability `IBV_ODP_SUPPORT_IMPLICIT`.
const ODP_IMPLICIT: u64 = 2;
/// The capabilities `IBV_ODP_SUPPORT_{SEND,RECV,WRITE,READ,ATOMIC,SRQ_RECV}`.
const ODP_ALL: u32 = 0x3f;
/// Frequency of the clock in kHz. The clock counts nanoseconds.
const CLOCK_KHZ: u64 = 1_000_000;
/// Maximum number of memory windows.
const WINDOWS: c_int = (1 << 16) - 1;

fn describe() -> IbvDeviceAttr {
    let int = |value: u32| value as c_int;
    IbvDeviceAttr {
        fw_ver: text(env!("CARGO_PKG_VERSION")),
        node_guid: guid(),
        sys_image_guid: guid(),
        max_mr_size: u64::MAX,
        page_size_cap: 0xffff_f000,
        // An unassigned vendor id, so that programs with a table of vendors do not take the device for a
        // known one.
        vendor_id: 0x0052_4d52,
        vendor_part_id: 1,
        hw_ver: 0,
        max_qp: int(MAX_QP),
        max_qp_wr: int(MAX_QP_WR),
        device_cap_flags: CAPABILITIES,
        max_sge: int(SGES),
        max_sge_rd: int(SGES),
        max_cq: int(MAX_CQ),
        max_cqe: int(MAX_CQE),
        max_mr: 1 << 16,
        max_pd: 1 << 12,
        max_qp_rd_atom: int(RD_ATOM),
        max_ee_rd_atom: 0,
        max_res_rd_atom: int(RD_ATOM * MAX_QP),
        max_qp_init_rd_atom: int(RD_ATOM),
        max_ee_init_rd_atom: 0,
        atomic_cap: ATOMIC_HCA,
        max_ee: 0,
        max_rdd: 0,
        max_mw: WINDOWS,
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: 1 << 8,
        max_mcast_qp_attach: 1 << 6,
        max_total_mcast_qp_attach: 1 << 14,
        max_ah: int(MAX_AH),
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: int(MAX_SRQ),
        max_srq_wr: int(MAX_SRQ_WR),
        max_srq_sge: int(SGES),
        max_pkeys: 1,
        local_ca_ack_delay: 15,
        phys_port_cnt: 1,
    }
}

/// The capabilities of on-demand paging. A daemon cannot follow the page faults of its programs.
fn odp(is_lent: bool) -> IbvOdpCaps {
    if is_lent {
        return IbvOdpCaps { general_caps: 0, per_transport_caps: [0; 3] };
    }
    let implicit = if remora_verbs::page_fault::is_installed() { ODP_IMPLICIT } else { 0 };
    // Every region can have absent pages. That holds for datagrams too, but programs query only send and
    // receive.
    IbvOdpCaps { general_caps: ODP_SUPPORT | implicit, per_transport_caps: [ODP_ALL, 0x3, 0x3] }
}

fn describe_ex(is_lent: bool) -> IbvDeviceAttrEx {
    IbvDeviceAttrEx {
        orig_attr: describe(),
        comp_mask: 0,
        odp_caps: odp(is_lent),
        completion_timestamp_mask: (1 << TIMESTAMP_BITS) - 1,
        hca_core_clock: CLOCK_KHZ,
        device_cap_flags_ex: CAPABILITIES.into(),
        tso_caps: [0; 2],
        rss_caps: IbvRssCaps {
            supported_qpts: 0,
            max_rwq_indirection_tables: 0,
            max_rwq_indirection_table_size: 0,
            rx_hash_fields_mask: 0,
            rx_hash_function: 0,
        },
        max_wq_type_rq: 0,
        packet_pacing_caps: [0; 3],
        raw_packet_caps: 0,
        tm_caps: [0; 5],
        cq_mod_caps: [0; 2],
        max_dm_size: attributes::DM_BYTES as u64,
        pci_atomic_caps: [0; 3],
        xrc_odp_caps: if is_lent { 0 } else { ODP_ALL },
        phys_port_cnt_ex: 1,
    }
}

/// Queries the attributes of the device.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_device(context: *mut IbvContext, out: *mut IbvDeviceAttr) -> c_int {
    errno::number((|| {
        context::look(context)?;
        // SAFETY: NULL, or the program's structure.
        *unsafe { out.as_mut() }.ok_or(libc::EINVAL)? = describe();
        Ok(())
    })())
}

/// Queries the extended attributes, as many bytes as the caller knows.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut IbvContext,
    _input: *const c_void,
    out: *mut IbvDeviceAttrEx,
    capacity: usize,
) -> c_int {
    errno::number((|| {
        let is_lent = context::look(context)?.nic.adapter.is_lent();
        if out.is_null() || capacity < size_of::<IbvDeviceAttr>() {
            return Err(libc::EINVAL);
        }
        context::copy_known(out, capacity, &describe_ex(is_lent));
        Ok(())
    })())
}

/// The bit `IBV_VALUES_MASK_RAW_CLOCK`.
const RAW_CLOCK: u32 = 1;

/// Queries the clock of completion timestamps.
pub(crate) unsafe extern "C" fn query_rt_values(context: *mut IbvContext, values: *mut IbvValuesEx) -> c_int {
    errno::number((|| {
        let object: &ContextObject = context::look(context)?;
        // SAFETY: NULL, or the program's structure.
        let values = unsafe { values.as_mut() }.ok_or(libc::EINVAL)?;
        if values.comp_mask & !RAW_CLOCK != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        if object.nic.adapter.is_lent() {
            return Err(libc::EOPNOTSUPP);
        }
        let now = object.nic.adapter.now();
        values.raw_clock.tv_sec = (now / 1_000_000_000) as libc::time_t;
        values.raw_clock.tv_nsec = (now % 1_000_000_000) as libc::c_long;
        Ok(())
    })())
}
