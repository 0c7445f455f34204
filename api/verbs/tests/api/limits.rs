//! The rights that a program does not need, and the limits at which it is refused something. Each test runs
//! in a process of its own (this binary again), because rights and limits belong to a process and cannot be
//! restored.
#![allow(unsafe_code, reason = "taking rights away from a process")]

use remora_verbs::doctor::{Verdict, examine};
use remora_verbs::{
    Access, CreateError, Device, EMPTY, MemoryError, QpOptions, QueuePair, ReceiveRequest, Status, work,
};
use std::net::SocketAddr;
use std::time::Duration;

const ROLE: &str = "REMORA_TEST_LIMITS_ROLE";
/// Time limit of a test: longer means that it hangs.
const LONG: Duration = Duration::from_secs(60);
const NOBODY: u32 = 65_534;
const TOO_LITTLE: &str = "this machine lets nobody lock 4 MiB (`ulimit -Hl`)";

/// Runs this binary as `role`, and returns its output if it succeeds.
#[track_caller]
fn run(role: &str) -> String {
    let mut command = crate::own::test(module_path!(), "acts_its_role");
    let ended = command.env(ROLE, role).output().unwrap();
    let output = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success(), "{output}{}", String::from_utf8_lossy(&ended.stderr));
    output
}

/// The entry point of the other process.
#[test]
#[ignore = "the entry point of a process that another test starts"]
fn acts_its_role() {
    match std::env::var(ROLE).as_deref() {
        Ok("nobody") => {
            limit(libc::RLIMIT_MEMLOCK, 0);
            become_nobody();
            uses_both_ports();
        }
        Ok("locked") => {
            if limit(libc::RLIMIT_MEMLOCK, 4 << 20) < 4 << 20 {
                return println!("{TOO_LITTLE}");
            }
            become_nobody();
            locks_its_pages();
        }
        Ok("small") => has_little_address_space(),
        Ok("sandboxed") => names_refused_calls(),
        _ => {}
    }
}

/// Lowers a limit for good. Returns the new limit, which is lower than `bytes` if it was lower before.
fn limit(resource: libc::__rlimit_resource_t, bytes: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes, then reads, a struct that lives through the calls.
    unsafe {
        assert_eq!(libc::getrlimit(resource, &raw mut limit), 0);
        let bytes = bytes.min(limit.rlim_max);
        limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        assert_eq!(libc::setrlimit(resource, &raw const limit), 0);
    }
    limit.rlim_max
}

/// Drops every capability, and root's ids if this machine has others (a container may not).
fn become_nobody() {
    // `struct __user_cap_header_struct` of version 3, this thread, and two empty `__user_cap_data_struct`.
    let header = [0x2008_0522_u32, 0];
    let none = [0_u32; 6];
    // SAFETY: these change the rights of this process and read two arrays that live through the call.
    unsafe {
        libc::setgroups(0, std::ptr::null());
        libc::setgid(NOBODY);
        libc::setuid(NOBODY);
        assert_eq!(libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()), 0);
    }
    // Verified by an operation that needs CAP_NET_ADMIN, which must be refused.
    // SAFETY: a new descriptor, and an int that lives through the call.
    let refused = unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        let bytes: libc::c_int = 1 << 20;
        let len = size_of::<libc::c_int>() as libc::socklen_t;
        libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, (&raw const bytes).cast(), len)
    };
    assert_eq!((refused, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EPERM)));
}

fn shared() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

/// Exchanges a message, a WRITE, a READ and an atomic between two contexts.
fn uses(device: &Device) {
    let open = || {
        let context = device.open().unwrap();
        let domain = context.alloc_pd().unwrap();
        let memory = domain.allocate(4 << 20, shared()).unwrap();
        let cq = context.create_cq(16).unwrap();
        let pair = domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
        (context, memory, cq, pair)
    };
    let (_one, near, mut cq, pair) = open();
    let (_two, far, mut far_cq, far_pair) = open();
    let (mut pair, mut far_pair) = QueuePair::connect_pair(pair, far_pair).unwrap();
    far_pair.post_recv(&ReceiveRequest { id: 9, sges: &[far.sge(0, 5)] }).unwrap();
    near.write(0, b"hello").unwrap();
    let mut done = [EMPTY; 1];
    for request in [
        work::send(1, &[near.sge(0, 5)]),
        work::write(2, &[near.sge(0, 2 << 20)], far.remote(2 << 20)),
        work::read(3, &[near.sge(2 << 20, 2 << 20)], far.remote(2 << 20)),
        work::fetch_add(4, &[near.sge(8, 8)], far.remote(8), 7),
    ] {
        pair.post_send(&request).unwrap();
        assert_eq!(cq.wait(&mut done, LONG), Ok(1));
        assert_eq!(done[0].status, Status::Success, "{done:?}");
    }
    assert_eq!(far_cq.wait(&mut done, LONG), Ok(1));
    let mut text = [[0; 5]; 2];
    far.read(0, &mut text[0]).unwrap();
    near.read(2 << 20, &mut text[1]).unwrap();
    assert_eq!(text, [*b"hello"; 2]);
}

fn uses_both_ports() {
    uses(&Device::shm());
    uses(&Device::udp("127.0.0.1:0").unwrap());
    println!("nobody has used both ports");
}

/// A program that locks all its pages, as real-time programs do. The limit then holds for registered memory
/// too.
fn locks_its_pages() {
    let context = Device::shm().open().unwrap();
    let domain = context.alloc_pd().unwrap();
    // SAFETY: a flag of the process.
    assert_eq!(unsafe { libc::mlockall(libc::MCL_FUTURE) }, 0);
    let refused = domain.allocate(64 << 20, shared()).unwrap_err();
    assert_eq!(refused, CreateError::Memory(MemoryError::Os(libc::ENOMEM)));
    let words = refused.to_string();
    assert!(words.contains("`ulimit -l`") && !words.contains('\n'), "{words}");
    let small = domain.allocate(64 << 10, shared()).unwrap();
    small.write(0, b"and what is left can be used").unwrap();
    println!("64 MiB were too much");
}

fn has_little_address_space() {
    let context = Device::shm().open().unwrap();
    let domain = context.alloc_pd().unwrap();
    limit(libc::RLIMIT_AS, 1 << 30);
    let refused = domain.allocate(2 << 30, shared()).unwrap_err();
    assert_eq!(refused, CreateError::Memory(MemoryError::Os(libc::ENOMEM)));
    drop(domain.allocate(1 << 20, shared()).unwrap());
    println!("2 GiB were too much");
}

/// Makes these system calls fail by EPERM in this process, as a container runtime's seccomp profile does.
fn forbid(calls: &[libc::c_long]) {
    let statement = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    // The number of the call is the first word of `struct seccomp_data`.
    let mut program = vec![statement(load, 0, 0, 0)];
    for call in calls {
        program.push(statement(equal, *call as u32, 0, 1));
        program.push(statement(answer, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0, 0));
    }
    program.push(statement(answer, libc::SECCOMP_RET_ALLOW, 0, 0));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies a program that lives through the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER as libc::c_ulong;
        let filter = &raw const filter;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, filter, 0, 0), 0);
    }
}

/// A sandbox that refuses more and more of the calls that a NIC needs.
fn names_refused_calls() {
    let open = |device: Device| device.open().unwrap_err().to_string();
    let calls = || {
        let findings = examine(|port| SocketAddr::from(([127, 0, 0, 1], port)), None);
        findings.into_iter().find(|finding| finding.what == "system calls").unwrap()
    };
    assert_eq!(calls().verdict, Verdict::Good);
    let udp = || Device::udp("127.0.0.1:0").unwrap();
    // The NIC needs randomness first, then memory, then an eventfd, then a thread. The calls are forbidden
    // from the last to the first, since each failure hides the later ones.
    for (call, name) in [
        (libc::SYS_clone3, "clone3"),
        (libc::SYS_eventfd2, "eventfd2"),
        (libc::SYS_memfd_create, "memfd_create"),
        (libc::SYS_getrandom, "getrandom"),
    ] {
        forbid(&[call]);
        let finding = calls();
        assert_eq!(finding.verdict, Verdict::Missing, "{finding:?}");
        assert!(
            finding.found.contains(&format!("{name}: ")) && finding.found.contains("os error 1"),
            "{finding:?}"
        );
        if call == libc::SYS_memfd_create {
            continue;
        }
        for words in [open(Device::shm()), open(udp())] {
            assert!(words.contains(name) && words.contains("os error 1"), "{name}: {words}");
            assert!(words.contains("remora doctor") && !words.contains("ulimit"), "{words}");
        }
    }
    println!("refused calls have names");
}

/// Regression: in a sandbox that refuses `clone3`, `eventfd2` or `getrandom` all commands blamed the
/// limits of descriptors and threads.
#[test]
fn where_a_sandbox_refuses_a_system_call_errors_and_doctor_name_it() {
    assert!(run("sandboxed").contains("refused calls have names"));
}

#[test]
fn nobody_without_capabilities_and_without_lockable_memory_uses_both_ports() {
    assert!(run("nobody").contains("nobody has used both ports"));
}

#[test]
fn where_pages_are_locked_the_memlock_limit_refuses_with_enomem_and_says_how_to_mend_it() {
    let output = run("locked");
    remora_netns::require!(!output.contains(TOO_LITTLE), TOO_LITTLE);
    assert!(output.contains("64 MiB were too much"));
}

#[test]
fn where_address_space_is_short_registering_is_refused_with_enomem() {
    assert!(run("small").contains("2 GiB were too much"));
}
