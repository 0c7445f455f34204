//! An experiment: a program, the sites of its queues, and the times of its work requests.

use remora_chain::{Executed, Location, Machine, Program, Queue, Section, Segment, Work};
use remora_nic::Fetching;

use crate::connectx5::ConnectX5;
use crate::timeline::{self, Doorbell, Port, Times};

/// Key that clients look up.
pub(super) const KEY: u64 = 0x0123_4567_89ab;

/// Upper bound of the number of work requests of an experiment.
pub(super) const MOST: usize = 100_000;

/// The NIC and port of a queue, and the time of its doorbell.
#[derive(Copy, Clone, Debug)]
pub(super) struct Site {
    pub doorbell: Doorbell,
    pub port: Port,
    pub crosses: bool,
}

pub(super) const SERVER: usize = 0;

pub(super) const CLIENT: usize = 1;

impl Site {
    /// Returns the site of a server's queue that accesses its own memory and was posted before the
    /// measurement.
    pub(super) fn server() -> Site {
        Site { doorbell: Doorbell::Before, port: Port { host: SERVER, port: 0 }, crosses: false }
    }

    /// Returns the site of a client's queue that stays on its NIC, with a doorbell at the start.
    pub(super) fn client() -> Site {
        Site { doorbell: Doorbell::Now, port: Port { host: CLIENT, port: 0 }, crosses: false }
    }

    /// Returns the site with access to the peer's memory.
    pub(super) fn over_the_network(self) -> Site {
        Site { crosses: true, ..self }
    }

    pub(super) fn rung(self, doorbell: Doorbell) -> Site {
        Site { doorbell, ..self }
    }

    pub(super) fn on_port(self, port: usize) -> Site {
        Site { port: Port { port, ..self.port }, ..self }
    }
}

/// A program and the sites of its queues.
pub(super) struct Experiment {
    pub program: Program,
    pub sites: Vec<Site>,
}

/// The result of an experiment.
pub(super) struct Run {
    pub executed: Vec<Executed>,
    pub times: Vec<Times>,
}

impl Experiment {
    pub(super) fn new() -> Experiment {
        Experiment { program: Program::new(), sites: Vec::new() }
    }

    /// Adds a queue and returns its index.
    pub(super) fn queue(&mut self, name: &str, fetching: Fetching, site: Site) -> usize {
        self.program.queues.push(Queue::new(name, fetching));
        self.sites.push(site);
        self.program.queues.len() - 1
    }

    /// Adds a section with these bytes and returns its location.
    pub(super) fn section(&mut self, name: &str, bytes: &[u8]) -> Location {
        let mut section = Section { name: name.into(), ..Section::default() };
        section.put(name, bytes);
        self.program.sections.push(section);
        Location { segment: Segment::Section(self.program.sections.len() - 1), offset: 0 }
    }

    /// Adds the queue whose doorbell the client rings, and the queue to the server that it enables. Returns
    /// the latter.
    pub(super) fn client(&mut self, port: usize, count: u64) -> usize {
        let ring = self.queue("client", Fetching::Posted, Site::client().on_port(port));
        let queue = self.queue("port", Fetching::Enabled, Site::client().over_the_network().on_port(port));
        self.program.push(ring, Work::enable(queue, count));
        queue
    }

    pub(super) fn run(self, model: &ConnectX5) -> Run {
        let mut machine = Machine::load(self.program).expect("the program fits the machine");
        let mut executed = Vec::new();
        let by_program = |site: &Site| !matches!(site.doorbell, Doorbell::Before | Doorbell::Now);
        let (later, first): (Vec<usize>, _) =
            (0..self.sites.len()).partition(|index| by_program(&self.sites[*index]));
        first.into_iter().for_each(|queue| machine.ring(queue));
        executed.extend(machine.watch(MOST));
        // A program that has polled a completion continues, so everything before has ended.
        for queue in later {
            machine.ring(queue);
            executed.extend(machine.watch(MOST));
        }
        assert_eq!(machine.failures(), [], "the chain has no failures");
        let times = timeline::play(model, &placed(&machine, &self.sites), &executed, &[]);
        Run { executed, times }
    }
}

/// Returns the queues of a machine with their sites, for the timeline.
pub(super) fn placed(machine: &Machine, sites: &[Site]) -> Vec<timeline::Queue> {
    let all = machine.program().queues.iter().zip(&machine.numbers().queues).zip(sites);
    all.map(|((queue, numbers), site)| timeline::Queue {
        qp: numbers.qp,
        send_cq: numbers.send_cq,
        receive_cq: numbers.receive_cq,
        fetching: queue.fetching,
        enabled: queue.enabled,
        doorbell: site.doorbell,
        at: site.port,
        crosses: site.crosses,
    })
    .collect()
}

impl Run {
    /// Returns the work requests that a queue executed, with their times.
    pub(super) fn of(&self, queue: usize) -> impl Iterator<Item = (&Executed, &Times)> {
        self.executed.iter().zip(&self.times).filter(move |(work, _)| work.queue == queue)
    }

    /// Returns the time at which the last work request of a queue completed.
    pub(super) fn done(&self, queue: usize) -> u64 {
        self.of(queue).map(|(_, times)| times.done).max().unwrap_or(0)
    }
}

/// Returns the rate per second of an event with these times in nanoseconds. The first half is skipped.
pub(super) fn rate(times: &[u64]) -> f64 {
    let first = times.len() / 2;
    let last = times.len() - 1;
    (last - first) as f64 * 1e9 / (times[last] - times[first]) as f64
}
