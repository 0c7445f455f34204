//! The placement of the two sides of a measurement: on the loopback interface, or in network namespaces with
//! AF_XDP between them.
//!
//! | module | contents |
//! |---|---|
//! | [`veth`] | the namespaces and the interfaces between them |
//! | [`process`] | a process that a measurement starts, stops and ends |

pub mod process;
pub mod veth;

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;

use anyhow::Result;

use self::veth::{Side, Veth};
use remora_options::device::{LOOPBACK, PortArgs, PortName};

/// The network of a process.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// The network in which this program was started, for both processes.
    Loopback,
    /// A side of the veth pairs.
    Veth(Side),
}

impl Network {
    /// Returns the address of NICs with this port, and of their listeners.
    pub fn address(self, port: PortName) -> IpAddr {
        match (self, port) {
            (Network::Loopback, _) => LOOPBACK,
            (Network::Veth(side), PortName::Xdp) => side.nic(),
            (Network::Veth(side), _) => side.kernel(),
        }
    }
}

/// A port, the cores of the two sides, and the network between them.
pub struct Testbed {
    port: PortName,
    cores: [usize; 2],
    veth: Option<Veth>,
}

impl Testbed {
    /// Makes a test bed on the loopback interface.
    pub fn loopback(port: PortName, cores: [usize; 2]) -> Testbed {
        Testbed { port, cores, veth: None }
    }

    /// Returns the ports to measure. xdp comes last, since a process that has entered its namespaces stays
    /// there.
    pub fn ports(only: Option<PortName>) -> impl Iterator<Item = PortName> {
        let all = [PortName::Shm, PortName::Udp, PortName::Xdp];
        all.into_iter().filter(move |port| only.is_none_or(|only| only == *port))
    }

    /// Creates a test bed and moves this process to the clients' side. On port xdp the test bed has `links`
    /// veth pairs, one for each server, since an interface has one NIC. Returns `None` if no namespaces can
    /// be created and the port was not `asked` for explicitly.
    ///
    /// # Errors
    /// Fails if the namespaces cannot be created.
    pub fn open(port: PortName, cores: [usize; 2], links: usize, asked: bool) -> Result<Option<Testbed>> {
        let link = |veth: &mut Veth| (0..links).try_for_each(|link| veth.add_link(link));
        Testbed::entered(port, cores, asked, link)
    }

    /// Like [`open`](Testbed::open), for `stores` stores of `replicas` replicas each. On port xdp each
    /// replica has its own namespace and each store has a bridge.
    ///
    /// # Errors
    /// Fails if the namespaces cannot be created.
    pub fn open_replicated(
        port: PortName,
        cores: [usize; 2],
        stores: usize,
        replicas: usize,
        asked: bool,
    ) -> Result<Option<Testbed>> {
        Testbed::entered(port, cores, asked, |veth| veth.add_bridges(stores, replicas))
    }

    fn entered(
        port: PortName,
        cores: [usize; 2],
        asked: bool,
        add: impl FnOnce(&mut Veth) -> Result<()>,
    ) -> Result<Option<Testbed>> {
        if port != PortName::Xdp {
            return Ok(Some(Testbed::loopback(port, cores)));
        }
        let made = Veth::create().and_then(|mut veth| {
            add(&mut veth)?;
            veth.enter()?;
            Ok(veth)
        });
        match made {
            Ok(veth) => Ok(Some(Testbed { port, cores, veth: Some(veth) })),
            Err(error) if asked => Err(error),
            Err(error) => {
                tracing::warn!("port xdp is left out: {error:#}");
                Ok(None)
            }
        }
    }

    /// Returns the port.
    pub fn port(&self) -> PortName {
        self.port
    }

    /// Returns the cores of clients and servers.
    pub fn cores(&self) -> [usize; 2] {
        self.cores
    }

    /// Returns the network of the clients.
    pub fn network(&self) -> Network {
        if self.veth.is_some() { Network::Veth(Side::Near) } else { Network::Loopback }
    }

    /// Returns a command that starts a program at a side.
    pub fn command(&self, side: Side, program: impl AsRef<OsStr>) -> Command {
        match &self.veth {
            None => Command::new(program),
            Some(veth) => veth.command(side, program),
        }
    }

    /// Returns a command that starts this program on the servers' side, without arguments.
    ///
    /// # Errors
    /// Fails if the system does not know the path of this program.
    pub fn program(&self) -> Result<Command> {
        Ok(self.command(Side::Far, std::env::current_exe()?))
    }

    /// Returns the options that tell a server its port and the address on which it listens.
    pub fn server(&self, link: usize) -> Vec<String> {
        let mut words = vec!["--port".to_owned(), self.port.name().to_owned(), "--listen".to_owned()];
        if self.veth.is_none() {
            words.push("127.0.0.1:0".to_owned());
            return words;
        }
        let [_, far] = Veth::link_addresses(link);
        words.push(format!("{far}:0"));
        words.extend(
            ["--interface", &Veth::link_name(link), "--address", &far.to_string()].map(str::to_owned),
        );
        words
    }

    /// Returns the port of a client on a link.
    pub fn client(&self, link: usize) -> PortArgs {
        self.port_of(Side::Near, link)
    }

    /// Returns the port of a server on a link. The server is a thread that has called
    /// [`go_there`](Testbed::go_there).
    pub fn host(&self, link: usize) -> PortArgs {
        self.port_of(Side::Far, link)
    }

    fn port_of(&self, side: Side, link: usize) -> PortArgs {
        let plain = PortArgs::plain(self.port);
        if self.veth.is_none() {
            return plain;
        }
        let [near, far] = Veth::link_addresses(link);
        let address = if side == Side::Near { near } else { far };
        PortArgs { interface: Some(Veth::link_name(link)), address: Some(address.into()), ..plain }
    }

    /// Returns the port of a client of a replicated store.
    pub fn replicas_client(&self, store: usize) -> PortArgs {
        let plain = PortArgs::plain(self.port);
        match &self.veth {
            None => plain,
            Some(_) => PortArgs { interface: Some(Veth::store_name(store)), ..plain },
        }
    }

    /// Returns the options that tell the process of a store's replicas its port and the address of each
    /// replica.
    pub fn replicas_server(&self, store: usize) -> Vec<String> {
        let mut words = vec!["--port".to_owned(), self.port.name().to_owned()];
        if let Some(veth) = &self.veth {
            words.extend(["--interface".to_owned(), Veth::store_name(store)]);
            words.extend(veth.replicas().flat_map(|space| ["--within".to_owned(), space.to_owned()]));
        }
        words
    }

    /// Returns the address of a replica; stores and replicas are counted from 0.
    pub fn replica_address(&self, store: usize, replica: usize) -> IpAddr {
        if self.veth.is_some() { Veth::store_address(store, replica + 1) } else { LOOPBACK }
    }

    /// Moves this thread, and the threads that it starts later, to the servers' side for good. Returns the
    /// address on which a server listens there.
    ///
    /// # Errors
    /// Fails if the thread may not enter the namespace.
    pub fn go_there(&self) -> Result<SocketAddr> {
        let Some(veth) = &self.veth else { return Ok((LOOPBACK, 0).into()) };
        veth.enter_side(Side::Far)?;
        let [_, far] = Veth::link_addresses(0);
        Ok((far, 0).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_the_loopback_a_server_takes_any_address_and_xdp_comes_last() {
        let testbed = Testbed::loopback(PortName::Udp, [0, 0]);
        assert_eq!(testbed.server(3), ["--port", "udp", "--listen", "127.0.0.1:0"]);
        assert_eq!(testbed.replicas_server(1), ["--port", "udp"]);
        assert_eq!(Testbed::ports(None).last(), Some(PortName::Xdp));
        assert!(Testbed::ports(Some(PortName::Udp)).eq([PortName::Udp]));
    }
}
