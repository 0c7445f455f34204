//! The protocol between the bench and its peer: the commands and the addresses.
//!
//! The peer prints its [`PeerAddresses`] when it is ready. Then each command arrives as a line of JSON on
//! its standard input. The shared [`Page`](super::page::Page) shows that there is a command, and when it is
//! over.

use std::net::SocketAddr;

use remora_verbs::rma::Client;
use remora_wire::frame::Address;
use serde::{Deserialize, Serialize};

use super::page::Ticket;
use remora_options::device::PortName;

/// The size of the peer's memory that the bench reads and writes; it exceeds any cache.
pub(crate) const TARGET: usize = 64 << 20;

/// A command in the form in which it is sent to the peer.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Message {
    /// Number of the command.
    pub ticket: Ticket,
    /// Activity of the peer until the next command.
    pub command: Command,
}

/// Activity of the peer until the next command arrives.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Sleep, so that only the NICs use the core.
    Sleep,
    /// Answers on the cache line of the line measurement.
    Line,
    /// Answers each frame on the bare ring.
    Ring {
        /// The length of the answer in bytes.
        answer: usize,
    },
    /// Answers each raw UDP frame.
    Udp {
        /// The length of the answer in bytes.
        answer: usize,
        /// UDP port of the bench's socket.
        to: u16,
    },
    /// Receive a raw UDP stream.
    Stream {
        /// UDP port of the bench's socket.
        to: u16,
    },
    /// Receive raw UDP packets.
    Packets {
        /// The length of a packet in bytes.
        len: usize,
        /// UDP port of the bench's socket.
        to: u16,
    },
    /// Answers each raw AF_XDP frame.
    RawXdp {
        /// The length of the answer after its headers, in bytes.
        answer: usize,
        /// True if other code runs before each answer.
        works: bool,
    },
    /// Answers with the CPU time used so far, in nanoseconds.
    CpuTime,
    /// Answers with the resident memory in bytes.
    Resident,
    /// Carry out a command on one of the NICs.
    Nic {
        /// Port of the NIC.
        port: PortName,
        /// The NIC's command.
        command: NicCommand,
    },
    /// Carry out a command on many NICs of port udp.
    Incast(IncastCommand),
    /// Ends the peer process.
    Exit,
}

/// Activity of the peer with one of its NICs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NicCommand {
    /// Accept connections of the bench's NIC.
    Accept {
        /// Maximum number of outstanding READs of each connection.
        reads: u8,
        /// Extensions that each connection negotiates.
        extensions: Extensions,
    },
    /// Poll the NIC.
    Serve,
    /// Poll the NIC and accept connections meanwhile.
    ServeAndAccept {
        /// Maximum number of outstanding READs of each connection.
        reads: u8,
    },
    /// Closes all connections but the first.
    Forget,
    /// Answers messages of the first connection.
    Echo {
        /// The length of the answer in bytes.
        answer: usize,
    },
    /// Post used buffers for ALLOCATE again; their addresses are in the NIC's memory.
    Refill {
        /// Number of buffers.
        buffers: usize,
    },
    /// Answers calls over TCP from the memory of the NIC.
    Tcp,
    /// Carry out a command on the NIC's 1RMA.
    Rma(RmaCommand),
    /// Attach kernels to connections.
    Attach {
        /// True if the counting kernel processes the data that arrives on the first connection.
        counts: bool,
        /// Number of first reads per thousand that the consistency kernel on the second connection's READs
        /// reports as torn; `None` attaches no such kernel.
        checks: Option<u32>,
    },
}

/// Activity of the peer with the 1RMA of a NIC.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RmaCommand {
    /// Expose a region under a key and answer with its grant. The region that was in the same place is
    /// deregistered.
    Expose {
        /// Number of the place, 0 or 1.
        place: usize,
        /// Region key K_r.
        key: [u8; 16],
        /// Initiator that the grant is for.
        client: Initiator,
    },
    /// Grant a region over TLS. Answer with the address and the credentials as `Granting`.
    Granting,
}

/// Activity of the peer with its many NICs, from which the bench reads at the same time.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum IncastCommand {
    /// Opens the NICs, each with a region under this key. Answers with their UDP ports, 2 bytes each, and the
    /// TCP port of their connections.
    Open {
        /// Region key K_r of all regions.
        key: [u8; 16],
    },
    /// Accept a connection for each NIC.
    Accept,
    /// Poll all NICs.
    Serve,
}

/// An initiator of 1RMA, in the form in which the bench sends it to its peer.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Initiator {
    address: [u8; 16],
    pid: u32,
    incarnation: u32,
}

impl From<Client> for Initiator {
    fn from(Client { address, pid, incarnation }: Client) -> Initiator {
        Initiator { address: address.0, pid, incarnation }
    }
}

impl From<Initiator> for Client {
    fn from(Initiator { address, pid, incarnation }: Initiator) -> Client {
        Client { address: Address(address), pid, incarnation }
    }
}

/// Extensions that connections negotiate in addition to the plain verbs.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extensions {
    /// PRISM, and buffers for ALLOCATE.
    pub prism: bool,
    /// StRoM, and the kernels of its benchmark.
    pub strom: bool,
}

/// Addresses of the peer's NICs and sockets.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PeerAddresses {
    /// The address for connections to the NIC over shared memory.
    pub shm: SocketAddr,
    /// The address for connections to the NIC over UDP.
    pub udp: SocketAddr,
    /// Address of the raw UDP socket.
    pub raw: SocketAddr,
    /// Name of the bare ring's link.
    pub ring: String,
    /// The address for connections to the NIC over AF_XDP, at the far end of the veth pairs.
    pub xdp: Option<SocketAddr>,
    /// Address of the calls over TCP.
    pub tcp: SocketAddr,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_line_of_text_and_comes_back_as_it_went() {
        let attach = NicCommand::Attach { counts: false, checks: Some(100) };
        let accept = NicCommand::Accept { reads: 16, extensions: Extensions { prism: true, strom: false } };
        let nic = |command| Command::Nic { port: PortName::Xdp, command };
        let client = Initiator { address: [255; 16], pid: u32::MAX, incarnation: 1 };
        let expose = NicCommand::Rma(RmaCommand::Expose { place: 1, key: [255; 16], client });
        let open = Command::Incast(IncastCommand::Open { key: [7; 16] });
        let udp = Command::Udp { answer: 64, to: 4791 };
        for command in [Command::Sleep, udp, nic(attach), nic(accept), nic(expose), open] {
            let message = Message { ticket: Ticket::default().following(), command };
            let line = serde_json::to_string(&message).unwrap();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(serde_json::from_str::<Message>(&line).unwrap(), message);
        }
        assert!(serde_json::from_str::<Message>(r#"{"ticket":1,"command":"Dance"}"#).is_err());
    }
}
