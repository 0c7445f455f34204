//! Tests of peers that violate the protocol.

use super::wire::below;
use super::world::{Arm, TwoSidedArm, World};
use crate::kv::{Broken, ClientConfig, Lookup, ServerConfig};
use crate::on_every_design;
use remora_nic::{CompletionKind, WorkCompletion, prism};
use remora_transport::Status;

fn world<A: Arm>() -> World<A> {
    let client = ClientConfig { window: 2, max_key: 16, max_value: 1000, eager: 256, inline: 0 };
    let server = ServerConfig {
        connections: 2,
        window: 4,
        max_key: 16,
        max_value: 1000,
        eager: 256,
        inline: 0,
        staging: 1,
    };
    World::new(client, server, 10, 1 << 16, 1)
}

fn received(buffer: u64, byte_len: u32, imm: Option<u32>) -> WorkCompletion {
    let kind = if imm.is_some() { CompletionKind::ReceiveWriteImm } else { CompletionKind::Receive };
    let id = 3 << 44 | buffer << 28;
    let status = Status::Success;
    WorkCompletion {
        id,
        status,
        kind,
        byte_len,
        imm,
        invalidated: None,
        qp_num: 7,
        src_qp: 0,
        grh: None,
        outcome: prism::Verdict::Done,
    }
}

#[test]
fn random_requests_never_panic_the_server() {
    on_every_design!(random_requests_never_panic_the_server_by);
}

fn random_requests_never_panic_the_server_by<A: Arm>() {
    let mut random = 11;
    let mut outcomes = [0; 2];
    let mut world = world::<A>();
    let mut malformed = 0;
    for round in 0..4000 {
        if round % 8 == 0 {
            // This client reads no responses, so it may be refused after a while.
            malformed += world.server.borrow().counters().malformed;
            world = self::world::<A>();
        }
        let len = below(&mut random, 300);
        let mut message: Vec<u8> = (0..len).map(|_| below(&mut random, 256) as u8).collect();
        if round % 2 == 0 && len >= 16 {
            // A plausible message with false lengths.
            message[..16].fill(0);
            message[0] = below(&mut random, 5) as u8;
            message[2] = below(&mut random, 3) as u8;
            message[8] = below(&mut random, 20) as u8;
            message[12] = below(&mut random, 100) as u8;
        }
        let staged = below(&mut random, 2) == 0;
        let imm = staged.then(|| below(&mut random, 2) as u32);
        // Local memory is block 3 or 2 of the server, staging memory the last one; the bytes are placed in
        // both.
        for block in world.wire.blocks_of(super::wire::Side::Server).iter().rev().take(2) {
            block.write(0, &message);
        }
        let completion = received(0, len as u32, imm);
        let end = &mut world.wire.ends[1];
        end.drain();
        let result = world.server.borrow_mut().handle(world.connection, &completion, end);
        assert!(matches!(result, Ok(()) | Err(Broken::Protocol)), "{result:?}");
        outcomes[usize::from(result.is_ok())] += 1;
    }
    assert!(outcomes.iter().all(|count| *count > 100), "{outcomes:?}");
    assert!(malformed > 100);
}

/// A READ may return any bytes of the server's memory. Garbage must end a lookup or let it continue within
/// its limits.
#[test]
fn random_bytes_never_panic_a_reader() {
    on_every_design!(random_bytes_never_panic_a_reader_by);
}

fn random_bytes_never_panic_a_reader_by<A: Arm>() {
    use crate::kv::Step;
    let world = world::<A>();
    let most = A::Lookup::landing_len(16, 1000);
    let lookup = A::Lookup::new(&world.grant, most);
    let mut random = 3;
    for round in 0..3000u64 {
        let mut progress = <A::Lookup as Lookup>::Progress::default();
        let mut step = lookup.begin(&mut progress, below(&mut random, usize::MAX) as u64);
        for _ in 0..1000 {
            let Step::Read(reads) = step else { break };
            assert!(reads.total_len() <= most && reads.total_len() > 0);
            let mut landed: Vec<u8> = match round % 3 {
                0 => (0..reads.total_len()).map(|_| below(&mut random, 256) as u8).collect(),
                1 => (0..reads.total_len()).map(|_| below(&mut random, 2) as u8).collect(),
                _ => vec![round as u8; reads.total_len()],
            };
            step = lookup.advance(&mut progress, b"key", &mut landed);
        }
        assert!(!matches!(step, Step::Read(_)), "a lookup ends");
    }
}

/// A chain may lead back to itself.
#[test]
fn a_chain_without_end_ends_the_lookup() {
    use super::world::FarmArm;
    use crate::kv::Step;
    let world = world::<FarmArm>();
    let lookup = <<FarmArm as Arm>::Lookup as Lookup>::new(&world.grant, 128);
    let mut line = [0; 64];
    (line[0], line[60], line[44]) = (1, 1, 1);
    let mut progress = Default::default();
    let mut step = lookup.begin(&mut progress, 7);
    let mut reads = 0;
    while let Step::Read(wanted) = step {
        let mut landed = line.repeat(wanted.total_len() / 64);
        step = lookup.advance(&mut progress, b"key", &mut landed);
        reads += 1;
    }
    assert!(matches!(step, Step::Contended) && reads < 5000, "{step:?} after {reads}");
}

#[test]
fn answers_to_nobody_break_the_client() {
    let good = [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let lies: [(usize, u8); 5] = [(0, 9), (2, 1), (2, 200), (4, 2), (8, 1)];
    for (index, byte) in lies {
        let mut world = world::<TwoSidedArm>();
        world.client.get(b"k", &mut world.wire.ends[0]).unwrap();
        let mut message = good;
        message[index] = byte;
        let arena = world.wire.blocks_of(super::wire::Side::Client).remove(0);
        let client = ClientConfig { window: 2, max_key: 16, max_value: 1000, eager: 256, inline: 0 };
        arena.write(client.receives_at::<crate::kv::two_sided::TwoSided>(), &message);
        world.wire.ends[0].drain();
        let end = &mut world.wire.ends[0];
        let result = world.client.complete(&received(0, 16, None), end);
        assert_eq!(result, Err(Broken::Protocol), "byte {index}");
        assert!(world.client.abandon().is_some());
    }
    let mut world = world::<TwoSidedArm>();
    let end = &mut world.wire.ends[0];
    end.drain();
    assert_eq!(world.client.complete(&received(0, 16, Some(2)), end), Err(Broken::Protocol));
}

#[test]
fn a_forgotten_connection_is_ignored() {
    let mut world = world::<TwoSidedArm>();
    let mut server = world.server.borrow_mut();
    server.disconnect(world.connection);
    server.disconnect(world.connection);
    assert_eq!(server.handle(world.connection, &received(0, 16, None), &mut world.wire.ends[1]), Ok(()));
}
