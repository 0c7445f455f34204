//! Resolution of the way to a peer: the device's address for it, and whether a host on the same link
//! answers. RoCE needs no more. The events arrive asynchronously even if nothing had to be resolved.

use remora_abi::cma::{RdmaCmId, event_type};
use remora_port::xdp::OnLinkHost;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::id::{IdObject, Phase};
use crate::{address, background, bind, errno, id, post, sync};

/// The first and the longest pause between two lookups in the kernel's neighbour table.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

/// Waits until the kernel knows the host's hardware address. Returns false after the time limit.
fn appears(host: &mut OnLinkHost, until: Instant) -> bool {
    let [mut pause, longest] = PAUSES;
    loop {
        if host.is_known() {
            return true;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        // The kernel gives up after some seconds, so it is asked once more.
        if !host.is_asked() {
            let _ = host.ask();
        }
        std::thread::sleep(pause.min(left));
        pause = (2 * pause).min(longest);
    }
}

/// Ends the resolution of an id's destination with an event. After a failure the id may try once more.
fn finish(id: &IdObject, status: c_int) {
    let mut state = id.state();
    if state.phase != Phase::Resolving {
        return;
    }
    let (phase, event) = match status {
        0 => (Phase::AddressResolved, event_type::ADDR_RESOLVED),
        _ => (Phase::Bound, event_type::ADDR_ERROR),
    };
    state.phase = phase;
    // Fails for an id that was destroyed in the meantime.
    let _ = post::post(id, event, status, 0);
}

/// Waits in a thread for a host on the link of the id's address.
fn await_host(id: &Arc<IdObject>, mut host: OnLinkHost, limit: Duration) -> Result<(), c_int> {
    let id = Arc::clone(id);
    let until = Instant::now() + limit;
    background::start(move || {
        let status = if appears(&mut host, until) { 0 } else { -libc::ETIMEDOUT };
        finish(&id, status);
    })
}

/// Resolves a destination. The source address is the program's, or that of the route. A host on the same
/// link must answer ARP or ND within the limit.
pub(crate) fn resolve_address(
    id: &Arc<IdObject>,
    source: Option<SocketAddr>,
    destination: SocketAddr,
    limit: Duration,
) -> Result<(), c_int> {
    source.map_or(Ok(()), address::check_zone)?;
    address::check_zone(destination)?;
    let mut state = id.state();
    if !matches!(state.phase, Phase::Idle | Phase::Bound) {
        return Err(libc::EINVAL);
    }
    let gids = id.manager.gids();
    let destination = address::destination(&gids, destination);
    let source = source.filter(|_| state.phase == Phase::Idle);
    let port = source.map_or(0, |source| source.port());
    let source = source.filter(|source| !source.ip().is_unspecified());
    let bound = state.local.filter(|local| !local.ip().is_unspecified());
    let local_gid = match (bound, source) {
        (Some(bound), _) => address::own(&gids, bound).map(|_| None),
        (None, Some(source)) => Ok(Some(address::own(&gids, source)?)),
        (None, None) => address::source(&gids, destination).map(Some),
    };
    let status = match local_gid {
        Ok(gid) => {
            if let Some(gid) = gid {
                bind::to_gid(id, &mut state, gid, port)?;
            }
            id.set_remote(&mut state, destination);
            let local_ip = state.local.map(|local| local.ip());
            let host = local_ip.and_then(|local_ip| OnLinkHost::find(local_ip, destination));
            if let Some(mut host) = host.filter(|_| !destination.ip().is_multicast())
                && !host.is_known()
            {
                state.phase = Phase::Resolving;
                drop(state);
                await_host(id, host, limit).inspect_err(|_| id.state().phase = Phase::Bound)?;
                return sync::complete(id);
            }
            state.phase = Phase::AddressResolved;
            0
        }
        // As in the kernel, the failure is an event, and the id may try once more.
        Err(errno) => -errno,
    };
    let event = if status == 0 { event_type::ADDR_RESOLVED } else { event_type::ADDR_ERROR };
    post::post(id, event, status, 0)?;
    drop(state);
    sync::complete(id)
}

/// Resolves the route to the destination.
pub(crate) fn resolve_route(id: &IdObject) -> Result<(), c_int> {
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

/// Resolves a destination address.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_resolve_addr(
    id: *mut RdmaCmId,
    source: *mut libc::sockaddr,
    destination: *mut libc::sockaddr,
    timeout_ms: c_int,
) -> c_int {
    errno::minus_one((|| {
        let id = id::look(id)?;
        let source = if source.is_null() { None } else { Some(address::parse(source)?) };
        let limit = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        resolve_address(&id, source, address::parse(destination)?, limit)
    })())
}

/// Resolves the route to the destination. On RoCE that involves no other host, so the time limit is not
/// used.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_resolve_route(id: *mut RdmaCmId, _timeout_ms: c_int) -> c_int {
    errno::minus_one(id::look(id).and_then(|id| resolve_route(&id)))
}
