//! The user that holds a UDP port, as far as the kernel's tables tell.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// Returns the users whose sockets have this address and UDP port, or the port at every address, from the
/// kernel's table.
fn holders(table: &str, local: SocketAddr) -> impl Iterator<Item = u32> + '_ {
    // The kernel prints addresses as 32-bit words in the machine's byte order.
    let words = |octets: &[u8]| -> String {
        let word = |part: &[u8]| format!("{:08X}", u32::from_ne_bytes([part[0], part[1], part[2], part[3]]));
        octets.chunks_exact(4).map(word).collect()
    };
    let own = match local.ip() {
        IpAddr::V4(ip) => words(&ip.octets()),
        IpAddr::V6(ip) => words(&ip.octets()),
    };
    let every = "0".repeat(own.len());
    let places = [own, every].map(|address| format!("{address}:{:04X}", local.port()));
    table.lines().skip(1).filter_map(move |line| {
        let mut words = line.split_whitespace();
        let place = words.nth(1)?;
        places.iter().any(|own| own == place).then_some(())?;
        words.nth(5)?.parse().ok()
    })
}

/// Describes the holder of the UDP port, as far as it is known.
pub(super) fn who_has(address: SocketAddr) -> String {
    let SocketAddr::V4(_) = address else { return words(address, "/proc/thread-self/net/udp6") };
    words(address, "/proc/thread-self/net/udp")
}

fn words(address: SocketAddr, table: &str) -> String {
    let table = std::fs::read_to_string(table).unwrap_or_default();
    let own = remora_host::packet::own_uid();
    let ip = address.ip();
    let port = address.port();
    let begin = format!("UDP port {port} on {ip} is taken");
    match holders(&table, address).find(|uid| *uid != own) {
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

    /// Regression: a UDP port of one's own program was attributed to a user who had the same port at
    /// another address.
    #[test]
    fn the_kernels_table_tells_who_has_a_port_at_this_address_and_no_other() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                     44: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 32 2 0 0\n\
                     45: 00000000:12B8 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 33 2 0 0\n\
                     nonsense\n";
        let holders_of = |address: &str| holders(table, address.parse().unwrap()).collect::<Vec<_>>();
        assert_eq!(holders_of("127.0.0.1:4791"), [1000]);
        assert_eq!(holders_of("127.0.0.2:4791"), [0; 0], "a socket at another address");
        assert_eq!(holders_of("127.0.0.2:4792"), [0], "a socket bound to every address");
        assert_eq!(holders_of("127.0.0.1:1"), [0; 0]);
        let table = "head\n 1: 00000000000000000000000001000000:12B7 0:0 07 0:0 00:0 0  7 0 32 2 0 0\n";
        assert_eq!(holders(table, "[::1]:4791".parse().unwrap()).collect::<Vec<_>>(), [7]);
        assert_eq!(holders(table, "[::2]:4791".parse().unwrap()).count(), 0);
    }
}
