//! Connection requests that arrive before a program listens. A program may be about to listen: perftest's
//! client connects while its server is still starting. If there is such a program, the request is kept for a
//! moment. Otherwise the peer is refused at once.

use remora_cm::{Cm, GidPair, Instant, MadPath};
use remora_wire::mad::{CmMessage, LEN, ServiceId, header};
use std::collections::VecDeque;

/// Maximum number of kept requests. Further ones are refused.
const HELD: usize = 64;
/// Time for which a request is kept, in nanoseconds: an eighth of a second.
const PATIENCE_NS: u64 = 125_000_000;

/// A request for a service that no id offers yet.
#[derive(Debug)]
struct EarlyRequest {
    until: Instant,
    path: MadPath,
    service_id: ServiceId,
    mad: Box<[u8; LEN]>,
}

/// The kept requests in the order of their arrival.
#[derive(Debug, Default)]
pub(crate) struct EarlyRequests(VecDeque<EarlyRequest>);

/// Returns the service that a MAD requests. `None` if the MAD is no request.
fn service_of(mad: &[u8; LEN]) -> Option<ServiceId> {
    let header = header::Repr::parse(&header::View::new(mad).ok()?);
    match CmMessage::parse(&header, &mad[header::LEN..]).ok()? {
        CmMessage::Req(req) => Some(req.service_id),
        CmMessage::SidrReq(req) => Some(req.service_id),
        _ => None,
    }
}

impl EarlyRequests {
    /// Keeps a MAD that requests a service which no id offers. Returns false if the MAD is no such request,
    /// or if too many are kept.
    pub(crate) fn hold(&mut self, now: Instant, path: MadPath, mad: &[u8], cm: &Cm) -> bool {
        let Some(mad) = mad.first_chunk::<LEN>() else { return false };
        let Some(service_id) = service_of(mad) else { return false };
        if cm.is_offered(service_id, path.gids) || self.0.len() >= HELD {
            return false;
        }
        let until = now.after(PATIENCE_NS);
        self.0.push_back(EarlyRequest { until, path, service_id, mad: Box::new(*mad) });
        true
    }

    /// Removes and returns the next request whose service is offered now, or that has waited long enough.
    pub(crate) fn next_ready(
        &mut self,
        now: Instant,
        is_offered: impl Fn(ServiceId, GidPair) -> bool,
    ) -> Option<(MadPath, Box<[u8; LEN]>)> {
        let is_ready =
            |early: &EarlyRequest| early.until <= now || is_offered(early.service_id, early.path.gids);
        let place = self.0.iter().position(is_ready)?;
        self.0.remove(place).map(|early| (early.path, early.mad))
    }

    /// The time at which the next request has waited long enough; [`Instant::NEVER`] if none is kept.
    pub(crate) fn next_deadline(&self) -> Instant {
        self.0.front().map_or(Instant::NEVER, |early| early.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_cm::{CmConfig, ConnectParam, Listen};
    use remora_wire::mad::{PortSpace, ip_cm};
    use remora_wire::{Address, Qpn};
    use std::net::Ipv4Addr;

    fn gids() -> GidPair {
        let [local, remote] = [1, 2].map(|host| Address::from(Ipv4Addr::new(10, 0, 0, host)));
        GidPair::new(local, remote)
    }

    /// Returns the MAD by which the other host requests this port.
    fn request(port: u16) -> [u8; LEN] {
        let mut peer = Cm::new(CmConfig::new(7, 8));
        let ways = GidPair::new(gids().remote, gids().local);
        let addresses = ip_cm::Addresses::of(ways.local, ways.remote);
        let ip = Some(ip_cm::Repr { port, addresses });
        let service_id = ServiceId::rdma_ip(PortSpace::Tcp, port);
        let param = ConnectParam { ip, ..ConnectParam::new(ways, service_id, Qpn::new(2)) };
        peer.connect(Instant(0), 1, &param).unwrap();
        let mut mad = [0; LEN];
        peer.transmit(&mut mad).unwrap();
        mad
    }

    /// Regression: perftest's client with `-R` was refused, because it connects while its server is
    /// about to listen.
    #[test]
    fn a_request_waits_for_who_begins_to_listen_and_no_longer_than_it_may() {
        let mut early = EarlyRequests::default();
        let mut cm = Cm::new(CmConfig::new(1, 2));
        for port in [7174, 7175] {
            assert!(early.hold(Instant(0), gids().into(), &request(port), &cm));
        }
        let ready = |early: &mut EarlyRequests, cm: &Cm, now| {
            early.next_ready(Instant(now), |service, address| cm.is_offered(service, address))
        };
        assert_eq!(ready(&mut early, &cm, 0), None);
        let service_id = ServiceId::rdma_ip(PortSpace::Tcp, 7175);
        cm.listen(9, &Listen { service_id, address: None, backlog: 8, zone: 0 }).unwrap();
        assert_eq!(*ready(&mut early, &cm, 0).unwrap().1, request(7175));
        assert_eq!(early.next_deadline(), Instant(PATIENCE_NS));
        assert_eq!(*ready(&mut early, &cm, PATIENCE_NS).unwrap().1, request(7174));
        assert_eq!((ready(&mut early, &cm, u64::MAX), early.next_deadline()), (None, Instant::NEVER));
        assert!(!early.hold(Instant(0), gids().into(), &request(7175), &cm), "somebody listens");
    }

    #[test]
    fn no_more_than_so_many_wait_and_nothing_but_requests() {
        let mut early = EarlyRequests::default();
        let cm = Cm::new(CmConfig::new(1, 2));
        let mad = request(7174);
        for _ in 0..HELD {
            assert!(early.hold(Instant(0), gids().into(), &mad, &cm));
        }
        assert!(!early.hold(Instant(0), gids().into(), &mad, &cm), "all places are taken");
        let mut early = EarlyRequests::default();
        for nonsense in [&[0; LEN][..], &[0xff; LEN], &mad[..LEN - 1], &[]] {
            assert!(!early.hold(Instant(0), gids().into(), nonsense, &cm));
        }
    }
}
