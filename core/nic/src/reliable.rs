//! What the two requesters of a reliable connection have in common: go-back-N's and IRN's. Functions over
//! [`ReliableRequester`] are compiled once for each, so that neither pays for the other.

use remora_transport::rc::prism::Extended;
use remora_transport::rc::{self, Message, Progress, Reaction, Retired, irn};
use remora_transport::{Counters, Instant, Status};
use remora_wire::{Extensions, Qpn, bth, packet};

use crate::context::WqeContext;
use crate::machine::{Connection, Machine};
use crate::path::PeerPath;

/// A request packet that would leave now, but for its bytes.
pub(crate) trait PlannedRequest {
    /// Its BTH, to this queue pair of the peer.
    fn bth(&self, remote: Qpn) -> bth::Repr;
    /// Its extension headers.
    fn ext(&self) -> &Extensions;
    /// Where its payload starts in the message.
    fn offset(&self) -> u32;
    /// Bytes of its payload.
    fn payload_len(&self) -> u32;
    /// Does it ask for an acknowledgement?
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

/// A requester of a reliable connection, as the queue pair sees it.
pub(crate) trait ReliableRequester: Sized {
    /// Its plan of a packet.
    type Plan: PlannedRequest;

    /// The queue pair's, if it has one of this kind.
    fn of(machine: &mut Machine) -> Option<&mut Self>;
    /// The same, with the path to the peer.
    fn with_path(machine: &mut Machine) -> Option<(&mut PeerPath, &mut Self)>;
    /// Messages under way, if another one may be submitted with `ahead` packets ahead of transmission at
    /// most.
    fn may_submit(&self, ahead: u64) -> Option<usize>;
    /// Is there capacity for another message?
    fn has_capacity(&self) -> bool;
    /// Number of the oldest message that has not ended, and of the next that enters.
    fn numbers(&self) -> (u64, u64);
    /// A message enters.
    fn submit(&mut self, message: Message<WqeContext>);
    /// An operation of PRISM enters.
    fn submit_prism(&mut self, message: Message<WqeContext>);
    /// A message enters that cannot be executed.
    fn submit_failing(&mut self, message: Message<WqeContext>, status: Status);
    /// The packet that would leave now, unless it is one of PRISM's.
    fn plan(&mut self, now: Instant) -> Option<Self::Plan>;
    /// The packet of PRISM that would leave now, and its operation.
    fn plan_prism(&mut self, now: Instant) -> Option<(Self::Plan, Extended)>;
    /// The context of the message that a planned packet belongs to.
    fn context(&self, plan: &Self::Plan) -> Option<&WqeContext>;
    /// The packet of `plan` has left.
    fn sent(&mut self, now: Instant, plan: &Self::Plan, counters: &mut Counters);
    /// The packet of `plan_prism` has left.
    fn sent_prism(&mut self, now: Instant, plan: &Self::Plan, counters: &mut Counters);
    /// The planned packet could not be built from local memory.
    fn refuse(&mut self, plan: &Self::Plan, status: Status);
    /// The peer has no buffer for the planned packet.
    fn blocked(&mut self, now: Instant);
    /// How far it is.
    fn progress(&self) -> Progress;
    /// A response has arrived.
    fn receive(
        &mut self,
        now: Instant,
        packet: &packet::View<'_>,
        counters: &mut Counters,
    ) -> Reaction<WqeContext>;
    /// Message `number` ends with `status` once everything before it has ended.
    fn fail(&mut self, number: u64, status: Status);
    /// The next message that ended.
    fn retire(&mut self) -> Option<Retired<WqeContext>>;
}

/// Go-back-N's.
pub(crate) type GoBackN = rc::Requester<WqeContext>;
/// IRN's.
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
