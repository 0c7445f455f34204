//! Watchers of the network: pause storms, deadlocks and lost accounting.

use super::findings::{Balance, Finding};
use super::packet::Flags;
use super::port_id::PortId;
use super::{Due, End, Network, WATCH};

/// A port is in a pause storm if it was paused for this percentage of each of this many periods in a row.
const STORM_PERCENT: u64 = 90;
const STORM_PERIODS: u8 = 10;

impl Network {
    /// Searches for deadlocks and pause storms.
    pub(super) fn watch(&mut self) -> Option<Due> {
        let period = self.now.since(self.watchdog.looked);
        self.find_storms(period);
        self.find_deadlocks();
        let moved = self.watchdog.sent.contains(&true);
        self.watchdog.sent.fill(false);
        self.watchdog.looked = self.now;
        // Another check is scheduled even if no event remains but packets moved: it then finds ports that
        // wait for each other.
        if moved || !self.calendar.is_empty() {
            self.schedule(self.now.after(self.config.watch_period), 0, WATCH);
        }
        None
    }

    fn find_storms(&mut self, period: u64) {
        for port in 0..self.ports.len() {
            let since = &mut self.watchdog.all[port];
            if since.paused != 0 {
                since.pause += self.now.since(since.changed);
                since.changed = self.now;
            }
            let paused = std::mem::take(&mut since.pause);
            if paused * 100 < period * STORM_PERCENT {
                since.storms = 0;
                continue;
            }
            since.storms = since.storms.saturating_add(1);
            if since.storms == STORM_PERIODS {
                let (node, number) = self.name_of(PortId(port as u32));
                self.findings.add(Finding::PauseStorm { at: self.now, node, port: number, paused, period });
            }
        }
    }

    /// Searches for deadlocks. A paused port waits for the switch that pauses it. That switch waits for those
    /// of its own ports that hold packets received by this port. A cycle of such ports without progress is a
    /// deadlock.
    fn find_deadlocks(&mut self) {
        let stuck = |network: &Network, port: usize| {
            let candidate = &network.ports[port];
            candidate.waiting & candidate.paused != 0 && !network.watchdog.sent[port]
        };
        let candidates: Vec<usize> = (0..self.ports.len()).filter(|port| stuck(self, *port)).collect();
        let mut state = vec![0_u8; self.ports.len()];
        for start in candidates {
            let mut path = Vec::new();
            if let Some(cycle) = self.cycle_from(PortId(start as u32), &stuck, &mut state, &mut path) {
                let first = *cycle.iter().min().expect("a cycle has at least one port");
                if !self.watchdog.reported.contains(&first) {
                    self.watchdog.reported.push(first);
                    let cycle = cycle.iter().map(|port| self.name_of(*port)).collect();
                    self.findings.add(Finding::Deadlock { at: self.now, cycle });
                }
            }
        }
    }

    /// Searches depth first; a port that is already on the path closes a cycle.
    fn cycle_from(
        &self,
        id: PortId,
        stuck: &impl Fn(&Network, usize) -> bool,
        state: &mut [u8],
        path: &mut Vec<PortId>,
    ) -> Option<Vec<PortId>> {
        if let Some(start) = path.iter().position(|port| *port == id) {
            return Some(path[start..].to_vec());
        }
        if state[id.index()] == 2 {
            return None;
        }
        path.push(id);
        let mut cycle = None;
        if let End::Switch(number) = self.ports[id.index()].to {
            for next in &self.switches[number as usize].ports {
                if stuck(self, next.index()) && self.holds_from(*next, id) {
                    cycle = self.cycle_from(*next, stuck, state, path);
                    if cycle.is_some() {
                        break;
                    }
                }
            }
        }
        path.pop();
        state[id.index()] = 2;
        cycle
    }

    /// Returns true if a port holds back packets that arrived by another one.
    fn holds_from(&self, out: PortId, ingress: PortId) -> bool {
        let port = &self.ports[out.index()];
        let End::Switch(number) = port.from else { return false };
        let switch = &self.switches[number as usize];
        if switch.buffer.is_voq() {
            let input = usize::from(self.numbers[ingress.reverse().index()]);
            return switch.voq.waits(usize::from(self.numbers[out.index()]), input, port.paused);
        }
        let paused = (0..super::CLASSES).filter(|class| port.paused & 1 << class != 0);
        paused
            .flat_map(|class| self.packets.of(&port.queues[class].fifo))
            .any(|id| self.packets[id].ingress == ingress && !self.packets[id].flags.has(Flags::PAUSE))
    }

    /// Counts the packets that hosts have sent.
    pub fn balance(&self) -> Balance {
        let totals = &self.totals;
        Balance {
            sent: totals.sent.packets,
            delivered: totals.arrived.packets,
            lost: totals.lost().packets,
            in_flight: self.packets.live() as u64 - self.packets_of_control(),
        }
    }

    /// Checks that all packets are accounted for, and that buffers are empty if no packet is in the network.
    pub fn check(&mut self) {
        let balance = self.balance();
        let in_flight = balance.in_flight;
        if !balance.holds() {
            let expected = balance.sent.saturating_sub(balance.delivered + balance.lost);
            self.findings.add(Finding::NotConserved { at: self.now, expected, found: in_flight });
        }
        if in_flight == 0 {
            let full: Vec<_> = self.switches.iter().filter(|switch| switch.buffer.used().0 > 0).collect();
            let findings = full
                .iter()
                .map(|switch| Finding::NotEmpty { switch: switch.node, bytes: switch.buffer.used().0 });
            findings.collect::<Vec<_>>().into_iter().for_each(|finding| self.findings.add(finding));
        }
    }

    /// Returns the number of pause frames in the network.
    fn packets_of_control(&self) -> u64 {
        let control_frames = |port: &super::Port| {
            let flying = self.packets.of(&port.flight).filter(|id| self.packets[*id].flags.has(Flags::PAUSE));
            flying.count() + self.packets.of(&port.control).count()
        };
        self.ports.iter().map(control_frames).sum::<usize>() as u64
    }
}
