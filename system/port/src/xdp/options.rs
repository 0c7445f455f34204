//! The options of a port, and the errors of opening it.

use super::bpf::Mode;
use rustix::io::Errno;
use std::net::IpAddr;

use crate::address::Unfit;

/// The options of a port.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// UDP port of the NIC; RoCE's own is 4791.
    pub udp_port: u16,
    /// The mode in which the interface must run our program; `None` for native mode or, if the driver does
    /// not support it, generic mode.
    pub mode: Option<Mode>,
    /// Permission for the driver to use our memory without copies, if it can.
    pub zero_copy: bool,
    /// Number of frames that can wait on each queue to be received; a power of two, at least 64. When all
    /// are in use, the kernel drops further frames.
    pub receive_frames: u32,
    /// Number of frames that can wait to be sent; a power of two, at least 64.
    pub send_frames: u32,
    /// Maximum number of receive queues of the interface that are served; frames on other queues go to the
    /// kernel.
    pub max_queues: u32,
    /// Maximum number of peers.
    pub max_peers: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            udp_port: 4791,
            mode: None,
            zero_copy: true,
            receive_frames: 4096,
            send_frames: 2048,
            max_queues: 64,
            max_peers: 65_536,
        }
    }
}

/// The reason why a port could not be opened. The message is one line with the problem and its solution.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// No interface of this network namespace has this name.
    #[error("there is no interface {0} here: choose one that `ip link` lists")]
    NoInterface(String),
    /// The interface is not an Ethernet interface.
    #[error("{0} has no Ethernet frames: choose an Ethernet interface (for this host alone, port shm)")]
    NotEthernet(String),
    /// The interface is not up.
    #[error("{0} is down: run `ip link set {0} up` as root")]
    Down(String),
    /// The interface has no IP address.
    #[error(
        "{0} has no IP address, and a RoCE NIC needs one: run `ip address add 10.0.0.1/24 dev {0}` (with \
         an address of yours) as root"
    )]
    NoAddress(String),
    /// The interface does not have the requested address.
    #[error(
        "{address} is not an address of {interface}: choose one that `ip address show {interface}` lists"
    )]
    NotItsAddress {
        /// Name of the requested interface.
        interface: String,
        /// The requested address.
        address: IpAddr,
    },
    /// An address that a NIC cannot have.
    #[error("{0}")]
    Unfit(Unfit),
    /// A number of frames is not a power of two, or too small or too large.
    #[error(
        "invalid number of frames {0}: choose a power of two from 64 to {max_frames}",
        max_frames = MAX_FRAMES
    )]
    Frames(u32),
    /// The process lacks a right; the value names the action that was refused.
    #[error(
        "{0} is not allowed: port xdp needs root, or CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_IPC_LOCK \
         (run it with sudo, or `setcap cap_net_admin,cap_net_raw,cap_bpf,cap_ipc_lock+ep` the program); \
         port udp needs no rights"
    )]
    NoRight(&'static str),
    /// The kernel lacks AF_XDP, or links for XDP programs.
    #[error(
        "this kernel has no {0}: port xdp needs Linux 5.9 or later with CONFIG_XDP_SOCKETS; use port udp"
    )]
    NoKernelSupport(&'static str),
    /// Another program is attached to the interface.
    #[error(
        "another XDP program is attached to {0}: detach it (`ip link show {0}` names it, `ip link set {0} \
         xdp off` detaches it), or choose another interface"
    )]
    OtherProgram(String),
    /// Another socket uses this queue of the interface.
    #[error(
        "another AF_XDP socket has queue {queue} of {interface}: stop the program that opened it or \
         choose another interface"
    )]
    QueueTaken {
        /// Name of the requested interface.
        interface: String,
        /// Number of the receive queue.
        queue: u32,
    },
    /// A kernel socket uses the UDP port.
    #[error(
        "UDP port {1} on {0} is taken: stop the program that has it (`ss -ulpn 'sport = :{1}'` names it)"
    )]
    PortTaken(IpAddr, u16),
    /// The kernel has no memory, or must not lock it.
    #[error(
        "no memory for frames ({0}): raise the limit of locked memory (`ulimit -l unlimited`, or \
         CAP_IPC_LOCK), or choose fewer frames"
    )]
    Memory(Errno),
    /// The interface does not accept the program in the requested mode.
    #[error(
        "the interface accepts no XDP program in {mode} mode ({1}): leave the mode open",
        mode = if *.0 == Mode::Native { "native" } else { "generic" }
    )]
    NoMode(Mode, Errno),
    /// Another failure: the action and its errno.
    #[error("opening the xdp port failed in {0}: {1}")]
    Os(&'static str, Errno),
}

/// Maximum number of frames of a ring.
const MAX_FRAMES: u32 = 1 << 16;

impl Options {
    /// Checks that rings can have these numbers of frames.
    pub(super) fn check(&self) -> Result<(), OpenError> {
        for count in [self.receive_frames, self.send_frames] {
            if !count.is_power_of_two() || !(64..=MAX_FRAMES).contains(&count) {
                return Err(OpenError::Frames(count));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_frames_that_no_ring_has_are_refused() {
        for count in [0, 63, 96, 1 << 17] {
            let receive = Options { receive_frames: count, ..Options::default() };
            let send = Options { send_frames: count, ..Options::default() };
            assert_eq!(receive.check(), Err(OpenError::Frames(count)));
            assert_eq!(send.check(), Err(OpenError::Frames(count)));
        }
        let least = Options { receive_frames: 64, send_frames: 1 << 16, ..Options::default() };
        assert_eq!((least.check(), Options::default().check()), (Ok(()), Ok(())));
    }

    #[test]
    fn every_error_is_one_line_that_says_what_to_do() {
        let errors = [
            OpenError::NoInterface("eth9".to_owned()),
            OpenError::NotEthernet("lo".to_owned()),
            OpenError::Down("eth9".to_owned()),
            OpenError::NoAddress("eth9".to_owned()),
            OpenError::NotItsAddress { interface: "eth9".to_owned(), address: [10, 0, 0, 1].into() },
            OpenError::Frames(7),
            OpenError::NoRight("opening an AF_XDP socket"),
            OpenError::NoKernelSupport("AF_XDP"),
            OpenError::OtherProgram("eth9".to_owned()),
            OpenError::QueueTaken { interface: "eth9".to_owned(), queue: 3 },
            OpenError::PortTaken([10, 0, 0, 1].into(), 4791),
            OpenError::Memory(Errno::NOBUFS),
            OpenError::NoMode(Mode::Native, Errno::OPNOTSUPP),
        ];
        for error in errors {
            let text = error.to_string();
            assert!(!text.contains('\n') && text.contains(": "), "{text}");
            let mends = ["run ", "choose ", "use ", "raise ", "take ", "stop ", "leave "];
            assert!(mends.iter().any(|mend| text.contains(mend)), "{text}");
        }
    }
}
