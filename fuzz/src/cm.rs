//! A connection manager between peers and programs that follow no rule.
//!
//! The peers know the IDs that the manager uses, as real peers do, so many of their messages are nearly
//! valid.

mod names;
mod peer;

use std::collections::BTreeMap;

use arbitrary::Arbitrary;
use remora_cm::{
    AcceptParam, Cm, CmConfig, CmError, CmEvent, ConnectParam, EventKind, GidPair, Instant, Listen,
    RejectParam, SidrReplyParam, SidrRequestParam,
};
use remora_wire::Qpn;
use remora_wire::mad::{CmMessage, LEN, RejectReason, ServiceId, SidrStatus, header, ip_cm};

use crate::to_the_end;
use names::address;
use peer::{Crafted, service};

/// The maximum number of messages or IDs that one MAD or call may cause.
const CAUSED: usize = 2;

/// An input of the fuzzer.
#[derive(Arbitrary, Clone, Debug)]
pub struct Input {
    /// The limits of IDs, MADs and events.
    bounds: [u8; 3],
    seed: u32,
    #[arbitrary(with = to_the_end)]
    actions: Vec<Action>,
}

/// An action of an input.
#[derive(Arbitrary, Clone, Debug)]
enum Action {
    /// A message of a peer, mostly valid.
    Peer(Crafted),
    /// A message of a peer with one byte changed.
    Twisted(Crafted, u8, u8),
    /// A MAD among the last ones of the manager, sent back to it.
    Reflected(u8, u8),
    /// A message of arbitrary bytes and length.
    Bytes(#[arbitrary(with = crate::bytes)] Vec<u8>),
    /// A call of a program.
    Call(Call, u8),
    /// The passing of time: until the next timer, or for the given number of times 16 ms.
    Wait(Option<u16>),
    /// The driver's removal of MADs (first) and of events (second), or not.
    Take(bool, bool),
}

/// A call of a program.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Call {
    Connect { to: u8, service: u8, qpn: u8, retries: u8 },
    Listen { service: u8, backlog: u8, everywhere: bool },
    Accept { qpn: u8, len: u8 },
    Ready { len: u8 },
    Reject { reason: u8, len: u8 },
    Disconnect { len: u8 },
    Establish,
    Destroy,
    SidrRequest { to: u8, service: u8 },
    SidrReply { status: u8 },
}

/// Returns the progress of an ID by its last event. Each event of an ID has a higher rank than the one
/// before.
fn rank(kind: &EventKind) -> u8 {
    match kind {
        EventKind::ConnectRequest(_) | EventKind::SidrRequest { .. } => 1,
        EventKind::ConnectResponse(_) => 2,
        EventKind::Established => 3,
        EventKind::Rejected(_)
        | EventKind::Disconnected(_)
        | EventKind::Unreachable
        | EventKind::SidrResponse { .. } => 4,
        EventKind::TimewaitExit => 5,
    }
}

/// The manager, the handles of its programs, and the knowledge of its peers.
struct Bench {
    cm: Cm,
    now: Instant,
    /// The next handle. Handles count up, so no event can belong to an earlier ID with the same handle.
    fresh: u64,
    /// The rank of the last event of each ID, or `None` after the program has destroyed the ID.
    heard: BTreeMap<u64, Option<u8>>,
    /// The last MADs that the manager sent.
    sent: Vec<[u8; LEN]>,
}

impl Input {
    /// Performs all actions, and then ends all IDs and timers.
    pub fn run(self) {
        let [ids, outgoing, events] = self.bounds;
        let config = CmConfig {
            max_ids: 1 + u32::from(ids % 12),
            max_listeners: 3,
            max_outgoing: 2 + u32::from(outgoing % 8),
            max_events: 2 + u32::from(events % 8),
            ..CmConfig::new(0x0200_0000_0000_0001, self.seed.into())
        };
        let heard = BTreeMap::new();
        let sent = Vec::new();
        let mut bench = Bench { cm: Cm::new(config), now: Instant(0), fresh: 0, heard, sent };
        let listen = Call::Listen { service: 0, backlog: 3, everywhere: true };
        bench.call(listen, 0);
        for action in &self.actions {
            bench.act(action);
            bench.cm.check();
        }
        bench.end();
    }
}

impl Bench {
    fn act(&mut self, action: &Action) {
        match action {
            Action::Peer(crafted) => self.receive(crafted.from, crafted.to, &crafted.mad(&self.sent)),
            Action::Twisted(crafted, at, bits) => {
                let mut mad = crafted.mad(&self.sent);
                mad[usize::from(*at)] ^= bits;
                self.receive(crafted.from, crafted.to, &mad);
            }
            Action::Reflected(which, from) => {
                if let Some(mad) = self.sent.get(usize::from(*which) % self.sent.len().max(1)).copied() {
                    self.receive(*from, 0, &mad);
                }
            }
            Action::Bytes(bytes) => self.receive(2, 0, bytes),
            Action::Call(call, which) => self.call(*call, *which),
            Action::Wait(time) => {
                let next = self.cm.next_deadline();
                self.now = match time {
                    Some(time) => self.now.after(u64::from(*time) << 24),
                    None if next < Instant::NEVER => next.max(self.now),
                    None => self.now,
                };
                self.cm.expire(self.now);
            }
            Action::Take(mads, events) => self.take(*mads, *events),
        }
    }

    /// Delivers a MAD. The number of MADs that it causes is limited, so that a peer cannot use the manager as
    /// an amplifier.
    fn receive(&mut self, from: u8, to: u8, mad: &[u8]) {
        self.take(true, false);
        let gids = GidPair::new(address(to % 2), address(from));
        self.fresh += 1;
        if self.cm.receive(self.now, gids, mad, self.fresh) {
            assert_eq!(self.heard.insert(self.fresh, Some(0)), None);
        }
        let before = self.sent.len();
        self.take(true, false);
        assert!(self.sent.len() <= before + CAUSED, "one MAD causes {} MADs", self.sent.len() - before);
        let excess = self.sent.len().saturating_sub(8);
        self.sent.drain(..excess);
    }

    fn take(&mut self, mads: bool, events: bool) {
        let mut mad = [0; LEN];
        while mads && self.cm.transmit(&mut mad).is_some() {
            let header = header::Repr::parse(&header::View::new(&mad).expect("a whole MAD"));
            CmMessage::parse(&header, &mad[header::LEN..]).expect("our own message");
            self.sent.push(mad);
        }
        while events && let Some(event) = self.cm.next_event() {
            self.hear(&event);
        }
    }

    /// Checks that each program receives its events in order, and none after it has destroyed the ID.
    fn hear(&mut self, event: &CmEvent) {
        let last = self.heard.get_mut(&event.handle).expect("the event belongs to a known ID");
        // An event that was queued before the program destroyed the ID has no receiver.
        let Some(last) = last else { return };
        let rank = rank(&event.kind);
        assert!(rank > *last, "{event:?} after {last}");
        *last = rank;
    }

    /// Returns a handle that has been in use.
    fn handle(&self, which: u8) -> u64 {
        let used = self.heard.len().max(1);
        self.heard.keys().rev().nth(usize::from(which) % used.min(16)).copied().unwrap_or(u64::MAX)
    }

    fn call(&mut self, call: Call, which: u8) {
        let now = self.now;
        let handle = self.handle(which);
        let said = [which; 255];
        let result = match call {
            Call::Connect { .. } | Call::Listen { .. } | Call::SidrRequest { .. } => {
                self.fresh += 1;
                let begun = self.begin(call, self.fresh);
                if begun.is_ok() {
                    self.heard.insert(self.fresh, Some(0));
                }
                begun
            }
            Call::Accept { qpn, len } => {
                let qpn = Qpn::new(u32::from(qpn % 6));
                let private_data = &said[..usize::from(len)];
                self.cm.accept(now, handle, &AcceptParam { qpn, private_data, ..AcceptParam::default() })
            }
            Call::Ready { len } => self.cm.ready_to_use(handle, &said[..usize::from(len)]),
            Call::Reject { reason, len } => {
                let reason = RejectReason(u16::from(reason));
                let said = &said[..usize::from(len)];
                self.cm.reject(now, handle, &RejectParam { reason, info: &[], private_data: said })
            }
            Call::Disconnect { len } => self.cm.disconnect(now, handle, &said[..usize::from(len)]),
            Call::Establish => self.cm.establish(handle),
            Call::Destroy => {
                let destroyed = self.cm.destroy(now, handle);
                if destroyed.is_ok() {
                    self.heard.insert(handle, None);
                }
                destroyed
            }
            Call::SidrReply { status } => {
                let status = SidrStatus(status);
                let qpn = Qpn::new(7);
                self.cm.sidr_reply(now, handle, &SidrReplyParam { status, qpn, qkey: 1, private_data: &[] })
            }
        };
        if result == Err(CmError::NoSuchHandle) {
            assert_eq!(self.cm.state(handle), None);
        }
    }

    /// Performs a call that creates an ID or a listener.
    fn begin(&mut self, call: Call, handle: u64) -> Result<(), CmError> {
        match call {
            Call::Connect { to, service: which, qpn, retries } => {
                let gids = GidPair::new(address(0), address(to));
                let service_id = service(which);
                let ip = ip_of(gids, service_id);
                let qpn = Qpn::new(u32::from(qpn % 6));
                let max_cm_retries = retries % 17;
                let param = ConnectParam { ip, max_cm_retries, ..ConnectParam::new(gids, service_id, qpn) };
                self.cm.connect(self.now, handle, &param)
            }
            Call::Listen { service: which, backlog, everywhere } => {
                let address = if everywhere { None } else { Some(address(which % 2)) };
                let listen =
                    Listen { service_id: service(which), address, backlog: u32::from(backlog % 4), zone: 0 };
                self.cm.listen(handle, &listen)
            }
            Call::SidrRequest { to, service: which } => {
                let gids = GidPair::new(address(0), address(to));
                let service_id = service(which);
                let ip = ip_of(gids, service_id);
                let param =
                    SidrRequestParam { ip, max_cm_retries: 2, ..SidrRequestParam::new(gids, service_id) };
                self.cm.sidr_request(self.now, handle, &param)
            }
            _ => unreachable!("other calls create no ID"),
        }
    }

    /// Destroys all IDs and lets all timers expire.
    fn end(&mut self) {
        self.take(true, true);
        let handles: Vec<u64> = self.heard.keys().copied().collect();
        for handle in handles {
            let destroyed = self.cm.destroy(self.now, handle);
            assert!(matches!(destroyed, Ok(()) | Err(CmError::NoSuchHandle)), "{destroyed:?}");
            self.heard.insert(handle, None);
            self.take(true, true);
        }
        for _ in 0..1_000 {
            let next = self.cm.next_deadline();
            if next == Instant::NEVER {
                break;
            }
            self.now = next.max(self.now);
            self.cm.expire(self.now);
            self.take(true, true);
        }
        self.cm.check();
        assert_eq!((self.cm.id_count(), self.cm.next_deadline()), (0, Instant::NEVER));
    }
}

/// Returns the IP header of annex A11, if the service has one.
fn ip_of(gids: GidPair, service_id: ServiceId) -> Option<ip_cm::Repr> {
    let addresses = ip_cm::Addresses::of(gids.local, gids.remote);
    service_id.is_rdma_ip().then_some(ip_cm::Repr { port: 9, addresses })
}
