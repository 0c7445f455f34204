//! Address handles, and address vectors made from a GID and its index.

use remora_abi::device::IbvGid;
use remora_abi::objects::{IbvAh, IbvContext, IbvPd, IbvWc};
use remora_abi::queue_pair::{IbvAhAttr, IbvGlobalRoute};
use remora_abi::work::IbvGrh;
use remora_broker::GidEntry;
use remora_verbs::raw::Ah;
use remora_verbs::{Address, AddressVector, GRH, GlobalRoute};
use std::ffi::c_int;

use crate::context::ContextObject;
use crate::handles::{self, Kind, Object};
use crate::{context, errno, gid, pd, port};

/// An address handle.
#[repr(C)]
pub(crate) struct AhObject {
    verbs: IbvAh,
    pub raw: Ah,
}

impl Object for AhObject {
    type C = IbvAh;
    const KIND: Kind = Kind::Ah;
}

/// Hop limit if the program sets none.
const HOPS: u8 = 64;

/// Resolves an address vector. RoCE requires a GID in it.
pub(crate) fn resolve(view: &ContextObject, attr: &IbvAhAttr) -> Result<AddressVector, c_int> {
    let IbvGlobalRoute { dgid, sgid_index, hop_limit, traffic_class, .. } = attr.grh;
    if attr.is_global == 0 {
        return Err(libc::EINVAL);
    }
    port::check(attr.port_num.into())?;
    let source = gid::source(view, sgid_index.into())?;
    let destination = gid::endpoint(&dgid);
    if !destination.address.is_host() && !destination.address.is_multicast() {
        return Err(libc::EINVAL);
    }
    let hops = if hop_limit == 0 { HOPS } else { hop_limit };
    view.nic.adapter.address_vector_from(source, destination, traffic_class, hops).map_err(errno::of_create)
}

/// Creates an address handle.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_ah(pd: *mut IbvPd, attr: *mut IbvAhAttr) -> *mut IbvAh {
    // SAFETY: NULL, or the program's attributes.
    errno::pointer(unsafe { attr.as_ref() }.ok_or(libc::EINVAL).and_then(|attr| create(pd, attr)))
}

fn create(pd: *mut IbvPd, attr: &IbvAhAttr) -> Result<*mut IbvAh, c_int> {
    let domain = pd::look(pd)?;
    let view = context::look(domain.verbs.context)?;
    let address = resolve(view, attr)?;
    let raw = Ah::create(&view.nic.adapter, domain.pd, &address).map_err(errno::of_create)?;
    let verbs = IbvAh { context: domain.verbs.context, pd, handle: raw.number() };
    Ok(handles::give(Box::new(AhObject { verbs, raw })))
}

/// Destroys an address handle.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_ah(ah: *mut IbvAh) -> c_int {
    errno::number((|| {
        handles::look::<AhObject>(ah)?.raw.destroy().map_err(errno::of_create)?;
        handles::take::<AhObject>(ah).map(drop)
    })())
}

/// The flag `IBV_WC_GRH` of a completion.
const WITH_GRH: u32 = 1;

/// Returns the address vector that leads back to the sender of a datagram.
fn back(
    context: *mut IbvContext,
    port: u8,
    wc: *const IbvWc,
    grh: *const IbvGrh,
) -> Result<IbvAhAttr, c_int> {
    let view = context::look(context)?;
    port::check(port.into())?;
    // SAFETY: NULL, or the program's completion.
    let wc = unsafe { wc.as_ref() }.ok_or(libc::EINVAL)?;
    if grh.is_null() || wc.wc_flags & WITH_GRH == 0 {
        return Err(libc::EINVAL);
    }
    // SAFETY: these bytes precede the datagram, and are as many as a GRH has.
    let bytes = unsafe { &*grh.cast::<[u8; GRH]>() };
    let route = GlobalRoute::parse(bytes).ok_or(libc::EINVAL)?;
    let is_own = |(_, entry): &(u32, GidEntry)| Address::from(entry.ip) == route.destination;
    let sgid_index = match view.nic.port.gids().iter().find(|gid| is_own(gid)) {
        Some((index, _)) => *index as u8,
        // A datagram to a group is answered from the first address of the same family.
        None if route.destination.is_multicast() => gid::first_like(view, &route.source)?,
        None => return Err(libc::EINVAL),
    };
    let grh = IbvGlobalRoute {
        dgid: IbvGid { raw: route.source.0 },
        flow_label: 0,
        sgid_index,
        hop_limit: HOPS,
        traffic_class: 0,
    };
    Ok(IbvAhAttr {
        grh,
        dlid: wc.slid,
        sl: wc.sl,
        src_path_bits: wc.dlid_path_bits,
        static_rate: 0,
        is_global: 1,
        port_num: port,
    })
}

/// Fills in an address vector that leads back to the sender of a datagram.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut IbvContext,
    port: u8,
    wc: *mut IbvWc,
    grh: *mut IbvGrh,
    out: *mut IbvAhAttr,
) -> c_int {
    errno::minus_one((|| {
        // SAFETY: NULL, or the program's structure.
        *unsafe { out.as_mut() }.ok_or(libc::EINVAL)? = back(context, port, wc, grh)?;
        Ok(())
    })())
}

/// Creates an address handle that leads back to the sender of a datagram.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut IbvPd,
    wc: *mut IbvWc,
    grh: *mut IbvGrh,
    port: u8,
) -> *mut IbvAh {
    errno::pointer((|| {
        let attr = back(pd::look(pd)?.verbs.context, port, wc, grh)?;
        create(pd, &attr)
    })())
}
