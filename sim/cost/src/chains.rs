//! Models of `RedN`'s experiments, compared with the numbers in the paper. The NIC's code executes real
//! chains on a [`Machine`], and a model of a ConnectX-5 assigns times to their work requests
//! (`crate::timeline`).
//!
//! | file | holds |
//! |---|---|
//! | `orders.rs` | Figures 7 and 8, and the native verbs of Table 3: the source of most constants |
//! | `lookups.rs` | Figures 10, 11 and 14, Tables 4 and 5: hash GETs by chain, by two READs and by a call |
//! | `shipped.rs` | a GET by the offloads that ship |
//! | `lists.rs` | Figure 13: a list searched by chain, by READs and by a call |
//! | `constructs.rs` | the constructs of Table 3 |
//! | `paper.rs` | the paper's numbers |
//! | `missed.rs` | why a prediction is missed, where it is |
//!
//! A client is a part of the program, and its queues represent those of the client's NIC. Each queue is
//! marked if it crosses the network.

mod constructs;
mod lists;
mod lookups;
mod missed;
mod orders;
mod paper;
mod shipped;

use crate::connectx5::ConnectX5;
use crate::number::Number;
use crate::timeline::{self, Doorbell, Port, Times};
use remora_nic::Fetching;

use remora_chain::{Executed, Location, Machine, Program, Queue, Section, Segment, Work};

pub use missed::reason;

/// Key that clients look up.
const KEY: u64 = 0x0123_4567_89ab;
/// Upper bound of the number of work requests of an experiment.
const MOST: usize = 100_000;

/// Returns all numbers, by figure.
pub fn numbers(model: &ConnectX5) -> Vec<Number> {
    let parts =
        [orders::numbers(model), lookups::numbers(model), lists::numbers(model), constructs::numbers(model)];
    parts.into_iter().flatten().collect()
}

/// The NIC and port of a queue, and the time of its doorbell.
#[derive(Copy, Clone, Debug)]
struct Site {
    doorbell: Doorbell,
    port: Port,
    crosses: bool,
}

const SERVER: usize = 0;
const CLIENT: usize = 1;

impl Site {
    /// Returns the site of a server's queue that accesses its own memory and was posted before the
    /// measurement.
    fn server() -> Site {
        Site { doorbell: Doorbell::Before, port: Port { host: SERVER, port: 0 }, crosses: false }
    }

    /// Returns the site of a client's queue that stays on its NIC, with a doorbell at the start.
    fn client() -> Site {
        Site { doorbell: Doorbell::Now, port: Port { host: CLIENT, port: 0 }, crosses: false }
    }

    /// Returns the site with access to the peer's memory.
    fn over_the_network(self) -> Site {
        Site { crosses: true, ..self }
    }

    fn rung(self, doorbell: Doorbell) -> Site {
        Site { doorbell, ..self }
    }

    fn on_port(self, port: usize) -> Site {
        Site { port: Port { port, ..self.port }, ..self }
    }
}

/// A program and the sites of its queues.
struct Experiment {
    program: Program,
    sites: Vec<Site>,
}

/// The result of an experiment.
struct Run {
    executed: Vec<Executed>,
    times: Vec<Times>,
}

impl Experiment {
    fn new() -> Experiment {
        Experiment { program: Program::new(), sites: Vec::new() }
    }

    /// Adds a queue and returns its index.
    fn queue(&mut self, name: &str, fetching: Fetching, site: Site) -> usize {
        self.program.queues.push(Queue::new(name, fetching));
        self.sites.push(site);
        self.program.queues.len() - 1
    }

    /// Adds a section with these bytes and returns its location.
    fn section(&mut self, name: &str, bytes: &[u8]) -> Location {
        let mut section = Section { name: name.into(), ..Section::default() };
        section.put(name, bytes);
        self.program.sections.push(section);
        Location { segment: Segment::Section(self.program.sections.len() - 1), offset: 0 }
    }

    /// Adds the queue whose doorbell the client rings, and the queue to the server that it enables. Returns
    /// the latter.
    fn client(&mut self, port: usize, count: u64) -> usize {
        let ring = self.queue("client", Fetching::Posted, Site::client().on_port(port));
        let queue = self.queue("port", Fetching::Enabled, Site::client().over_the_network().on_port(port));
        self.program.push(ring, Work::enable(queue, count));
        queue
    }

    fn run(self, model: &ConnectX5) -> Run {
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
fn placed(machine: &Machine, sites: &[Site]) -> Vec<timeline::Queue> {
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
    fn of(&self, queue: usize) -> impl Iterator<Item = (&Executed, &Times)> {
        self.executed.iter().zip(&self.times).filter(move |(work, _)| work.queue == queue)
    }

    /// Returns the time at which the last work request of a queue completed.
    fn done(&self, queue: usize) -> u64 {
        self.of(queue).map(|(_, times)| times.done).max().unwrap_or(0)
    }
}

/// Returns the rate per second of an event with these times in nanoseconds. The first half is skipped.
fn rate(times: &[u64]) -> f64 {
    let first = times.len() / 2;
    let last = times.len() - 1;
    (last - first) as f64 * 1e9 / (times[last] - times[first]) as f64
}
