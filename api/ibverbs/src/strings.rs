//! Texts for numbers of the ABI.

use std::ffi::{CStr, c_char, c_int};

/// Returns the text at this index, or "unknown".
fn at(texts: &'static [&'static CStr], place: c_int) -> *const c_char {
    let text = usize::try_from(place).ok().and_then(|place| texts.get(place));
    text.copied().unwrap_or(c"unknown").as_ptr()
}

/// Returns the text of a completion status.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    const TEXTS: &[&CStr] = &[
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"Work Request Flushed Error",
        c"memory bind operation error",
        c"bad response error",
        c"local access error",
        c"remote invalid request error",
        c"remote access error",
        c"remote operation error",
        c"transport retry counter exceeded",
        c"RNR retry counter exceeded",
        c"local RDD violation error",
        c"remote invalid RD request",
        c"remote aborted error",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout error",
        c"general error",
        c"tag matching error",
        c"tag matching rendezvous incomplete",
    ];
    at(TEXTS, status)
}

/// Returns the text of a node type.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_node_type_str(node_type: c_int) -> *const c_char {
    const TEXTS: &[&CStr] = &[
        c"unknown",
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
        c"usNIC",
        c"usNIC UDP",
        c"unspecified",
    ];
    at(TEXTS, node_type)
}

/// Returns the text of a port state.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_port_state_str(state: c_int) -> *const c_char {
    const TEXTS: &[&CStr] =
        &[c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer"];
    at(TEXTS, state)
}

/// Returns the text of an asynchronous event.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_event_type_str(event: c_int) -> *const c_char {
    const TEXTS: &[&CStr] = &[
        c"CQ error",
        c"local work queue catastrophic error",
        c"invalid request local work queue error",
        c"local access violation work queue error",
        c"communication established",
        c"send queue drained",
        c"path migrated",
        c"path migration request error",
        c"local catastrophic error",
        c"port active",
        c"port error",
        c"LID change",
        c"P_Key change",
        c"SM change",
        c"SRQ catastrophic error",
        c"SRQ limit reached",
        c"last WQE reached",
        c"client reregistration",
        c"GID table change",
        c"WQ fatal",
    ];
    at(TEXTS, event)
}

/// Returns the text of a send work request's op-code.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_wr_opcode_str(opcode: c_int) -> *const c_char {
    const TEXTS: &[&CStr] = &[
        c"rdma-write",
        c"rdma-write-with-imm",
        c"send",
        c"send-with-imm",
        c"rdma-read",
        c"atomic-cmp-and-swp",
        c"atomic-fetch-and-add",
        c"local-inv",
        c"bind-mw",
        c"send-with-inv",
        c"tso",
        c"driver1",
        c"unknown",
        c"unknown",
        c"flush",
        c"atomic-write",
    ];
    at(TEXTS, opcode)
}
