//! The parts of an interface that a port uses, created in the only order in which nothing is ever half
//! done: first the sockets, then the map that leads to them, last the program, with which frames begin to
//! arrive. They are dropped in the reverse order, or by the kernel when the process ends.

use super::bpf::{self, Mode};
use super::interface::Interface;
use super::netlink::Netlink;
use super::options::{OpenError, Options};
use super::program;
use super::queue::Queue;
use super::umem;
use remora_wire::ethernet;
use remora_wire::frame::Endpoint;
use rustix::io::Errno;
use rustix::net::sockopt;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Sockets on the queues of an interface, and the program that directs our frames to them. Frames begin at
/// the Ethernet header; the sender writes all of it.
#[derive(Debug)]
pub struct Attachment {
    /// Attaches the program to the interface; dropped first.
    _link: OwnedFd,
    mode: Mode,
    queues: Vec<Queue>,
    interface: Interface,
    endpoint: Endpoint,
    /// Keeps kernel sockets from using the UDP port, so that the kernel does not answer peers with "port
    /// unreachable".
    _reservation: UdpSocket,
}

impl Attachment {
    /// Attaches to interface `name` of this network namespace, for UDP datagrams to `address` and the port
    /// in `options`. `address` must be one of the interface's; `None` chooses its first.
    ///
    /// # Errors
    /// [`OpenError`]: a message of one line with the problem and its solution. Nothing is left behind then.
    pub fn open(name: &str, address: Option<IpAddr>, options: &Options) -> Result<Attachment, OpenError> {
        options.check()?;
        let mut netlink = Netlink::open(&[]).map_err(|errno| OpenError::Os("opening netlink", errno))?;
        let (interface, address) = Interface::settled(&mut netlink, name, address)?;
        let reservation = reserve(address, options.udp_port, interface.index)?;
        let queues = open_queues(&interface, options)?;
        let map = bpf::map_of_sockets(queues.len() as u32).map_err(no_map)?;
        for queue in &queues {
            bpf::put_socket(&map, queue.number(), queue.as_fd())
                .map_err(|errno| OpenError::Os("putting the socket into its map", errno))?;
        }
        let code = program::steer(address, options.udp_port, map.as_raw_fd());
        // The program keeps the map alive.
        let program = bpf::load(&code).map_err(not_loaded)?;
        let (link, mode) = attach(&program, &interface, options.mode)?;
        let endpoint = Endpoint { address: address.into(), udp_port: options.udp_port };
        Ok(Attachment { _link: link, mode, queues, interface, endpoint, _reservation: reservation })
    }

    /// Returns the mode in which the interface runs the program.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the interface, as it was when the port was opened.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Returns the address and UDP port whose frames are received.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// Returns the queues, indexed by their numbers. Only the first has chunks for frames to send.
    pub fn queues(&mut self) -> &mut [Queue] {
        &mut self.queues
    }

    pub(super) fn all(&self) -> &[Queue] {
        &self.queues
    }

    /// Returns the first queue, which is the only one that sends.
    #[inline(always)]
    pub fn sender(&mut self) -> &mut Queue {
        // `open` fails if there is no first queue, so the index is valid.
        &mut self.queues[0]
    }
}

/// Converts the error of creating a map.
pub(super) fn no_map(errno: Errno) -> OpenError {
    match errno {
        Errno::PERM => OpenError::NoRight("making a BPF map"),
        Errno::INVAL | Errno::NOSYS => OpenError::NoKernelSupport("BPF map for AF_XDP"),
        other => OpenError::Os("making a BPF map", other),
    }
}

/// Converts the error of loading a program.
pub(super) fn not_loaded(errno: Errno) -> OpenError {
    match errno {
        Errno::PERM => OpenError::NoRight("loading an XDP program"),
        other => OpenError::Os("loading the XDP program", other),
    }
}

fn open_queues(interface: &Interface, options: &Options) -> Result<Vec<Queue>, OpenError> {
    let chunk = umem::chunk_for(interface.mtu + ethernet::LEN);
    let mut queues = Vec::new();
    for number in 0..options.max_queues.max(1) {
        match Queue::open(interface.index, &interface.name, number, chunk, number == 0, options)? {
            Some(queue) => queues.push(queue),
            None => break,
        }
    }
    Ok(queues)
}

/// Attaches the program in the requested mode, or in the first that works.
fn attach(
    program: &OwnedFd,
    interface: &Interface,
    wanted: Option<Mode>,
) -> Result<(OwnedFd, Mode), OpenError> {
    let mut refused = Errno::OPNOTSUPP;
    let modes = match wanted {
        Some(mode) => &[mode][..],
        None => &[Mode::Native, Mode::Generic],
    };
    for mode in modes {
        match bpf::attach(program, interface.index, *mode) {
            Ok(link) => return Ok((link, *mode)),
            Err(Errno::BUSY | Errno::EXIST) => return Err(OpenError::OtherProgram(interface.name.clone())),
            Err(Errno::PERM) => return Err(OpenError::NoRight("attaching an XDP program")),
            Err(errno) => refused = errno,
        }
    }
    Err(match wanted {
        Some(mode) => OpenError::NoMode(mode, refused),
        // Both modes are refused as unknown to the kernel.
        None if refused == Errno::INVAL => OpenError::NoKernelSupport("links for XDP programs"),
        None => OpenError::Os("attaching the XDP program", refused),
    })
}

/// Reserves the UDP port of the address, so that no other kernel socket gets it.
fn reserve(address: IpAddr, port: u16, interface: u32) -> Result<UdpSocket, OpenError> {
    let address: SocketAddr = match address {
        IpAddr::V4(address) => SocketAddrV4::new(address, port).into(),
        IpAddr::V6(address) => SocketAddrV6::new(address, port, 0, interface).into(),
    };
    // A child process that is being started still holds our last socket until it calls exec.
    let bind = || UdpSocket::bind(address).map_err(|error| super::netlink::errno(&error));
    let socket = super::patiently(Errno::ADDRINUSE, bind).map_err(|errno| match errno {
        Errno::ADDRINUSE => OpenError::PortTaken(address.ip(), port),
        Errno::ACCESS => OpenError::NoRight("using this UDP port"),
        other => OpenError::Os("reserving the UDP port", other),
    })?;
    // Frames that bypass the program are of no use, so the socket buffers as few of them as possible.
    let _ = sockopt::set_socket_recv_buffer_size(&socket, 1);
    Ok(socket)
}
