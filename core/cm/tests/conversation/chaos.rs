//! Programs that make any call at any time, and hosts that restart: all invariants must hold, and
//! everything that programs leave behind must end by itself.

use remora_cm::{CmConfig, ConnectParam, GidPair, Instant, Listen, SidrReplyParam, SidrRequestParam};
use remora_wire::Qpn;
use remora_wire::mad::{PortSpace, RejectReason, ServiceId, SidrStatus, ip_cm};

use crate::link::{Seed, World};
use crate::node::{Node, SECOND, acceptance, address, config, param};

const DATAGRAMS: ServiceId = ServiceId::rdma_ip(PortSpace::Udp, 7174);

/// Makes one call of a program at a node, with a handle that may be any id's.
fn call(world: &mut World, index: usize) {
    let random = &mut world.random;
    let now = world.now;
    let node = &mut world.nodes[index];
    let handle = if random.chance(0.6) { 1_000 + random.below(8) } else { random.below(8) };
    let source = node.n;
    let destination = if random.chance(0.9) { 3 - node.n } else { node.n };
    let cm = &mut node.cm;
    let _ = match random.below(12) {
        0..=2 => {
            let qpn = Qpn::new(random.below(6) as u32);
            let max_cm_retries = random.below(4) as u8;
            cm.connect(now, handle, &ConnectParam { qpn, max_cm_retries, ..param(source, destination) })
        }
        3 => {
            let service_id = if random.chance(0.7) { crate::node::SERVICE } else { DATAGRAMS };
            cm.listen(
                handle,
                &Listen { service_id, address: None, backlog: 1 + random.below(3) as u32, zone: 0 },
            )
        }
        4..=5 => {
            let qpn = Qpn::new(random.below(6) as u32);
            cm.accept(now, handle, &remora_cm::AcceptParam { qpn, ..acceptance() })
        }
        6 => cm.ready_to_use(handle, &[]),
        7 => cm.reject(now, handle, &remora_cm::RejectParam::new(RejectReason(random.below(40) as u16))),
        8 => cm.disconnect(now, handle, &[]),
        9 => cm.establish(handle),
        10 => {
            let gids = GidPair::new(address(source), address(destination));
            let ip = Some(ip_cm::Repr { port: 1, addresses: ip_cm::Addresses::of(gids.local, gids.remote) });
            let question =
                SidrRequestParam { ip, max_cm_retries: 2, ..SidrRequestParam::new(gids, DATAGRAMS) };
            let reply =
                SidrReplyParam { status: SidrStatus::VALID, qpn: Qpn::new(5), qkey: 1, private_data: &[] };
            if random.chance(0.5) {
                cm.sidr_request(now, handle, &question)
            } else {
                cm.sidr_reply(now, handle, &reply)
            }
        }
        _ => cm.destroy(now, handle),
    };
    cm.check();
    if node.fresh > 1_006 {
        // Handles are reused.
        node.fresh = 1_000;
    }
}

/// Lets one random thing happen; programs react to half of their events.
fn happen(world: &mut World, seed: u64) {
    match world.random.below(20) {
        0..=9 => {
            let index = world.random.below(2) as usize;
            call(world, index);
        }
        // A host restarts.
        10 if world.random.chance(0.1) => {
            let index = world.random.below(2) as usize;
            let n = world.nodes[index].n;
            let small = CmConfig { max_ids: 6, max_outgoing: 6, max_events: 6, ..config(n) };
            world.nodes[index] = Node::new(n, CmConfig { seed, ..small });
        }
        _ => {
            let until = world.now.after(world.random.below(10 * SECOND));
            world.step(until);
        }
    }
    let index = world.random.below(2) as usize;
    if world.random.chance(0.5) {
        world.events(index);
    }
}

/// Programs make any call in any state, and hosts restart.
#[test]
fn whatever_programs_call_all_invariants_hold_and_nothing_is_left() {
    for seed in 0..3_000 {
        let _named = Seed(seed);
        let mut world = World::new(seed);
        for _ in 0..120 {
            happen(&mut world, seed);
        }
        // All programs end.
        for index in 0..2 {
            for handle in (0..8).chain(1_000..1_010) {
                world.events(index);
                world.pump();
                let now = world.now;
                let _ = world.nodes[index].cm.destroy(now, handle);
                assert_eq!(world.nodes[index].cm.state(handle), None, "{handle}");
            }
        }
        for _ in 0..10_000 {
            world.events(0);
            world.events(1);
            if !world.step(Instant::NEVER) {
                break;
            }
        }
        world.expect_nothing_left();
    }
}
