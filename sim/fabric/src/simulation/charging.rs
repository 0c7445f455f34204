//! The number of bytes that a frame occupies on links and in buffers.

use remora_wire::{irn, packet};

/// The rule by which frames are charged.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Charging {
    /// The frame with Ethernet's overhead: preamble 8, header 14, FCS 4, inter-frame gap 12; at least 84
    /// bytes.
    #[default]
    Ethernet,
    /// The rule of HPCC's and ConWeave's ns-3 programs: payload and 48 bytes, 60 bytes for an
    /// acknowledgement. Times on links are rounded down to whole nanoseconds.
    Ns3,
    /// The rule of htsim: payload and 64 bytes, 64 bytes for an acknowledgement.
    Htsim,
    /// Ethernet's rule, but as if all packets had the headers of plain RoCE v2: headers that a transport adds
    /// are free.
    Ideal,
}

/// Ethernet's preamble, header, FCS and inter-frame gap, in bytes.
const ETHERNET: u16 = 38;
/// Shortest Ethernet frame including preamble and gap, in bytes.
const ETHERNET_LEAST: u16 = 84;
/// Size of the IPv4 and UDP headers, in bytes.
const BELOW: u16 = 28;
/// Size of BTH and ICRC, and of an AETH, in bytes.
const TRANSPORT: u16 = 16;
const AETH: u16 = 4;

impl Charging {
    /// Returns the charge of a frame that begins at its IPv4 header. `irn` is true if the frame has IRN's
    /// additional headers.
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

    /// Returns the charge of a data packet with this payload. With [`Charging::Ethernet`], additional headers
    /// cost more.
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

    /// Returns the charge of an acknowledgement.
    pub fn acknowledgement(self) -> u16 {
        match self {
            Charging::Ethernet | Charging::Ideal => (BELOW + TRANSPORT + AETH + ETHERNET).max(ETHERNET_LEAST),
            Charging::Ns3 => 60,
            Charging::Htsim => 64,
        }
    }

    /// Returns true if times on links are whole nanoseconds.
    pub fn is_whole_ns(self) -> bool {
        self == Charging::Ns3
    }
}

/// Returns the number of data bytes in a frame.
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
