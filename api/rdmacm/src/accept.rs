//! The passive side of connections: accepting and refusing requests.

use remora_abi::cma::{MOST, RdmaCmId, RdmaConnParam, UDP_QKEY};
use remora_broker::ConnParam;
use remora_wire::Qpn;
use std::ffi::{c_int, c_void};

use crate::connect::{check, given, own_param, private_data};
use crate::id::{IdObject, Phase};
use crate::{errno, id, qp_state, sync};

fn accept(id: &IdObject, param: Option<&RdmaConnParam>) -> Result<(), c_int> {
    check(id, param)?;
    let own = {
        let mut state = id.state();
        if state.phase != Phase::Requested {
            return Err(libc::EINVAL);
        }
        let depth = |given: Option<u8>, proposed: u8, most: u8| match given {
            Some(depth) if depth != MOST => depth,
            _ => proposed.min(most),
        };
        let manager = &id.manager;
        state.responder_resources = depth(
            param.map(|param| param.responder_resources),
            state.responder_resources,
            manager.max_responder_resources,
        );
        state.initiator_depth = depth(
            param.map(|param| param.initiator_depth),
            state.initiator_depth,
            manager.max_initiator_depth,
        );
        own_param(id, &state, param)
    };
    if id.is_datagrams() {
        return accept_datagrams(id, &own, private_data(param));
    }
    if !id.shown().qp.is_null() {
        let depths = [own.responder_resources, own.initiator_depth];
        qp_state::connect(id, Some(depths)).inspect_err(|_| qp_state::fail(id))?;
    }
    let accepted = id.manager.client.accept(id.number, &own, private_data(param));
    accepted.map_err(|error| errno::of_io(&error)).inspect_err(|_| qp_state::fail(id))?;
    id.state().phase = Phase::Connecting;
    sync::complete(id)
}

/// Answers a request for a datagram service with the id's queue pair. No event follows.
fn accept_datagrams(id: &IdObject, own: &ConnParam, private_data: &[u8]) -> Result<(), c_int> {
    let qpn = Qpn::new(own.qpn.get());
    let accepted = id.manager.client.accept_datagrams(id.number, qpn, UDP_QKEY, private_data);
    accepted.map_err(|error| errno::of_io(&error))?;
    let is_sync = {
        let mut state = id.state();
        state.phase = Phase::Connecting;
        state.is_sync
    };
    if is_sync {
        sync::forget_event(id);
    }
    Ok(())
}

/// Accepts a request.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_accept(id: *mut RdmaCmId, param: *mut RdmaConnParam) -> c_int {
    // SAFETY: the program's pointer.
    errno::minus_one(id::look(id).and_then(|id| accept(&id, unsafe { given(param) })))
}

/// Refuses a request or a response.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_reject(
    id: *mut RdmaCmId,
    private_data: *const c_void,
    len: u8,
) -> c_int {
    errno::minus_one((|| {
        let id = id::look(id)?;
        let bytes = match private_data.is_null() {
            true => &[][..],
            // SAFETY: the program states that it has `len` bytes there.
            false => unsafe { std::slice::from_raw_parts(private_data.cast::<u8>(), len.into()) },
        };
        id.manager.client.reject(id.number, bytes).map_err(|error| errno::of_io(&error))
    })())
}

/// Like [`rdma_reject`], because of the peer's vendor options, which this device does not support.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_reject_ece(
    id: *mut RdmaCmId,
    private_data: *const c_void,
    len: u8,
) -> c_int {
    // SAFETY: the program's pointers are passed on.
    unsafe { rdma_reject(id, private_data, len) }
}
