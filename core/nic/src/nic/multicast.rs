//! Multicast groups: attaching queue pairs, and delivering received packets to the members.

use remora_memory::Mem;
use remora_transport::state::Service;
use remora_wire::frame::Address;
use remora_wire::{Qpn, packet};

use super::Nic;
use crate::arrived::Arrived;
use crate::config::NicError;
use crate::multicast::MULTICAST_QPN;

impl Nic {
    /// Attaches a UD queue pair to a multicast group.
    pub(crate) fn attach_multicast(&mut self, number: Qpn, group: Address) -> Result<(), NicError> {
        let index = self.index(number).ok_or(NicError::Unknown)?;
        let service = self.qps[index as usize].as_ref().map(|qp| qp.id().service);
        if service != Some(Service::Ud) {
            return Err(NicError::NotThisService);
        }
        self.shared.objects_mut().groups.attach(group, number)
    }

    /// Processes a packet whose queue pair does not exist: a multicast packet, or one to be dropped.
    #[cold]
    #[inline(never)]
    pub(crate) fn receive_for_many(
        &mut self,
        mem: Mem<'_>,
        arrived: &Arrived<'_>,
        packet: &packet::View<'_>,
    ) {
        let to_group = packet.bth.dest_qp().get() == MULTICAST_QPN
            && packet.bth.opcode().service() == Some(remora_wire::Service::Ud);
        let place = arrived
            .destination()
            .filter(|_| to_group)
            .and_then(|group| self.shared.objects().groups.of(group));
        let Some(place) = place else {
            self.shared.counters_mut().unknown_qp += 1;
            return;
        };
        let mut index = 0;
        let mut taken = false;
        while let Some(number) = self.shared.objects().groups.member(place, index) {
            index += 1;
            let Some(place) = self.index(number) else { continue };
            let (Some(qp), shared) = (&mut self.qps[place as usize], &mut self.shared) else { continue };
            if !qp.admits_unreliable(arrived, packet, shared) {
                continue;
            }
            taken = true;
            qp.take_unreliable(mem, arrived, packet, shared);
            self.attend(place);
        }
        if taken {
            self.shared.received(arrived.transport.len());
        }
    }
}
