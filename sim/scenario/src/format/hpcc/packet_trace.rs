//! HPCC's binary packet trace (`.tr`): a header that lists the ports, then records of 56 bytes. All numbers
//! are little-endian.

/// Size of one record, in bytes.
pub const RECORD: usize = 56;

/// A port as listed in the header of a trace.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TracedPort {
    /// Number of the node.
    pub node: u16,
    /// Interface of the node, from 1.
    pub interface: u8,
    /// Link rate, in bit/s.
    pub rate: u64,
}

/// Encodes the header of a trace. `window` is the send window of the hosts, in bytes.
pub fn header(ports: &[TracedPort], window: u32) -> Vec<u8> {
    let mut bytes = (ports.len() as u32).to_le_bytes().to_vec();
    for port in ports {
        bytes.extend(port.node.to_le_bytes());
        bytes.push(port.interface);
        bytes.extend(port.rate.to_le_bytes());
    }
    bytes.extend(window.to_le_bytes());
    bytes
}

/// The event that a record reports.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The packet arrived at the node.
    Receive = 0,
    /// The packet was added to an egress queue.
    Enqueue = 1,
    /// The packet left an egress queue.
    Dequeue = 2,
    /// The packet was dropped.
    Drop = 3,
}

/// The kind of a packet, with the fields that only this kind has.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A data packet.
    Data {
        /// UDP source port, then UDP destination port.
        ports: [u16; 2],
        /// Offset of the packet's first byte in the flow.
        sequence: u32,
        /// Time at which the sender sent the packet, in ns.
        sent: u64,
        /// Traffic class (priority).
        class: u16,
        /// Payload of the packet, in bytes.
        payload: u16,
    },
    /// An ACK or NACK.
    Ack {
        /// True for a NACK: the receiver is missing a packet.
        is_nack: bool,
        /// UDP source port, then UDP destination port.
        ports: [u16; 2],
        /// Flag bits. Bit 0 echoes an ECN mark.
        flags: u16,
        /// Traffic class (priority).
        class: u16,
        /// Offset of the next byte that the receiver expects.
        sequence: u32,
        /// Time at which the acknowledged packet was sent, in ns.
        sent: u64,
    },
    /// A PFC pause or resume frame.
    Pfc {
        /// Pause time in quanta; 0 resumes.
        time: u32,
        /// Length of the queue that caused the frame, in bytes.
        length: u32,
        /// Traffic class that the frame pauses or resumes.
        class: u8,
    },
    /// A congestion notification packet of DCQCN.
    Cnp,
}

impl Packet {
    /// Returns the protocol number of the packet's kind, as a record stores it.
    pub fn protocol(&self) -> u8 {
        match self {
            Packet::Data { .. } => 0x11,
            Packet::Ack { is_nack: false, .. } => 0xfc,
            Packet::Ack { is_nack: true, .. } => 0xfd,
            Packet::Pfc { .. } => 0xfe,
            Packet::Cnp => 0xff,
        }
    }
}

/// A record of a trace: one event of one packet at one port.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Time of the event, in ns.
    pub time: u64,
    /// Number of the node.
    pub node: u16,
    /// Interface of the node, from 1.
    pub interface: u8,
    /// Egress queue, which is the traffic class.
    pub queue: u8,
    /// Length of that queue, in bytes.
    pub length: u32,
    /// IPv4 address of the source, as made by [`super::outputs::address`].
    pub source: u32,
    /// IPv4 address of the destination.
    pub destination: u32,
    /// Size of the packet, in bytes.
    pub size: u16,
    /// Event that happened at the port.
    pub event: Event,
    /// ECN field of the IP header.
    pub ecn: u8,
    /// True if the node is a switch.
    pub is_switch: bool,
    /// Kind of the packet and the fields of that kind.
    pub packet: Packet,
}

impl Record {
    /// Encodes the record. Bytes that the packet's kind does not use are 0.
    pub fn bytes(&self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        let mut put =
            |offset: usize, field: &[u8]| bytes[offset..offset + field.len()].copy_from_slice(field);
        put(0, &self.time.to_le_bytes());
        put(8, &self.node.to_le_bytes());
        put(10, &[self.interface, self.queue]);
        put(12, &self.length.to_le_bytes());
        put(16, &self.source.to_le_bytes());
        put(20, &self.destination.to_le_bytes());
        put(24, &self.size.to_le_bytes());
        put(26, &[self.packet.protocol(), self.event as u8, self.ecn, u8::from(self.is_switch)]);
        match self.packet {
            Packet::Data { ports: [sport, dport], sequence, sent, class, payload } => {
                put(32, &sport.to_le_bytes());
                put(34, &dport.to_le_bytes());
                put(36, &sequence.to_le_bytes());
                put(40, &sent.to_le_bytes());
                put(48, &class.to_le_bytes());
                put(50, &payload.to_le_bytes());
            }
            Packet::Ack { ports: [sport, dport], flags, class, sequence, sent, .. } => {
                put(32, &sport.to_le_bytes());
                put(34, &dport.to_le_bytes());
                put(36, &flags.to_le_bytes());
                put(38, &class.to_le_bytes());
                put(40, &sequence.to_le_bytes());
                put(48, &sent.to_le_bytes());
            }
            Packet::Pfc { time, length, class } => {
                put(32, &time.to_le_bytes());
                put(36, &length.to_le_bytes());
                put(40, &[class]);
            }
            Packet::Cnp => {}
        }
        bytes
    }
}
