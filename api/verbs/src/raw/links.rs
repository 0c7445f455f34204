//! Links to neighbours, which are programs on the same address. A connection gets its link on the way to
//! RTR.

use remora_nic::{AddressVector, Modify, PeerFrames, Service};
use remora_port::Peer;
use remora_transport::state::State;
use remora_wire::Qpn;

use super::ChannelAdapter;
use super::introduce::{Links, NoLink};
use crate::CreateError;

impl ChannelAdapter {
    /// Chooses the link of a connection whose address vector is about to be set, and enters the link's peer
    /// in `change`. Returns the peer, which the caller must release when the connection no longer uses it.
    pub(super) fn choose_link(
        &self,
        service: Service,
        dest_qp: Option<Qpn>,
        change: &mut Modify,
    ) -> Result<Option<Peer>, CreateError> {
        let (Some(links), Some(address), Some(dest_qp)) = (self.links(), &mut change.address, dest_qp) else {
            return Ok(None);
        };
        if service == Service::Ud {
            return Ok(None);
        }
        match self.link_to(links, address, dest_qp) {
            Ok((peer, window)) => {
                address.peer = peer;
                address.accepts = PeerFrames::Link;
                if change.state == Some(State::Rtr) {
                    change.window = window;
                }
                Ok(Some(peer))
            }
            Err(NoLink::Refused(_)) if !links.demanded => Ok(None),
            Err(NoLink::Refused(why) | NoLink::Failed(why)) => Err(CreateError::Unreachable(why)),
        }
    }

    /// Returns the peer that stands for a link to this queue pair, with one user more, and the link's window.
    fn link_to(
        &self,
        links: &Links,
        address: &AddressVector,
        dest_qp: Qpn,
    ) -> Result<(Peer, Option<u32>), NoLink> {
        let source = address.route.source;
        let destination = address.route.destination;
        if destination.address != source.address || destination.udp_port != self.facts().endpoint.udp_port {
            let why =
                format!("{destination} is no neighbour: a link leads only to programs on this NIC's address");
            return Err(NoLink::Refused(why));
        }
        let range = dest_qp.range();
        let find = || self.use_neighbour(range);
        if let Some(link) = find() {
            return Ok(link);
        }
        (links.introduce)(range)?;
        find().ok_or_else(|| NoLink::Failed(format!("the link to QPN range {range} has ended")))
    }
}
