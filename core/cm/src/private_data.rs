//! Private data: the bytes that programs pass to each other within CM messages.

use remora_wire::mad::ip_cm;

/// Size in bytes of the longest private data field, that of an RTU or DREP.
const MAX_PRIVATE: usize = 224;

/// The private data of a message. It has no length on the wire: it is as long as the message's field, with
/// zeros after the bytes that the peer's program sent.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct PrivateData {
    bytes: [u8; MAX_PRIVATE],
    len: u8,
}

impl PrivateData {
    /// No private data: the event was not caused by a message.
    pub const NONE: PrivateData = PrivateData { bytes: [0; MAX_PRIVATE], len: 0 };

    /// Copies the private data field of a message.
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

/// Builds the private data field of a message: the header of annex A11, if present, followed by the
/// program's bytes. The caller has checked that both fit.
pub(crate) fn field<const N: usize>(ip: Option<ip_cm::Repr>, data: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    let header = ip.map_or(0, |ip| {
        ip.emit(&mut field);
        ip_cm::LEN
    });
    field[header..][..data.len()].copy_from_slice(data);
    field
}
