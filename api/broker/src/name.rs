//! The name at which programs find the broker of an address: an abstract Unix socket. Such a name belongs to
//! the network namespace, as addresses do, and disappears with the process that has it.

use remora_host::packet::{PacketSocket, PeerCredentials, own_uid};
use remora_port::user;
use std::net::SocketAddr;
use std::time::Duration;

/// RoCE's own UDP port.
const ROCE_PORT: u16 = 4791;

/// Returns the canonical form of an address: with RoCE's UDP port, and IPv4 not mapped into IPv6.
pub(crate) fn standard(address: SocketAddr) -> SocketAddr {
    let mut address = remora_port::address::canonical(address);
    address.set_port(ROCE_PORT);
    if let SocketAddr::V6(v6) = &mut address {
        v6.set_flowinfo(0);
    }
    address
}

/// Formats an address with its interface, and without a UDP port.
pub(crate) fn ip(address: SocketAddr) -> String {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
        _ => address.ip().to_string(),
    }
}

/// Returns the socket name for this address.
pub(crate) fn of(address: SocketAddr) -> String {
    format!("remora-broker/{}", standard(address))
}

/// Time limit for the holder of a name to accept a connection, which reveals the holder's user.
const PATIENCE: Duration = Duration::from_millis(100);

/// Returns the process that listens at the name of this address. `None` if no process accepts a connection.
pub(crate) fn holder(address: SocketAddr) -> Option<PeerCredentials> {
    PacketSocket::connect_abstract(&of(address), PATIENCE).ok()?.peer().ok()
}

/// Returns the message about an address whose broker belongs to another user.
pub(crate) fn taken(address: SocketAddr, holder: &PeerCredentials) -> String {
    let PeerCredentials { uid, pid } = *holder;
    let ip = ip(address);
    format!(
        "{ip} is taken by process {pid} of {}, and programs of user {} use no broker of that user, which could read their \
         frames: have it ended (root can: `kill {pid}`), or choose another address, such as 127.0.0.2",
        user::name(uid),
        own_uid()
    )
}

/// Returns the message about an address whose name is taken.
pub(crate) fn running(address: SocketAddr, holder: Option<&PeerCredentials>) -> String {
    let ip = ip(address);
    match holder {
        Some(holder) if !holder.is_trusted(&[]) => taken(address, holder),
        Some(PeerCredentials { uid, pid }) => format!(
            "a broker has {ip} already, process {pid} of user {uid}: programs find it by themselves, and `remora doctor` shows \
             their QPN ranges"
        ),
        None => format!(
            "a broker has {ip} already, or a process that takes no connection has its name: `ss -xlp | grep remora-broker` names \
             the process"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: `remora doctor` advised to trust a stranger that had taken the name of an address's
    /// broker.
    #[test]
    fn a_name_of_another_user_is_reported_with_the_user_and_never_as_a_broker_to_use() {
        let address = "127.0.0.1:4791".parse().unwrap();
        let own = PeerCredentials { uid: own_uid(), pid: 70 };
        let words = running(address, Some(&own));
        assert!(words.contains("a broker has 127.0.0.1 already, process 70 of user"), "{words}");
        let stranger = PeerCredentials { uid: 4_000_111, pid: 70 };
        for words in [running(address, Some(&stranger)), taken(address, &stranger)] {
            assert!(words.contains("process 70 of user 4000111") && words.contains("`kill 70`"), "{words}");
            assert!(!words.contains("a broker has") && !words.contains("REMORA_ALLOW_UID"), "{words}");
        }
    }

    #[test]
    fn one_address_has_one_name_and_an_interface_is_part_of_it() {
        let name_of = |text: &str| of(text.parse().unwrap());
        assert_eq!(name_of("127.0.0.1:0"), "remora-broker/127.0.0.1:4791");
        assert_eq!(name_of("[::ffff:127.0.0.1]:9"), name_of("127.0.0.1:0"));
        assert_eq!(name_of("[::1]:0"), "remora-broker/[::1]:4791");
        assert_ne!(name_of("[fe80::1%2]:0"), name_of("[fe80::1%3]:0"));
    }
}
