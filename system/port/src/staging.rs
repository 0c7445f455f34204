//! A buffer in which a wrapper sees a frame before it leaves: the frame is written here, then copied into the
//! port.

use remora_wire::frame::{Class, Egress, IpFields, Lease, Peer, Start};
use remora_wire::{icrc, rma};

/// The IPv4 identification that frames are sealed with before the port assigns theirs.
const STAGED_ID: u16 = 0;

/// Does an ICRC end this packet, which begins behind UDP? A message of 1RMA ends with its tag.
pub(crate) fn has_icrc(transport: &[u8]) -> bool {
    !transport.first().is_some_and(|byte| rma::begins(*byte))
}

/// Copies a frame that is sealed for identification 0 into the port and commits it there. Returns the
/// identification it leaves with; `None`: the port has no space now.
pub(crate) fn forward<P: Egress>(port: &mut P, to: Addressed, bytes: &[u8]) -> Option<u16> {
    let peer = to.peer;
    port.mark(to.fields);
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

/// Changes the ICRC at the end of `bytes` (BTH to ICRC) from identification 0 to `ip_id`. The CRC is linear,
/// so only the length of the frame is needed. Without an ICRC nothing changes.
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

/// Where a frame goes, and the fields of its IP header.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Addressed {
    pub peer: Peer,
    pub fields: IpFields,
}

/// A buffer for one frame in front of a port.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    bytes: Vec<u8>,
    len: usize,
    peer: Option<Peer>,
    /// Fields of the frame that is lent, and of the next ones.
    fields: IpFields,
    next_fields: IpFields,
}

impl Staging {
    /// Chooses the IP header's fields of the frames that are lent from now on.
    pub(crate) fn mark(&mut self, fields: IpFields) {
        self.next_fields = fields;
    }

    /// A buffer for a frame of `len` bytes to `peer`. An earlier lease that was not taken is forgotten.
    /// Allocates only when a frame is longer than any before.
    pub(crate) fn lend(&mut self, peer: Peer, len: usize) -> Lease<'_> {
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
        (self.peer, self.len, self.fields) = (Some(peer), len, self.next_fields);
        Lease { bytes: &mut self.bytes[..len], ip_id: STAGED_ID }
    }

    /// The frame of the last lease; each lease is taken once.
    pub(crate) fn take(&mut self) -> Option<(Addressed, &mut [u8])> {
        let peer = self.peer.take()?;
        Some((Addressed { peer, fields: self.fields }, &mut self.bytes[..self.len]))
    }

    /// Takes back [`Staging::take`]: the port had no space.
    pub(crate) fn put_back(&mut self, to: Addressed) {
        self.peer = Some(to.peer);
        self.fields = to.fields;
    }
}
