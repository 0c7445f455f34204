//! Endpoints, which are an id and its queue pair created by one call, and calls that wait for a request.

use remora_abi::cma::{RAI_PASSIVE, RdmaAddrinfo, RdmaCmId, event_type};
use remora_abi::objects::IbvPd;
use remora_abi::queue_pair::IbvQpInitAttr;
use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use crate::event::{self, EVENTS};
use crate::id::{self, Endpoint, IDS, IdObject};
use crate::{address, bind, create, destroy, errno, get_event, qp, resolve, srq, sync};

/// Time limit for a host on the same link to answer, as in rdma-core's library.
const RESOLVE_LIMIT: Duration = Duration::from_secs(2);

/// Gives an id the resolved addresses. A connecting id gets its queue pair now, a listening one with each
/// request.
fn prepare(
    id: &Arc<IdObject>,
    addrinfo: &RdmaAddrinfo,
    pd: *mut IbvPd,
    attr: Option<&mut IbvQpInitAttr>,
) -> Result<(), c_int> {
    if addrinfo.ai_flags & RAI_PASSIVE != 0 {
        bind::bind(id, address::parse(addrinfo.ai_src_addr)?)?;
        let qp_type = id.shown().qp_type;
        id.state().endpoint = attr.map(|attr| Endpoint { pd, attr: IbvQpInitAttr { qp_type, ..*attr } });
        return Ok(());
    }
    let source =
        if addrinfo.ai_src_addr.is_null() { None } else { Some(address::parse(addrinfo.ai_src_addr)?) };
    resolve::resolve_address(id, source, address::parse(addrinfo.ai_dst_addr)?, RESOLVE_LIMIT)?;
    resolve::resolve_route(id)?;
    if let Some(attr) = attr {
        attr.qp_type = id.shown().qp_type;
        qp::create_plain(id, pd, attr)?;
    }
    Ok(())
}

/// Creates an endpoint from a result of `rdma_getaddrinfo`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_ep(
    out: *mut *mut RdmaCmId,
    addrinfo: *mut RdmaAddrinfo,
    pd: *mut IbvPd,
    attr: *mut IbvQpInitAttr,
) -> c_int {
    errno::minus_one((|| {
        // SAFETY: NULL, or the program's.
        let (out, addrinfo, attr) = unsafe { (out.as_mut(), addrinfo.as_ref(), attr.as_mut()) };
        let out = out.ok_or(libc::EINVAL)?;
        let addrinfo = addrinfo.ok_or(libc::EINVAL)?;
        let none = std::ptr::null_mut();
        let id = create::create(none, none.cast(), addrinfo.ai_port_space, Some(addrinfo.ai_qp_type))?;
        IDS.give(Arc::clone(&id));
        if let Err(errno) = prepare(&id, addrinfo, pd, attr) {
            let _ = destroy::destroy(id.handle());
            return Err(errno);
        }
        *out = id.handle();
        Ok(())
    })())
}

/// Destroys an endpoint and the objects that it has created.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_ep(id: *mut RdmaCmId) {
    if let Ok(object) = IDS.look(id) {
        qp::destroy(&object);
        srq::destroy(&object);
        let _ = destroy::destroy(id);
    }
}

/// Waits for the next request to a listener. Returns its id, which has a queue pair.
fn next_request(listener: &IdObject) -> Result<*mut RdmaCmId, c_int> {
    let (channel, endpoint) = {
        let state = listener.state();
        if !state.is_sync {
            return Err(libc::EINVAL);
        }
        (state.channel.clone(), state.endpoint)
    };
    sync::forget_event(listener);
    let received = get_event::wait(&channel)?;
    let shown = EVENTS.look(received)?.shown();
    let taken = (|| {
        if shown.status != 0 {
            return Err(shown.status.abs());
        }
        if shown.event != event_type::CONNECT_REQUEST {
            return Err(libc::EINVAL);
        }
        let id = id::look(shown.id)?;
        if let Some(Endpoint { pd, mut attr }) = endpoint {
            qp::create_plain(&id, pd, &mut attr)?;
        }
        id.show(|id| id.event = received);
        Ok(shown.id)
    })();
    if taken.is_err() {
        let _ = event::acknowledge(received);
        if shown.event == event_type::CONNECT_REQUEST {
            let _ = destroy::destroy(shown.id);
        }
    }
    taken
}

/// Waits for a request to a listener that has no channel of the program.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_get_request(listener: *mut RdmaCmId, out: *mut *mut RdmaCmId) -> c_int {
    errno::minus_one((|| {
        let listener = id::look(listener)?;
        // SAFETY: NULL, or the program's variable.
        let out = unsafe { out.as_mut() }.ok_or(libc::EINVAL)?;
        *out = next_request(&listener)?;
        Ok(())
    })())
}
