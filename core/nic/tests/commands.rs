//! The commands of the control path: each is stored and read back, a refused one changes nothing, and parts
//! are taken by the command that names them.

use proptest::prelude::*;
use remora_memory::{Access, Config as TableConfig, Key, Pd, Table};
use remora_nic::chain::LoopbackInit;
use remora_nic::kernel::{HyperLogLog, Invocation, KernelInit};
use remora_nic::prism::FreeListInit;
use remora_nic::rma::PortalInit;
use remora_nic::{
    AddressVector, Bare, Command, CommandFault, CommandKind, Config, CqFlags, Fetching, HandedPart, Modify,
    NicError, Notify, ObjectName, PartNumber, QueuePairInit, Receives, Reply, Ring, Service, SrqInit, XrcSrq,
};
use remora_transport::state::State;
use remora_wire::frame::{Address, Endpoint, Peer, Route};
use remora_wire::{Psn, Qpn};
use std::sync::Arc;
use strum::IntoEnumIterator;

/// A NIC with little space, so that its limits are reached.
struct Bench {
    nic: Bare,
    pd: Pd,
}

fn ring(slots: u32) -> Ring {
    Ring::heap(slots).unwrap()
}

impl Bench {
    fn new() -> Bench {
        let table = Arc::new(Table::new(TableConfig::default()).unwrap());
        let pd = table.alloc_pd().unwrap();
        let config = Config {
            max_qps: 4,
            max_cqs: 3,
            max_srqs: 2,
            max_xrc_domains: 2,
            max_address_handles: 2,
            max_groups: 1,
            max_free_lists: 2,
            max_kernels: 2,
            ..Config::default()
        };
        Bench { nic: Bare::new(&table, config), pd }
    }

    fn ring(&self, slots: u32) -> PartNumber {
        self.nic.hand(ring(slots))
    }

    fn code(&self, lanes: usize) -> PartNumber {
        let lane = || Box::<HyperLogLog>::default() as Box<dyn remora_nic::kernel::Kernel>;
        self.nic.hand(HandedPart::Kernels((0..lanes).map(|_| lane()).collect()))
    }

    fn queue_pair(&self, service: Service, receives: Receives, cq: u32) -> QueuePairInit {
        QueuePairInit {
            service,
            pd: self.pd,
            send_ring: self.ring(4),
            receives,
            send_cq: cq,
            receive_cq: cq,
            signal_all: false,
            fetching: Fetching::Posted,
        }
    }

    fn own_receives(&self) -> Receives {
        Receives::Own { ring: self.ring(4), max_sge: 1 }
    }

    /// Returns a command of this kind. Small numbers name objects that may exist; `choice` selects among
    /// valid and invalid values.
    fn command(&self, kind: CommandKind, number: u32, choice: u32) -> Command {
        let qp = Qpn::new(number);
        let cq = number % 4;
        match kind {
            CommandKind::CreateCq => Command::CreateCq { ring: self.ring(4), flags: CqFlags::default() },
            CommandKind::ResizeCq => Command::ResizeCq { cq, ring: self.ring(1 << (choice % 4)) },
            CommandKind::NotifyCq => Command::NotifyCq { cq, notify: Notify::Any },
            CommandKind::CountCompletions => Command::CountCompletions { cq },
            CommandKind::DestroyCq => Command::DestroyCq { cq },
            CommandKind::CreateQp => {
                let service = Service::ALL[choice as usize % Service::ALL.len()];
                let receives = match choice / 5 % 3 {
                    0 => self.own_receives(),
                    1 => Receives::Shared(qp),
                    _ => Receives::None,
                };
                Command::CreateQp(self.queue_pair(service, receives, cq))
            }
            CommandKind::CreateGsiQp => {
                let service = if choice.is_multiple_of(4) { Service::Rc } else { Service::Ud };
                Command::CreateGsiQp(self.queue_pair(service, self.own_receives(), cq))
            }
            CommandKind::CreateLoopback => Command::CreateLoopback(LoopbackInit {
                pd: self.pd,
                send_ring: self.ring(4),
                receive_ring: if choice.is_multiple_of(4) { PartNumber(u32::MAX) } else { self.ring(4) },
                receive_max_sge: 1,
                send_cq: cq,
                receive_cq: cq,
                fetching: Fetching::Enabled,
            }),
            CommandKind::CreateXrcTarget => Command::CreateXrcTarget { domain: number % 3 },
            CommandKind::ModifyQp => Command::ModifyQp { qp, change: Box::new(change(choice)) },
            CommandKind::QueryQp => Command::QueryQp(qp),
            CommandKind::SetTenant => Command::SetTenant { qp, tenant: choice % 3 },
            CommandKind::Enable => Command::Enable { qp, count: u64::from(choice) },
            CommandKind::DestroyQp => Command::DestroyQp(qp),
            CommandKind::Fail => Command::Fail,
            CommandKind::CreateSrq => {
                let xrc = (choice.is_multiple_of(2)).then_some(XrcSrq { domain: number % 3, cq });
                let max_sge = if choice.is_multiple_of(5) { 30 } else { 1 };
                Command::CreateSrq(SrqInit { pd: self.pd, ring: self.ring(4), max_sge, xrc })
            }
            CommandKind::ResizeSrq => Command::ResizeSrq { srq: qp, ring: self.ring(1 << (choice % 4)) },
            CommandKind::ArmSrq => Command::ArmSrq { srq: qp, limit: choice % 8 },
            CommandKind::QuerySrq => Command::QuerySrq(qp),
            CommandKind::DestroySrq => Command::DestroySrq(qp),
            CommandKind::AllocXrcDomain => Command::AllocXrcDomain,
            CommandKind::FreeXrcDomain => Command::FreeXrcDomain { domain: number % 3 },
            CommandKind::AttachMulticast => Command::AttachMulticast { qp, group: group(choice) },
            CommandKind::DetachMulticast => Command::DetachMulticast { qp, group: group(choice) },
            CommandKind::CreateAddressHandle => {
                Command::CreateAddressHandle { pd: self.pd, address: address() }
            }
            CommandKind::DestroyAddressHandle => Command::DestroyAddressHandle { handle: number },
            _ => self.command_of_an_offload(kind, number, choice),
        }
    }

    fn command_of_an_offload(&self, kind: CommandKind, number: u32, choice: u32) -> Command {
        let qp = Qpn::new(number);
        let cq = number % 4;
        match kind {
            CommandKind::CreateFreeList => Command::CreateFreeList(FreeListInit {
                pd: self.pd,
                ring: self.ring(4),
                base: 1 << 20,
                size: choice % 3 * 64,
                count: choice % 5,
            }),
            CommandKind::QueryFreeList => Command::QueryFreeList { list: free_list(number) },
            CommandKind::FindBuffers => {
                Command::FindBuffers { list: free_list(number), first: 0, words: 1 << (choice % 14) }
            }
            CommandKind::DestroyFreeList => Command::DestroyFreeList { list: free_list(number) },
            CommandKind::DeployKernel => Command::DeployKernel(KernelInit {
                pd: self.pd,
                opcode: (!choice.is_multiple_of(3)).then_some(u64::from(choice % 3)),
                code: self.code(choice as usize % 3),
                grants: vec![Key::new(7)],
                answers: 2,
                longest: 64,
                limit: 8,
            }),
            CommandKind::ReplaceKernel => {
                Command::ReplaceKernel { kernel: number, code: self.code(choice as usize % 3) }
            }
            CommandKind::AttachKernel => {
                Command::AttachKernel { qp, kernel: (choice.is_multiple_of(2)).then_some(number) }
            }
            CommandKind::CheckReads => {
                Command::CheckReads { qp, kernel: (choice.is_multiple_of(2)).then_some(number) }
            }
            CommandKind::InvokeKernel => {
                let bytes = vec![0; choice as usize % 4 * 2000];
                let invocation =
                    Invocation { opcode: 1, tag: 1, params: true, left: choice % 8, first: true, bytes };
                Command::InvokeKernel { qp, invocation }
            }
            CommandKind::QueryKernels => Command::QueryKernels,
            CommandKind::RemoveKernel => Command::RemoveKernel { kernel: number },
            CommandKind::CreatePortal => Command::CreatePortal(PortalInit {
                ring: self.ring(4),
                slots: choice as u16 % 6,
                pd: self.pd,
                cq,
                pid: 1,
                incarnation: 2,
                bulk_only: choice.is_multiple_of(2),
            }),
            CommandKind::QueryRma => Command::QueryRma,
            CommandKind::DestroyPortal => Command::DestroyPortal { portal: number },
            _ => panic!("{kind} has no sample"),
        }
    }

    /// Returns what the NIC says of all its objects.
    fn state(&self) -> Vec<String> {
        let numbers = || 0..12;
        let mut queries: Vec<Command> = numbers().map(|cq| Command::CountCompletions { cq }).collect();
        queries.extend(numbers().map(|number| Command::QueryQp(Qpn::new(number))));
        queries.extend(numbers().map(|number| Command::QuerySrq(Qpn::new(number))));
        queries.extend(numbers().map(|number| Command::QueryFreeList { list: free_list(number) }));
        queries.extend([Command::QueryKernels, Command::QueryRma]);
        let mut state: Vec<String> =
            queries.into_iter().map(|query| format!("{:?}", self.nic.execute(query))).collect();
        let nic = self.nic.enter();
        state.push(format!("{:?} {} {}", nic.counters(), nic.has_work(), nic.lost_events()));
        state
    }
}

/// The number of a free list that a NIC may have created: the count of those before it and its place.
fn free_list(count: u32) -> u64 {
    (u64::from(count / 2) + 1) << 16 | u64::from(count % 2)
}

fn address() -> AddressVector {
    AddressVector::new(Peer(0), Route::new(Endpoint::default(), Endpoint::default()))
}

fn group(choice: u32) -> Address {
    let first = if choice.is_multiple_of(3) { 0 } else { 0xff };
    Address([first, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, choice as u8 % 2])
}

/// Changes that are valid in some states and invalid in others.
fn change(choice: u32) -> Modify {
    let to = |state| Modify { state: Some(state), ..Modify::default() };
    match choice % 8 {
        0 => to(State::Err),
        1 => to(State::Reset),
        2 => Modify { qkey: Some(5), pkey_index: Some(0), port: Some(1), ..to(State::Init) },
        3 => Modify { access: Some(Access::NONE), pkey_index: Some(0), port: Some(1), ..to(State::Init) },
        4 => Modify { port: Some(2), ..to(State::Init) },
        5 => Modify {
            address: Some(address()),
            path_mtu: Some(1024),
            dest_qp: Some(Qpn::new(3)),
            rq_psn: Some(Psn::new(9)),
            max_dest_rd_atomic: Some(1),
            min_rnr_timer: Some(12),
            strom: Some(choice > 16),
            ..to(State::Rtr)
        },
        6 => to(State::Rtr),
        _ => Modify { sq_psn: Some(Psn::new(1)), timeout: Some(40), ..to(State::Rts) },
    }
}

#[test]
fn every_command_and_its_reply_is_the_same_after_it_was_stored() {
    let bench = Bench::new();
    for kind in CommandKind::iter() {
        for choice in 0..12 {
            let command = bench.command(kind, choice % 3, choice);
            assert_eq!(command.kind(), kind);
            let bytes = postcard::to_allocvec(&command).unwrap();
            assert_eq!(postcard::from_bytes::<Command>(&bytes).unwrap(), command);
            let reply = bench.nic.execute(command);
            let bytes = postcard::to_allocvec(&reply).unwrap();
            let stored: Result<Reply, remora_nic::CommandError> = postcard::from_bytes(&bytes).unwrap();
            assert_eq!(stored, reply);
            if let Err(error) = reply {
                assert_eq!(error.kind, kind);
                assert_ne!(error.fault, CommandFault::Reply, "{error}");
                assert!(matches!(error.errno(), 12 | 16 | 22), "{error}");
            }
        }
    }
}

#[test]
fn a_command_takes_its_parts_even_if_it_is_refused() {
    let bench = Bench::new();
    for kind in CommandKind::iter() {
        for choice in 0..12 {
            let command = bench.command(kind, choice % 3, choice);
            let mut parts = 0;
            command.names(|name| parts += usize::from(matches!(name, ObjectName::Part(_))));
            let _ = bench.nic.execute(command.clone());
            let repeated = bench.nic.execute(command).map_err(|error| error.fault);
            let none = Err(CommandFault::Nic(NicError::NoPart));
            assert_eq!(repeated == none, parts > 0, "{kind} {repeated:?}");
        }
    }
    // Code is no memory.
    let ring = bench.code(1);
    let refused = bench.nic.execute(Command::CreateCq { ring, flags: CqFlags::default() }).unwrap_err();
    assert_eq!(refused.fault, NicError::NoPart.into());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// The state is all that the queries tell: of every number that an object may have.
    #[test]
    fn a_refused_command_changes_nothing(
        steps in prop::collection::vec((0..CommandKind::iter().count(), 0..8u32, 0..40u32), 1..60)
    ) {
        let bench = Bench::new();
        let kinds: Vec<CommandKind> = CommandKind::iter().collect();
        for (kind, number, choice) in steps {
            let command = bench.command(kinds[kind], number, choice);
            let before = bench.state();
            if let Err(error) = bench.nic.execute(command.clone()) {
                prop_assert_eq!(before, bench.state(), "{} of {:?}", error, command);
            }
        }
    }
}
