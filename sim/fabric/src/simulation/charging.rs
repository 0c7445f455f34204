//! What a frame is charged on links and in buffers.

use remora_wire::packet;

/// Bytes that a frame takes on a link beyond what the NIC wrote.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Charging {
    /// Those of Ethernet: preamble 8, header 14, check sequence 4, gap 12. A frame takes 84 at least.
    #[default]
    Ethernet,
    /// Those of ns-3's HPCC and ConWeave: payload and 48, acknowledgements 60.
    Ns3,
    /// Those of htsim: payload and 64, acknowledgements 64.
    Htsim,
}

/// Preamble, header, check sequence and gap of Ethernet.
const ETHERNET: u16 = 38;
/// The shortest frame with preamble and gap.
const ETHERNET_LEAST: u16 = 84;
/// IPv4 and UDP headers.
const BELOW: usize = 28;

impl Charging {
    /// What a frame that begins at its IPv4 header is charged.
    #[inline]
    pub fn charge(self, frame: &[u8]) -> u16 {
        match self {
            Charging::Ethernet => (frame.len() as u16 + ETHERNET).max(ETHERNET_LEAST),
            Charging::Ns3 => Charging::by_payload(frame, 48, 60),
            Charging::Htsim => Charging::by_payload(frame, 64, 64),
        }
    }

    fn by_payload(frame: &[u8], header: u16, control: u16) -> u16 {
        let transport = frame.get(BELOW..).unwrap_or_default();
        match packet::View::new(transport) {
            Ok(view) if !view.payload.is_empty() => view.payload.len() as u16 + header,
            _ => control,
        }
    }
}
