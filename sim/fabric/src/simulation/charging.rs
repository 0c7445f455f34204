//! What a frame is charged on links and in buffers.

use remora_wire::{irn, packet};

/// Bytes that a frame takes on a link.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Charging {
    /// Its own, and those of Ethernet: preamble 8, header 14, check sequence 4, gap 12; 84 at least.
    #[default]
    Ethernet,
    /// Those of ns-3's HPCC and ConWeave: payload and 48, acknowledgements 60. Times on links are whole
    /// nanoseconds, rounded down.
    Ns3,
    /// Those of htsim: payload and 64, acknowledgements 64.
    Htsim,
    /// Ethernet's, as if all packets had plain headers: what a transport adds to them costs nothing.
    Ideal,
}

/// Preamble, header, check sequence and gap of Ethernet.
const ETHERNET: u16 = 38;
/// The shortest frame with preamble and gap.
const ETHERNET_LEAST: u16 = 84;
/// IPv4 and UDP headers.
const BELOW: u16 = 28;
/// BTH and ICRC; AETH.
const TRANSPORT: u16 = 16;
const AETH: u16 = 4;

impl Charging {
    /// What a frame that begins at its IPv4 header is charged. `irn`: it has IRN's additions.
    #[inline]
    pub fn charge(self, frame: &[u8], irn: bool) -> u16 {
        match self {
            Charging::Ethernet => (frame.len() as u16 + ETHERNET).max(ETHERNET_LEAST),
            _ => match payload(frame, irn) {
                0 => self.acknowledgement(),
                len => self.full(len as u32),
            },
        }
    }

    /// What a data packet with so much payload is charged. One with further headers is charged more.
    pub fn full(self, payload: u32) -> u16 {
        let payload = payload as u16;
        match self {
            Charging::Ethernet | Charging::Ideal => {
                (payload + BELOW + TRANSPORT + ETHERNET).max(ETHERNET_LEAST)
            }
            Charging::Ns3 => payload + 48,
            Charging::Htsim => payload + 64,
        }
    }

    /// What an acknowledgement is charged.
    pub fn acknowledgement(self) -> u16 {
        match self {
            Charging::Ethernet | Charging::Ideal => (BELOW + TRANSPORT + AETH + ETHERNET).max(ETHERNET_LEAST),
            Charging::Ns3 => 60,
            Charging::Htsim => 64,
        }
    }

    /// Are times on links whole nanoseconds?
    pub fn is_whole_ns(self) -> bool {
        self == Charging::Ns3
    }
}

/// Bytes of data in a frame.
fn payload(frame: &[u8], irn: bool) -> usize {
    let Ok(view) = packet::View::new(frame.get(usize::from(BELOW)..).unwrap_or_default()) else { return 0 };
    let additions = if irn { irn::Additions::split(&view).ok() } else { None };
    additions.map_or(view.payload.len(), |(_, payload)| payload.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kilobyte_in_four_ways() {
        let all = [Charging::Ethernet, Charging::Ns3, Charging::Htsim, Charging::Ideal];
        assert_eq!(all.map(|charging| charging.full(1000)), [1082, 1048, 1064, 1082]);
        assert_eq!(all.map(|charging| charging.full(1)), [84, 49, 65, 84]);
        assert_eq!(all.map(Charging::acknowledgement), [86, 60, 64, 86]);
    }
}
