//! The Ethernet, IP and UDP headers of a connection's frames. They are written once and copied into each
//! frame; only lengths, identification and checksum change.

use remora_wire::frame::{Route, Start};
use remora_wire::{ethernet, ipv4, ipv6, udp};

/// Size in bytes of one of two moves that together copy an IPv4 and a UDP header.
const HALF: usize = 16;
const CAPACITY: usize = ethernet::LEN + ipv6::LEN + udp::LEN;

/// The bytes that precede the BTH in every frame of one route, as they were last written.
#[derive(Copy, Clone)]
pub(crate) struct Headers {
    bytes: [u8; CAPACITY],
    len: usize,
    /// Offset of the IP header; `None` if this port's frames begin with the BTH.
    network: Option<usize>,
    is_ipv4: bool,
    /// Sum of the IPv4 header's 16-bit words, without length, identification and checksum.
    sum: u32,
    /// Transport length (upper half) and identification (lower half) in `bytes`. The initial value matches no
    /// frame.
    written: u32,
}

impl Headers {
    /// Creates the headers of frames that begin with the layer `start`.
    pub(crate) fn new(route: &Route, start: Start) -> Headers {
        let is_ipv4 = route.source.address.is_ipv4() && route.destination.address.is_ipv4();
        let mut bytes = [0; CAPACITY];
        let len = route.emit(start, 0, 0, &mut bytes);
        let network = match start {
            Start::Bth => None,
            Start::Ip => Some(0),
            Start::Ethernet => Some(ethernet::LEN),
        };
        let mut sum = 0;
        if let (Some(offset), true) = (network, is_ipv4) {
            bytes[offset + 2..offset + 4].fill(0);
            bytes[offset + 10..offset + 12].fill(0);
            let words = bytes[offset..offset + ipv4::LEN].chunks_exact(2);
            sum = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
        }
        Headers { bytes, len, network, is_ipv4, sum, written: u32::MAX }
    }

    /// Returns the number of bytes that precede the BTH.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Writes the headers of a frame with `transport_len` bytes from BTH to the end of the ICRC.
    #[inline(always)]
    pub(crate) fn emit(&mut self, ip_id: u16, transport_len: usize, out: &mut [u8]) {
        let Some(network) = self.network else { return };
        let fields = (transport_len as u32) << 16 | u32::from(ip_id);
        // Successive frames of equal length and identification share the headers.
        if self.written != fields {
            self.written = fields;
            self.put(network, ip_id, transport_len);
        }
        // Copies of a fixed size compile to a few moves; a copy of a variable size is a function call.
        if self.is_ipv4 && network == 0 {
            // Two overlapping moves, which the compiler does not merge with the copy below.
            const TAIL: usize = ipv4::LEN + udp::LEN - HALF;
            out[..HALF].copy_from_slice(&self.bytes[..HALF]);
            out[TAIL..TAIL + HALF].copy_from_slice(&self.bytes[TAIL..TAIL + HALF]);
        } else {
            out[..self.len].copy_from_slice(&self.bytes[..self.len]);
        }
    }

    /// Writes lengths, identification and checksum into the header copy.
    fn put(&mut self, network: usize, ip_id: u16, transport_len: usize) {
        let udp_len = (transport_len + udp::LEN) as u16;
        let out = &mut self.bytes[network..self.len];
        let udp_at = if self.is_ipv4 { ipv4::LEN } else { ipv6::LEN };
        if self.is_ipv4 {
            let total = udp_len + ipv4::LEN as u16;
            let sum = self.sum + u32::from(total) + u32::from(ip_id);
            let sum = (sum & 0xffff) + (sum >> 16);
            let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
            out[2..4].copy_from_slice(&total.to_be_bytes());
            out[4..6].copy_from_slice(&ip_id.to_be_bytes());
            out[10..12].copy_from_slice(&checksum.to_be_bytes());
        } else {
            out[4..6].copy_from_slice(&udp_len.to_be_bytes());
        }
        out[udp_at + 4..udp_at + 6].copy_from_slice(&udp_len.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_wire::{Address, Endpoint};

    #[test]
    fn a_copy_is_what_the_route_writes() {
        let v4 = [[10, 0, 0, 1], [192, 168, 255, 254]].map(|a| Address::from(std::net::Ipv4Addr::from(a)));
        let v6 =
            ["fd00::1", "2001:db8::ffff"].map(|a| Address::from(a.parse::<std::net::Ipv6Addr>().unwrap()));
        for [source, destination] in [v4, v6] {
            let endpoint = |address, udp_port| Endpoint { address, udp_port };
            let mut route = Route::new(endpoint(source, 0xc123), endpoint(destination, 4791));
            route.traffic_class = 0x6a;
            for start in [Start::Bth, Start::Ip, Start::Ethernet] {
                let mut headers = Headers::new(&route, start);
                for (id, len) in [(0, 16), (1, 20), (0xffff, 4096 + 40), (63, 60_000)] {
                    let mut ours = [0; CAPACITY];
                    let mut theirs = [0; CAPACITY];
                    let written = route.emit(start, id, len, &mut theirs);
                    headers.emit(id, usize::from(len), &mut ours);
                    assert_eq!((headers.len(), ours), (written, theirs), "{start:?} id {id} len {len}");
                }
            }
        }
    }
}
