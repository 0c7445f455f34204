//! A command: 64 bytes, as a program writes them into the ring of its portal (`docs/reference/wire/rma.md`
//! draws them).
//!
//! | byte | contents |
//! | ---- | -------- |
//! | 0 | op 8 (0 read, 1 write, 2 rekey), class 8, size 16, slot 16, completion queue 16 |
//! | 8 | local RegionId 32, remote RegionId 32 |
//! | 16 | first byte in the local region 64 |
//! | 24 | first byte in the remote region 48, UDP port of the server 16 |
//! | 32 | address of the server 128, as a GID |
//! | 48 | K_d 128: the derived key |
//!
//! All numbers are little-endian; address and key are bytes in order. Four stores of 16 bytes write it, then
//! the ring's producer index publishes it, alone or with others.

use remora_wire::frame::{Address, Endpoint};
use remora_wire::rma::{Class, Kind, MAX_OPERATION};

use super::cipher::KEY_LEN;
use crate::wqe::SLOT;

/// Largest offset in a remote region: 48 bits.
const MAX_OFFSET: u64 = (1 << 48) - 1;

/// A command of a program.
#[derive(Clone, PartialEq, Eq)]
pub struct Command {
    /// Read, write or rekey.
    pub kind: Kind,
    /// Class of service.
    pub class: Class,
    /// Size in bytes: 1 to 4096; 16 for a rekey.
    pub size: u32,
    /// Slot that the command occupies until it completes.
    pub slot: u16,
    /// Number of the completion queue of the portal.
    pub cq: u16,
    /// Local data: the target of a read, the source of a write or rekey.
    pub local: Operand,
    /// Data at the server.
    pub remote: Operand,
    /// Address and UDP port of the server.
    pub server: Endpoint,
    /// Derived key K_d for this initiator, the remote region and this kind.
    pub key: [u8; KEY_LEN],
}

/// A location in a region.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Operand {
    /// RegionId of the server's region.
    pub region: u32,
    /// Offset in the region.
    pub offset: u64,
}

/// The error of a command whose encoding is invalid.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Slot of the command.
    pub slot: u16,
}

impl Command {
    /// Returns the encoded command. Remote offsets above 48 bits are replaced by the largest offset, which is
    /// beyond every region.
    pub fn bytes(&self) -> [u8; SLOT] {
        let mut out = [0; SLOT];
        out[0] = self.kind as u8 & 7;
        out[1] = self.class as u8;
        out[2..4].copy_from_slice(&(self.size.min(u32::from(u16::MAX)) as u16).to_le_bytes());
        out[4..6].copy_from_slice(&self.slot.to_le_bytes());
        out[6..8].copy_from_slice(&self.cq.to_le_bytes());
        out[8..12].copy_from_slice(&self.local.region.to_le_bytes());
        out[12..16].copy_from_slice(&self.remote.region.to_le_bytes());
        out[16..24].copy_from_slice(&self.local.offset.to_le_bytes());
        let remote = self.remote.offset.min(MAX_OFFSET) | u64::from(self.server.udp_port) << 48;
        out[24..32].copy_from_slice(&remote.to_le_bytes());
        out[32..48].copy_from_slice(&self.server.address.0);
        out[48..].copy_from_slice(&self.key);
        out
    }

    /// Parses a private copy of a command, which the program can no longer change.
    ///
    /// # Errors
    /// [`Malformed`]: the op, class or size is invalid.
    pub fn parse(bytes: &[u8; SLOT]) -> Result<Command, Malformed> {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |index: usize| u64::from_le_bytes(words[index]);
        let head = word(0);
        let slot = (head >> 32) as u16;
        let kind = match head as u8 {
            0 => Kind::Read,
            1 => Kind::Write,
            2 => Kind::Rekey,
            _ => return Err(Malformed { slot }),
        };
        let class = match (head >> 8) as u8 {
            0 => Class::Latency,
            1 => Class::Bulk,
            _ => return Err(Malformed { slot }),
        };
        let size = u32::from((head >> 16) as u16);
        let fits = match kind {
            Kind::Rekey => size as usize == KEY_LEN,
            _ => (1..=MAX_OPERATION).contains(&size),
        };
        if !fits {
            return Err(Malformed { slot });
        }
        let regions = word(1);
        let remote = word(3);
        let mut address = [0; 16];
        address.copy_from_slice(&bytes[32..48]);
        let mut key = [0; KEY_LEN];
        key.copy_from_slice(&bytes[48..]);
        Ok(Command {
            kind,
            class,
            size,
            slot,
            cq: (head >> 48) as u16,
            local: Operand { region: regions as u32, offset: word(2) },
            remote: Operand { region: (regions >> 32) as u32, offset: remote & MAX_OFFSET },
            server: Endpoint { address: Address(address), udp_port: (remote >> 48) as u16 },
            key,
        })
    }
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Command { kind, class, size, slot, cq, local, remote, server, .. } = self;
        f.debug_struct("Command")
            .field("kind", kind)
            .field("class", class)
            .field("size", size)
            .field("slot", slot)
            .field("cq", cq)
            .field("local", local)
            .field("remote", remote)
            .field("server", server)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        Command {
            kind: Kind::Write,
            class: Class::Bulk,
            size: 4096,
            slot: 0x0102,
            cq: 0x0304,
            local: Operand { region: 5, offset: 0x0607_0809_0a0b_0c0d },
            remote: Operand { region: 0xe, offset: 0x0f10_1112_1314 },
            server: Endpoint { address: Address([0x15; 16]), udp_port: 0x1617 },
            key: [0x18; KEY_LEN],
        }
    }

    #[test]
    fn literal_bytes() {
        let bytes = command().bytes();
        let head = [1, 1, 0, 0x10, 2, 1, 4, 3, 5, 0, 0, 0, 0xe, 0, 0, 0];
        assert_eq!(bytes[..16], head);
        assert_eq!(bytes[16..24], [0xd, 0xc, 0xb, 0xa, 9, 8, 7, 6]);
        assert_eq!(bytes[24..32], [0x14, 0x13, 0x12, 0x11, 0x10, 0xf, 0x17, 0x16]);
        assert_eq!((&bytes[32..48], &bytes[48..]), (&[0x15; 16][..], &[0x18; 16][..]));
        assert_eq!(Command::parse(&bytes), Ok(command()));
    }

    #[test]
    fn other_ops_classes_and_sizes_are_malformed_and_say_their_slot() {
        for (offset, value) in [(0, 3), (0, 0xff), (1, 2), (2, 1), (3, 0), (0, 2)] {
            let mut bytes = command().bytes();
            bytes[offset] = value;
            assert_eq!(Command::parse(&bytes), Err(Malformed { slot: 0x0102 }), "byte {offset} is {value}");
        }
        assert_eq!(Command::parse(&[0; SLOT]), Err(Malformed { slot: 0 }), "no bytes");
    }

    #[test]
    fn its_key_is_not_printed() {
        let printed = format!("{:?}", command());
        assert!(!printed.contains("24, 24") && !printed.contains("0x18"), "{printed}");
    }
}
