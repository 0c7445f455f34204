//! Numbers of queue pairs: with a QPN range and without, used up, and used again.

use std::collections::BTreeSet;
use std::sync::Arc;

use remora_memory::{Config as TableConfig, Pd, Table};
use remora_nic::{
    Bare, Command, Config, CqFlags, Fetching, FromReply, GSI_QKEY, MULTICAST_QPN, Modify, ModifyFault,
    NicError, QueuePairInit, Receives, Ring, Service,
};
use remora_transport::state::{Attributes, State};
use remora_wire::Qpn;

/// A NIC whose queue pairs all have the same rings: none of them does anything.
struct Bench {
    nic: Bare,
    cq: u32,
    ring: Ring,
}

impl Bench {
    fn new(config: Config) -> Bench {
        let nic = Bare::new(&Arc::new(Table::new(TableConfig::default()).unwrap()), config);
        let ring = Ring::heap(4).unwrap();
        let cq =
            nic.ask(Command::CreateCq { ring: nic.hand(ring.clone()), flags: CqFlags::default() }).unwrap();
        Bench { nic, cq, ring }
    }

    fn of_range(range: u8, max_qps: u32) -> Bench {
        Bench::new(Config { qpn_range: Some(range), max_qps, ..Config::default() })
    }

    fn init(&self, service: Service) -> QueuePairInit {
        QueuePairInit {
            service,
            pd: Pd::NONE,
            send_ring: self.nic.hand(self.ring.clone()),
            receives: Receives::Own { ring: self.nic.hand(self.ring.clone()), max_sge: 1 },
            send_cq: self.cq,
            receive_cq: self.cq,
            signal_all: false,
            fetching: Fetching::Posted,
        }
    }

    fn create(&self) -> Result<u32, NicError> {
        self.ask(Command::CreateQp(self.init(Service::Rc)))
    }

    fn create_gsi(&self, service: Service) -> Result<u32, NicError> {
        self.ask(Command::CreateGsiQp(self.init(service)))
    }

    fn ask<T: FromReply>(&self, command: Command) -> Result<T, NicError> {
        self.nic.ask(command).map_err(|error| error.fault.nic().unwrap())
    }

    fn destroy(&self, number: u32) {
        self.ask::<()>(Command::DestroyQp(Qpn::new(number))).unwrap();
    }
}

#[test]
fn a_range_is_used_up_to_its_last_number_and_then_there_is_no_memory() {
    for range in [0, 1, 126, 127] {
        let bench = Bench::of_range(range, u32::MAX);
        let numbers: Vec<u32> = std::iter::from_fn(|| bench.create().ok()).collect();
        assert_eq!((numbers.len(), bench.create()), (32_766, Err(NicError::Full)));
        let distinct: BTreeSet<u32> = numbers.iter().copied().collect();
        assert_eq!(distinct.len(), numbers.len());
        assert!(numbers.iter().all(|number| number >> 17 == u32::from(range)), "the upper seven bits");
        assert!(numbers.iter().all(|number| number & 0x7fff >= 2 && number >> 15 & 3 == 0));
        // What is given back is given out again, under another number.
        bench.destroy(numbers[77]);
        assert_eq!((bench.create(), bench.create()), (Ok(numbers[77] | 1 << 15), Err(NicError::Full)));
    }
}

#[test]
fn numbers_of_a_range_come_back_last_and_in_the_order_in_which_they_were_given_back() {
    let bench = Bench::of_range(5, 8);
    let first: Vec<u32> = (0..8).map(|_| bench.create().unwrap()).collect();
    let order = [3, 0, 7, 1, 2, 6, 5, 4];
    let mut now = first.clone();
    for generation in 1..=4 {
        order.iter().for_each(|place| bench.destroy(now[*place]));
        for place in order {
            now[place] = bench.create().unwrap();
            assert_eq!(now[place], first[place] & !(3 << 15) | (generation & 3) << 15);
        }
    }
    assert_eq!(now, first, "four generations");
    // One that is free is taken after all that were free before it.
    bench.destroy(now[6]);
    bench.destroy(now[2]);
    let again = [bench.create().unwrap(), bench.create().unwrap()];
    assert_eq!(again, [now[6] | 1 << 15, now[2] | 1 << 15]);
}

#[test]
fn without_a_range_a_number_has_eight_bits_of_generation() {
    let bench = Bench::new(Config::default());
    let mut seen = BTreeSet::new();
    let used: Vec<u32> = (0..(1 << 14) - 1).map(|_| bench.create().unwrap()).collect();
    // One place is left, and it goes round.
    for generation in 0..256 {
        let number = bench.create().unwrap();
        assert_eq!(number, generation << 15 | (used.len() as u32 + 2));
        assert!(seen.insert(number));
        bench.destroy(number);
    }
    assert!(seen.contains(&bench.create().unwrap()), "after 256 times");
}

#[test]
fn the_number_of_multicast_is_never_given_out() {
    let bench = Bench::of_range(127, u32::MAX);
    let mut last = 0;
    for _ in 0..32_766 {
        last = bench.create().unwrap();
    }
    assert_eq!(last, 0x00fe_7fff);
    for expected in [0x00fe_ffff, 0x00ff_7fff, 0x00fe_7fff, 0x00fe_ffff] {
        bench.destroy(last);
        last = bench.create().unwrap();
        assert_ne!(last, MULTICAST_QPN);
        assert_eq!(last, expected);
    }
}

#[test]
fn queue_pair_1_is_made_once_and_by_its_own_call_alone() {
    for config in [Config::default(), Config { qpn_range: Some(9), max_qps: 3, ..Config::default() }] {
        let bench = Bench::new(config);
        assert_eq!(bench.create_gsi(Service::Rc), Err(NicError::NotThisService));
        for _ in 0..3 {
            assert_eq!(bench.create_gsi(Service::Ud), Ok(1));
            assert_eq!(bench.create_gsi(Service::Ud), Err(NicError::Busy));
            bench.destroy(1);
        }
        bench.create_gsi(Service::Ud).unwrap();
        // It takes no place of another, and its place is never another's.
        let others: Vec<u32> = std::iter::from_fn(|| bench.create().ok()).collect();
        assert_eq!(others.len() as u32, config.max_qps);
        assert!(others.iter().all(|number| *number > 1));
        bench.destroy(1);
        assert_eq!(bench.create(), Err(NicError::Full));
        others.iter().for_each(|number| bench.destroy(*number));
        assert_eq!(bench.ask(Command::DestroyCq { cq: bench.cq }), Ok(()), "nothing is left in use");
    }
}

#[test]
fn queue_pair_1_has_no_other_key_than_its_own() {
    let bench = Bench::new(Config::default());
    let qp = Qpn::new(bench.create_gsi(Service::Ud).unwrap());
    let modify = |change: Modify| {
        let modified = bench.nic.execute(Command::ModifyQp { qp, change: Box::new(change) });
        modified.map(|_| ()).map_err(|error| error.fault)
    };
    let to_init = |qkey| Modify {
        state: Some(State::Init),
        qkey: Some(qkey),
        pkey_index: Some(0),
        port: Some(1),
        ..Modify::default()
    };
    for qkey in [0, 1, 0x1111_1111, 0x8001_0001] {
        let refused = ModifyFault::Value(Attributes::QKEY).into();
        assert_eq!(modify(to_init(qkey)), Err(refused), "{qkey:#x}");
    }
    assert_eq!(bench.nic.enter().qp_state(qp), Some(State::Reset));
    assert_eq!(modify(to_init(GSI_QKEY)), Ok(()));
}
