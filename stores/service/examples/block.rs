//! Replicated blocks in one process: three replicas and a client, over shared memory. `cargo run --example
//! block`.

use std::sync::atomic::{AtomicBool, Ordering};

use remora_service::block::{OpenReplica, PrismRs, ReplicaConfig, Servers, Session, Size};
use remora_service::server::{HeapServer, Pace};
use remora_store::block::Layout;
use remora_verbs::{Device, Listener};

fn main() -> remora_service::Result<()> {
    // Free addresses: each listener is gone before its replica binds it again.
    let free = [0; 3].map(|_| Listener::bind("127.0.0.1:0"));
    let addresses = free.into_iter().map(|listener| Ok(listener?.address())).collect::<Result<Vec<_>, _>>();
    let addresses = addresses.map_err(|error: remora_verbs::ConnectError| error)?;
    let stop = AtomicBool::new(false);
    let serve = |replica| {
        let size = Size { layout: Layout { blocks: 16, block_len: 4096 }, clients: 4 };
        let config = ReplicaConfig { replica, size, new: true, listen: None };
        let (nic, servers) = (Device::shm().open()?, Servers::fixed(addresses.clone()));
        let mut open = OpenReplica::<HeapServer<PrismRs>>::open(&nic, servers, &config, &mut |_| ())?;
        open.service.work(Pace::default(), &open.listener, &stop)?;
        open.close()
    };
    std::thread::scope(|scope| {
        let replicas = [0, 1, 2].map(|replica| scope.spawn(move || serve(replica)));
        let mut session = Session::open(Device::shm().open()?, Servers::fixed(addresses.clone()), 1, true)?;
        session.write(7, &[1; 4096])?;
        println!("block 7 begins with {}", session.read(7)?[0]);
        stop.store(true, Ordering::Relaxed);
        replicas.into_iter().try_for_each(|replica| replica.join().expect("a replica's thread"))
    })
}
