//! The addresses of a broker, and the sockets of each.

use remora_host::packet::PacketListener;
use remora_port::udp::{Options, ReuseportGroup, SteeredBy};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;

use super::BrokerError;
use crate::name;

/// Addresses of one broker at most.
pub(super) const ADDRESSES: usize = 8;

/// One address: the name at which programs find the broker, and the sockets, once a program has asked.
#[derive(Debug)]
pub(super) struct Address {
    pub local: SocketAddr,
    pub listener: PacketListener,
    pub group: Option<ReuseportGroup>,
}

impl Address {
    /// Takes the name of an address, which no other broker can have then.
    pub fn new(local: SocketAddr) -> Result<Address, BrokerError> {
        remora_port::address::single(local.ip()).map_err(|why| BrokerError::Port(why.to_string()))?;
        remora_port::address::zoned(local).map_err(|why| BrokerError::Port(why.to_string()))?;
        let listener =
            PacketListener::bind_abstract(&name::of(local)).map_err(|error| match error.kind() {
                ErrorKind::AddrInUse => BrokerError::Running(local),
                _ => BrokerError::System("socket", error),
            })?;
        Ok(Address { local, listener, group: None })
    }

    /// Binds its sockets, unless they are.
    pub fn bind(&mut self, steered: SteeredBy) -> Result<&mut ReuseportGroup, BrokerError> {
        let group = match self.group.take() {
            Some(bound) => bound,
            None => ReuseportGroup::bind(self.local, steered, &Options::default())
                .map_err(BrokerError::of_port)?,
        };
        Ok(self.group.insert(group))
    }
}

/// A line of the kernel's tables of UDP sockets: the local address, and the user.
fn holders(table: &str, port: u16) -> impl Iterator<Item = u32> + '_ {
    table.lines().skip(1).filter_map(move |line| {
        let mut words = line.split_whitespace();
        let (_, at) = words.nth(1)?.rsplit_once(':')?;
        (u16::from_str_radix(at, 16).ok()? == port).then_some(())?;
        words.nth(5)?.parse().ok()
    })
}

/// Says who has the UDP port, as far as the system tells.
pub(super) fn who_has(at: SocketAddr) -> String {
    let SocketAddr::V4(_) = at else { return words(at, "/proc/thread-self/net/udp6") };
    words(at, "/proc/thread-self/net/udp")
}

fn words(at: SocketAddr, table: &str) -> String {
    let table = std::fs::read_to_string(table).unwrap_or_default();
    let own = remora_host::packet::own_uid();
    let (ip, port) = (at.ip(), at.port());
    let begin = format!("UDP port {port} on {ip} is taken");
    match holders(&table, port).find(|uid| *uid != own) {
        _ if Path::new("/sys/module/rdma_rxe").exists() => format!(
            "{begin} by the kernel's Soft-RoCE: remove its link (`rdma link delete rxe0`) and its module (`modprobe -r rdma_rxe`)"
        ),
        Some(uid) => format!(
            "{begin} by user {uid}, and only sockets of one user share it: let root or that user run `remora broker --allow-uid {own}`, or choose another address, such as 127.0.0.2"
        ),
        None => format!(
            "{begin} by a program of your own: end it (`ss -ulpn 'sport = :{port}'` names it; programs of a broker that was killed count, too), or choose another address"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_tells_who_has_a_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                     44: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 32 2 0 0\n\
                     45: 00000000:12B8 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 33 2 0 0\n\
                     nonsense\n";
        assert_eq!(holders(table, 4791).collect::<Vec<_>>(), [1000]);
        assert_eq!(holders(table, 4792).collect::<Vec<_>>(), [0]);
        assert_eq!(holders(table, 1).count(), 0);
    }
}
