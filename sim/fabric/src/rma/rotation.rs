//! The interruption of a client while its server rotates the key of a region (1RMA paper, Figure 14).
//!
//! The client continuously reads 64 bytes and starts reads before earlier ones have ended. The times of
//! software and drivers are constants with their sources; the times of NICs and network are simulated.

use remora_memory::Access;
use remora_nic::rma::{Command, Operand, RegionKey, Rights};
use remora_nic::{Flags, Operation, Payload, WorkRequest};
use remora_transport::Instant;
use remora_transport::rma::Status;
use remora_transport::state::State;
use remora_wire::rma::{Class, Kind};

use super::path::{CLIENT, MakeCipher, Nodes, Path, Wanted, key};
use super::{Portal, command};
use crate::program::{ALL, Settings};
use crate::{QueuePair, World};

/// Time between the starts of two reads.
const PROBE_NS: u64 = 500;
const PROBE: u32 = 64;
const SLOTS: u16 = 64;
/// Time of the key rotation, and duration of the experiment after it.
const CHANGE_NS: u64 = 50_000;
const LAST_NS: u64 = 200_000;
/// Time for software to give a client its new key: a thread blocks and wakes up, for which §6.1 of the paper
/// states 10 µs.
pub const GRANT_NS: u64 = 10_000;
/// Time for a driver to change the key on its local control path; §7.3 states 27 µs.
pub const DRIVER_NS: u64 = 27_000;
/// Time for software to connect a queue pair again; §7.3 states more than 2 ms.
pub const RECONNECT_NS: u64 = 2_000_000;

/// The way in which the key is rotated.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// A third host sends a Rekey. The client knows the next key and uses it when the old one fails.
    Announced,
    /// A third host sends a Rekey. The client requests the new key when the old one fails.
    Unannounced,
    /// The server's driver changes the key, which takes [`DRIVER_NS`]. The client knows the next key.
    Driver,
}

/// Server and third host, as indices among the servers.
const SERVER: usize = 0;
const CONTROL: usize = 1;

/// Returns the interruption in nanoseconds: the longest time between two successful reads, minus the normal
/// time between them.
pub fn gap_ns(rotation: Rotation, make: MakeCipher<'_>) -> u64 {
    let path = Path { servers: 2, ..Path::simulation(0) };
    let mut nodes = Nodes::new(&path, SLOTS, make);
    let control = rekeyer(&mut nodes);
    let next_key = key(0x77);
    let mut client = Probes::new(next_key.clone(), nodes.served[SERVER].id);
    let mut driver = Instant::NEVER;
    let mut rekey = Some(control);
    let end = Instant(CHANGE_NS + LAST_NS);
    while nodes.world.now() < end {
        client.poll(&mut nodes, rotation);
        let now = nodes.world.now();
        if now.0 >= CHANGE_NS
            && let Some((mut portal, command)) = rekey.take()
        {
            match rotation {
                Rotation::Driver => {
                    nodes
                        .world
                        .regions(SERVER + 1)
                        .deregister(nodes.served[SERVER].id)
                        .expect("the region is registered");
                    driver = now.after(DRIVER_NS);
                }
                _ => nodes.world.issue(&mut portal, &command),
            }
        }
        if now >= driver {
            driver = Instant::NEVER;
            let memory = nodes.served[SERVER].memory.clone();
            client.next_region = nodes.world.expose(&memory, Rights(7), next_key.clone()).expect("space").id;
        }
        client.issue(&mut nodes);
        nodes.world.step_until(client.next.min(driver).min(end));
    }
    client.gap
}

/// Creates a portal of the third host, and the command by which it changes the server's key.
fn rekeyer(nodes: &mut Nodes) -> (Portal, Command) {
    let world = &mut nodes.world;
    let cq = world.create_cq(CONTROL + 1, 4);
    let portal = world.create_portal(cq, 1, 2, 1).expect("space for a portal");
    nodes.served[CONTROL].memory.store(0, key(0x77).bytes());
    let local = Operand { region: nodes.served[CONTROL].id, offset: 0 };
    let remote = Operand { region: nodes.served[SERVER].id, offset: 0 };
    let of_server = nodes.served[SERVER].key.clone();
    let own = nodes.derive_for(&portal, &of_server, Kind::Rekey);
    let server = nodes.world.endpoint(SERVER + 1);
    let command = command(&portal, 0, Kind::Rekey, 16, local, remote, server, own);
    (portal, command)
}

/// The client's reads.
struct Probes {
    /// Start of the next read.
    next: Instant,
    next_key: RegionKey,
    /// RegionId under the next key.
    next_region: u32,
    /// Time at which the client has the next key; `NEVER` before it has requested the key.
    granted: Instant,
    changed: bool,
    succeeded: Option<Instant>,
    gap: u64,
}

impl Probes {
    fn new(next_key: RegionKey, next_region: u32) -> Probes {
        let next = Instant(0);
        let granted = Instant::NEVER;
        Probes { next, next_key, next_region, granted, changed: false, succeeded: None, gap: 0 }
    }

    fn poll(&mut self, nodes: &mut Nodes, rotation: Rotation) {
        while let Some(completion) = nodes.poll() {
            nodes.free.push_back(completion.slot);
            let now = nodes.world.now();
            if completion.status == Status::Ok {
                let apart = self.succeeded.map_or(0, |last| now.since(last));
                self.gap = self.gap.max(apart.saturating_sub(PROBE_NS));
                self.succeeded = Some(now);
            } else if self.granted == Instant::NEVER {
                let asked = if rotation == Rotation::Unannounced { GRANT_NS } else { 0 };
                self.granted = now.after(asked);
            }
        }
    }

    fn issue(&mut self, nodes: &mut Nodes) {
        let now = nodes.world.now();
        if !self.changed && self.granted <= now {
            self.changed = true;
            nodes.replace_key(SERVER, &self.next_key);
        }
        if self.changed {
            nodes.served[SERVER].id = self.next_region;
        }
        if self.next <= now {
            let kind = Kind::Read;
            let class = Class::Latency;
            nodes.issue_any(&Wanted { server: SERVER, kind, class, size: PROBE, offset: 0 });
            self.next = now.after(PROBE_NS);
        }
    }
}

/// Returns the interruption in nanoseconds for READs over a reliable connection: the region is registered
/// again, which breaks the connection, and software connects it again.
///
/// # Panics
/// Panics if a queue pair does not change its state as the specification says.
pub fn reconnect_gap_ns() -> u64 {
    let mut world = Path::simulation(0).world();
    let settings = Settings { timeout: 16, ..Settings::default() };
    let [(pair, cq), (served, _)] = world.pair(CLIENT, 1, &settings);
    let here = world.register(CLIENT, PROBE as usize, Access::LOCAL_WRITE);
    let mut there = world.register(1, PROBE as usize, ALL);
    let mut next = Instant(0);
    let mut connects = Instant::NEVER;
    let mut registered = false;
    let mut broken = false;
    let mut succeeded = Instant(0);
    let mut gap = 0;
    let end = Instant(CHANGE_NS + RECONNECT_NS + LAST_NS);
    while world.now() < end {
        while let Some(completion) = world.poll(cq) {
            let now = world.now();
            if completion.status == remora_nic::Status::Success {
                gap = gap.max(now.since(succeeded).saturating_sub(PROBE_NS));
                succeeded = now;
            } else if !std::mem::replace(&mut broken, true) {
                connects = now.after(RECONNECT_NS);
            }
        }
        let now = world.now();
        if !registered && now.0 >= CHANGE_NS {
            registered = true;
            world.deregister(&there);
            there = world.register(1, PROBE as usize, ALL);
        }
        if connects <= now {
            connects = Instant::NEVER;
            [pair, served].into_iter().for_each(|end| world.bring(end, State::Reset));
            world.connect(pair, served, &settings);
        }
        if next <= now {
            if world.state(pair) == Some(State::Rts) {
                read(&mut world, pair, &here, &there);
            }
            next = now.after(PROBE_NS);
        }
        world.step_until(next.min(connects).min(end));
    }
    gap
}

fn read(world: &mut World, pair: QueuePair, here: &crate::Region, there: &crate::Region) {
    let list = [here.sge(0, PROBE as usize)];
    let request = WorkRequest {
        id: 0,
        operation: Operation::Read(there.remote(0)),
        payload: Payload::Sges(&list),
        flags: Flags { signaled: true, ..Flags::default() },
    };
    // If the send queue is full, the client skips this read.
    let _ = world.post(pair, &request);
}
