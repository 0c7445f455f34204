//! A program on node 0 of a world.

use fabric::{ALL, CompletionQueue, QueuePair, Region, Settings, World};
use nic::{Fetching, ReceiveRequest, Sge};
use remora_chain::{Home, Image, Numbers, Place, Program, QueueNumbers, layout, link};

/// A program's own memory.
pub struct Installed {
    numbers: Numbers,
    sections: Vec<Region>,
    image: Image,
}

impl Installed {
    /// Bytes of a section, as an element of a list.
    pub fn sge(&self, at: Place, len: u32) -> Sge {
        let Home::Section(section) = at.home else { panic!("only data is asked for") };
        Sge { addr: self.numbers.address(at), len, lkey: self.sections[section].key }
    }

    /// The elements of the first receive of queue 0.
    pub fn receive(&self) -> &[Sge] {
        &self.image.receives[0][0]
    }
}

/// A client on node 1 that may SEND to an offload on node 0, and its completion queue. The one receive of the offload's queue 0
/// is taken round after round: nobody posts it again.
pub fn serve(
    world: &mut World,
    program: &Program,
    regions: &[(&str, &Region)],
    settings: &Settings,
) -> (QueuePair, CompletionQueue) {
    let port = &program.queues[0];
    let shaped = Settings {
        fetching: port.fetching,
        send_slots: port.ring_slots(),
        receives: 1,
        receive_max_sge: port.receive_pieces(),
        access: memory::Access::NONE,
        ..*settings
    };
    let (server_cq, client_cq) = (world.create_counted_cq(0, 16), world.create_cq(1, 64));
    let server = world.create_qp(server_cq, server_cq, &shaped).unwrap();
    let plain = Settings { fetching: Fetching::Posted, ..*settings };
    let client = world.create_qp(client_cq, client_cq, &plain).unwrap();
    world.connect(server, client, &plain);
    let installed = install(world, program, (server, server_cq), regions);
    world.post_receive(server, &ReceiveRequest { id: 0, sges: installed.receive() }).unwrap();
    world.receive_ring(server).expect("its own").recycle();
    assert!(world.settle(1_000_000));
    (client, client_cq)
}

/// Queue 0 of the program is a connection that is there already, with its completion queue; the others are made. So are the
/// regions, given by name.
pub fn install(
    world: &mut World,
    program: &Program,
    (port, port_cq): (QueuePair, CompletionQueue),
    regions: &[(&str, &Region)],
) -> Installed {
    let mut numbers = layout(program);
    let mut made = vec![(port, port_cq)];
    for queue in &program.queues[1..] {
        let settings =
            Settings { fetching: queue.fetching, send_slots: queue.ring_slots(), ..Settings::default() };
        let cq = world.create_counted_cq(0, 64);
        made.push((world.create_loopback(cq, cq, &settings).unwrap(), cq));
    }
    let sections: Vec<_> = program
        .sections
        .iter()
        .map(|section| memory::Bytes::heap(section.bytes.len().max(8)).unwrap())
        .collect();
    for (at, section) in program.sections.iter().enumerate().filter(|(_, section)| section.given) {
        let (_, region) = regions.iter().find(|(name, _)| *name == section.name).expect("a region");
        (numbers.sections[at], numbers.regions[at]) = (region.address, Some(region.key.get()));
    }
    // One region over everything that is its own: the sections, then the slots of each queue.
    let own = sections.iter().zip(&numbers.sections).zip(&numbers.regions);
    let own = own.filter(|(_, given)| given.is_none());
    let mut ranges: Vec<_> = own.map(|((bytes, address), _)| memory::Range::at(bytes, *address)).collect();
    for ((qp, _), numbers) in made.iter().zip(&numbers.queues) {
        let ring = world.send_ring(*qp);
        let (bytes, len) = (ring.bytes().clone(), ring.slots() as usize * 64);
        ranges.push(memory::Range { bytes, offset: 64, len, iova: numbers.code });
    }
    let pd = world.pd(0);
    let key = world.table(0).register(pd, &ranges, ALL).unwrap();
    numbers.key = key.get();
    for ((qp, cq), numbers) in made.iter().zip(&mut numbers.queues) {
        let (qp, cq) = (qp.number.get(), cq.number);
        *numbers = QueueNumbers { qp, send_cq: cq, receive_cq: cq, code: numbers.code };
    }
    let image = link(program, &numbers);
    for (bytes, content) in sections.iter().zip(&image.sections) {
        bytes.write(0, content).unwrap();
    }
    let all = sections.into_iter().zip(&numbers.sections);
    let sections = all.map(|(bytes, address)| Region { node: 0, key, address: *address, bytes }).collect();
    for ((qp, _), slots) in made.iter().zip(&image.queues) {
        slots.iter().for_each(|slot| world.post_slot(*qp, slot));
    }
    for ((qp, _), queue) in made.iter().zip(&program.queues) {
        world.ring(*qp);
        if queue.enabled > 0 {
            world.with_nic(0, |nic, _| nic.enable(qp.number, queue.enabled)).unwrap();
        }
    }
    Installed { numbers, sections, image }
}
