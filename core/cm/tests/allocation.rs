//! Checks that nothing is allocated after set-up: connections, refusals, floods and timers run while each
//! allocation of the thread is counted.

use std::net::Ipv4Addr;

use allocation_counter::measure;
use remora_cm::{
    AcceptParam, Cm, CmConfig, ConnectParam, EventKind, GidPair, Instant, Listen, SidrReplyParam,
    SidrRequestParam,
};
use remora_wire::mad::{LEN, ServiceId, SidrStatus};
use remora_wire::{Address, Qpn};

const CONNECTIONS: ServiceId = ServiceId(1);
const DATAGRAMS: ServiceId = ServiceId(2);

fn gids(local: usize) -> GidPair {
    let [local, remote] = [local, 1 - local].map(|n| Address::from(Ipv4Addr::new(10, 0, 0, 1 + n as u8)));
    GidPair::new(local, remote)
}

/// Two managers, and programs that accept everything.
struct Managers {
    cms: [Cm; 2],
    now: Instant,
    fresh: u64,
}

impl Managers {
    fn new() -> Managers {
        let small = CmConfig {
            max_ids: 64,
            max_listeners: 4,
            max_outgoing: 64,
            max_events: 64,
            ..CmConfig::new(1, 9)
        };
        let mut cms = [small, CmConfig { ca_guid: 2, seed: 7, ..small }].map(Cm::new);
        for (handle, service_id) in [(1, CONNECTIONS), (2, DATAGRAMS)] {
            cms[1].listen(handle, &Listen { service_id, address: None, backlog: 64, zone: 0 }).unwrap();
        }
        Managers { cms, now: Instant(0), fresh: 1_000 }
    }

    /// Delivers and answers messages until none is left.
    fn settle(&mut self) {
        let mut mad = [0; LEN];
        let mut quiet = 0;
        while quiet < 2 {
            quiet += 1;
            for sender in 0..2 {
                while self.cms[sender].transmit(&mut mad).is_some() {
                    quiet = 0;
                    self.fresh +=
                        u64::from(self.cms[1 - sender].receive(self.now, gids(1 - sender), &mad, self.fresh));
                }
                while let Some(event) = self.cms[sender].next_event() {
                    quiet = 0;
                    self.answer(sender, event.handle, &event.kind);
                }
            }
        }
    }

    fn answer(&mut self, side: usize, handle: u64, kind: &EventKind) {
        let now = self.now;
        let cm = &mut self.cms[side];
        let qpn = Qpn::new(handle as u32);
        match kind {
            EventKind::ConnectRequest(_) => {
                cm.accept(now, handle, &AcceptParam { qpn, ..AcceptParam::default() })
            }
            EventKind::ConnectResponse(_) => cm.ready_to_use(handle, &[]),
            EventKind::Disconnected(remora_cm::Cause::Requested) => cm.disconnect(now, handle, &[]),
            EventKind::SidrRequest { .. } => {
                let yes = SidrReplyParam { status: SidrStatus::VALID, qpn, qkey: 1, private_data: &[] };
                cm.sidr_reply(now, handle, &yes)
            }
            _ => Ok(()),
        }
        .unwrap();
    }

    /// Opens and closes connections, and resolves services.
    fn round(&mut self, first: u64) {
        for handle in first..first + 16 {
            let qpn = Qpn::new(handle as u32);
            self.cms[0].connect(self.now, handle, &ConnectParam::new(gids(0), CONNECTIONS, qpn)).unwrap();
        }
        let question = SidrRequestParam::new(gids(0), DATAGRAMS);
        self.cms[0].sidr_request(self.now, first + 16, &question).unwrap();
        // No program listens for this service.
        let wrong = ConnectParam::new(gids(0), ServiceId(3), Qpn::new(5));
        self.cms[0].connect(self.now, first + 17, &wrong).unwrap();
        self.settle();
        for handle in first..first + 16 {
            self.cms[0].disconnect(self.now, handle, &[]).unwrap();
        }
        self.settle();
        while let due = self.cms.iter().map(Cm::next_deadline).min().unwrap_or(Instant::NEVER)
            && due < Instant::NEVER
        {
            self.now = due;
            self.cms.iter_mut().for_each(|cm| cm.expire(due));
            self.settle();
        }
    }
}

#[test]
fn nothing_allocates_after_set_up() {
    let mut managers = Managers::new();
    let info = measure(|| {
        for first in 0..50 {
            managers.round(100 + first * 18);
        }
    });
    assert_eq!(info.count_total, 0, "{info:?}");
    let refused = managers.cms[0].counters();
    assert_eq!(managers.cms.map(|cm| cm.id_count()), [0, 0]);
    assert!(refused.transmitted > 50 * 16 * 3, "{refused:?}");
}
