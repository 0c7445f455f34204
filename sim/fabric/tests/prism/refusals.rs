//! Refusals by a server: invalid keys, pointers, bounds, alignments and flags end the queue pair with the NAK
//! of their kind, and change nothing.

use remora_fabric::{ALL, Config, Settings};
use remora_memory::Access;
use remora_nic::prism::{Address, COPY_MAX, Data, Mode, Operand, Operands, Operation, SCRATCH, WorkRequest};
use remora_nic::{Remote, Status};

use crate::bench::{Bench, allocate, arms, inline, read, swap, write};

/// Returns the status of a request on a fresh connection of either kind, and checks that the server's memory
/// is unchanged.
fn refused(prepare: impl Fn(&Bench), request: impl Fn(&Bench) -> WorkRequest<'static>) -> Status {
    refused_with(ALL, prepare, request)
}

fn refused_with(
    access: Access,
    prepare: impl Fn(&Bench),
    request: impl Fn(&Bench) -> WorkRequest<'static>,
) -> Status {
    let [status, over_irn] = arms().map(|settings| {
        let settings = Settings { access, ..settings };
        let mut bench = Bench::over(&Config::default(), &settings);
        prepare(&bench);
        let before = bench.there.load(0, 1 << 20);
        let request = request(&bench);
        let status = bench.run_all(&[request])[0].status;
        assert!(bench.there.load(0, 1 << 20) == before, "{request:?} changed something");
        status
    });
    assert_eq!(status, over_irn);
    status
}

fn nothing(_: &Bench) {}

#[test]
fn pointers_and_bounds_that_lead_out_of_the_key_are_remote_access_errors() {
    let pointers: [(&str, u64, u64); 5] = [
        ("null", 0, 16),
        ("beyond", u64::MAX - 100, 16),
        ("the end of scratch", SCRATCH + 24, 16),
        ("all of the address space", 0, u64::MAX),
        ("a bound beyond the region", u64::MAX, 1 << 30),
    ];
    for (name, pointer, bound) in pointers {
        let prepare = move |bench: &Bench| {
            let target = if pointer == u64::MAX { bench.at((2 << 20) - 8).addr } else { pointer };
            bench.set(0, &[target, bound]);
        };
        let bounded = |bench: &Bench| Address::bounded(bench.at(0));
        let get =
            refused(prepare, move |bench| bench.ask(0, read(bounded(bench), 64, &[])).redirected(bench));
        let put = refused(prepare, move |bench| bench.ask(0, write(bounded(bench), &[1; 64])));
        let cas = refused(prepare, |bench| {
            bench.ask(0, swap(Mode::NotEqual, Address::indirect(bench.at(0)), 1, 2))
        });
        assert_eq!((get, put), (Status::RemoteAccess, Status::RemoteAccess), "{name}");
        assert!(
            matches!(cas, Status::RemoteAccess | Status::RemoteInvalidRequest) || pointer > u64::MAX - 32,
            "{name}"
        );
    }
}

trait Redirected {
    fn redirected(self, bench: &Bench) -> Self;
}

impl Redirected for WorkRequest<'static> {
    fn redirected(self, bench: &Bench) -> Self {
        WorkRequest { redirect: Some(bench.at(4096).addr), ..self }
    }
}

#[test]
fn places_behind_another_key_are_refused_even_if_that_key_would_allow_them() {
    for mut bench in Bench::arms() {
        let other = bench.world.register(1, 4096, remora_fabric::ALL);
        bench.set(0, &[other.address, 8]);
        let into = [bench.here.sge(0, 64)];
        let get = bench.ask(0, read(Address::indirect(bench.at(0)), 8, &into));
        assert_eq!(bench.run_all(&[get])[0].status, Status::RemoteAccess);
    }
}

#[test]
fn each_place_needs_the_right_that_is_used_there() {
    let rights = Access::LOCAL_WRITE | Access::REMOTE_READ;
    for mut bench in Bench::arms() {
        let readable = bench.world.register(1, 4096, rights);
        let put = bench.ask(0, write(Address::indirect(readable.remote(0)), b"x"));
        readable.store(0, &readable.remote(64).addr.to_le_bytes());
        assert_eq!(bench.run_all(&[put])[0].status, Status::RemoteAccess);
        assert_eq!(readable.load(64, 1), [0]);
    }
}

#[test]
fn what_the_queue_pair_does_not_allow_is_an_invalid_request() {
    let prepare = |bench: &Bench| bench.set(0, &[bench.at(64).addr]);
    let put = refused_with(Access::REMOTE_WRITE, prepare, |bench| {
        bench.ask(0, write(Address::indirect(bench.at(0)), b"x"))
    });
    assert_eq!(put, Status::RemoteInvalidRequest);
}

#[test]
fn unaligned_pointers_and_targets_and_what_is_too_long_at_once_are_invalid_requests() {
    type Request = fn(&Bench) -> WorkRequest<'static>;
    let cases: [(&str, Request); 6] = [
        ("pointer", |bench| bench.ask(0, write(Address::indirect(bench.at(4)), b"x"))),
        ("target", |bench| bench.ask(0, swap(Mode::Equal, Address::direct(bench.at(4)), 0, 1))),
        ("wide target", |bench| {
            let operands = Operands {
                mode: Mode::Equal,
                size: 32,
                compare_mask: [0; 4],
                swap_mask: [u64::MAX; 4],
                compare: Operand::default(),
                swap_add: Operand::Immediate([1; 4]),
            };
            bench.ask(0, Operation::CompareSwap { at: Address::direct(bench.at(16)), operands })
        }),
        ("operand", |bench| {
            let Operation::CompareSwap { at: target, mut operands } =
                swap(Mode::Equal, Address::direct(bench.at(0)), 0, 1)
            else {
                unreachable!("that is what it makes")
            };
            operands.swap_add = Operand::At(bench.at(12).addr);
            bench.ask(0, Operation::CompareSwap { at: target, operands })
        }),
        ("redirected READ", |bench| {
            bench.ask(0, read(Address::direct(bench.at(8192)), COPY_MAX + 1, &[])).redirected(bench)
        }),
        ("WRITE from there", |bench| {
            let data = Data::There { addr: bench.at(8192).addr, len: COPY_MAX + 1 };
            bench.ask(0, Operation::Write { to: Address::direct(bench.at(0)), data })
        }),
    ];
    for (name, request) in cases {
        assert_eq!(refused(nothing, request), Status::RemoteInvalidRequest, "{name}");
    }
}

#[test]
fn bounded_without_indirect_is_an_invalid_request() {
    let status = refused(nothing, |bench| {
        let address = Address { indirect: false, ..Address::bounded(bench.at(0)) };
        bench.ask(0, write(address, b"x"))
    });
    assert_eq!(status, Status::RemoteInvalidRequest);
}

#[test]
fn a_redirection_that_may_not_be_written_takes_no_buffer() {
    for mut bench in Bench::arms() {
        let list = bench.list(65536, 64, 1);
        let request = bench.ask(0, allocate(&list, bench.there.key, inline(b"x")));
        let request = WorkRequest { redirect: Some(SCRATCH + 28), ..request };
        assert_eq!(bench.run_all(&[request])[0].status, Status::RemoteAccess);
        assert_eq!(bench.world.free_list_facts(&list).free, 1);
    }
}

#[test]
fn buffers_that_do_not_lie_under_the_key_are_not_allocated() {
    for mut bench in Bench::arms() {
        let list = bench.list(65536, 64, 1);
        let other = bench.world.register(1, 4096, remora_fabric::ALL);
        let request = bench.ask(0, allocate(&list, other.key, inline(b"x")));
        assert_eq!(bench.run_all(&[request])[0].status, Status::RemoteAccess);
        assert_eq!(bench.world.free_list_facts(&list).free, 1);
    }
}

#[test]
fn connections_beyond_the_on_nic_memory_have_no_scratch_and_all_else() {
    let mut config = Config::default();
    config.memory.on_nic_bytes = 4096;
    for mut bench in arms().map(|settings| Bench::over(&config, &settings)) {
        // All scratch memory is lent out.
        let mut lent = Vec::new();
        while let Ok(scratch) = bench.world.table(1).lend_scratch() {
            lent.push(scratch);
        }
        assert_eq!(lent.len(), 4096 / 32);
        let scratch = Remote { addr: SCRATCH, ..bench.at(0) };
        let fine = bench.ask(0, swap(Mode::Equal, Address::direct(bench.at(0)), 0, 1));
        let none = bench.ask(1, write(Address::direct(scratch), b"x"));
        let none = WorkRequest { conditional: true, ..none };
        let ended: Vec<_> = bench.run_all(&[fine, none]).iter().map(|wc| wc.status).collect();
        assert_eq!(ended, [Status::Success, Status::RemoteAccess]);
    }
}
