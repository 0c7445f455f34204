//! Priority flow control (IEEE 802.1Qbb): pause frames, their quanta, and the headroom that they need.

use super::port::CLASSES;

/// Bit times of a quantum.
const QUANTUM_BITS: u64 = 512;

/// How ports pause each other.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PauseConfig {
    /// Classes that are paused rather than lost, a bit each.
    pub classes: u8,
    /// How long a pause frame pauses.
    pub lasts: Lasts,
    /// Picoseconds from a pause frame's arrival until no further packet begins.
    pub reaction: u64,
    /// Bytes that a pause frame is charged on a link. 0: it takes no time, and passes a packet that is
    /// leaving.
    pub charge: u16,
}

/// How long a pause frame pauses.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Lasts {
    /// So many quanta of 512 bit times, as 802.1Qbb has it. A frame follows after half of them while the
    /// reason lasts.
    Quanta(u16),
    /// So many picoseconds. Another frame is sent only when a packet comes.
    Picos(u64),
    /// Until a frame ends it.
    UntilResume,
}

impl Default for PauseConfig {
    /// Class 3, the longest pause of 802.1Qbb, and no reaction time.
    fn default() -> PauseConfig {
        PauseConfig { classes: 1 << 3, lasts: Lasts::Quanta(u16::MAX), reaction: 0, charge: 84 }
    }
}

impl PauseConfig {
    /// Picoseconds that a pause lasts on a link of `rate` bits a second.
    pub fn length(&self, rate: u64) -> u64 {
        match self.lasts {
            Lasts::Quanta(quanta) => crate::engine::transmission(u64::from(quanta) * QUANTUM_BITS / 8, rate),
            Lasts::Picos(ps) => ps,
            Lasts::UntilResume => u64::MAX,
        }
    }

    /// Bytes that may still come by a link in one class when its buffer has become full.
    ///
    /// These are the packet that does not fit; what comes while the pause frame waits for a packet of `mtu`
    /// bytes that is leaving, is sent itself and takes the link's delay; the packet that its receiver has
    /// just begun; and what is on the link by then. The reaction time counts like delay.
    pub fn headroom(&self, rate: u64, delay: u64, mtu: u32) -> u32 {
        let on_the_way = u128::from(2 * delay + self.reaction) * u128::from(rate);
        let bytes = on_the_way.div_ceil(8_000_000_000_000) as u32;
        let wait = if self.charge == 0 { 0 } else { mtu + u32::from(self.charge) };
        bytes + 2 * mtu + wait
    }
}

/// What a pause frame says: which classes, and whether it pauses or resumes them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PauseFrame {
    /// Classes that it names, a bit each.
    pub classes: u8,
    /// Quanta for each of them; 0 ends their pause.
    pub quanta: u16,
}

impl PauseFrame {
    /// In a descriptor's 32 bits.
    #[inline]
    pub fn pack(self) -> u32 {
        u32::from(self.classes) << 16 | u32::from(self.quanta)
    }

    /// From a descriptor's 32 bits.
    #[inline]
    pub fn unpack(bits: u32) -> PauseFrame {
        PauseFrame { classes: (bits >> 16) as u8, quanta: bits as u16 }
    }

    /// The Ethernet frame without its check sequence: MAC control, op-code 0x0101, the class-enable vector
    /// and eight times (802.1Qbb, clause 31B).
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
