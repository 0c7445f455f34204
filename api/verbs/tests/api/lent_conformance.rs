//! The conformance bodies of all services, of kernels and of chains over the NICs of two daemons, on each
//! kind of port. The programs' queues, regions and doorbells lie in memory that they share with the daemons.

use crate::arm::{PATIENCE, Services};
use crate::veth::{self, Veth};
use crate::{offloads, strom};
use remora_conformance::{Options, run, run_unreliable};
use remora_verbs::nicd::{self, Daemon};
use remora_verbs::{Context, Device, Service};

/// Runs a few hundred random verbs of each service, compared with the model.
pub(crate) fn each_service(contexts: [Context; 2], seed: u64) {
    let options = Options { verbs: 600, patience: PATIENCE, ..Options::default() };
    for (service, irn) in [(Service::Rc, false), (Service::Rc, true), (Service::XrcInitiator, false)] {
        let mut arm = Services::of(service, contexts.clone()).slow();
        let report = run(&mut arm, seed, &Options { irn, ..options });
        assert!(report.verbs() >= options.verbs, "{service:?}: {report:?}");
    }
    for service in [Service::Uc, Service::Ud] {
        let mut arm = Services::of(service, contexts.clone()).slow();
        let report = run_unreliable(&mut arm, seed, &options);
        assert!(report.messages() >= options.verbs && report.arrivals() > 0, "{service:?}: {report:?}");
    }
}

/// Two daemons, and a program attached to each.
pub(crate) struct Lent {
    daemons: [Daemon; 2],
    pub contexts: [Context; 2],
    _folder: tempfile::TempDir,
}

impl Lent {
    /// Opens the devices in two daemons. `enter` is called before each, with its number.
    pub(crate) fn new(devices: &[Device; 2], enter: impl Fn(usize)) -> Lent {
        let folder = tempfile::tempdir().unwrap();
        let path = |side: usize| folder.path().join(format!("{side}.sock"));
        let daemons = [0, 1].map(|side| {
            enter(side);
            Daemon::open(&devices[side], &path(side), &nicd::Options::default()).unwrap()
        });
        let contexts = [0, 1].map(|side| Device::nicd(path(side)).open().unwrap());
        Lent { daemons, contexts, _folder: folder }
    }

    /// Runs random verbs of each service; then asks kernels and chains.
    fn run_all(&self, seed: u64) {
        let contexts = || self.contexts.each_ref().map(Context::clone);
        each_service(contexts(), seed);
        for irn in [false, true] {
            strom::shipped_kernels(contexts(), irn, seed);
        }
        offloads::answers_as_the_table_does(&self.contexts[0], &|| self.contexts[1].clone());
        for daemon in &self.daemons {
            let counters = daemon.metrics();
            assert!(!counters.is_empty() && !daemon.has_failed());
            let tenants = daemon.tenants();
            let held = &tenants[0];
            assert_eq!((held.regions, held.queues, held.pairs, held.bytes), (0, 0, 0, 0), "{held:?}");
        }
    }
}

#[test]
fn each_service_over_daemons_on_shm() {
    Lent::new(&[Device::shm(), Device::shm()], |_| ()).run_all(1);
}

#[test]
fn each_service_over_daemons_on_udp() {
    let device = || Device::udp("127.0.0.1:0").unwrap();
    Lent::new(&[device(), device()], |_| ()).run_all(2);
}

#[test]
fn each_service_over_daemons_on_xdp() {
    let veth = remora_netns::require!(Veth::new());
    let devices = [0, 1].map(|end| Device::xdp(veth.interface(end), Some(veth::V4[end].parse().unwrap())));
    Lent::new(&devices, |side| veth.enter(side)).run_all(3);
}
