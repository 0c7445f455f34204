//! Completion queues whose completions are read one value at a time, and the attributes that create them.

use super::objects::{IbvCompChannel, IbvContext, IbvPd};
use std::ffi::{c_int, c_void};

/// A function that reads one value of the current completion.
pub type Read<T> = Option<unsafe extern "C" fn(*mut IbvCqEx) -> T>;

abi! {
    /// A completion queue whose completions are read one value at a time. The structure begins as an `IbvCq`.
    struct IbvCqEx = "struct ibv_cq_ex" {
        context: *mut IbvContext,
        channel: *mut IbvCompChannel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
        comp_mask: u32,
        status: c_int,
        wr_id: u64,
        start_poll: Option<unsafe extern "C" fn(*mut IbvCqEx, *mut IbvPollCqAttr) -> c_int>,
        next_poll: Read<c_int>,
        end_poll: Read<()>,
        read_opcode: Read<c_int>,
        read_vendor_err: Read<u32>,
        read_byte_len: Read<u32>,
        read_imm_data: Read<u32>,
        read_qp_num: Read<u32>,
        read_src_qp: Read<u32>,
        read_wc_flags: Read<u32>,
        read_slid: Read<u32>,
        read_sl: Read<u8>,
        read_dlid_path_bits: Read<u8>,
        read_completion_ts: Read<u64>,
        read_cvlan: Read<u16>,
        read_flow_tag: Read<u32>,
        read_tm_info: Option<unsafe extern "C" fn(*mut IbvCqEx, *mut IbvWcTmInfo)>,
        read_completion_wallclock_ns: Read<u64>,
    }

    /// The attributes of a poll (`ibv_start_poll`).
    struct IbvPollCqAttr = "struct ibv_poll_cq_attr" {
        comp_mask: u32,
    }

    /// The data of tag matching, which this device does not support.
    struct IbvWcTmInfo = "struct ibv_wc_tm_info" {
        tag: u64,
        r#priv: u32,
    }

    /// The attributes of a new [`IbvCqEx`].
    struct IbvCqInitAttrEx = "struct ibv_cq_init_attr_ex" {
        cqe: u32,
        cq_context: *mut c_void,
        channel: *mut IbvCompChannel,
        comp_vector: u32,
        wc_flags: u64,
        comp_mask: u32,
        flags: u32,
        parent_domain: *mut IbvPd,
    }

    /// The attributes that `ibv_modify_cq` changes.
    struct IbvModifyCqAttr = "struct ibv_modify_cq_attr" {
        attr_mask: u32,
        moderate: [u16; 2],
    }
}
