//! Multicast groups of datagram queue pairs.

use remora_abi::device::IbvGid;
use remora_abi::objects::IbvQp;
use std::ffi::c_int;

use crate::qp::QpObject;
use crate::{context, errno, gid, handles};

fn group<'a>(qp: *mut IbvQp, gid: *const IbvGid) -> Result<(&'a QpObject, remora_verbs::Endpoint), c_int> {
    let object = handles::look::<QpObject>(qp)?;
    // SAFETY: NULL, or the program's GID.
    let gid = unsafe { gid.as_ref() }.ok_or(libc::EINVAL)?;
    Ok((object, gid::endpoint(gid)))
}

/// Attaches a queue pair to a multicast group.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_attach_mcast(qp: *mut IbvQp, gid: *const IbvGid, _lid: u16) -> c_int {
    errno::number((|| {
        let (object, group) = group(qp, gid)?;
        // SAFETY: the field never changes.
        let view = context::look(unsafe { (*object.verbs.get()).qp_base.context })?;
        // The port joins on the interfaces of the addresses that it has a share of. The program names none,
        // so it gets a share of each address of the group's family.
        for (index, entry) in view.nic.port.gids() {
            if entry.ip.is_ipv4() == group.address.is_ipv4() {
                let _ = gid::source(view, index);
            }
        }
        object.raw.attach(group).map_err(errno::of_create)
    })())
}

/// Detaches a queue pair from a multicast group.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_detach_mcast(qp: *mut IbvQp, gid: *const IbvGid, _lid: u16) -> c_int {
    errno::number((|| {
        let (object, group) = group(qp, gid)?;
        object.raw.detach(group).map_err(errno::of_create)
    })())
}
