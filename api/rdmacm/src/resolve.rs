//! The way to a peer: which address of the device packets leave from. RoCE needs no more, so it is known at
//! once; events tell it as if it had taken time.

use remora_abi::cma::{RdmaCmId, event_type};
use std::ffi::c_int;
use std::net::SocketAddr;

use crate::id::{IdObject, Phase};
use crate::{address, bind, errno, id, post, sync};

/// Resolves a destination; the source is the program's, or that of the route.
pub fn resolve_address(id: &IdObject, from: Option<SocketAddr>, to: SocketAddr) -> Result<(), c_int> {
    let mut state = id.state();
    if !matches!(state.phase, Phase::Idle | Phase::Bound) {
        return Err(libc::EINVAL);
    }
    let gids = id.manager.gids();
    let to = address::destination(&gids, to);
    let from = from.filter(|_| state.phase == Phase::Idle);
    let (port, from) = (from.map_or(0, |from| from.port()), from.filter(|from| !from.ip().is_unspecified()));
    let bound = state.local.filter(|local| !local.ip().is_unspecified());
    let found = match (bound, from) {
        (Some(bound), _) => address::own(&gids, bound).map(|_| None),
        (None, Some(from)) => Ok(Some(address::own(&gids, from)?)),
        (None, None) => address::source(&gids, to).map(Some),
    };
    let status = match found {
        Ok(gid) => {
            if let Some(gid) = gid {
                bind::to_gid(id, &mut state, gid, port)?;
            }
            id.set_remote(&mut state, to);
            state.phase = Phase::AddressResolved;
            0
        }
        // As the kernel says it: by an event, and the id may try again.
        Err(errno) => -errno,
    };
    let event = if status == 0 { event_type::ADDR_RESOLVED } else { event_type::ADDR_ERROR };
    post::post(id, event, status, 0)?;
    drop(state);
    sync::complete(id)
}

/// Resolves the route to the destination.
pub fn resolve_route(id: &IdObject) -> Result<(), c_int> {
    let mut state = id.state();
    if state.phase != Phase::AddressResolved {
        return Err(libc::EINVAL);
    }
    id.set_path(state.options.tos);
    state.phase = Phase::RouteResolved;
    post::post(id, event_type::ROUTE_RESOLVED, 0, 0)?;
    drop(state);
    sync::complete(id)
}

/// Resolves a destination.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_resolve_addr(
    id: *mut RdmaCmId,
    from: *mut libc::sockaddr,
    to: *mut libc::sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    errno::minus_one((|| {
        let id = id::look(id)?;
        let from = if from.is_null() { None } else { Some(address::parse(from)?) };
        resolve_address(&id, from, address::parse(to)?)
    })())
}

/// Resolves the route to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_resolve_route(id: *mut RdmaCmId, _timeout_ms: c_int) -> c_int {
    errno::minus_one(id::look(id).and_then(|id| resolve_route(&id)))
}
