//! Transactions in one process: a shard and a client, over shared memory. `cargo run --example txn`.

use std::sync::atomic::{AtomicBool, Ordering};

use remora_service::server::Pace;
use remora_service::txn::{Client, Session, ShardConfig, Size, open_prism_tx};
use remora_verbs::{Device, Listener};

fn main() -> remora_service::Result<()> {
    let listener = Listener::bind("127.0.0.1:0")?;
    let address = listener.address();
    let stop = AtomicBool::new(false);
    let mut shard = open_prism_tx(Device::shm().open()?, &ShardConfig::of_keys(1000))?;
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let size = Size { window: 1, max_keys: 16 };
            let mut client = Client::new(Session::open(&Device::shm().open()?, &[address], size)?);
            client.transaction(|tx| tx.put(b"alice", b"70").and_then(|()| tx.put(b"bob", b"30")))?;
            let balances = client.transaction(|tx| Ok((tx.get(b"alice")?, tx.get(b"bob")?)));
            stop.store(true, Ordering::Relaxed);
            balances
        });
        shard.work(Pace::default(), &listener, &stop)?;
        println!("alice and bob: {:?}", client.join().expect("the client's thread")?);
        Ok(())
    })
}
