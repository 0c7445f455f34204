//! The ECN field of frames (RFC 3168).

use remora_wire::ethernet;
use remora_wire::frame::{Network, Start};

/// Returns the ECN field of a frame; 0 if the frame has no IP header.
#[inline]
pub(crate) fn field(start: Start, frame: &[u8]) -> u8 {
    let offset = match start {
        Start::Bth => return 0,
        Start::Ip => 0,
        Start::Ethernet => ethernet::LEN,
    };
    let Some([version, class, ..]) = frame.get(offset..) else { return 0 };
    match version >> 4 {
        4 => class & 3,
        6 => class >> 4 & 3,
        _ => 0,
    }
}

/// Sets "congestion experienced" (CE) in an ECN-capable frame. Returns false, and changes nothing, if the
/// frame is not ECN-capable (RFC 3168 §5).
pub(crate) fn mark(start: Start, frame: &mut [u8]) -> bool {
    let offset = match start {
        Start::Bth => return false,
        Start::Ip => 0,
        Start::Ethernet => ethernet::LEN,
    };
    let Some(Ok((mut network, _))) = frame.get(offset..).map(Network::parse) else { return false };
    let ecn = match &mut network {
        Network::V4(header) => {
            let before = header.ecn;
            header.ecn = 3;
            before
        }
        Network::V6(header) => {
            let before = header.traffic_class & 3;
            header.traffic_class |= 3;
            before
        }
    };
    if ecn != 0 {
        network.emit(&mut frame[offset..]);
    }
    ecn != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_changes_the_ecn_field_and_its_checksum_and_only_where_it_may() {
        use remora_wire::frame::{Endpoint, Route};
        let v4 = |host| Endpoint { address: std::net::Ipv4Addr::new(10, 0, 0, host).into(), udp_port: 4791 };
        let v6 = |host| Endpoint {
            address: std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host).into(),
            udp_port: 4791,
        };
        let routes = [Route::new(v4(1), v4(2)), Route::new(v6(1), v6(2))];
        for (route, start) in routes.into_iter().zip([Start::Ip, Start::Ethernet]) {
            for (class, expected) in [(0, 0), (1, 3), (2, 3), (3, 3), (0xb8, 0xb8), (0xba, 0xbb)] {
                let mut frame = vec![0; 200];
                Route { traffic_class: class, ..route }.emit(start, 7, 100, &mut frame);
                let offset = if start == Start::Ip { 0 } else { ethernet::LEN };
                let ip = if start == Start::Ip { 20 } else { 40 };
                frame.truncate(offset + ip + 8 + 100);
                assert_eq!(field(start, &frame), class & 3);
                assert_eq!(mark(start, &mut frame), class & 3 != 0);
                let mut wanted = vec![0; frame.len()];
                Route { traffic_class: expected, ..route }.emit(start, 7, 100, &mut wanted);
                assert_eq!(frame, wanted, "class {class:#x}");
            }
        }
        assert!(!mark(Start::Bth, &mut [0; 64]));
        assert!(!mark(Start::Ip, &mut [0; 10]));
        assert_eq!(
            [field(Start::Bth, &[0x45, 3]), field(Start::Ip, &[0x45]), field(Start::Ethernet, &[])],
            [0; 3]
        );
    }
}
