//! Replicated blocks in one process: three replicas and a client, over shared memory. `cargo run --example
//! block`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use remora_service::block::{OpenReplica, PrismRs, ReplicaConfig, Servers, Session, Size};
use remora_service::server::{HeapServer, Pace};
use remora_store::block::Layout;
use remora_verbs::{Device, Listener};

const SIZE: Size = Size { layout: Layout { blocks: 16, block_len: 4096 }, clients: 4 };

fn main() -> remora_service::Result<()> {
    // Three addresses of this host with the same free port.
    let port = Listener::bind("127.0.0.1:0")?.address().port();
    let servers = || Servers::fixed([1, 2, 3].map(|host| ([127, 0, 0, host], port).into()).to_vec());
    let stop = AtomicBool::new(false);
    // A client needs two of three replicas, but the third one opens while the others serve, so the client
    // waits for all.
    let (open, all_open) = mpsc::channel();
    let serve = &|replica, open: mpsc::Sender<()>| {
        let config = ReplicaConfig { replica, size: SIZE, new: true, listen: None };
        let nic = Device::shm().open()?;
        let mut own = OpenReplica::<HeapServer<PrismRs>>::open(&nic, servers(), &config, &mut |_| ())?;
        let _ = open.send(());
        own.service.work(Pace::default(), &own.listener, &stop)?;
        own.close()
    };
    let client = || {
        let mut session = Session::open(Device::shm().open()?, servers(), 1, true)?;
        session.write(7, &[1; 4096])?;
        session.read(7)
    };
    let read = std::thread::scope(|scope| {
        for replica in 0..3 {
            let open = open.clone();
            scope.spawn(move || serve(replica, open).expect("a replica"));
        }
        all_open.iter().take(3).for_each(drop);
        let read = client();
        stop.store(true, Ordering::Relaxed);
        read
    })?;
    println!("block 7 begins with {}", read[0]);
    Ok(())
}
