//! The limits of a user.

use super::*;
use std::sync::{Condvar, Mutex};

#[test]
fn a_tenant_has_as_much_as_it_may_and_no_more() {
    let limits = Limits {
        domains: 2,
        regions: 3,
        queues: 2,
        channels: 1,
        pairs: 2,
        handles: 1,
        windows: 1,
        group_members: 1,
        kernels: 1,
        free_lists: 1,
        bytes: 1 << 20,
        negotiations: 1,
        rma_portals: 2,
        rma_slots: 24,
        rma_latency_slots: 16,
        rma_regions: 2,
    };
    let lender = lender("limits", &Options { limits, ..Options::default() });
    let raw = lender.raw();
    let domain = raw.domain();
    raw.domain();
    raw.refuses(&DOMAIN, "--domains");
    raw.refuses(&free_domain(domain + 7), "no protection domain");
    let keys: Vec<u32> = (0..3).map(|_| number(raw.register(domain, 4096))).collect();
    refused(raw.register(domain, 4096), "--regions");
    raw.refuses(&Request::Table(TableCommand::RegisterNull(Pd::of_number(domain))), "--regions");
    raw.refuses(&free_domain(domain), "still in use");
    assert_eq!(raw.ask(&revoke(keys[0])), Reply::Done);
    refused(raw.register(domain, (1 << 20) - 8191), "--memory");
    let rest = number(raw.register(domain, (1 << 20) - 8192));
    refused(raw.create_cq(1), "--memory");
    assert_eq!(raw.ask(&revoke(rest)), Reply::Done);
    raw.number(&Request::CreateChannel);
    raw.refuses(&Request::CreateChannel, "--channels");
    let window = Request::Table(TableCommand::AllocWindow { pd: Pd::of_number(domain), second: false });
    let window_key = Key::new(raw.number(&window));
    raw.refuses(&window, "2 memory windows are over the 1");
    raw.refuses(&free_domain(domain), "still in use");
    assert_eq!(raw.ask(&Request::Table(TableCommand::FreeWindow(window_key))), Reply::Done);
    let kernel = number(raw.deploy(self::kernel(domain, &[keys[1]])));
    refused(raw.deploy(self::kernel(domain, &[])), "--kernels");
    assert_eq!(raw.execute(Command::RemoveKernel { kernel }), DONE);
    refused(raw.deploy(KernelInit { longest: 1 << 20, ..self::kernel(domain, &[]) }), "--memory");
    raw.refuses(&Request::HandKernel { kernel: 0, lanes: 0 }, "lanes");
    raw.refuses(&Request::HandKernel { kernel: 0, lanes: u32::MAX }, "lanes");
    raw.refuses(&Request::HandKernel { kernel: 99, lanes: 1 }, "no such kernel");
    let cq = number(raw.create_cq(16));
    number(raw.create_cq(16));
    refused(raw.create_cq(16), "--queues");
    let pairs = [number(raw.create_qp(domain, cq, cq)), number(raw.create_qp(domain, cq, cq))];
    refused(raw.create_qp(domain, cq, cq), "--pairs");
    refused(raw.create_loopback(domain, cq), "--pairs");
    refused(raw.execute(Command::DestroyCq { cq }), "in use");
    raw.refuses(&free_domain(domain), "still in use");
    for pair in pairs {
        assert_eq!(raw.execute(Command::DestroyQp(Qpn::new(pair))), DONE);
    }
    refused(raw.hand(1 << 16), "--memory");
    assert_eq!(raw.execute(Command::DestroyCq { cq }), DONE);
    let facts = lender.daemon.tenants();
    assert_eq!((facts.len(), facts[0].regions, facts[0].queues, facts[0].pairs), (1, 2, 1, 0));
    let held = 2 * 4096 + Ring::size(16) as u64;
    assert_eq!(facts[0].bytes, held, "released memory still counts");
}

#[test]
fn a_tenant_has_as_many_queues_of_other_services_as_it_may() {
    let limits = Limits { queues: 2, domains: 2, handles: 1, pairs: 2, ..Limits::default() };
    let lender = lender("services", &Options { limits, ..Options::default() });
    let raw = lender.raw();
    let domain = raw.domain();
    let pd = Pd::of_number(domain);
    let srq = |raw: &Raw| {
        let ring = raw.part(16);
        raw.execute(Command::CreateSrq(SrqInit { pd, ring, max_sge: 1, xrc: None }))
    };
    let first = number(srq(&raw));
    number(srq(&raw));
    refused(srq(&raw), "3 shared receive queues are over the 2");
    let xrc = number(raw.execute(Command::AllocXrcDomain));
    number(raw.execute(Command::AllocXrcDomain));
    refused(raw.execute(Command::AllocXrcDomain), "3 XRC domains are over the 2");
    let targets = [(); 2].map(|()| number(raw.execute(Command::CreateXrcTarget { domain: xrc })));
    refused(raw.execute(Command::CreateXrcTarget { domain: xrc }), "--pairs");
    refused(raw.execute(Command::FreeXrcDomain { domain: xrc }), "in use");
    let Reply::Peer(peer) = raw.ask(&Request::LoopBack) else { panic!() };
    let address = AddressVector::new(peer, Route::new(ENDPOINT, ENDPOINT));
    let handle = Command::CreateAddressHandle { pd, address };
    let created = number(raw.execute(handle.clone()));
    refused(raw.execute(handle), "2 address handles are over the 1");
    raw.refuses(&Request::ReleasePeer(peer), "use this peer");
    assert_eq!(raw.execute(Command::DestroyAddressHandle { handle: created }), DONE);
    assert_eq!(raw.ask(&Request::ReleasePeer(peer)), Reply::Done);
    raw.refuses(&Request::ReleasePeer(peer), "no peer");
    for (number, peers) in (0..6).map(|_| raw.ask(&Request::LoopBack)).enumerate() {
        assert!(
            matches!(peers, Reply::Peer(_)),
            "{number}: each of 2 queue pairs and 1 handle has 2: {peers:?}"
        );
    }
    raw.refuses(&Request::LoopBack, "7 users of peers are over the 6");
    for target in targets {
        assert_eq!(raw.execute(Command::DestroyQp(Qpn::new(target))), DONE);
    }
    assert_eq!(raw.execute(Command::FreeXrcDomain { domain: xrc }), DONE);
    assert_eq!(raw.execute(Command::DestroySrq(Qpn::new(first))), DONE);
    assert_eq!(lender.daemon.tenants()[0].bytes, Ring::size(16) as u64);
}

#[test]
fn a_tenant_has_as_many_free_lists_and_as_much_memory_for_queues_as_it_may() {
    let limits = Limits { free_lists: 1, bytes: 1 << 20, ..Limits::default() };
    let lender = lender("free-lists", &Options { limits, ..Options::default() });
    let raw = lender.raw();
    let pd = Pd::of_number(raw.domain());
    let list = |raw: &Raw, size, count| {
        let ring = raw.part(4);
        raw.execute(Command::CreateFreeList(FreeListInit { pd, ring, base: 1 << 44, size, count }))
    };
    refused(list(&raw, 64, 1 << 24), "--memory");
    let too_small = list(&raw, 0, 4);
    assert!(matches!(too_small, Reply::RefusedByNic(_)), "{too_small:?}");
    let first = u64::from(number(list(&raw, 64, 4)));
    refused(list(&raw, 64, 4), "--free-lists");
    let destroy = Request::Execute(Command::DestroyFreeList { list: first });
    assert_eq!(raw.ask(&destroy), DONE);
    raw.refuses(&destroy, "no free list");
    let raw = lender.raw();
    let pd = Pd::of_number(raw.domain());
    let handed: Vec<PartNumber> = (0..16).map(|_| raw.part(1)).collect();
    refused(raw.hand(1), "are not created");
    for ring in handed {
        let spent = Command::CreateFreeList(FreeListInit { pd, ring, base: 0, size: 0, count: 1 });
        assert!(matches!(raw.execute(spent.clone()), Reply::RefusedByNic(_)));
        refused(raw.execute(spent), "no memory with number");
    }
    assert!(lender.daemon.tenants().iter().all(|facts| facts.bytes == 0), "released memory still counts");
}

/// The step of the loader in the test below: 0 before it is called, 1 while it waits, 2 when it may return.
static STEP: Mutex<u8> = Mutex::new(0);
static STEPPED: Condvar = Condvar::new();

fn set_step(step: u8) {
    *STEP.lock().unwrap() = step;
    STEPPED.notify_all();
}

fn wait_for_step(step: u8) {
    let (reached, _) =
        STEPPED.wait_timeout_while(STEP.lock().unwrap(), LONG, |present| *present < step).unwrap();
    assert!(*reached >= step, "step {step} is not reached");
}

/// Loads nothing, as late as the test says.
fn load_late(_: &[u8], _: usize, _: usize) -> Result<Vec<Box<dyn remora_nic::kernel::Kernel>>, String> {
    set_step(1);
    wait_for_step(2);
    Err("this is no module".to_owned())
}

/// While the module of one program is compiled, others attach, and the list of tenants is answered.
#[test]
fn a_module_that_is_compiled_delays_no_other_program() {
    let lender = lender("compiling", &Options { loader: Some(load_late), ..Options::default() });
    let raw = lender.raw();
    let loading = std::thread::spawn(move || {
        let module = Bytes::memfd("module", 64).unwrap();
        raw.ask_with(&Request::HandModule { lanes: 1, memory: 1 << 20 }, &[module.fd().unwrap()]).0
    });
    wait_for_step(1);
    let other = lender.raw();
    number(other.register(other.domain(), 4096));
    assert_eq!(lender.daemon.tenants().len(), 2);
    assert!(!loading.is_finished());
    set_step(2);
    refused(loading.join().unwrap(), "this is no module");
}
