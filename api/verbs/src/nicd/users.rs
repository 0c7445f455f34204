//! The limits of the users of a lent NIC, for the daemon's ledger.

use remora_host::users::Bound;
pub(super) use remora_host::users::{Amounts, Claim, Resource, User, Users};

use super::options::Options;
use crate::Device;

/// Returns the limits of all kinds of objects that a daemon lends.
pub fn bounds(device: &Device, options: &Options) -> Vec<Bound> {
    let config = device.of_daemon();
    let limits = &options.limits;
    let nic = &config.nic;
    let bound = |kind, noun, option: &str, of_a_user: usize| {
        let remedy = match option {
            "" => "wait for one".to_owned(),
            option => format!(
                "give some back, end kept tenants by `remora nic end`, or start `remora serve nic` with a larger --{option}"
            ),
        };
        Bound::new(kind, noun, remedy).of_a_user(of_a_user as u64)
    };
    let slots = u64::from(options.rma.slots);
    let attachments = options.attachments;
    vec![
        bound(Resource::Greeting, "programs that attach at the moment", "attachments", attachments),
        bound(Resource::Attachment, "programs attached", "attachments", attachments),
        bound(Resource::Name, "kept tenants", "tenants", options.tenants),
        bound(Resource::Domain, "protection domains", "domains", limits.domains),
        bound(Resource::Region, "regions", "regions", limits.regions)
            .places(config.memory.max_regions as u64),
        bound(Resource::Queue, "completion queues", "queues", limits.queues).places(nic.max_cqs.into()),
        bound(Resource::Channel, "completion channels", "channels", limits.channels),
        bound(Resource::Pair, "queue pairs", "pairs", limits.pairs).places(nic.max_qps.into()),
        bound(Resource::Kernel, "kernels", "kernels", limits.kernels).places(nic.max_kernels.into()),
        bound(Resource::FreeList, "free lists", "free-lists", limits.free_lists)
            .places(nic.max_free_lists.into()),
        bound(Resource::Byte, "bytes of regions and queues", "memory", usize::MAX).of_a_user(limits.bytes),
        bound(Resource::Negotiation, "connections being set up", "", limits.negotiations),
        bound(Resource::SharedQueue, "shared receive queues", "", limits.queues).places(nic.max_srqs.into()),
        bound(Resource::XrcDomain, "XRC domains", "", limits.domains).places(nic.max_xrc_domains.into()),
        bound(Resource::AddressHandle, "address handles", "", limits.handles)
            .places(nic.max_address_handles.into()),
        bound(Resource::Window, "memory windows", "", limits.windows)
            .places(config.memory.max_windows as u64),
        bound(Resource::GroupMember, "memberships of multicast groups", "", limits.group_members)
            .places(nic.max_groups.into()),
        bound(Resource::Peer, "users of peers", "", limits.peers()),
        bound(Resource::Portal, "command portals", "rma-portals", limits.rma_portals).places(slots),
        bound(Resource::Slot, "command slots", "rma-slots", limits.rma_slots).places(slots),
        bound(
            Resource::LatencySlot,
            "slots of the latency class",
            "rma-latency-slots",
            limits.rma_latency_slots,
        ),
        bound(Resource::RmaRegion, "regions of 1RMA", "rma-regions", limits.rma_regions)
            .places(options.rma_regions.into()),
    ]
}

/// Descriptors of a daemon that belong to no user: the port's, the engine's, and of connections that have
/// sent no message.
const OWN: u64 = 128;
/// Descriptors of an attachment: the socket and the process, doorbells, wake-up and events with the copies of
/// the engine's thread.
const OF_ATTACHMENT: u64 = 8;
/// Descriptors of a link of shared memory: two rings, two wake-ups, and a socket.
pub(super) const OF_LINK: u64 = 5;

/// Returns the limit of the descriptors of a daemon.
pub(super) fn descriptors() -> Bound {
    let remedy =
        "give some regions, queues or channels back, or start `remora serve nic` where `ulimit -n` is larger";
    Bound::of_descriptors(remedy, OWN)
}

/// The amounts that a kept tenant holds without a program.
pub(super) fn kept_name() -> Amounts {
    Amounts::of(Resource::Name, 1).and(Resource::Descriptor, OF_ATTACHMENT - 2)
}

/// The amounts that an attached program holds by itself.
pub(super) fn attachment() -> Amounts {
    Amounts::of(Resource::Attachment, 1).and(Resource::Descriptor, OF_ATTACHMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_users_each_hold_all_that_a_user_may_by_default() {
        let users = [1000, 1001, 1002];
        let ledger = Users::new(users[0], &users[1..], bounds(&Device::shm(), &Options::default()));
        let limits = [
            (Resource::Greeting, 64),
            (Resource::Attachment, 64),
            (Resource::Name, 64),
            (Resource::Domain, 256),
            (Resource::Region, 1024),
            (Resource::Queue, 256),
            (Resource::Channel, 256),
            (Resource::Pair, 1024),
            (Resource::Kernel, 8),
            (Resource::FreeList, 64),
            (Resource::Byte, 4 << 30),
            (Resource::Negotiation, 64),
            (Resource::Portal, 16),
            (Resource::Slot, 256),
            (Resource::LatencySlot, 256),
            (Resource::RmaRegion, 1024),
        ];
        for (kind, amount) in limits {
            let _held = users.map(|uid| {
                let user = ledger.user(uid);
                let held = user.claim(Amounts::of(kind, amount)).unwrap();
                let words = user.claim(Amounts::of(kind, 1)).unwrap_err();
                assert!(words.contains(&format!("user {uid} may have")), "{words}");
                held
            });
        }
    }
}
