//! The active side: requesting a connection, or the queue pair of a datagram service.

use remora_abi::cma::{MOST, PS_TCP, RdmaCmId, RdmaConnParam};
use remora_abi::queue_pair::{QPT_UC, QPT_XRC_RECV, QPT_XRC_SEND};
use remora_broker::{ConnParam, Connect, ConnectedService};
use remora_wire::Qpn;
use std::ffi::c_int;

use crate::id::{IdObject, IdState, Phase};
use crate::{errno, id, sync};

/// The number of retransmissions if the program gives no parameters: the maximum.
const RETRIES: u8 = 7;

/// Returns the program's connection parameters, if there are any.
///
/// # Safety
/// The pointer is NULL or the program's.
pub(crate) unsafe fn given<'a>(param: *const RdmaConnParam) -> Option<&'a RdmaConnParam> {
    // SAFETY: the caller's promise.
    unsafe { param.as_ref() }
}

/// Checks the program's parameters against the device's limits. Applies only to connections in the port
/// space of TCP.
pub(crate) fn check(id: &IdObject, param: Option<&RdmaConnParam>) -> Result<(), c_int> {
    let shown = id.shown();
    if shown.ps != PS_TCP {
        return Ok(());
    }
    let Some(param) = param else {
        return if shown.qp.is_null() { Err(libc::EINVAL) } else { Ok(()) };
    };
    let fits = |depth: u8, most: u8| depth == MOST || depth <= most;
    let fit = fits(param.responder_resources, id.manager.max_responder_resources)
        && fits(param.initiator_depth, id.manager.max_initiator_depth);
    if fit { Ok(()) } else { Err(libc::EINVAL) }
}

/// Returns the private data of the program's parameters.
pub(crate) fn private_data(param: Option<&RdmaConnParam>) -> &[u8] {
    match param {
        Some(param) if !param.private_data.is_null() => {
            // SAFETY: the program states that it has that many bytes there.
            unsafe { std::slice::from_raw_parts(param.private_data.cast(), param.private_data_len.into()) }
        }
        _ => &[],
    }
}

/// Returns the parameters of this side's queue pair for the peer.
pub(crate) fn own_param(id: &IdObject, state: &IdState, param: Option<&RdmaConnParam>) -> ConnParam {
    let shown = id.shown();
    let (qpn, srq) = if shown.qp.is_null() {
        param.map_or((0, false), |param| (param.qp_num, param.srq != 0))
    } else {
        // SAFETY: the id's own queue pair.
        (unsafe { (*shown.qp).qp_num }, !shown.srq.is_null())
    };
    let retries = |count: Option<u8>| count.map_or(RETRIES, |count| count.min(RETRIES));
    ConnParam {
        responder_resources: state.responder_resources,
        initiator_depth: state.initiator_depth,
        flow_control: param.is_some_and(|param| param.flow_control != 0),
        retry_count: retries(param.map(|param| param.retry_count)),
        rnr_retry_count: retries(param.map(|param| param.rnr_retry_count)),
        srq,
        qpn: Qpn::new(qpn & 0x00ff_ffff),
        starting_psn: state.starting_psn,
    }
}

/// Returns the transport service for a type of queue pair.
fn service(qp_type: c_int) -> ConnectedService {
    match qp_type {
        QPT_UC => ConnectedService::Uc,
        QPT_XRC_SEND | QPT_XRC_RECV => ConnectedService::Xrc,
        _ => ConnectedService::Rc,
    }
}

fn connect(id: &IdObject, param: Option<&RdmaConnParam>) -> Result<(), c_int> {
    check(id, param)?;
    let mut state = id.state();
    if state.phase != Phase::RouteResolved {
        return Err(libc::EINVAL);
    }
    let depth = |given: Option<u8>, most: u8| given.filter(|depth| *depth != MOST).unwrap_or(most).min(most);
    let manager = &id.manager;
    state.responder_resources =
        depth(param.map(|param| param.responder_resources), manager.max_responder_resources);
    state.initiator_depth = depth(param.map(|param| param.initiator_depth), manager.max_initiator_depth);
    let connect = Connect {
        destination: state.remote.ok_or(libc::EINVAL)?,
        service: service(id.shown().qp_type),
        path_mtu: manager.path_mtu(),
        traffic_class: state.options.tos,
        param: own_param(id, &state, param),
        private_data: private_data(param).to_vec(),
    };
    manager.client.connect(id.number, connect).map_err(|error| errno::of_io(&error))?;
    state.phase = Phase::Connecting;
    drop(state);
    sync::complete(id)
}

/// Requests a connection.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_connect(id: *mut RdmaCmId, param: *mut RdmaConnParam) -> c_int {
    // SAFETY: the program's pointer.
    errno::minus_one(id::look(id).and_then(|id| connect(&id, unsafe { given(param) })))
}

/// Reports that the active side's queue pair, which the program manages itself, is ready.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_establish(id: *mut RdmaCmId) -> c_int {
    errno::minus_one((|| {
        let id = id::look(id)?;
        // For an id with a queue pair, the library has reported it already.
        if !id.shown().qp.is_null() {
            return Err(libc::EINVAL);
        }
        id.manager.client.ready_to_use(id.number, &[]).map_err(|error| errno::of_io(&error))
    })())
}

/// The asynchronous event `IBV_EVENT_COMM_EST`.
const COMM_EST: c_int = 4;

/// Reports that the queue pair received a message before the peer reported to be ready.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_notify(id: *mut RdmaCmId, event: c_int) -> c_int {
    errno::minus_one((|| {
        let id = id::look(id)?;
        if event != COMM_EST {
            return Err(libc::EINVAL);
        }
        match id.manager.client.establish(id.number) {
            // The connection is established already, or over.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                if id.state().phase == Phase::Connecting { Ok(()) } else { Err(libc::EINVAL) }
            }
            done => done.map_err(|error| errno::of_io(&error)),
        }
    })())
}
