//! The offloads and the congestion control of a queue pair. Each is absent unless the peers agreed on it, or
//! the program asked for it.

use remora_transport::Instant;
use remora_transport::congestion::dcqcn::NotificationPoint;
use remora_wire::Qpn;

use crate::congestion::Congestion;
use crate::kernel::Strom;
use crate::machine::Machine;
use crate::prism::Prism;
use crate::shared::Shared;

/// The notification point for the peer's ECN-marked packets.
#[derive(Default)]
pub(crate) struct Notifier {
    pub marks: NotificationPoint,
    /// A CNP is to be sent.
    pub is_due: bool,
}

/// The state of the offloads and of congestion control of a queue pair.
#[derive(Default)]
pub(crate) struct Offloads {
    /// Congestion control and rate limit; `None` if neither is set.
    pub congestion: Option<Box<Congestion>>,
    pub notifier: Notifier,
    /// State of PRISM; `None` if the peer did not agree on PRISM.
    pub prism: Option<Box<Prism>>,
    /// State of StRoM; `None` if the peer did not agree on StRoM and no kernel sees the queue pair's READs
    /// and WRITEs.
    pub strom: Option<Box<Strom>>,
}

impl Offloads {
    /// Returns true if no packet and no turn of the queue pair needs any of them.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.prism.is_none() && self.strom.is_none() && self.congestion.is_none() && !self.notifier.is_due
    }

    /// Returns true if a CNP is to be sent.
    #[inline(always)]
    pub(crate) fn owes_notification(&self) -> bool {
        self.notifier.is_due
    }

    /// Returns the time at which `expire` is due.
    #[inline(always)]
    pub(crate) fn deadline(&self) -> Instant {
        let congestion = self.congestion.as_ref().map_or(Instant::NEVER, |congestion| congestion.deadline());
        let prism = self.prism.as_ref().map_or(Instant::NEVER, |prism| prism.deadline());
        let strom = self.strom.as_ref().map_or(Instant::NEVER, |strom| strom.deadline());
        congestion.min(prism).min(strom)
    }

    /// Runs the timers that are due at `now`: the rate changes, a peer that has been silent for long repeats
    /// no PRISM request, a delayed ACK of a kernel is sent, or a READ is checked again.
    pub(crate) fn expire(&mut self, now: Instant, machine: &mut Machine, shared: &mut Shared) {
        if let Some(congestion) = &mut self.congestion {
            congestion.expire(now);
        }
        if let Some(prism) = &mut self.prism {
            prism.expire(now, &mut shared.objects_mut().free_lists, || machine.forget());
        }
        if let Some(strom) = &mut self.strom
            && strom.expire(now)
            && let Some(connection) = machine.rc_mut()
        {
            connection.responder.acknowledge();
        }
    }

    /// Ends the offloads of queue pair `number` with its connection: buffers go back to their free lists,
    /// lanes and blocks of kernels become free.
    pub(crate) fn end(&mut self, number: Qpn, shared: &mut Shared) {
        if let Some(mut prism) = self.prism.take() {
            prism.end(&mut shared.objects_mut().free_lists);
        }
        if let Some(mut strom) = self.strom.take() {
            strom.end(shared.kernels_mut(), number);
        }
    }

    /// Asserts the invariants; `upcoming` is the number of the next READ, atomic or PRISM operation of the
    /// peer.
    pub(crate) fn check(&self, upcoming: u64) {
        if let Some(prism) = &self.prism {
            prism.check(upcoming);
        }
        if let Some(strom) = &self.strom {
            strom.check();
        }
    }
}
