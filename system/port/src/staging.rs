//! The buffer in which a wrapper examines a frame before it is sent: the frame is written here, then copied
//! into the port.

use remora_wire::frame::{Class, Egress, IpFields, Lease, Peer, Start};
use remora_wire::{icrc, rma};

/// The IPv4 identification that frames are sealed with until the port assigns another.
const STAGED_ID: u16 = 0;

/// Returns whether this packet, which begins after the UDP header, ends with an ICRC. A message of 1RMA
/// ends with its tag instead.
pub(crate) fn has_icrc(transport: &[u8]) -> bool {
    !transport.first().is_some_and(|byte| rma::begins(*byte))
}

/// Copies a frame that is sealed for identification 0 into the port and commits it there. Returns the
/// identification that the frame is sent with; `None` if the port has no space now.
pub fn forward<P: Egress>(port: &mut P, header: Addressed, bytes: &[u8]) -> Option<u16> {
    let peer = header.peer;
    port.mark(header.fields);
    let reseals = port.seals(peer) && port.start(peer) == Start::Bth;
    let lease = port.lend(peer, Class::default(), bytes.len())?;
    let ip_id = lease.ip_id;
    lease.bytes.copy_from_slice(bytes);
    if reseals {
        reseal(lease.bytes, ip_id);
    }
    port.commit();
    Some(ip_id)
}

/// Changes the ICRC at the end of `bytes` (BTH to ICRC) from identification 0 to `ip_id`. The CRC is
/// linear, so only the length of the frame is needed. Does nothing to a packet without an ICRC.
pub(crate) fn reseal(bytes: &mut [u8], ip_id: u16) {
    if !has_icrc(bytes) {
        return;
    }
    let Some(covered) = bytes.len().checked_sub(icrc::LEN) else { return };
    if ip_id != STAGED_ID
        && let Some(sealed) = icrc::read(bytes)
    {
        icrc::write(&mut bytes[covered..], sealed ^ icrc::delta(ip_id, covered));
    }
}

/// The peer that a frame is sent to, and the fields of its IP header.
#[derive(Copy, Clone, Debug)]
pub struct Addressed {
    /// The peer.
    pub peer: Peer,
    /// The fields.
    pub fields: IpFields,
}

/// A buffer for one frame in front of a port.
#[derive(Debug, Default)]
pub struct Staging {
    bytes: Vec<u8>,
    len: usize,
    peer: Option<Peer>,
    /// IP header fields of the lent frame. `next_fields` are those of frames that are lent later.
    fields: IpFields,
    next_fields: IpFields,
}

impl Staging {
    /// Sets the IP header fields of the frames that are lent from now on.
    pub fn mark(&mut self, fields: IpFields) {
        self.next_fields = fields;
    }

    /// Lends a buffer for a frame of `len` bytes to `peer`. A previous lease that was not taken is
    /// discarded. Allocates only if the frame is longer than all previous ones.
    pub fn lend(&mut self, peer: Peer, len: usize) -> Lease<'_> {
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
        (self.peer, self.len, self.fields) = (Some(peer), len, self.next_fields);
        Lease { bytes: &mut self.bytes[..len], ip_id: STAGED_ID }
    }

    /// Takes the frame of the last lease. Each lease can be taken once.
    pub fn take(&mut self) -> Option<(Addressed, &mut [u8])> {
        let peer = self.peer.take()?;
        Some((Addressed { peer, fields: self.fields }, &mut self.bytes[..self.len]))
    }

    /// Reverts [`Staging::take`], because the port had no space.
    pub fn put_back(&mut self, header: Addressed) {
        self.peer = Some(header.peer);
        self.fields = header.fields;
    }
}
