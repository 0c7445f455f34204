//! A server with a region and a client with a portal, in one process.

use remora_verbs::rma::{
    Cipher, CongestionSettings, ControlKind, Facts, Grant, Portal, Rights, Rma, RmaOptions, RmaRegion,
    Settings, Timers,
};
use remora_verbs::{Access, CompletionQueue, Context, Device, PortKind, QpOptions, QueuePair};
use std::sync::atomic::{AtomicBool, Ordering};

/// All rights of a region.
pub(crate) const ALL: Rights = Rights(7);

/// The part of `whole` rounds that a run performs: one twentieth, or all if `REMORA_WHOLE` is set (`make
/// nightly`).
pub(crate) fn share(whole: u64) -> u64 {
    if std::env::var_os("REMORA_WHOLE").is_some() { whole } else { whole / 20 }
}

/// Two devices of the port with this name, or with this address.
pub(crate) fn devices(port: &str) -> [Device; 2] {
    match port {
        "shm" => [Device::shm(), Device::shm()],
        address => [(); 2].map(|()| Device::udp(address).expect("an address of this machine")),
    }
}

/// Connects a queue pair, which gives both sides their link over `shm`.
pub(crate) fn link(contexts: [&Context; 2]) -> Option<(QueuePair, QueuePair)> {
    if contexts[0].port().kind != PortKind::Shm {
        return None;
    }
    let [a, b] = contexts.map(|context| {
        let cq = context.create_cq(4).unwrap();
        context.alloc_pd().unwrap().create_qp(&cq, &cq, &QpOptions::default()).unwrap()
    });
    Some(QueuePair::connect_pair(a, b).expect("a link between the two"))
}

/// Options with these timers and without pacing.
pub(crate) fn options(settings: Settings) -> RmaOptions {
    RmaOptions {
        settings,
        congestion: CongestionSettings { kind: ControlKind::None, ..CongestionSettings::software() },
        ..RmaOptions::default()
    }
}

/// A millisecond in nanoseconds.
pub(crate) const MS: u64 = 1_000_000;

/// Timers by which a lost message costs 40 ms, and which allow a thread to be stopped for 100 ms within one
/// copy.
pub(crate) fn short_timers() -> Settings {
    Settings {
        timers: Timers::Fixed,
        dispatch_timeout: 30 * MS,
        timeout: 40 * MS,
        max_server_timeout: 40 * MS,
        guard: 100 * MS,
        ..Settings::software()
    }
}

/// Size of each region in bytes.
pub(crate) const LEN: usize = 256 << 10;

/// A server and a client, driven by the test's thread and by their attendants.
pub(crate) struct Bed {
    pub served: RmaRegion,
    pub local: RmaRegion,
    pub portal: Portal,
    pub serving: Rma,
    pub client: Rma,
    pub server_cq: CompletionQueue,
    pub contexts: [Context; 2],
    _link: Option<(QueuePair, QueuePair)>,
}

impl Bed {
    pub(crate) fn new(port: &str, settings: Settings, ciphers: [Box<dyn Cipher>; 2]) -> Bed {
        Bed::of(devices(port).map(|device| device.open().unwrap()), settings, ciphers)
    }

    pub(crate) fn of(contexts: [Context; 2], settings: Settings, ciphers: [Box<dyn Cipher>; 2]) -> Bed {
        let link = link([&contexts[0], &contexts[1]]);
        let [first, second] = ciphers;
        let serving = contexts[0].open_rma_with(&options(settings), first).unwrap();
        let client = contexts[1].open_rma_with(&options(settings), second).unwrap();
        client.reach(serving.endpoint()).unwrap();
        let domains = contexts.each_ref().map(|context| context.alloc_pd().unwrap());
        let memory = |side: usize| domains[side].allocate(LEN, Access::LOCAL_WRITE).unwrap();
        let served = serving.expose(memory(0), ALL, None).unwrap();
        let local = client.expose(memory(1), Rights::NONE, None).unwrap();
        let portal = client.create_portal(&domains[1], 24).unwrap();
        let server_cq = contexts[0].create_cq(4).unwrap();
        Bed { served, local, portal, serving, client, server_cq, contexts, _link: link }
    }

    pub(crate) fn grant(&self) -> Grant {
        self.served.grant(&self.portal.identity())
    }

    /// Waits until neither side has an operation in progress, and both windows are free.
    pub(crate) fn wait_until_idle(&mut self) {
        wait_until_idle(&[&self.serving, &self.client], || {
            self.server_cq.poll(&mut []).unwrap();
            assert_eq!(self.portal.poll(), Ok(None), "an unknown operation has ended");
        });
    }
}

/// Waits until no engine has an operation in progress, and all windows are free.
///
/// # Panics
/// If that takes a minute.
pub(crate) fn wait_until_idle(engines: &[&Rma], pass: impl FnMut()) {
    wait_until_free(|| engines.iter().map(|rma| rma.facts().unwrap()).collect(), pass);
}

/// Like [`wait_until_idle`], for the engines with these facts.
pub(crate) fn wait_until_free(facts: impl Fn() -> Vec<Facts>, mut pass: impl FnMut()) {
    let begun = std::time::Instant::now();
    let is_idle = |facts: &Facts| (facts.free, facts.waiting, facts.serving) == (facts.window, 0, 0);
    loop {
        let present = facts();
        if present.iter().all(is_idle) {
            return;
        }
        assert!(begun.elapsed().as_secs() < 60, "a resource is not released: {present:?}");
        pass();
        std::thread::yield_now();
    }
}

/// Sets a flag at the end of a scope, also after a panic, because other threads wait for the flag.
pub(crate) struct SetAtEnd<'a>(pub &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
