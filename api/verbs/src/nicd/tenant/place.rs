//! The places of a tenant's objects.

use remora_nic::ObjectName;

/// A place among a tenant's objects, in the order in which they are destroyed: no object is in use then.
pub(super) type Place = (u8, u64);

pub(super) fn place(name: ObjectName) -> Place {
    match name {
        ObjectName::Portal(number) => (0, number.into()),
        ObjectName::Qp(qp) => (1, qp.get().into()),
        ObjectName::AddressHandle(number) => (2, number.into()),
        ObjectName::FreeList(number) => (3, number),
        ObjectName::Kernel(number) => (4, number.into()),
        ObjectName::Srq(srq) => (5, srq.get().into()),
        ObjectName::XrcDomain(number) => (6, number.into()),
        ObjectName::Cq(number) => (7, number.into()),
        ObjectName::Region(key) => (8, key.get().into()),
        ObjectName::Domain(pd) => (9, pd.get().into()),
        ObjectName::Peer(peer) => (10, peer.0.into()),
        ObjectName::Part(part) => (11, part.0.into()),
    }
}
