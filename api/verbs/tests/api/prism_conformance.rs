//! Random PRISM operations compared with a model, over real ports. The body is the one of the simulated
//! links, with values of 0 to 16 packets. The links lose, duplicate and reorder frames.

#[path = "../../../../sim/fabric/tests/prism/model.rs"]
mod model;
#[path = "../../../../sim/fabric/tests/prism/random_body.rs"]
mod random_body;

use crate::veth::{self, Veth};
use random_body::{Arm, body};
use remora_fault::Random;
use remora_verbs::prism::{FreeListFacts, WorkRequest};
use remora_verbs::{
    CompletionQueue, Context, Device, EMPTY, FreeList, FreeListOptions, MemoryRegion, ProtectionDomain,
    QpOptions, QueuePair, Remote, Rules, Sge, WorkCompletion,
};
use std::time::Duration;

/// Time limit of a test: longer means that it hangs.
const LONG: Duration = Duration::from_secs(60);

struct Real {
    irn: bool,
    here: MemoryRegion,
    there: MemoryRegion,
    list: Option<FreeList>,
    pair: QueuePair,
    cq: CompletionQueue,
    /// The protection domain of the server.
    domain: ProtectionDomain,
    _peer: (QueuePair, CompletionQueue),
    contexts: [Context; 2],
}

impl Real {
    fn new(irn: bool, contexts: [Context; 2]) -> Real {
        let options = QpOptions {
            path_mtu: 256,
            max_inline: 512,
            irn,
            prism: true,
            // A timeout of 17 ms, so that lost packets are retransmitted soon.
            timeout: 12,
            ..QpOptions::default()
        };
        let rights = options.access;
        let [(here, pair, cq, _), (there, peer, peer_cq, domain)] = contexts.each_ref().map(|context| {
            let domain = context.alloc_pd().unwrap();
            let cq = context.create_cq(64).unwrap();
            let pair = domain.create_qp(&cq, &cq, &options).unwrap();
            (domain.allocate(2 << 20, rights).unwrap(), pair, cq, domain)
        });
        let (pair, peer) = QueuePair::connect_pair(pair, peer).unwrap();
        let agreement = pair.agreement().unwrap();
        assert_eq!((agreement.prism, agreement.irn.is_some()), (true, irn));
        Real { irn, here, there, list: None, pair, cq, domain, _peer: (peer, peer_cq), contexts }
    }
}

impl Arm for Real {
    fn over_irn(&self) -> bool {
        self.irn
    }

    fn there(&self) -> Remote {
        self.there.remote(0)
    }

    fn load_there(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.there.read(offset, &mut bytes).unwrap();
        bytes
    }

    fn store_there(&self, offset: usize, bytes: &[u8]) {
        self.there.write(offset, bytes).unwrap();
    }

    fn load_here(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.here.read(offset, &mut bytes).unwrap();
        bytes
    }

    fn store_here(&self, offset: usize, bytes: &[u8]) {
        self.here.write(offset, bytes).unwrap();
    }

    fn sge(&self, offset: usize, len: usize) -> Sge {
        self.here.sge(offset, len)
    }

    fn make_list(&mut self, offset: usize, size: u32, count: u32) -> u64 {
        let options = FreeListOptions { offset, size, count, engine: 0 };
        let mut list = self.domain.create_free_list(&self.there, &options).unwrap();
        (0..count).for_each(|index| list.post(index).unwrap());
        self.list.insert(list).number()
    }

    fn post_buffer(&mut self, index: usize) {
        self.list.as_mut().expect("the list is created first").post(index as u32).unwrap();
    }

    fn facts(&mut self) -> FreeListFacts {
        self.list.as_ref().expect("the list is created first").facts().unwrap()
    }

    fn post(&mut self, request: &WorkRequest<'_>) {
        self.pair.post_prism(request).unwrap();
    }

    fn finish(&mut self, count: usize) -> Vec<WorkCompletion> {
        let mut done = vec![EMPTY; count];
        let mut came = 0;
        while came < count {
            let more = self.cq.wait(&mut done[came..], LONG).unwrap();
            assert!(more > 0, "nothing completes");
            came += more;
        }
        done
    }
}

/// Runs the body with both kinds of recovery, between devices that lose frames.
fn over(seeds: std::ops::Range<u64>, open: impl Fn(&Device, usize) -> Context, devices: [Device; 2]) {
    for irn in [false, true] {
        let mut faults = [0; 3];
        let fresh = |seed: u64| {
            let contexts = [0, 1].map(|end| {
                let rules = Rules { seed, ..bad_links() };
                open(&devices[end].clone().fault(rules), end)
            });
            Real::new(irn, contexts)
        };
        let ended = |arm: Real| {
            for context in &arm.contexts {
                let tally = context.port_counters().faults;
                let counts = [tally.dropped, tally.duplicated, tally.reordered];
                faults.iter_mut().zip(counts).for_each(|(all, more)| *all += more);
            }
        };
        body(seeds.clone(), fresh, ended);
        assert!(faults.iter().all(|count| *count > 0), "{faults:?}");
    }
}

fn bad_links() -> Rules {
    use remora_fault::{Action, Rule};
    let bad = [Action::Drop, Action::Duplicate, Action::Reorder { frames: 3 }];
    Rules::of(bad.map(|action| Rule::chance(action, 0.01)).to_vec())
}

#[test]
fn random_operations_over_shm() {
    over(0..30, |device, _| device.open().unwrap(), [Device::shm(), Device::shm()]);
}

#[test]
fn random_operations_over_udp() {
    let udp = || Device::udp("127.0.0.1:0").unwrap();
    over(30..60, |device, _| device.open().unwrap(), [udp(), udp()]);
}

#[test]
fn random_operations_over_xdp() {
    let veth = remora_netns::require!(Veth::new());
    let devices = [0, 1].map(|end| Device::xdp(veth.interface(end), Some(veth::V4[end].parse().unwrap())));
    over(60..90, |device, end| veth.open(end, device), devices);
}
