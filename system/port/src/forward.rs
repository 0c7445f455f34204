//! The methods of a port that its wrappers pass on unchanged to the port inside, in their field `port`.

/// Methods of `Egress`.
macro_rules! forward_egress {
    () => {
        fn start(&self, peer: Peer) -> Start {
            self.port.start(peer)
        }

        fn seals(&self, peer: Peer) -> bool {
            self.port.seals(peer)
        }

        fn nearest(&mut self, peer: Peer, qp: Qpn) -> Peer {
            self.port.nearest(peer, qp)
        }

        fn peer_of(&mut self, endpoint: &Endpoint, origin: Option<Origin>) -> Option<Peer> {
            self.port.peer_of(endpoint, origin)
        }
    };
}

/// Methods of `Port`.
macro_rules! forward_port {
    () => {
        fn receives_to_silence(&self) -> u32 {
            self.port.receives_to_silence()
        }

        fn endpoint(&self) -> Endpoint {
            self.port.endpoint()
        }

        fn source(&self) -> Endpoint {
            self.port.source()
        }

        fn source_to(&self, peer: Peer) -> Endpoint {
            self.port.source_to(peer)
        }

        fn max_transport_bytes(&self) -> usize {
            self.port.max_transport_bytes()
        }

        fn disarm(&mut self) {
            self.port.disarm();
        }

        fn poll_fds(&self, out: &mut Vec<RawFd>) {
            self.port.poll_fds(out);
        }

        fn show_ip_fields(&mut self) {
            self.port.show_ip_fields();
        }

        fn peer_endpoint(&self, peer: Peer) -> Option<Endpoint> {
            self.port.peer_endpoint(peer)
        }

        fn ethernet_addresses(&self, peer: Peer) -> Option<([u8; 6], [u8; 6])> {
            self.port.ethernet_addresses(peer)
        }
    };
}

pub(crate) use {forward_egress, forward_port};
