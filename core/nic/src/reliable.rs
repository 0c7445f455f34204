//! The common interface of the two requesters of a reliable connection, go-back-N and IRN. Functions over
//! [`ReliableRequester`] are compiled once for each.

use remora_transport::rc::prism::Extended;
use remora_transport::rc::{self, Message, Progress, Reaction, Retired, irn};
use remora_transport::{Counters, Instant, Status};
use remora_wire::{Extensions, Qpn, bth, packet};

use crate::context::WqeContext;
use crate::machine::{Connection, Machine};
use crate::path::PeerPath;

/// A planned request packet, without its payload.
pub(crate) trait PlannedRequest {
    /// Returns the BTH for this queue pair of the peer.
    fn bth(&self, remote: Qpn) -> bth::Repr;
    /// Returns the extension headers.
    fn ext(&self) -> &Extensions;
    /// Returns the offset of the payload in the message.
    fn offset(&self) -> u32;
    /// Returns the length of the payload in bytes.
    fn payload_len(&self) -> u32;
    /// Returns true if the packet requests an acknowledgement.
    fn asks_for_ack(&self) -> bool;
}

macro_rules! planned_request {
    ($plan:ty) => {
        impl PlannedRequest for $plan {
            #[inline(always)]
            fn bth(&self, remote: Qpn) -> bth::Repr {
                bth::Repr {
                    solicited: self.solicited,
                    ack_req: self.ack_req,
                    pad: packet::pad_for(self.len as usize),
                    ..bth::Repr::new(self.opcode, remote, self.psn)
                }
            }
            #[inline(always)]
            fn ext(&self) -> &Extensions {
                &self.ext
            }
            #[inline(always)]
            fn offset(&self) -> u32 {
                self.offset
            }
            #[inline(always)]
            fn payload_len(&self) -> u32 {
                self.len
            }
            #[inline(always)]
            fn asks_for_ack(&self) -> bool {
                self.ack_req
            }
        }
    };
}

planned_request!(rc::Plan);
planned_request!(irn::Plan);

/// A requester of a reliable connection.
pub(crate) trait ReliableRequester: Sized {
    /// The planned packet.
    type Plan: PlannedRequest;

    /// Returns the queue pair's requester of this kind, if it has one.
    fn of(machine: &mut Machine) -> Option<&mut Self>;
    /// Returns the requester with the path to the peer.
    fn with_path(machine: &mut Machine) -> Option<(&mut PeerPath, &mut Self)>;
    /// Returns the number of messages in flight if another one may be submitted; otherwise `None`. At most
    /// `ahead` packets may be submitted ahead of transmission.
    fn may_submit(&self, ahead: u64) -> Option<usize>;
    /// Returns true if there is capacity for another message.
    fn has_capacity(&self) -> bool;
    /// Returns the number of the oldest message that has not ended, and that of the next message.
    fn numbers(&self) -> (u64, u64);
    /// Submits a message.
    fn submit(&mut self, message: Message<WqeContext>);
    /// Submits a PRISM operation.
    fn submit_prism(&mut self, message: Message<WqeContext>);
    /// Submits a message that cannot be executed.
    fn submit_failing(&mut self, message: Message<WqeContext>, status: Status);
    /// Plans the next packet; `None` if there is none or if it belongs to PRISM.
    fn plan(&mut self, now: Instant) -> Option<Self::Plan>;
    /// Plans the next packet if it belongs to a PRISM operation.
    fn plan_prism(&mut self, now: Instant) -> Option<(Self::Plan, Extended)>;
    /// Returns the context of the message of a planned packet.
    fn context(&self, plan: &Self::Plan) -> Option<&WqeContext>;
    /// Records that the packet of `plan` was sent.
    fn sent(&mut self, now: Instant, plan: &Self::Plan, counters: &mut Counters);
    /// Records that the packet of `plan_prism` was sent.
    fn sent_prism(&mut self, now: Instant, plan: &Self::Plan, counters: &mut Counters);
    /// Fails the message of a planned packet whose data could not be read from local memory.
    fn refuse(&mut self, plan: &Self::Plan, status: Status);
    /// Records that the peer has no buffer for the planned packet.
    fn blocked(&mut self, now: Instant);
    /// Returns the progress of the requester.
    fn progress(&self) -> Progress;
    /// Processes a response.
    fn receive(
        &mut self,
        now: Instant,
        packet: &packet::View<'_>,
        counters: &mut Counters,
    ) -> Reaction<WqeContext>;
    /// Ends message `number` with `status`, after all earlier messages have ended.
    fn fail(&mut self, number: u64, status: Status);
    /// Returns the next message that has ended.
    fn retire(&mut self) -> Option<Retired<WqeContext>>;
}

/// The go-back-N requester.
pub(crate) type GoBackN = rc::Requester<WqeContext>;
/// The IRN requester.
pub(crate) type Irn = irn::Requester<WqeContext>;

macro_rules! reliable_requester {
    ($requester:ty, $plan:ty, $submit_prism:ident, $sent_prism:ident, $machine:ident => $both:expr) => {
        impl ReliableRequester for $requester {
            type Plan = $plan;

            #[inline(always)]
            fn of(machine: &mut Machine) -> Option<&mut Self> {
                Self::with_path(machine).map(|(_, requester)| requester)
            }
            #[inline(always)]
            fn with_path($machine: &mut Machine) -> Option<(&mut PeerPath, &mut Self)> {
                $both
            }
            #[inline(always)]
            fn may_submit(&self, ahead: u64) -> Option<usize> {
                (self.has_capacity() && self.backlog() < ahead).then(|| self.outstanding())
            }
            #[inline]
            fn has_capacity(&self) -> bool {
                self.has_capacity()
            }
            fn numbers(&self) -> (u64, u64) {
                self.numbers()
            }
            #[inline(always)]
            fn submit(&mut self, message: Message<WqeContext>) {
                self.submit(message);
            }
            #[inline(always)]
            fn submit_prism(&mut self, message: Message<WqeContext>) {
                self.$submit_prism(message);
            }
            fn submit_failing(&mut self, message: Message<WqeContext>, status: Status) {
                self.submit_failing(message, status);
            }
            #[inline(always)]
            fn plan(&mut self, now: Instant) -> Option<$plan> {
                <$requester>::plan(self, now)
            }
            #[inline(always)]
            fn plan_prism(&mut self, now: Instant) -> Option<($plan, Extended)> {
                <$requester>::plan_prism(self, now)
            }
            #[inline(always)]
            fn context(&self, plan: &$plan) -> Option<&WqeContext> {
                self.context(plan)
            }
            #[inline(always)]
            fn sent(&mut self, now: Instant, plan: &$plan, counters: &mut Counters) {
                self.sent(now, plan, counters);
            }
            #[inline(always)]
            fn sent_prism(&mut self, now: Instant, plan: &$plan, counters: &mut Counters) {
                self.$sent_prism(now, plan, counters);
            }
            #[inline(always)]
            fn refuse(&mut self, plan: &$plan, status: Status) {
                self.refuse(plan, status);
            }
            #[inline(always)]
            fn blocked(&mut self, now: Instant) {
                self.blocked(now);
            }
            #[inline(always)]
            fn progress(&self) -> Progress {
                self.progress()
            }
            #[inline(always)]
            fn receive(
                &mut self,
                now: Instant,
                packet: &packet::View<'_>,
                counters: &mut Counters,
            ) -> Reaction<WqeContext> {
                self.receive(now, packet, counters)
            }
            fn fail(&mut self, number: u64, status: Status) {
                self.fail(number, status);
            }
            #[inline(always)]
            fn retire(&mut self) -> Option<Retired<WqeContext>> {
                self.retire()
            }
        }
    };
}

reliable_requester!(GoBackN, rc::Plan, submit_prism, sent, machine => {
    let Connection { path, requester, .. } = machine.rc_mut()?;
    Some((path, requester))
});
reliable_requester!(Irn, irn::Plan, submit, sent_prism, machine => {
    let irn = machine.irn_mut()?;
    Some((&mut irn.path, &mut irn.requester))
});
