//! The name at which the broker of an address is found: an abstract Unix socket. Such names belong to the
//! network namespace, as addresses do, and go with the process that has them.

use std::net::SocketAddr;

/// RoCE's own UDP port.
const ROCE_PORT: u16 = 4791;

/// The one spelling of an address: RoCE's own UDP port, IPv4 in its own form.
pub(crate) fn standard(address: SocketAddr) -> SocketAddr {
    let mut address = remora_port::address::canonical(address);
    address.set_port(ROCE_PORT);
    if let SocketAddr::V6(v6) = &mut address {
        v6.set_flowinfo(0);
    }
    address
}

/// An address with its interface, and without a UDP port.
pub(crate) fn ip(address: SocketAddr) -> String {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
        _ => address.ip().to_string(),
    }
}

/// The name for this address.
pub(crate) fn of(address: SocketAddr) -> String {
    format!("remora-broker/{}", standard(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_one_name_and_an_interface_is_part_of_it() {
        let of = |text: &str| of(text.parse().unwrap());
        assert_eq!(of("127.0.0.1:0"), "remora-broker/127.0.0.1:4791");
        assert_eq!(of("[::ffff:127.0.0.1]:9"), of("127.0.0.1:0"));
        assert_eq!(of("[::1]:0"), "remora-broker/[::1]:4791");
        assert_ne!(of("[fe80::1%2]:0"), of("[fe80::1%3]:0"));
    }
}
