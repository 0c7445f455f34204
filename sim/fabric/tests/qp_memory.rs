//! Memory of an idle queue pair with four slots in each direction: a fabric of a thousand hosts has a million
//! of them.

use allocation_counter::measure;
use remora_fabric::{Config, Settings, World};
use remora_nic::Command;

const PAIRS: u64 = 256;

/// Returns the bytes per connected queue pair, including its rings and the world's records of it, and the
/// bytes that remain when all are destroyed.
fn bytes(irn: Option<u32>, reads: u8) -> (i64, i64) {
    let settings = Settings {
        send_slots: 4,
        receives: 4,
        receive_max_sge: 1,
        irn,
        max_rd_atomic: reads,
        max_dest_rd_atomic: reads,
        ..Settings::default()
    };
    let nic = remora_nic::Config { max_qps: 1024, ..Config::default().nic };
    let mut world = World::new(&Config { nic, ..Config::default() });
    let cqs = [0, 1].map(|node| world.create_counted_cq(node, 16));
    let mut pairs = Vec::with_capacity(PAIRS as usize);
    let made = measure(|| {
        for _ in 0..PAIRS {
            let ends = cqs.map(|cq| world.create_qp(cq, cq, &settings).unwrap());
            world.connect(ends[0], ends[1], &settings);
            pairs.push(ends);
        }
    });
    let gone = measure(|| {
        for qp in pairs.drain(..).flatten() {
            world.ask::<()>(qp.node, Command::DestroyQp(qp.number)).unwrap();
        }
    });
    let each = |bytes| bytes / (2 * PAIRS as i64);
    (each(made.bytes_current), each(made.bytes_current + gone.bytes_current))
}

#[test]
fn an_idle_queue_pair_of_four_slots_takes_few_kilobytes() {
    for (irn, reads, most) in
        [(None, 16, 5 << 10), (None, 1, 4 << 10), (Some(128), 16, 8 << 10), (Some(128), 1, 7 << 10)]
    {
        let (each, left) = bytes(irn, reads);
        println!("irn {irn:?}, {reads:2} READs: {each} bytes a queue pair, {left} of them left in the end");
        assert!(each <= most, "{each} bytes, {irn:?} {reads}");
        // The world keeps the rings and its table of queue pairs.
        assert!(left <= 1 << 10, "{left} bytes left, {irn:?} {reads}");
    }
}
