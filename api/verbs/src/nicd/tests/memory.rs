//! The memory that programs send to the daemon.

use super::*;

/// The memory of a send queue is freed with the queue, and not with a code region over its slots.
#[test]
fn a_queue_outlives_the_code_region_over_its_slots() {
    let lender = lender("code", &Options::default());
    let context = lender.open();
    let domain = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(16).unwrap();
    let mut pair = domain.create_loopback(&cq, &cq, &QpOptions::default()).unwrap();
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let mut done = [EMPTY; 1];
    for id in 0..3 {
        let code = domain.register_ranges(&[pair.code()], rights).unwrap();
        pair.post_send(&work::nop(id)).unwrap();
        cq.wait(&mut done, LONG).unwrap();
        assert_eq!((done[0].id, done[0].status), (id, Status::Success));
        drop(code);
    }
    assert_eq!(lender.daemon.tenants()[0].regions, 0);
}

/// Memory over the limit of the user is refused before its pages are allocated, however much of it a hole is.
#[test]
fn memory_over_the_limit_is_not_populated() {
    let limits = Limits { bytes: 1 << 20, ..Limits::default() };
    let lender = lender("sparse", &Options { limits, ..Options::default() });
    let raw = lender.raw();
    let domain = raw.domain();
    let sparse = rustix::fs::memfd_create("sparse", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&sparse, 1 << 40).unwrap();
    rustix::fs::fcntl_add_seals(&sparse, rustix::fs::SealFlags::SHRINK).unwrap();
    let sent = [sparse.as_fd()];
    refused(raw.ask_with(&register(domain, &[range(64)]), &sent).0, "--memory");
    refused(raw.ask_with(&Request::HandRing, &sent).0, "--memory");
    assert_eq!(rustix::fs::fstat(&sparse).unwrap().st_blocks, 0);
}

/// A link that is offered and not given takes a place of those being set up until it is withdrawn.
#[test]
fn offered_links_count_until_they_are_withdrawn() {
    let limits = Limits { negotiations: 2, ..Limits::default() };
    let lender = lender("offers", &Options { limits, ..Options::default() });
    let raw = lender.raw();
    let offer = |raw: &Raw| match raw.ask(&Request::OfferLink) {
        Reply::Link { offer, .. } => offer,
        reply => panic!("{reply:?}"),
    };
    let offers = [offer(&raw), offer(&raw)];
    raw.refuses(&Request::OfferLink, "3 connections being set up are over the 2");
    assert_eq!(raw.ask(&Request::WithdrawLink(offers[0])), Reply::Done);
    raw.refuses(&Request::WithdrawLink(offers[0]), "no offered link");
    offer(&raw);
}

/// Ranges that leave the memory that came with them, memory that can shrink, and no memory at all are no
/// region.
#[test]
fn a_region_lies_within_sealed_memory_of_the_program() {
    let lender = lender("ranges", &Options::default());
    let raw = lender.raw();
    let domain = raw.domain();
    let memory = Bytes::memfd("test", 4096).unwrap();
    let fds = [memory.fd().unwrap()];
    for ranges in [
        vec![],
        vec![range(0)],
        vec![range(4097)],
        vec![SentRange { offset: u64::MAX, ..range(64) }],
        vec![SentRange { offset: 1, ..range(4096) }],
        vec![SentRange { descriptor: 1, ..range(64) }],
        vec![range(64), range(64)],
    ] {
        refused(raw.ask_with(&register(domain, &ranges), &fds).0, "");
    }
    refused(raw.ask(&register(domain, &[range(64)])), "without memory");
    let open = rustix::fs::memfd_create("open", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&open, 4096).unwrap();
    refused(raw.ask_with(&register(domain, &[range(64)]), &[open.as_fd()]).0, "");
    refused(raw.ask_with(&Request::HandRing, &[open.as_fd()]).0, "");
    raw.refuses(&Request::HandRing, "one descriptor");
    let (socket, _other) = PacketSocket::pair().unwrap();
    refused(raw.ask_with(&Request::HandRing, &[socket.as_fd()]).0, "");
    number(raw.ask_with(&register(domain, &[range(4096)]), &fds).0);
    assert_eq!(lender.daemon.tenants()[0].bytes, 4096, "a refused region counts");
}

/// Regression: a program that detached and kept the descriptors of its regions kept their pages, which no
/// limit counted, and could attach for more.
#[test]
fn memory_is_freed_with_its_region_though_the_program_keeps_the_descriptor() {
    use rustix::fs::{SealFlags, fcntl_add_seals, fstat, ftruncate};
    const LEN: u64 = 1 << 20;
    let lender = lender("kept-memory", &Options::default());
    let raw = lender.raw();
    let domain = raw.domain();
    let memory = Bytes::memfd("test", LEN as usize).unwrap();
    number(raw.register_memory(domain, &memory));
    let kept = memory.fd().unwrap();
    let pages = || fstat(kept).unwrap().st_blocks as u64 * 512;
    assert!(pages() >= LEN, "the memory is populated");
    assert!(ftruncate(kept, 0).is_err(), "the program could end the daemon by SIGBUS");
    assert!(fcntl_add_seals(kept, SealFlags::FUTURE_WRITE).is_err(), "the program could add seals");
    drop(raw);
    let until = Instant::now() + LONG;
    while pages() > 0 {
        assert!(Instant::now() < until, "{} bytes are kept", pages());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Memory of the program that is running this test, registered as its own.
struct OwnRegion {
    lender: Lender,
    raw: Raw,
    memory: Bytes,
    key: Key,
}

impl OwnRegion {
    const LEN: u64 = 1 << 20;

    fn register(test: &str) -> OwnRegion {
        let limits = Limits { bytes: Self::LEN, ..Limits::default() };
        let lender = lender(test, &Options { limits, ..Options::default() });
        let raw = lender.raw();
        let memory = Bytes::memfd("test", Self::LEN as usize).unwrap();
        memory.write(0, b"its own").unwrap();
        let (pd, access) = (Pd::of_number(raw.domain()), Access::LOCAL_WRITE);
        let ranges = vec![range(Self::LEN)];
        let request = Request::Table(TableCommand::Register { pd, access, ranges, own: true });
        let key = Key::new(number(raw.ask_with(&request, &[memory.fd().unwrap()]).0));
        OwnRegion { lender, raw, memory, key }
    }

    fn content(memory: &Bytes) -> [u8; 7] {
        let mut content = [0; 7];
        memory.read(0, &mut content).unwrap();
        content
    }
}

/// A daemon that ends an attachment does not take the bytes of a program that goes on. They count as long as
/// the program runs.
#[test]
fn memory_of_a_running_program_keeps_its_bytes_and_its_claim_when_the_attachment_ends() {
    let OwnRegion { lender, raw, memory, .. } = OwnRegion::register("outliving");
    drop(raw);
    let until = Instant::now() + LONG;
    while lender.daemon.tenants().iter().any(|facts| facts.regions > 0) {
        assert!(Instant::now() < until, "the attachment does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(OwnRegion::content(&memory), *b"its own");
    let raw = lender.raw();
    let domain = raw.domain();
    refused(raw.register(domain, 4096), "--memory");
}

#[test]
fn a_retired_region_keeps_its_bytes_until_the_program_has_pages_of_its_own() {
    let OwnRegion { lender: _lender, raw, memory, key } = OwnRegion::register("retired");
    let domain = raw.domain();
    let retired = raw.number(&Request::Table(TableCommand::Retire(key)));
    assert_eq!(OwnRegion::content(&memory), *b"its own");
    refused(raw.register(domain, 4096), "--memory");
    let free = Request::Table(TableCommand::FreeMemory(retired));
    assert_eq!(raw.ask(&free), Reply::Done);
    assert_eq!(OwnRegion::content(&memory), [0; 7], "the pages are freed");
    raw.refuses(&free, "no memory of an ended region");
    number(raw.register(domain, 4096));
}

/// C programs get ENOMEM at a limit, and EBUSY for a domain in use, as on a NIC of their own.
#[test]
fn refusals_have_the_errno_of_verbs() {
    let limits = Limits { domains: 1, ..Limits::default() };
    let lender = lender("errno", &Options { limits, ..Options::default() });
    let raw = lender.raw();
    let domain = raw.domain();
    let errno = |reply| match reply {
        Reply::AtLimit(words) => crate::CreateError::Limit(words).errno(),
        Reply::RefusedByTable(error) => crate::CreateError::Memory(error).errno(),
        reply => panic!("{reply:?}"),
    };
    assert_eq!(errno(raw.ask(&DOMAIN)), libc::ENOMEM);
    number(raw.register(domain, 4096));
    assert_eq!(errno(raw.ask(&free_domain(domain))), libc::EBUSY);
    let invalid =
        raw.ask_with(&register(domain, &[range(0)]), &[Bytes::memfd("test", 64).unwrap().fd().unwrap()]);
    assert_eq!(errno(invalid.0), libc::EINVAL);
}
