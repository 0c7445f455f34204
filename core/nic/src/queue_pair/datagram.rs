//! Datagrams that arrive at a queue pair.

use remora_memory::Mem;
use remora_transport::{Notice, ud};
use remora_wire::{Qpn, packet};

use super::QueuePair;
use crate::arrived::Arrived;
use crate::datagram::{GRH, grh};
use crate::gather;
use crate::receive_queue::Receive;
use crate::request::{CompletionKind, NetworkType, Status as CompletionStatus, WorkCompletion};
use crate::shared::Shared;

impl QueuePair {
    /// Delivers a datagram, or drops it.
    pub(crate) fn take_datagram(
        &mut self,
        mem: Mem<'_>,
        arrived: &Arrived<'_>,
        packet: &packet::View<'_>,
        qkey: u32,
        shared: &mut Shared,
    ) {
        let Some((notice, source)) = ud::receive(packet, qkey) else {
            shared.counters_mut().qkey_viol_cntr += 1;
            return;
        };
        if self.queues.current.is_none() {
            self.queues.current = self.take_receive(shared);
        }
        let Some(receive) = self.queues.current else {
            shared.counters_mut().out_of_buffer += 1;
            shared.counters_mut().rx_dropped_messages += 1;
            return;
        };
        let grh = grh(arrived, shared.properties().endpoint);
        let put = |offset, data: &[u8]| {
            gather::deliver_outlined(mem, self.receive_pd(), &self.queues.receive, &receive, offset, data)
        };
        // The payload is written first: if it does not fit, no memory changes.
        if let Err(too_long) = put(GRH as u32, packet.payload).and_then(|()| put(0, &grh)) {
            shared.counters_mut().rx_dropped_messages += 1;
            self.undelivered_quietly(&receive, too_long, shared);
            return;
        }
        self.queues.current = None;
        shared.counters_mut().rx_send_requests += 1;
        let network = if arrived.source.address.is_ipv4() { NetworkType::Ipv4 } else { NetworkType::Ipv6 };
        self.delivered(&receive, &notice, source, network, shared);
    }

    fn delivered(
        &mut self,
        receive: &Receive,
        notice: &Notice,
        source: Qpn,
        network: NetworkType,
        shared: &mut Shared,
    ) {
        let completion = WorkCompletion {
            kind: CompletionKind::Receive,
            byte_len: notice.len + GRH as u32,
            imm: notice.imm,
            src_qp: source.get(),
            grh: Some(network),
            ..self.received(receive, CompletionStatus::Success)
        };
        self.complete_receive(receive, completion, notice.solicited, shared);
    }
}
