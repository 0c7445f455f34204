//! Installs a program on node 0 of a simulated world.

use std::ops::Range;

use remora_chain::{Image, Location, Numbers, Program, QueueNumbers, Segment, layout, link};
use remora_fabric::{ALL, CompletionQueue, QueuePair, Region, Settings, World};
use remora_nic::wqe::{SLOT, WqeOpcode};
use remora_nic::{Command, Fetching, ReceiveRequest, Ring, Sge};

/// The memory that a program owns.
pub(crate) struct Installed {
    /// The addresses, keys and queue numbers of the loaded program.
    pub numbers: Numbers,
    sections: Vec<Region>,
    rings: Vec<Ring>,
    image: Image,
    /// Target addresses of the work requests and receives.
    named: Vec<Range<u64>>,
}

impl Installed {
    /// Returns a section as a list element.
    pub(crate) fn sge(&self, place: Location, len: u32) -> Sge {
        let Segment::Section(section) = place.segment else { panic!("only data is asked for") };
        Sge { addr: self.numbers.address(place), len, lkey: self.sections[section].key }
    }

    /// Returns the list elements of the first receive of queue 0.
    pub(crate) fn receive(&self) -> &[Sge] {
        &self.image.receives[0][0]
    }

    /// Returns the sections and queues with the address of their first byte, as they are now and as they
    /// were initially.
    pub(crate) fn memory(&self) -> Vec<(u64, Vec<u8>, Vec<u8>)> {
        let sections = self.sections.iter().zip(&self.image.sections).zip(&self.numbers.regions);
        let own = sections.filter(|(_, given)| given.is_none()).map(|(section, _)| section);
        let sections = own.map(|(now, first)| (now.address, now.load(0, first.len()), first.clone()));
        let rings = self.rings.iter().zip(&self.image.queues).zip(&self.numbers.queues);
        let rings =
            rings.map(|((ring, slots), numbers)| (numbers.code, code(ring, slots.len()), slots.concat()));
        sections.chain(rings).collect()
    }

    /// Returns the address of a changed byte that is not a target of the program, or `None`.
    pub(crate) fn stray(&self) -> Option<u64> {
        let is_named = |address: &u64| self.named.iter().any(|named| named.contains(address));
        self.memory().into_iter().find_map(|(address, now, first)| {
            let changed = (address..).zip(now.iter().zip(&first)).filter(|(_, (now, first))| now != first);
            changed.map(|(address, _)| address).find(|address| !is_named(address))
        })
    }
}

/// Returns the slots of a queue.
fn code(ring: &Ring, slots: usize) -> Vec<u8> {
    let slot = |index| {
        let mut slot = [0; SLOT];
        ring.load(index, &mut slot);
        slot
    };
    (0..slots as u64).flat_map(slot).collect()
}

/// Returns the ranges that a program's work requests change when awake, and those of its receives.
fn targets(program: &Program, numbers: &Numbers, image: &Image) -> Vec<Range<u64>> {
    let range = |start: u64, len: u64| start..start + len;
    let mut targets = Vec::new();
    for work in program.queues.iter().flat_map(|queue| &queue.works) {
        let local = numbers.word(work.local);
        let remote = numbers.word(work.remote);
        let list = work.more.iter().map(|piece| range(numbers.address(piece.at), piece.len.into()));
        match WqeOpcode(work.opcode) {
            WqeOpcode::READ => targets.extend(list.chain([range(local, work.len)])),
            WqeOpcode::WRITE => {
                targets
                    .push(range(remote, work.len + list.map(|piece| piece.end - piece.start).sum::<u64>()));
            }
            WqeOpcode::COMPARE_SWAP | WqeOpcode::FETCH_ADD => {
                targets.extend([range(local, 8), range(remote, 8)])
            }
            opcode if opcode.is_calculation() => targets.extend([range(local, 8), range(remote, 8)]),
            _ => {}
        }
    }
    let pieces = image.receives.iter().flatten().flatten();
    targets.extend(pieces.map(|piece| range(piece.addr, piece.len.into())));
    targets
}

/// Connects a client on node 1 to an offload on node 0. Returns the client's queue pair, its completion
/// queue, and the offload. The receive of the offload's queue 0 is posted once and reused in every round.
pub(crate) fn serve(
    world: &mut World,
    program: &Program,
    regions: &[(&str, &Region)],
    settings: &Settings,
) -> (QueuePair, CompletionQueue, Installed) {
    let port = &program.queues[0];
    let shaped = Settings {
        fetching: port.fetching,
        send_slots: port.ring_slots(),
        receives: 1,
        receive_max_sge: port.receive_pieces(),
        access: remora_memory::Access::NONE,
        ..*settings
    };
    let sent = world.create_counted_cq(0, 16);
    let received = world.create_counted_cq(0, 16);
    let server = world.create_qp(sent, received, &shaped).unwrap();
    let client_cq = world.create_cq(1, 64);
    let plain = Settings { fetching: Fetching::Posted, ..*settings };
    let client = world.create_qp(client_cq, client_cq, &plain).unwrap();
    // The client's queue pair grants the rights that answers need; the server's grants none.
    for (host, peer, settings) in [(server, client, &shaped), (client, server, &plain)] {
        for change in world.way_to_rts(host, peer, settings.psn, settings) {
            world.modify(host, &change).expect("the transition is allowed");
        }
    }
    let installed = install(world, program, server, [sent, received], regions);
    world.post_receive(server, &ReceiveRequest { id: 0, sges: installed.receive() }).unwrap();
    world.receive_ring(server).expect("the receive queue is not shared").recycle();
    assert!(world.settle(1_000_000));
    (client, client_cq, installed)
}

/// Queue 0 of the program is an existing connection, whose completion queues are given, that of its sends
/// first. The other queues are created. Regions are given by name.
pub(crate) fn install(
    world: &mut World,
    program: &Program,
    port: QueuePair,
    cqs: [CompletionQueue; 2],
    regions: &[(&str, &Region)],
) -> Installed {
    let mut numbers = layout(program);
    let mut made = vec![(port, cqs)];
    for queue in &program.queues[1..] {
        let settings =
            Settings { fetching: queue.fetching, send_slots: queue.ring_slots(), ..Settings::default() };
        let cq = world.create_counted_cq(0, 64);
        made.push((world.create_loopback(cq, cq, &settings).unwrap(), [cq; 2]));
    }
    let sections: Vec<_> = program
        .sections
        .iter()
        .map(|section| remora_memory::Bytes::heap(section.bytes.len().max(8)).unwrap())
        .collect();
    for (index, section) in program.sections.iter().enumerate().filter(|(_, section)| section.given) {
        let (_, region) = regions.iter().find(|(name, _)| *name == section.name).expect("a region");
        (numbers.sections[index], numbers.regions[index]) = (region.address, Some(region.key.get()));
    }
    // One region contains all memory of the program: the sections, then the slots of each queue.
    let own = sections.iter().zip(&numbers.sections).zip(&numbers.regions);
    let own = own.filter(|(_, given)| given.is_none());
    let mut ranges: Vec<_> =
        own.map(|((bytes, address), _)| remora_memory::Range::at(bytes, *address)).collect();
    for ((qp, _), numbers) in made.iter().zip(&numbers.queues) {
        let ring = world.send_ring(*qp);
        let bytes = ring.bytes().clone();
        let len = ring.slots() as usize * 64;
        ranges.push(remora_memory::Range { bytes, offset: 64, len, iova: numbers.code });
    }
    let pd = world.pd(0);
    let key = world.table(0).register(pd, &ranges, ALL).unwrap();
    numbers.key = key.get();
    for ((qp, cqs), numbers) in made.iter().zip(&mut numbers.queues) {
        let [send_cq, receive_cq] = cqs.map(|cq| cq.number);
        *numbers = QueueNumbers { qp: qp.number.get(), send_cq, receive_cq, code: numbers.code };
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
            world.ask::<()>(0, Command::Enable { qp: qp.number, count: queue.enabled }).unwrap();
        }
    }
    let rings = made.iter().map(|(qp, _)| world.send_ring(*qp)).collect();
    let named = targets(program, &numbers, &image);
    Installed { numbers, sections, rings, image, named }
}
