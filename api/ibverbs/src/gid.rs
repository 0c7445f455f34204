//! The GID table of the port, and its partition key.

use remora_abi::device::{IbvGid, IbvGidEntry};
use remora_abi::objects::IbvContext;
use remora_broker::GidEntry;
use remora_verbs::{Address, Endpoint};
use std::ffi::{c_int, c_uint};

use crate::address::ROCE_PORT;
use crate::attributes::GIDS;
use crate::context::{self, ContextObject};
use crate::{errno, port};

/// The GID type `IBV_GID_TYPE_ROCE_V2`.
const ROCE_V2: u32 = 2;
/// The GID type `IBV_GID_TYPE_SYSFS_ROCE_V2`.
const SYSFS_ROCE_V2: c_uint = 1;
/// The default partition, with full membership.
const PKEY: u16 = 0xffff;

/// Returns the GID at this index. ENODATA if the entry is empty.
pub(crate) fn at(object: &ContextObject, index: u32) -> Result<IbvGid, c_int> {
    if index >= GIDS {
        return Err(libc::EINVAL);
    }
    let entry = object.nic.port.gid(index).ok_or(libc::ENODATA)?;
    Ok(IbvGid { raw: Address::from(entry.ip).0 })
}

/// Returns the NIC's number of the address at this index of the table.
pub(crate) fn source(object: &ContextObject, index: u32) -> Result<u8, c_int> {
    at(object, index)?;
    object.nic.sources.number(object.nic.port.gid(index).ok_or(libc::ENODATA)?)
}

/// Returns the first index of the table whose address is of the same family.
pub(crate) fn first_like(object: &ContextObject, address: &Address) -> Result<u8, c_int> {
    let gids = object.nic.port.gids();
    let is_like = |entry: &GidEntry| entry.ip.is_ipv4() == address.is_ipv4();
    let gid = gids.iter().find(|(_, entry)| is_like(entry));
    gid.map(|(index, _)| *index as u8).ok_or(libc::EINVAL)
}

/// Returns the endpoint of a GID, a NIC or a multicast group: the address with RoCE's UDP port. An IPv4
/// group may be written as an IPv6 multicast address.
pub(crate) fn endpoint(gid: &IbvGid) -> Endpoint {
    let mut raw = gid.raw;
    if raw[0] == 0xff && raw[2..10] == [0; 8] && raw[10..12] == [0xff; 2] {
        raw[..2].fill(0);
    }
    Endpoint { address: Address(raw), udp_port: ROCE_PORT }
}

fn entry(object: &ContextObject, index: u32) -> Result<IbvGidEntry, c_int> {
    let gid = at(object, index)?;
    let interface = object.nic.port.gid(index).map_or(0, |entry| entry.interface);
    Ok(IbvGidEntry { gid, gid_index: index, port_num: 1, gid_type: ROCE_V2, ndev_ifindex: interface })
}

/// Queries the GID at this index of the table.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_gid(
    context: *mut IbvContext,
    port: u8,
    index: c_int,
    out: *mut IbvGid,
) -> c_int {
    errno::minus_one((|| {
        let object = context::look(context)?;
        port::check(port.into())?;
        let index = u32::try_from(index).map_err(|_| libc::EINVAL)?;
        // SAFETY: NULL, or the program's GID.
        *unsafe { out.as_mut() }.ok_or(libc::EINVAL)? = match at(object, index) {
            // This function returns zeros for an empty entry.
            Err(libc::ENODATA) => IbvGid { raw: [0; 16] },
            entry => entry?,
        };
        Ok(())
    })())
}

/// Queries the whole entry at this index of the table. Callers compiled for older versions get fewer bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut IbvContext,
    port: u32,
    index: u32,
    out: *mut IbvGidEntry,
    flags: u32,
    capacity: usize,
) -> c_int {
    errno::number((|| {
        let object = context::look(context)?;
        port::check(port)?;
        if flags != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        if out.is_null() {
            return Err(libc::EINVAL);
        }
        let entry = entry(object, index).map_err(|_| libc::ENODATA)?;
        context::copy_known(out, capacity, &entry);
        Ok(())
    })())
}

/// Queries the entries of all ports. Returns their number, or a negative errno.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut IbvContext,
    out: *mut IbvGidEntry,
    entries: usize,
    flags: u32,
    capacity: usize,
) -> isize {
    let filled = (|| {
        let object = context::look(context)?;
        if flags != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        // Empty entries are left out. As in Linux, there must be space for all others.
        let filled: Vec<IbvGidEntry> = (0..GIDS).filter_map(|index| entry(object, index).ok()).collect();
        if entries < filled.len() || out.is_null() {
            return Err(libc::EINVAL);
        }
        let places = (0..).map(|place| out.wrapping_byte_add(place * capacity));
        filled.iter().zip(places).for_each(|(entry, place)| context::copy_known(place, capacity, entry));
        Ok(filled.len() as isize)
    })();
    filled.unwrap_or_else(|errno| -(errno::set(errno) as isize))
}

/// Queries the type of an entry as sysfs shows it. The function is private to rdma-core, and used by
/// `ibv_devinfo` and pyverbs.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_gid_type(
    context: *mut IbvContext,
    port: u8,
    index: c_uint,
    out: *mut c_uint,
) -> c_int {
    errno::minus_one((|| {
        let object = context::look(context)?;
        port::check(port.into())?;
        at(object, index)?;
        // SAFETY: NULL, or the program's variable.
        *unsafe { out.as_mut() }.ok_or(libc::EINVAL)? = SYSFS_ROCE_V2;
        Ok(())
    })())
}

/// Queries the partition key at this index of the table, in network order.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_pkey(
    context: *mut IbvContext,
    port: u8,
    index: c_int,
    out: *mut u16,
) -> c_int {
    errno::minus_one((|| {
        context::look(context)?;
        port::check(port.into())?;
        if index != 0 {
            return Err(libc::EINVAL);
        }
        // SAFETY: NULL, or the program's variable.
        *unsafe { out.as_mut() }.ok_or(libc::EINVAL)? = PKEY.to_be();
        Ok(())
    })())
}

/// Returns the index of a partition key, which is in network order, or -1 if the table does not contain it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_pkey_index(context: *mut IbvContext, port: u8, pkey: u16) -> c_int {
    let result = context::look(context)
        .and_then(|_| port::check(port.into()))
        .and_then(|()| if pkey == PKEY.to_be() { Ok(()) } else { Err(libc::ENOENT) });
    errno::minus_one(result)
}
