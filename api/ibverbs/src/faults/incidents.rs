//! Incidents of the device, at times after the program's first use of it: the port is down, the device is
//! dead, or an asynchronous event.

use remora_broker::PortState;
use remora_verbs::Rules;
use remora_verbs::faults::{Incident, IncidentKind};
use remora_verbs::raw::ChannelAdapter;
use std::ffi::c_int;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::Faults;
use crate::port_view::PortView;

/// The time of the program's first use of the device.
static BEGUN: OnceLock<Instant> = OnceLock::new();

fn begun() -> Instant {
    *BEGUN.get_or_init(Instant::now)
}

/// Returns the rules for a NIC that is opened now, so that no incident occurs twice: those that have begun
/// are over, except that the port stays down for the rest of its time.
pub(crate) fn shifted(rules: &Rules) -> Rules {
    let passed = begun().elapsed().as_millis() as u64;
    let mut rules = rules.clone();
    for incident in &mut rules.verbs.incidents {
        if let IncidentKind::PortDown(ms) = &mut incident.kind {
            *ms = (incident.at_ms.saturating_add(*ms)).saturating_sub(passed.max(incident.at_ms));
        }
        incident.at_ms = incident.at_ms.saturating_sub(passed);
    }
    rules
}

/// Returns whether the device is dead now.
pub(crate) fn is_dead(rules: &Rules) -> bool {
    let passed = begun().elapsed().as_millis() as u64;
    rules.verbs.incidents.iter().any(|incident| match incident.kind {
        IncidentKind::DeviceDead(ms) => (incident.at_ms..incident.at_ms.saturating_add(ms)).contains(&passed),
        _ => false,
    })
}

/// The parts of a NIC that incidents change. A NIC that is closed has no more incidents.
pub(crate) struct IncidentTarget {
    pub adapter: Weak<ChannelAdapter>,
    pub port: Weak<PortView>,
    /// Delivers an event by its number in `enum ibv_event_type`: of this queue pair, or of the port or
    /// device.
    pub cause: Box<dyn Fn(c_int, Option<u32>) + Send>,
}

/// Starts the thread that causes the incidents of a NIC which have not begun yet.
pub(crate) fn start(faults: &Arc<Faults>, target: IncidentTarget) {
    let faults = Arc::clone(faults);
    let passed = begun().elapsed().as_millis() as u64;
    let mut ahead: Vec<(u64, Moment)> = Vec::new();
    for (place, incident) in faults.rules.incidents.iter().enumerate() {
        let Incident { at_ms, kind } = *incident;
        if at_ms >= passed {
            ahead.push((at_ms, Moment::Begin(place + 1, kind)));
        }
        if let IncidentKind::PortDown(ms) = kind
            && at_ms.saturating_add(ms) >= passed
        {
            ahead.push((at_ms.saturating_add(ms), Moment::PortUp));
        }
    }
    if ahead.is_empty() {
        return;
    }
    ahead.sort_by_key(|(at_ms, _)| *at_ms);
    let run = move || run(&ahead, &faults, &target);
    // Without a thread there are no incidents, and the test that waits for them fails.
    let _ = std::thread::Builder::new().name("remora-faults".to_owned()).spawn(run);
}

/// A moment of an incident.
#[derive(Copy, Clone)]
enum Moment {
    /// The beginning of the incident with this number in the file.
    Begin(usize, IncidentKind),
    PortUp,
}

fn run(ahead: &[(u64, Moment)], faults: &Faults, target: &IncidentTarget) {
    for (at_ms, moment) in ahead {
        let until = begun() + Duration::from_millis(*at_ms);
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        let Some(adapter) = target.adapter.upgrade() else { return };
        let kind = match moment {
            Moment::PortUp => {
                target.set_port(true);
                continue;
            }
            Moment::Begin(number, kind) => {
                faults.log.incident(*number, &kind.describe());
                kind
            }
        };
        match kind {
            IncidentKind::PortDown(_) => target.set_port(false),
            IncidentKind::DeviceDead(_) => adapter.fail(),
            IncidentKind::Event { number, qp } => {
                (target.cause)((*number).into(), qp.and_then(|number| faults.numbered(number)));
            }
        }
    }
}

impl IncidentTarget {
    /// Changes the state of the port. The NIC itself drops the frames meanwhile.
    fn set_port(&self, active: bool) {
        if let Some(port) = self.port.upgrade() {
            port.change(PortState { active, gids: port.table() });
        }
    }
}
