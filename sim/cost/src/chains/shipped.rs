//! Models of the shipped offloads (`program/chain/programs/offloads`), each serving one request over the
//! network.

use crate::connectx5::ConnectX5;
use crate::timeline;
use remora_nic::wqe::WqeOpcode;

use super::experiment::{Experiment, KEY, MOST, Site, placed};
use remora_chain::Machine;
use remora_chain::assemble;
use remora_chain::offload::{BUCKET, OFFLOADS, ask, ask_two, bucket, node};
use remora_chain::{Piece, Work};

/// Offset of the values in the server's region.
const VALUE: u64 = 64 * BUCKET;

/// The buckets of a region and the client's message, as functions of the region's address.
struct Asked<'a> {
    region: &'a str,
    buckets: &'a dyn Fn(u64) -> Vec<[u8; BUCKET as usize]>,
    message: &'a dyn Fn(u64) -> Vec<u8>,
}

/// Returns the time of a GET of `len` bytes by the offload `name`, whose key is in the last bucket that the
/// offload checks.
pub(crate) fn get(model: &ConnectX5, name: &str, len: u64) -> u64 {
    let asked = Asked {
        region: "table",
        buckets: &|address| [KEY ^ 1, KEY].map(|key| bucket(key, address + VALUE, len)).into(),
        message: &|address| match name {
            "get" => ask(address + BUCKET, KEY),
            _ => ask_two([address, address + BUCKET], KEY),
        },
    };
    answered(model, name, &asked)
}

/// Returns the time of a list search with a break, for the key in node `position` with a value of `len`
/// bytes.
pub(crate) fn search(model: &ConnectX5, position: u64, len: u64) -> u64 {
    let place = |address: u64, index: u64| {
        let key = if index == position { KEY } else { KEY ^ 1 };
        node(key, address + VALUE, len, address + (index + 1) * BUCKET)
    };
    let asked = Asked {
        region: "list",
        buckets: &|address| (0..=position).map(|index| place(address, index)).collect(),
        message: &|address| ask(address, KEY),
    };
    answered(model, "list-break", &asked)
}

/// Returns the time at which the client has the answer. The answer's completion has its length and uses a
/// receive work request.
fn answered(model: &ConnectX5, name: &str, asked: &Asked<'_>) -> u64 {
    let text =
        OFFLOADS.iter().find(|(known, _)| *known == name).expect("the program is one of the shipped ones").1;
    let program = assemble(&text.replace(" 65536", " 131072")).expect("the shipped program is valid");
    let port = program.queue("port").expect("the program has a queue for messages");
    let sites: Vec<Site> = (0..program.queues.len())
        .map(|queue| if queue == port { Site::server().over_the_network() } else { Site::server() })
        .collect();
    let mut machine = Machine::load(program).expect("the program fits the machine");
    machine.start();
    let mut executed = machine.watch(MOST);
    let region = machine.program().find(asked.region).expect("the program has the region").0;
    let address = machine.numbers().address(region);
    for (index, bytes) in (asked.buckets)(address).iter().enumerate() {
        assert!(machine.write(region + index as u64 * BUCKET, bytes));
    }
    let message = (asked.message)(address);
    assert!(machine.send(port, &message));
    executed.extend(machine.watch(MOST));
    assert_eq!(machine.failures(), []);
    let queues = placed(&machine, &sites);
    let arrives = (queues[port].receive_cq, arrival(model, &message));
    let times = timeline::play(model, &queues, &executed, &[arrives]);
    let answer = executed
        .iter()
        .zip(&times)
        .find(|(work, _)| work.queue == port && work.wqe.opcode() == WqeOpcode::WRITE_IMM);
    answer.expect("the chain finds the key").1.there + model.fetch.ns + model.host.ns / 2
}

/// Returns the time at which the server has received a client's message.
fn arrival(model: &ConnectX5, message: &[u8]) -> u64 {
    let mut experiment = Experiment::new();
    let client = experiment.client(0, 1);
    let len = message.len() as u64;
    let [here, there] = ["message", "there"].map(|name| experiment.section(name, message));
    experiment.program.push(client, Work::send(here, len));
    experiment.program.queues[client].receives.push(vec![Piece { at: there, len: len as u32 }]);
    let run = experiment.run(model);
    let sent = run.of(client).next().expect("the client sent a message").1.there;
    sent + model.fetch.ns
}
