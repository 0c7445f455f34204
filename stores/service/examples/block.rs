//! Replicated blocks in one process: three replicas and a client, over shared memory. `cargo run --example
//! block`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use remora_service::Error;
use remora_service::block::{OpenReplica, PrismRs, ReplicaConfig, Servers, Session, Size};
use remora_service::server::{HeapServer, Pace};
use remora_store::block::Layout;
use remora_verbs::{Device, Listener};

const SIZE: Size = Size { layout: Layout { blocks: 16, block_len: 4096 }, clients: 4 };

fn main() -> remora_service::Result<()> {
    // Three addresses of this host, and a port that is free.
    let port = Listener::bind("127.0.0.1:0")?.address().port();
    let servers = || Servers::fixed([1, 2, 3].map(|host| ([127, 0, 0, host], port).into()).to_vec());
    let stop = AtomicBool::new(false);
    let serve = &|replica| {
        let config = ReplicaConfig { replica, size: SIZE, new: true, listen: None };
        let nic = Device::shm().open()?;
        let mut own = OpenReplica::<HeapServer<PrismRs>>::open(&nic, servers(), &config, &mut |_| ())?;
        own.service.work(Pace::default(), &own.listener, &stop)?;
        own.close()
    };
    let client = || {
        let mut session = loop {
            match Session::open(Device::shm().open()?, servers(), 1, true) {
                // The replicas do not serve before all three have met.
                Err(Error::Silent(_)) => std::thread::sleep(Duration::from_millis(20)),
                session => break session?,
            }
        };
        session.write(7, &[1; 4096])?;
        session.read(7)
    };
    let read = std::thread::scope(|scope| {
        for replica in 0..3 {
            scope.spawn(move || serve(replica).expect("a replica"));
        }
        let read = client();
        stop.store(true, Ordering::Relaxed);
        read
    })?;
    println!("block 7 begins with {}", read[0]);
    Ok(())
}
