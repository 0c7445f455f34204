//! A key-value store in one process: a server and a client, over shared memory. `cargo run --example kv`.

use std::sync::atomic::{AtomicBool, Ordering};

use remora_service::kv::{self, KvSession as _, Limits, PrismDesign, Session, Size};
use remora_service::server::Pace;
use remora_verbs::{Device, Listener};

fn main() -> remora_service::Result<()> {
    let listener = Listener::bind("127.0.0.1:0")?;
    let address = listener.address().to_string();
    let stop = AtomicBool::new(false);
    let mut server = kv::open::<PrismDesign>(Device::shm().open()?, &Limits::default(), Size::of_keys(1000))?;
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let nic = Device::shm().open()?;
            let mut session = Session::<PrismDesign>::connect(&nic, &address, Default::default())?;
            session.put(b"colour", b"blue")?;
            let value = session.get(b"colour");
            stop.store(true, Ordering::Relaxed);
            value
        });
        server.work(Pace::default(), &listener, &stop)?;
        let value = client.join().expect("the client's thread")?;
        println!("colour: {}", String::from_utf8_lossy(&value.expect("what was stored")));
        Ok(())
    })
}
