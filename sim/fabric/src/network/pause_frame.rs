//! PFC (IEEE 802.1Qbb): pause frames, their duration, and the headroom that they require.

use super::port::CLASSES;

/// Bit times per pause quantum.
const QUANTUM_BITS: u64 = 512;

/// The PFC settings of a network.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PauseConfig {
    /// Mask of the classes that are paused rather than dropped.
    pub classes: u8,
    /// Duration of a pause.
    pub lasts: Lasts,
    /// Time from the arrival of a pause frame until the port starts no further packet, in picoseconds.
    pub reaction: u64,
    /// Bytes that a pause frame occupies on a link. With 0 it takes no time and overtakes a packet that is
    /// being sent.
    pub charge: u16,
}

/// The duration of a pause.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Lasts {
    /// This many quanta of 512 bit times, as in 802.1Qbb. After half of this time another frame is sent if
    /// the reason persists.
    Quanta(u16),
    /// This many picoseconds. Another frame is sent for each packet that arrives while the sender is paused.
    Picos(u64),
    /// Until a resume frame arrives.
    UntilResume,
}

impl Default for PauseConfig {
    /// Class 3 with the longest pause of 802.1Qbb, without reaction time.
    fn default() -> PauseConfig {
        PauseConfig { classes: 1 << 3, lasts: Lasts::Quanta(u16::MAX), reaction: 0, charge: 84 }
    }
}

impl PauseConfig {
    /// Returns the duration of a pause in picoseconds on a link of `rate` bit/s.
    pub fn length(&self, rate: u64) -> u64 {
        match self.lasts {
            Lasts::Quanta(quanta) => crate::engine::transmission(u64::from(quanta) * QUANTUM_BITS / 8, rate),
            Lasts::Picos(ps) => ps,
            Lasts::UntilResume => u64::MAX,
        }
    }

    /// Returns the headroom of a link: the number of bytes of one class that may still arrive after its
    /// buffer became full.
    ///
    /// The headroom consists of the packet that does not fit, the packets that arrive while the pause frame
    /// waits for a packet of `mtu` bytes, is sent and crosses the link, the packet that the sender has just
    /// started, and the packets on the link at that time. The reaction time counts like propagation delay.
    pub fn headroom(&self, rate: u64, delay: u64, mtu: u32) -> u32 {
        let on_the_way = u128::from(2 * delay + self.reaction) * u128::from(rate);
        let bytes = on_the_way.div_ceil(8_000_000_000_000) as u32;
        let wait = if self.charge == 0 { 0 } else { mtu + u32::from(self.charge) };
        bytes + 2 * mtu + wait
    }
}

/// The contents of a pause frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PauseFrame {
    /// Mask of the classes that the frame names.
    pub classes: u8,
    /// Duration of the pause in quanta; 0 resumes.
    pub quanta: u16,
}

impl PauseFrame {
    /// Packs the contents into 32 bits, for [`Packet::hash`](super::Packet::hash).
    #[inline]
    pub fn pack(self) -> u32 {
        u32::from(self.classes) << 16 | u32::from(self.quanta)
    }

    /// Unpacks the contents from 32 bits.
    #[inline]
    pub fn unpack(bits: u32) -> PauseFrame {
        PauseFrame { classes: (bits >> 16) as u8, quanta: bits as u16 }
    }

    /// Writes the Ethernet frame without FCS: MAC control, opcode 0x0101, class-enable vector and eight times
    /// (802.1Qbb, clause 31B).
    pub fn emit(self, source_mac: [u8; 6]) -> [u8; 60] {
        let mut frame = [0; 60];
        frame[..6].copy_from_slice(&[0x01, 0x80, 0xc2, 0, 0, 0x01]);
        frame[6..12].copy_from_slice(&source_mac);
        frame[12..14].copy_from_slice(&0x8808_u16.to_be_bytes());
        frame[14..16].copy_from_slice(&0x0101_u16.to_be_bytes());
        frame[16..18].copy_from_slice(&u16::from(self.classes).to_be_bytes());
        for class in (0..CLASSES).filter(|class| self.classes & 1 << class != 0) {
            frame[18 + 2 * class..20 + 2 * class].copy_from_slice(&self.quanta.to_be_bytes());
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quanta_are_512_bit_times() {
        let config = PauseConfig::default();
        assert_eq!(config.length(100_000_000_000), 65_535 * 5_120);
        assert_eq!(config.length(10_000_000_000), 65_535 * 51_200);
        assert_eq!(PauseConfig { lasts: Lasts::Picos(5_000_000), ..config }.length(1), 5_000_000);
    }

    #[test]
    fn headroom_is_two_delays_three_packets_and_the_frame() {
        // 2 us at 100 Gb/s: 25,000 bytes.
        assert_eq!(PauseConfig::default().headroom(100_000_000_000, 1_000_000, 1_100), 25_000 + 3_300 + 84);
        let slow = PauseConfig { reaction: 80_000, ..PauseConfig::default() };
        assert_eq!(slow.headroom(100_000_000_000, 1_000_000, 1_100), 26_000 + 3_300 + 84);
    }

    #[test]
    fn a_frame_names_classes_and_their_quanta() {
        let frame = PauseFrame { classes: 0b1000_1000, quanta: 0x1234 };
        assert_eq!(PauseFrame::unpack(frame.pack()), frame);
        let bytes = frame.emit([2, 0, 0, 0, 0, 9]);
        assert_eq!(bytes[..18], [1, 128, 194, 0, 0, 1, 2, 0, 0, 0, 0, 9, 0x88, 8, 1, 1, 0, 0x88]);
        assert_eq!(bytes[18..34], [0, 0, 0, 0, 0, 0, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0x12, 0x34]);
        assert!(bytes[34..].iter().all(|byte| *byte == 0));
    }
}
