//! The capabilities of this machine for ports, found without touching an interface: whether opening one is
//! allowed, and which modes the drivers support.

use super::bpf;
use super::interface::Interface;
use super::netlink::{Netlink, errno};
use super::options::OpenError;
use super::program;
use super::socket::{Sizes, Socket};
use super::umem::Umem;
use netlink_packet_core::{NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NlasIterator, parse_u16};
use netlink_sys::SocketAddr;
use netlink_sys::protocols::NETLINK_GENERIC;
use rustix::io::Errno;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};

/// An Ethernet interface that is up, with the capabilities of its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The interface's name, index and addresses.
    pub interface: Interface,
    /// Capabilities of the driver; `None` if the kernel does not report them (before 6.3).
    pub driver: Option<Driver>,
}

/// The XDP capabilities of a driver.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Driver {
    /// The driver runs programs itself; otherwise the kernel runs them after the driver.
    pub native: bool,
    /// The driver can use a program's memory without copies.
    pub zero_copy: bool,
}

/// Tries all steps of opening a port that need no interface, and returns the interfaces of this network
/// namespace on which a port could be opened.
///
/// # Errors
/// The error with which opening a port would fail here.
pub fn probe() -> Result<Vec<Candidate>, OpenError> {
    let umem = Umem::map(64, 2048).map_err(OpenError::Memory)?;
    let (socket, _rings) = Socket::new(&umem, Sizes { receive: 64, send: 0 })?;
    let map = bpf::map_of_sockets(1).map_err(super::attachment::no_map)?;
    bpf::put_socket(&map, 0, socket.as_fd())
        .map_err(|errno| OpenError::Os("putting the socket into its map", errno))?;
    let code = program::steer(Ipv4Addr::LOCALHOST.into(), 4791, map.as_raw_fd());
    bpf::load(&code).map_err(super::attachment::not_loaded)?;
    let mut netlink = Netlink::open(&[]).map_err(|errno| OpenError::Os("opening netlink", errno))?;
    let mut drivers = Drivers::open().ok();
    let with_driver = |interface: Interface| {
        let driver = drivers.as_mut().and_then(|drivers| drivers.of(interface.index).ok());
        Candidate { interface, driver }
    };
    Ok(Interface::all(&mut netlink)?.into_iter().map(with_driver).collect())
}

/// The kernel's generic netlink family `netdev` (Linux 6.3).
struct Drivers {
    socket: netlink_sys::Socket,
    family: u16,
}

/// Length of the generic header in bytes: command, version, two reserved.
const HEADER: usize = 4;
/// The family `nlctrl`, which resolves the names of other families.
const CONTROL: u16 = 0x10;

impl Drivers {
    fn open() -> Result<Drivers, Errno> {
        let mut socket = netlink_sys::Socket::new(NETLINK_GENERIC).map_err(|error| errno(&error))?;
        socket.bind_auto().map_err(|error| errno(&error))?;
        let mut drivers = Drivers { socket, family: CONTROL };
        // CTRL_CMD_GETFAMILY with CTRL_ATTR_FAMILY_NAME; the answer contains CTRL_ATTR_FAMILY_ID.
        let id = drivers.ask(3, 2, b"netdev\0", 1)?;
        drivers.family = parse_u16(&id).map_err(|_| Errno::BADMSG)?;
        Ok(drivers)
    }

    /// Returns a driver's capabilities: NETDEV_CMD_DEV_GET with NETDEV_A_DEV_IFINDEX; the answer contains
    /// NETDEV_A_DEV_XDP_FEATURES.
    fn of(&mut self, index: u32) -> Result<Driver, Errno> {
        const NATIVE: u8 = 1;
        const ZERO_COPY: u8 = 1 << 3;
        let features = self.ask(1, 1, &index.to_ne_bytes(), 3)?;
        let features = <[u8; 8]>::try_from(features).map_err(|_| Errno::BADMSG)?;
        let features = u64::from_ne_bytes(features) as u8;
        Ok(Driver { native: features & NATIVE != 0, zero_copy: features & ZERO_COPY != 0 })
    }

    /// Sends a request with one attribute, and returns the value of the attribute `wanted` from the answer.
    fn ask(&mut self, command: u8, with: u16, value: &[u8], wanted: u16) -> Result<Vec<u8>, Errno> {
        let attribute = 4 + value.len();
        let mut body = vec![command, 1, 0, 0];
        body.extend((attribute as u16).to_ne_bytes());
        body.extend(with.to_ne_bytes());
        body.extend(value);
        body.resize(HEADER + attribute.next_multiple_of(4), 0);
        let mut header = NetlinkHeader::default();
        header.length = (16 + body.len()) as u32;
        header.message_type = self.family;
        header.flags = NLM_F_REQUEST;
        let mut question = vec![0; 16];
        netlink_packet_core::Emitable::emit(&header, &mut question);
        question.extend(body);
        self.socket.send_to(&question, &SocketAddr::new(0, 0), 0).map_err(|error| errno(&error))?;
        let (answer, _) = self.socket.recv_from_full().map_err(|error| errno(&error))?;
        let answer = NetlinkBuffer::new_checked(&answer[..]).map_err(|_| Errno::BADMSG)?;
        if answer.message_type() != self.family {
            return Err(Errno::NOENT);
        }
        let attributes = answer.payload().get(HEADER..).ok_or(Errno::BADMSG)?;
        let mut nlas = NlasIterator::new(attributes).filter_map(Result::ok);
        nlas.find(|nla| nla.kind() == wanted).map(|nla| nla.value().to_vec()).ok_or(Errno::NOENT)
    }
}
