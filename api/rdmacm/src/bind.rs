//! Binding ids to addresses and ports, and listening.

use remora_abi::cma::RdmaCmId;
use std::ffi::c_int;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::cm_device::Gid;
use crate::id::{IdObject, IdState, Phase};
use crate::{address, errno, id};

/// Binds an id to a GID's address and this port. Port 0 keeps the id's port, or takes a free one.
pub(crate) fn to_gid(id: &IdObject, state: &mut IdState, gid: Gid, port: u16) -> Result<(), c_int> {
    let address = SocketAddr::new(gid.address.ip(), port);
    let address = match gid.address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => {
            std::net::SocketAddrV6::new(*v6.ip(), port, 0, v6.scope_id()).into()
        }
        _ => address,
    };
    let bound = id.manager.client.bind(id.number, address, state.options.reuses);
    let bound = bound.map_err(|error| errno::of_io(&error))?;
    id.at_device(state, gid)?;
    let mut local = address;
    local.set_port(bound.port());
    id.set_local(state, local);
    state.phase = Phase::Bound;
    Ok(())
}

/// Binds an id to an address of the device, or to a port of all its addresses.
pub(crate) fn bind(id: &IdObject, address: SocketAddr) -> Result<(), c_int> {
    address::check_zone(address)?;
    let mut state = id.state();
    if state.phase != Phase::Idle {
        return Err(libc::EINVAL);
    }
    if !address.ip().is_unspecified() {
        let gid = address::own(&id.manager.gids(), address)?;
        return to_gid(id, &mut state, gid, address.port());
    }
    let bound = id.manager.client.bind(id.number, address, state.options.reuses);
    let bound = bound.map_err(|error| errno::of_io(&error))?;
    id.set_local(&mut state, SocketAddr::new(address.ip(), bound.port()));
    state.phase = Phase::Bound;
    Ok(())
}

/// Binds an id.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_bind_addr(id: *mut RdmaCmId, address: *mut libc::sockaddr) -> c_int {
    errno::minus_one(id::look(id).and_then(|id| bind(&id, address::parse(address)?)))
}

/// Makes an id listen. An id that is not bound gets a port of all addresses.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_listen(id: *mut RdmaCmId, backlog: c_int) -> c_int {
    errno::minus_one((|| {
        let id = id::look(id)?;
        let mut state = id.state();
        if !matches!(state.phase, Phase::Idle | Phase::Bound) {
            return Err(libc::EINVAL);
        }
        // A negative backlog stands for the maximum, as 0 does.
        let backlog = u32::try_from(backlog).unwrap_or(0);
        let listens = id.manager.client.listen(id.number, backlog);
        let bound = listens.map_err(|error| errno::of_io(&error))?;
        if state.local.is_none() {
            id.set_local(&mut state, SocketAddr::new(IpAddr::from(Ipv6Addr::UNSPECIFIED), bound.port()));
        }
        state.phase = Phase::Listening;
        Ok(())
    })())
}
