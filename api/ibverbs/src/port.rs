//! The attributes of the port.

use remora_abi::device::{COMPAT_PORT_ATTR, IbvPortAttr};
use remora_abi::objects::IbvContext;
use remora_verbs::raw::ChannelAdapter;
use std::ffi::c_int;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;

use crate::context::{self, ContextObject};
use crate::nic::Nic;
use crate::{attributes, errno};

/// `IBV_PORT_DOWN`, and `IBV_PORT_ACTIVE`.
const DOWN: c_int = 1;
const ACTIVE: c_int = 4;
/// The MTU `IBV_MTU_4096`.
const MTU_4096: c_int = 5;
/// `IBV_PORT_CM_SUP` and `IBV_PORT_IP_BASED_GIDS`.
const CAPABILITIES: u32 = 1 << 16 | 1 << 26;
/// The width code of 4 lanes.
const WIDTH_4X: u8 = 2;
/// The speed code of EDR, 25 Gbit/s per lane, which is about the speed of loopback in software.
const SPEED_EDR: u8 = 32;
/// The port's speed in units of 100 Mbit/s.
const SPEED: u64 = 1000;
/// The physical states `Disabled` and `LinkUp`.
const DISABLED: u8 = 3;
const LINK_UP: u8 = 5;
/// The link layer `IBV_LINK_LAYER_ETHERNET`.
const ETHERNET: u8 = 2;
/// The flag `IBV_QPF_GRH_REQUIRED`.
const GRH_REQUIRED: u8 = 1;

/// Returns the code of a path MTU (`enum ibv_mtu`).
pub(crate) fn mtu_code(bytes: u32) -> c_int {
    (bytes.clamp(256, 4096).ilog2() - 7) as c_int
}

/// Returns the path MTU in bytes of a code.
pub(crate) fn mtu_bytes(code: c_int) -> Option<u32> {
    (1..=MTU_4096).contains(&code).then(|| 128 << code)
}

/// Returns EINVAL for any port number other than 1.
pub(crate) fn check(port: u32) -> Result<(), c_int> {
    if port == 1 { Ok(()) } else { Err(libc::EINVAL) }
}

/// Length of the IPv6 and UDP headers in bytes.
const HEADERS: usize = 48;

/// Returns the port's path MTU in bytes, which each address's interface can carry.
fn active_mtu(nic: &Nic) -> u32 {
    let mut interfaces: Vec<u32> = nic.port.gids().iter().map(|(_, entry)| entry.interface).collect();
    interfaces.sort_unstable();
    interfaces.dedup();
    let narrow = interfaces.into_iter().filter_map(interface_mtu).min();
    let own = nic.adapter.facts().path_mtu;
    narrow.map_or(own, |bytes| ChannelAdapter::path_mtu_of(bytes.saturating_sub(HEADERS)).min(own))
}

/// Returns the longest packet of an interface in bytes; `None` if it is unknown.
fn interface_mtu(index: u32) -> Option<usize> {
    // SAFETY: zeros are a valid value of the structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // SAFETY: the field has space for any interface name.
    if index == 0 || unsafe { libc::if_indextoname(index, request.ifr_name.as_mut_ptr()) }.is_null() {
        return None;
    }
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0));
    let socket = socket.or_else(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))).ok()?;
    // SAFETY: the kernel reads the name and writes the MTU, which is read afterwards.
    unsafe {
        let asked = libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request);
        (asked == 0).then(|| usize::try_from(request.ifr_ifru.ifru_mtu).ok()).flatten()
    }
}

fn describe(object: &ContextObject) -> IbvPortAttr {
    let (state, phys_state) = if object.nic.port.is_active() { (ACTIVE, LINK_UP) } else { (DOWN, DISABLED) };
    IbvPortAttr {
        state,
        max_mtu: MTU_4096,
        active_mtu: mtu_code(active_mtu(&object.nic)),
        gid_tbl_len: attributes::GIDS as c_int,
        port_cap_flags: CAPABILITIES,
        max_msg_sz: attributes::MAX_MESSAGE,
        bad_pkey_cntr: 0,
        qkey_viol_cntr: object.nic.adapter.counters().qkey_viol_cntr as u32,
        pkey_tbl_len: 1,
        lid: 0,
        sm_lid: 0,
        lmc: 0,
        max_vl_num: 1,
        sm_sl: 0,
        subnet_timeout: 0,
        init_type_reply: 0,
        active_width: WIDTH_4X,
        active_speed: SPEED_EDR,
        phys_state,
        link_layer: ETHERNET,
        flags: GRH_REQUIRED,
        port_cap_flags2: 0,
    }
}

/// Queries the attributes of a port, as many bytes as the caller knows.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut IbvContext,
    port: u8,
    out: *mut IbvPortAttr,
    capacity: usize,
) -> c_int {
    errno::number((|| {
        let object = context::look(context)?;
        check(port.into())?;
        if out.is_null() {
            return Err(libc::EINVAL);
        }
        context::copy_known(out, capacity, &describe(object));
        Ok(())
    })())
}

/// Like [`query_port`], for programs compiled before ports had more attributes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_port(
    context: *mut IbvContext,
    port: u8,
    out: *mut IbvPortAttr,
) -> c_int {
    // SAFETY: such a program has `COMPAT_PORT_ATTR` bytes there.
    unsafe { query_port(context, port, out, COMPAT_PORT_ATTR) }
}

/// Queries the speed of a port in units of 100 Mbit/s.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_port_speed(
    context: *mut IbvContext,
    port: u32,
    out: *mut u64,
) -> c_int {
    errno::number((|| {
        context::look(context)?;
        check(port)?;
        // SAFETY: NULL, or the program's variable.
        *unsafe { out.as_mut() }.ok_or(libc::EINVAL)? = SPEED;
        Ok(())
    })())
}
