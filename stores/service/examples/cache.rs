//! A cache in one process: a server and a client, over shared memory. `cargo run --example cache`.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;

use remora_service::cache::{Chains, Client, Server, ServerConfig, chains};
use remora_verbs::Device;

/// A free port of this host.
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn main() -> remora_service::Result<()> {
    let config = ServerConfig { listen: Some(ANY), ..ServerConfig::default() };
    let nic = chains::own(Device::shm(), config.clients)?;
    let chains = Chains::open(nic, ANY, config.memory, config.items, config.clients as usize)?;
    let address = chains.address().to_string();
    let (stopped, stop) = UnixStream::pair()?;
    let mut server = Server::open(&config, stopped, Some(&chains))?;
    let tcp = server.listeners().tcp().expect("a TCP address");
    chains.serve(server.directory().expect("memory that chains read"), tcp)?;
    std::thread::scope(|scope| {
        let client = scope.spawn(move || {
            // The server ends when `stop` is closed.
            let _stop = stop;
            let mut client = Client::connect(Device::shm().open()?, &address)?;
            client.set("colour", b"blue")?;
            client.ask(b"colour")
        });
        server.work()?;
        let value = client.join().expect("the client's thread")?;
        println!("colour: {}", String::from_utf8_lossy(&value.expect("what was stored")));
        Ok(())
    })
}
