//! `RedN`'s experiments in model time, beside the numbers in the paper. Real chains are run by the NIC's code
//! on a [`Machine`], and laid out on the time of a ConnectX-5 (`remora_nic::cost::timeline`).
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
//! A client is a part of the program here. Its queues represent those of its own NIC. Each queue has a mark
//! that it crosses the network, or that it does not.

mod constructs;
mod lists;
mod lookups;
mod missed;
mod orders;
mod paper;
mod shipped;

use remora_nic::Fetching;
use remora_nic::cost::connectx5::ConnectX5;
use remora_nic::cost::number::Number;
use remora_nic::cost::timeline::{self, Doorbell, Executed, Port, Times};

use crate::machine::Machine;
use crate::program::{Location, Program, Queue, Section, Segment, Work};

pub use missed::reason;

/// The key that clients ask for.
const KEY: u64 = 0x0123_4567_89ab;
/// More work requests than any experiment has.
const MOST: usize = 100_000;

/// All numbers, by figure.
pub fn numbers(model: &ConnectX5) -> Vec<Number> {
    let parts =
        [orders::numbers(model), lookups::numbers(model), lists::numbers(model), constructs::numbers(model)];
    parts.into_iter().flatten().collect()
}

/// Where a queue of an experiment is.
#[derive(Copy, Clone, Debug)]
struct Site {
    doorbell: Doorbell,
    at: Port,
    crosses: bool,
}

const SERVER: usize = 0;
const CLIENT: usize = 1;

impl Site {
    /// A queue of the server on its own memory, posted long before the measurement.
    fn server() -> Site {
        Site { doorbell: Doorbell::Before, at: Port { host: SERVER, port: 0 }, crosses: false }
    }

    /// Of the client's NIC alone; rung at the beginning.
    fn client() -> Site {
        Site { doorbell: Doorbell::Now, at: Port { host: CLIENT, port: 0 }, crosses: false }
    }

    /// On the peer's memory.
    fn over_the_network(self) -> Site {
        Site { crosses: true, ..self }
    }

    fn rung(self, doorbell: Doorbell) -> Site {
        Site { doorbell, ..self }
    }

    fn on_port(self, port: usize) -> Site {
        Site { at: Port { port, ..self.at }, ..self }
    }
}

/// A program, and where its queues are.
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

    /// A queue more.
    fn queue(&mut self, name: &str, fetching: Fetching, site: Site) -> usize {
        self.program.queues.push(Queue::new(name, fetching));
        self.sites.push(site);
        self.program.queues.len() - 1
    }

    /// A section of so many bytes.
    fn section(&mut self, name: &str, bytes: &[u8]) -> Location {
        let mut section = Section { name: name.into(), ..Section::default() };
        section.put(name, bytes);
        self.program.sections.push(section);
        Location { segment: Segment::Section(self.program.sections.len() - 1), offset: 0 }
    }

    /// The client's queues: where it rings, and what then goes to the server.
    fn client(&mut self, port: usize, count: u64) -> usize {
        let ring = self.queue("client", Fetching::Posted, Site::client().on_port(port));
        let queue = self.queue("port", Fetching::Enabled, Site::client().over_the_network().on_port(port));
        self.program.push(ring, Work::enable(queue, count));
        queue
    }

    fn run(self, model: &ConnectX5) -> Run {
        let mut machine = Machine::load(self.program).expect("small");
        let mut executed = Vec::new();
        let by_program = |site: &Site| !matches!(site.doorbell, Doorbell::Before | Doorbell::Now);
        let (later, first): (Vec<usize>, _) =
            (0..self.sites.len()).partition(|at| by_program(&self.sites[*at]));
        first.into_iter().for_each(|queue| machine.ring(queue));
        executed.extend(machine.watch(MOST));
        // Programs have seen the completions that they poll for: everything before has ended.
        for queue in later {
            machine.ring(queue);
            executed.extend(machine.watch(MOST));
        }
        assert_eq!(machine.failures(), [], "a chain that works");
        let times = timeline::play(model, &placed(&machine, &self.sites), &executed, &[]);
        Run { executed, times }
    }
}

/// The queues of a machine, where they are.
fn placed(machine: &Machine, sites: &[Site]) -> Vec<timeline::Queue> {
    let all = machine.program().queues.iter().zip(&machine.numbers().queues).zip(sites);
    all.map(|((queue, numbers), site)| timeline::Queue {
        qp: numbers.qp,
        send_cq: numbers.send_cq,
        receive_cq: numbers.receive_cq,
        fetching: queue.fetching,
        enabled: queue.enabled,
        doorbell: site.doorbell,
        at: site.at,
        crosses: site.crosses,
    })
    .collect()
}

impl Run {
    /// What a queue executed, and when.
    fn of(&self, queue: usize) -> impl Iterator<Item = (&Executed, &Times)> {
        self.executed.iter().zip(&self.times).filter(move |(work, _)| work.queue == queue)
    }

    /// When the last work request of a queue has completed.
    fn done(&self, queue: usize) -> u64 {
        self.of(queue).map(|(_, times)| times.done).max().unwrap_or(0)
    }
}

/// The rate per second of an event at these times. The first half is left out.
fn rate(times: &[u64]) -> f64 {
    let (first, last) = (times.len() / 2, times.len() - 1);
    (last - first) as f64 * 1e9 / (times[last] - times[first]) as f64
}
