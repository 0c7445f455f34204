//! Creation of ids by programs.

use remora_abi::cma::{PS_IB, PS_TCP, PS_UDP, RdmaCmId, RdmaEventChannel};
use remora_abi::queue_pair::{QPT_RC, QPT_UC, QPT_UD, QPT_XRC_RECV, QPT_XRC_SEND};
use remora_broker::PortSpace;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::channel::{self, ChannelObject};
use crate::id::{IDS, IdObject, Made};
use crate::{errno, registry};

/// Returns the broker's constant for a port space.
fn port_space(ps: c_int) -> Result<PortSpace, c_int> {
    match ps {
        PS_TCP => Ok(PortSpace::Tcp),
        PS_UDP => Ok(PortSpace::Udp),
        PS_IB => Ok(PortSpace::Ib),
        // The port space of IP over InfiniBand, which does not exist on RoCE.
        2 => Err(libc::EPROTONOSUPPORT),
        _ => Err(libc::EINVAL),
    }
}

/// Creates an id. Without a channel the id gets a hidden one.
pub(crate) fn create(
    channel: *mut RdmaEventChannel,
    context: *mut c_void,
    ps: c_int,
    qp_type: Option<c_int>,
) -> Result<Arc<IdObject>, c_int> {
    let space = port_space(ps)?;
    let qp_type = match (space, qp_type) {
        (PortSpace::Udp, _) => QPT_UD,
        (PortSpace::Ib, Some(kind @ (QPT_UC | QPT_XRC_SEND | QPT_XRC_RECV))) => kind,
        (PortSpace::Ib, Some(QPT_UD)) => return Err(libc::EOPNOTSUPP),
        _ => QPT_RC,
    };
    let is_sync = channel.is_null();
    let channel = if is_sync { ChannelObject::open()? } else { channel::look(channel)? };
    let created = channel.manager.client.create_id(&channel.socket, space);
    let number = created.map_err(|error| errno::of_io(&error))?;
    let id = IdObject::new(Made { number, channel, is_sync, context, ps, qp_type });
    registry::add(&id);
    Ok(id)
}

/// Creates an id.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_id(
    channel: *mut RdmaEventChannel,
    out: *mut *mut RdmaCmId,
    context: *mut c_void,
    ps: c_int,
) -> c_int {
    errno::minus_one((|| {
        // SAFETY: NULL, or the program's variable.
        let out = unsafe { out.as_mut() }.ok_or(libc::EINVAL)?;
        let id = create(channel, context, ps, None)?;
        *out = id.handle();
        IDS.give(id);
        Ok(())
    })())
}
