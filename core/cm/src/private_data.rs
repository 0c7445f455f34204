//! Private data: what programs say to each other within messages.

use remora_wire::mad::ip_cm;

/// Bytes of the longest private data: of a RTU or DREP.
const MAX_PRIVATE: usize = 224;

/// The private data of a message. It has no length on the wire, so it is as long as the message's field, with
/// zeros behind what the peer's program said.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct PrivateData {
    bytes: [u8; MAX_PRIVATE],
    len: u8,
}

impl PrivateData {
    /// None: the event comes of no message.
    pub const NONE: PrivateData = PrivateData { bytes: [0; MAX_PRIVATE], len: 0 };

    /// A copy of a message's field.
    pub(crate) fn of(field: &[u8]) -> PrivateData {
        let mut data = PrivateData::NONE;
        let len = field.len().min(MAX_PRIVATE);
        data.bytes[..len].copy_from_slice(&field[..len]);
        data.len = len as u8;
        data
    }
}

impl std::ops::Deref for PrivateData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl std::fmt::Debug for PrivateData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PrivateData({} bytes)", self.len)
    }
}

/// The private data field of a message: the header of annex A11, if there is one, then what the program says.
/// Both fit, since the caller has looked.
pub(crate) fn field<const N: usize>(ip: Option<ip_cm::Repr>, said: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    let header = ip.map_or(0, |ip| {
        ip.emit(&mut field);
        ip_cm::LEN
    });
    field[header..][..said.len()].copy_from_slice(said);
    field
}
