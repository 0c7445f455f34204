//! Where the servers and clients of a benchmark meet: on the loopback, or by AF_XDP between network
//! namespaces, on a link for each server, since an interface has one NIC.

pub mod page;
pub mod pair;
pub mod process;
pub mod veth;

use std::net::SocketAddr;
use std::process::Command;

use anyhow::Result;

use self::veth::{Side, Veth};
use crate::command::device::{LOOPBACK, PortArgs};
use crate::{Bare, PortName};

/// A port, and the place where it is measured.
pub struct Site {
    port: PortName,
    veth: Option<Veth>,
}

impl Site {
    /// On the loopback.
    pub fn loopback(port: PortName) -> Site {
        Site { port, veth: None }
    }

    /// The ports that are asked for; xdp is the last, for who goes there stays there.
    pub fn ports(only: Option<PortName>) -> impl Iterator<Item = PortName> {
        let all = [PortName::Shm, PortName::Udp, PortName::Xdp];
        all.into_iter().filter(move |port| only.is_none_or(|only| only == *port))
    }

    /// Makes it, and goes there, with `links` where each needs one. None: no namespaces can be made, and
    /// nobody `asked` for just them.
    ///
    /// # Errors
    /// They cannot be made.
    pub fn open(port: PortName, links: usize, asked: bool) -> Result<Option<Site>> {
        if port != PortName::Xdp {
            return Ok(Some(Site::loopback(port)));
        }
        let made = Veth::create().and_then(|veth| {
            (0..links).try_for_each(|link| veth.add_link(link))?;
            veth.enter()?;
            Ok(veth)
        });
        match made {
            Ok(veth) => Ok(Some(Site { port, veth: Some(veth) })),
            Err(error) if asked => Err(error),
            Err(error) => {
                tracing::warn!("port xdp is left out: {error:#}");
                Ok(None)
            }
        }
    }

    /// Which port.
    pub fn port(&self) -> PortName {
        self.port
    }

    /// This program, to be started where servers are, with nothing after its name.
    ///
    /// # Errors
    /// Nobody knows which program this is.
    pub fn program(&self) -> Result<Command> {
        let program = std::env::current_exe()?;
        Ok(match &self.veth {
            None => Command::new(program),
            Some(veth) => {
                let [first, rest @ ..] = veth.far();
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
        })
    }

    /// What a server on a link is told of its port and of where to listen.
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

    /// The port of a client on a link.
    pub fn client(&self, link: usize) -> PortArgs {
        self.port_of(Side::Near, link)
    }

    /// The port of a server on a link, which is a thread that has [gone there](Site::go_there).
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

    /// Moves this thread, and those that it will start, to where servers are, for good. Where such a server
    /// listens.
    ///
    /// # Errors
    /// It may not go there.
    pub fn go_there(&self) -> Result<SocketAddr> {
        let Some(veth) = &self.veth else { return Ok((LOOPBACK, 0).into()) };
        veth.enter_side(Side::Far)?;
        let [_, far] = Veth::link_addresses(0);
        Ok((far, 0).into())
    }

    /// The bare verbs here.
    ///
    /// # Errors
    /// The other process does not start.
    pub fn bare(&self, cores: [usize; 2]) -> Result<Bare> {
        match &self.veth {
            None => Bare::open(self.port, cores),
            Some(veth) => Bare::open_between(veth, self.port, cores),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_the_loopback_a_server_takes_any_address_and_xdp_comes_last() {
        let words = Site::loopback(PortName::Udp).server(3);
        assert_eq!(words, ["--port", "udp", "--listen", "127.0.0.1:0"]);
        assert_eq!(Site::ports(None).last(), Some(PortName::Xdp));
        assert!(Site::ports(Some(PortName::Udp)).eq([PortName::Udp]));
    }
}
