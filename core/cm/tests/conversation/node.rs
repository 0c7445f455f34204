//! A manager with its address, and two of them on a link without loss.

use std::net::Ipv4Addr;

use remora_cm::{
    AcceptParam, Cm, CmConfig, CmEvent, ConnectParam, EventKind, GidPair, Instant, Listen, MadPath,
    RejectParam,
};
use remora_wire::mad::{CmMessage, LEN, PortSpace, RejectReason, ServiceId, header, ip_cm};
use remora_wire::{Address, Psn, Qpn};

/// The service that tests listen for.
pub(crate) const SERVICE: ServiceId = ServiceId::rdma_ip(PortSpace::Tcp, 7174);

/// Nanoseconds of a second.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// The bytes of a MAD.
pub(crate) type Mad = [u8; LEN];

/// Returns the address of the `n`-th node.
pub(crate) fn address(n: u8) -> Address {
    Ipv4Addr::new(10, 0, 0, n).into()
}

/// Returns the configuration of a small manager for the `n`-th node.
pub(crate) fn config(n: u8) -> CmConfig {
    let small =
        CmConfig { max_ids: 16, max_listeners: 4, max_outgoing: 32, max_events: 32, ..CmConfig::new(0, 0) };
    CmConfig { ca_guid: 0x0200_0000_0000_0000 | u64::from(n), seed: 0x1357_0000 * u64::from(n) + 7, ..small }
}

/// Parses the message of a MAD.
pub(crate) fn message(mad: &Mad) -> CmMessage {
    let header = header::Repr::parse(&header::View::new(mad).unwrap());
    CmMessage::parse(&header, &mad[header::LEN..]).expect("a message of a manager")
}

/// Returns the name of a MAD's message.
pub(crate) fn name(mad: &Mad) -> &'static str {
    header::View::new(mad).unwrap().attribute().name().unwrap()
}

/// Returns the parameters of a request of node `source` to node `destination`, with distinct values.
pub(crate) fn param(source: u8, destination: u8) -> ConnectParam<'static> {
    let gids = GidPair::new(address(source), address(destination));
    let ip = ip_cm::Repr { port: 40_000, addresses: ip_cm::Addresses::of(gids.local, gids.remote) };
    let new = ConnectParam::new(gids, SERVICE, Qpn::new(0x10_0000 | u32::from(source)));
    ConnectParam {
        ip: Some(ip),
        starting_psn: Psn::new(0x11_1111),
        private_data: b"from the active side",
        ..new
    }
}

/// Returns the parameters of an acceptance, with distinct values.
pub(crate) fn acceptance() -> AcceptParam<'static> {
    AcceptParam {
        qpn: Qpn::new(0x20_0000),
        starting_psn: Psn::new(0x22_2222),
        responder_resources: 4,
        initiator_depth: 3,
        rnr_retry_count: 5,
        private_data: b"from the passive side",
        ..AcceptParam::default()
    }
}

/// Returns the parameters of a refusal by the program.
pub(crate) fn refusal() -> RejectParam<'static> {
    RejectParam::new(RejectReason::CONSUMER)
}

/// A manager and the handles of its ids.
pub(crate) struct Node {
    pub cm: Cm,
    pub n: u8,
    pub fresh: u64,
}

impl Node {
    pub(crate) fn new(n: u8, config: CmConfig) -> Node {
        Node { cm: Cm::new(config), n, fresh: 1_000 }
    }

    /// Listens for [`SERVICE`] with handle 1.
    pub(crate) fn listen(&mut self, backlog: u32) {
        self.cm.listen(1, &Listen { service_id: SERVICE, address: None, backlog, zone: 0 }).unwrap();
    }

    /// Processes a MAD from node `sender`.
    pub(crate) fn receive(&mut self, now: Instant, sender: u8, mad: &[u8]) {
        self.receive_classed(now, sender, 0, mad);
    }

    /// Takes a MAD that arrives from node `sender` with this traffic class.
    pub(crate) fn receive_classed(&mut self, now: Instant, sender: u8, traffic_class: u8, mad: &[u8]) {
        let gids = GidPair::new(address(self.n), address(sender));
        if self.cm.receive(now, MadPath { gids, traffic_class }, mad, self.fresh) {
            self.fresh += 1;
        }
        self.cm.check();
    }

    /// Takes the MADs to send.
    pub(crate) fn sent(&mut self) -> Vec<Mad> {
        let mut mad = [0; LEN];
        std::iter::from_fn(|| self.cm.transmit(&mut mad).map(|_| mad)).collect()
    }

    /// Takes the MADs to send, and returns their traffic classes.
    pub(crate) fn sent_classes(&mut self) -> Vec<u8> {
        let mut mad = [0; LEN];
        std::iter::from_fn(|| self.cm.transmit(&mut mad).map(|path| path.traffic_class)).collect()
    }

    /// Takes the next event, which must be the only one.
    #[track_caller]
    pub(crate) fn event(&mut self) -> CmEvent {
        let event = self.cm.next_event().expect("an event");
        assert_eq!(self.cm.next_event(), None, "only one event is expected");
        event
    }

    /// Takes the only event, which must be of this kind, and returns its handle.
    #[track_caller]
    pub(crate) fn expect(&mut self, is: fn(&EventKind) -> bool) -> u64 {
        let event = self.event();
        assert!(is(&event.kind), "{event:?}");
        event.handle
    }

    /// Checks that there are no events and no MADs.
    #[track_caller]
    pub(crate) fn expect_silence(&mut self) {
        assert_eq!(self.cm.next_event(), None);
        assert!(self.sent().is_empty());
    }
}

/// Two nodes: node 1 is active, node 2 listens.
pub(crate) struct Pair {
    pub active: Node,
    pub passive: Node,
    pub now: Instant,
}

/// Handle of the active side's id.
pub(crate) const ACTIVE: u64 = 5;

impl Pair {
    pub(crate) fn new() -> Pair {
        let active = Node::new(1, config(1));
        let mut passive = Node::new(2, config(2));
        passive.listen(4);
        Pair { active, passive, now: Instant(SECOND) }
    }

    /// Delivers messages until none is left, and returns their names.
    pub(crate) fn exchange(&mut self) -> Vec<&'static str> {
        let mut names = Vec::new();
        loop {
            let to_passive = self.active.sent();
            let to_active = self.passive.sent();
            if to_passive.is_empty() && to_active.is_empty() {
                return names;
            }
            for mad in to_passive {
                names.push(name(&mad));
                self.passive.receive(self.now, 1, &mad);
            }
            for mad in to_active {
                names.push(name(&mad));
                self.active.receive(self.now, 2, &mad);
            }
        }
    }

    /// Lets the active side send its request, and returns the handle of the passive side.
    pub(crate) fn request(&mut self) -> u64 {
        self.active.cm.connect(self.now, ACTIVE, &param(1, 2)).unwrap();
        self.exchange();
        self.passive.expect(|kind| matches!(kind, EventKind::ConnectRequest(_)))
    }

    /// Lets the passive side accept, and returns its handle.
    pub(crate) fn respond(&mut self) -> u64 {
        let handle = self.request();
        self.passive.cm.accept(self.now, handle, &acceptance()).unwrap();
        self.exchange();
        self.active.expect(|kind| matches!(kind, EventKind::ConnectResponse(_)));
        handle
    }

    /// Creates a pair with an established connection, and returns it with the handle of the passive side.
    pub(crate) fn established() -> (Pair, u64) {
        let mut pair = Pair::new();
        let handle = pair.respond();
        pair.active.cm.ready_to_use(ACTIVE, b"ready").unwrap();
        pair.exchange();
        pair.passive.expect(|kind| matches!(kind, EventKind::Established));
        (pair, handle)
    }

    /// Advances the time to the next timer of either side.
    pub(crate) fn wait(&mut self) {
        self.now = self.active.cm.next_deadline().min(self.passive.cm.next_deadline());
        assert!(self.now < Instant::NEVER, "nothing waits");
        for node in [&mut self.active, &mut self.passive] {
            node.cm.expire(self.now);
            node.cm.check();
        }
    }

    /// Checks that both sides have nothing left but their listeners, and that no timer runs.
    #[track_caller]
    pub(crate) fn expect_nothing_left(&self) {
        for node in [&self.active, &self.passive] {
            assert_eq!((node.cm.id_count(), node.cm.next_deadline()), (0, Instant::NEVER));
        }
    }
}
