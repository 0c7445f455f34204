//! The `.tr` output: a header with the ports, then records of 56 bytes, all little-endian.

/// Bytes of one record.
pub const RECORD: usize = 56;

/// A port in the header of a trace.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TracedPort {
    /// Its node.
    pub node: u16,
    /// Its interface, from 1.
    pub interface: u8,
    /// Its rate, in bit/s.
    pub rate: u64,
}

/// The header: the ports, and the window of the hosts in bytes.
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

/// What befalls a packet at a port.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is received.
    Receive = 0,
    /// It enters a queue.
    Enqueue = 1,
    /// It leaves a queue.
    Dequeue = 2,
    /// It is dropped.
    Drop = 3,
}

/// What a packet is, and the fields that only its kind has.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Data.
    Data {
        /// Ports: source, then destination.
        ports: [u16; 2],
        /// Byte of the flow that it begins with.
        sequence: u32,
        /// When it was sent, in ns.
        sent: u64,
        /// Its class.
        class: u16,
        /// Bytes of the flow in it.
        payload: u16,
    },
    /// An ACK, or a NACK.
    Ack {
        /// Does it say that something is missing?
        is_nack: bool,
        /// Ports: source, then destination.
        ports: [u16; 2],
        /// Flags: bit 0 is the echo of a mark.
        flags: u16,
        /// Its class.
        class: u16,
        /// Byte that is expected next.
        sequence: u32,
        /// When the packet that it answers was sent, in ns.
        sent: u64,
    },
    /// A PFC frame.
    Pfc {
        /// Its quanta, 0 to resume.
        time: u32,
        /// Bytes of the queue that caused it.
        length: u32,
        /// The class that is paused.
        class: u8,
    },
    /// A CNP.
    Cnp,
}

impl Packet {
    /// The number of its protocol in a record.
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

/// One event of one packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// When, in ns.
    pub time: u64,
    /// Node of the port.
    pub node: u16,
    /// Interface of the port, from 1.
    pub interface: u8,
    /// Queue of the port: a class.
    pub queue: u8,
    /// Bytes in that queue.
    pub length: u32,
    /// Address of the source: see [`super::outputs::address`].
    pub source: u32,
    /// Address of the destination.
    pub destination: u32,
    /// Bytes of the packet.
    pub size: u16,
    /// What happens.
    pub event: Event,
    /// The two bits of ECN.
    pub ecn: u8,
    /// Is the node a switch?
    pub is_switch: bool,
    /// The packet.
    pub packet: Packet,
}

impl Record {
    /// The bytes of the record. Those that its kind does not use are 0.
    pub fn bytes(&self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
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
