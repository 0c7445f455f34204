//! The other transport services and their resources between simulated NICs, one behaviour at a time.

mod attributes;
mod datagrams;
mod extended;
mod hostile;
mod multicast;
mod shared_queue;
mod unreliable;
mod windows;

use remora_fabric::forge::{self, Forge};
use remora_fabric::{QueuePair, World};
use remora_nic::{
    AsyncEvent, Flags, Operation, Payload, ReceiveRequest, Sge, Status, WorkCompletion, WorkRequest,
};
use remora_wire::{Extensions, Opcode, Packet, bth};

const SIGNALED: Flags = Flags { signaled: true, fence: false, solicited: false };

/// Returns a signaled request with this list.
fn request(id: u64, operation: Operation, list: &[Sge]) -> WorkRequest<'_> {
    WorkRequest { id, operation, payload: Payload::Sges(list), flags: SIGNALED }
}

fn receive(world: &mut World, qp: QueuePair, id: u64, list: &[Sge]) {
    world.post_receive(qp, &ReceiveRequest { id, sges: list }).unwrap();
}

fn ends(completions: &[WorkCompletion]) -> Vec<(u64, Status)> {
    completions.iter().map(|wc| (wc.id, wc.status)).collect()
}

fn events(world: &mut World, node: usize) -> Vec<AsyncEvent> {
    world.with_nic(node, |nic, _| std::iter::from_fn(|| nic.event()).collect())
}

/// Returns the opcodes that a node has sent since the last call.
fn opcodes(world: &mut World, node: usize) -> Vec<Opcode> {
    let start = world.start();
    let sent = world.sent();
    let frames = sent.iter().filter(|sent| sent.from == node);
    frames.filter_map(|sent| forge::transport(start, &sent.bytes)).map(|packet| packet.bth.opcode).collect()
}

/// Delivers a forged packet to `victim`, as if from node 0.
fn forge(world: &mut World, victim: QueuePair, opcode: Opcode, psn: u32, ext: Extensions, payload: &[u8]) {
    let forge = Forge::new(world, 0, victim);
    let bth = bth::Repr { ack_req: true, ..forge.bth(opcode, psn) };
    let frame = forge.frame(Packet::new(bth, ext, payload).bth, ext, payload);
    forge.send(world, &frame);
    world.run_for(10_000);
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}
