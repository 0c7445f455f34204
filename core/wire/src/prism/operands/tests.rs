use super::*;
use proptest::prelude::*;

const ETH: atomic_eth::Repr = atomic_eth::Repr { va: 0x10, rkey: 2, swap_add: 0, compare: 0 };

fn round_trip(swaps: bool, repr: &Repr) -> (Vec<u8>, atomic_eth::Repr) {
    let mut out = [0x5a; MAX_LEN];
    let (len, compare, swap_add) = repr.emit(swaps, &mut out);
    (out[..len].to_vec(), atomic_eth::Repr { compare, swap_add, ..ETH })
}

fn flags(repr: &Repr) -> Flags {
    if repr.is_indirect() { Flags::EXTENDED.and(Flags::DATA_INDIRECT) } else { Flags::EXTENDED }
}

#[test]
fn literal_bytes() {
    // Swaps in another pointer if the masked part of the 16 bytes is greater than the operand's.
    let repr = Repr {
        mode: Mode::Less,
        size: 16,
        compare_mask: [0, u64::MAX, 0, 0],
        swap_mask: [u64::MAX, 0, 0, 0],
        compare: Operand::Immediate([0x0102_0304_0506_0708, 0x1122_3344_5566_7788, 0, 0]),
        swap_add: Operand::At(0xabcd),
    };
    let (bytes, eth) = round_trip(true, &repr);
    let mut expected = vec![2, 16, 2, 0];
    expected.extend([0xff; 8]);
    expected.extend([0; 16]);
    expected.extend([0xff; 8]);
    expected.extend([0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(bytes, expected);
    assert_eq!((eth.compare, eth.swap_add), (0, 0xabcd));
    assert_eq!(Repr::parse(true, flags(&repr), &eth, &bytes), Ok(repr));
}

#[test]
fn eight_bytes_stand_in_the_atomic_eth() {
    let repr = Repr {
        mode: Mode::Equal,
        size: 8,
        compare_mask: [0x8000_0000_8000_0000, 0, 0, 0],
        swap_mask: [0; 4],
        compare: Operand::default(),
        swap_add: Operand::Immediate([7, 0, 0, 0]),
    };
    let (bytes, eth) = round_trip(false, &repr);
    assert_eq!(bytes, [0, 8, 0, 0, 0x80, 0, 0, 0, 0x80, 0, 0, 0]);
    assert_eq!((eth.compare, eth.swap_add), (0, 7));
    assert_eq!(Repr::parse(false, Flags::EXTENDED, &eth, &bytes), Ok(repr));
}

#[test]
fn modes_compare_the_operand_with_the_target() {
    let cases: [(Number, Number, [bool; 6]); 4] = [
        ([5, 0, 0, 0], [5, 0, 0, 0], [true, false, false, true, false, true]),
        ([4, 0, 0, 0], [5, 0, 0, 0], [false, true, true, true, false, false]),
        ([0, 0, 0, 1], [u64::MAX, u64::MAX, u64::MAX, 0], [false, true, false, false, true, true]),
        ([9, 1, 0, 0], [1, 2, 0, 0], [false, true, true, true, false, false]),
    ];
    for (operand, target, expected) in cases {
        assert_eq!(Mode::ALL.map(|mode| mode.holds(&operand, &target)), expected, "{operand:?} {target:?}");
    }
    assert_eq!(Mode::from_number(6), None);
}

#[test]
fn what_is_not_drawn_is_refused() {
    let plain = Repr {
        mode: Mode::Greater,
        size: 16,
        compare_mask: [1, 2, 0, 0],
        swap_mask: [3, 4, 0, 0],
        compare: Operand::Immediate([5, 6, 0, 0]),
        swap_add: Operand::Immediate([7, 8, 0, 0]),
    };
    let (bytes, eth) = round_trip(true, &plain);
    let parse = |flags, eth: &atomic_eth::Repr, bytes: &[u8]| Repr::parse(true, flags, eth, bytes);
    assert_eq!(parse(Flags::EXTENDED, &eth, &bytes), Ok(plain));
    for len in 0..bytes.len() {
        assert_eq!(parse(Flags::EXTENDED, &eth, &bytes[..len]), Err(WireError::Truncated), "{len}");
    }
    let spoiled = |offset: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[offset] = value;
        bytes
    };
    // Invalid mode, size, operand places and zero byte, and an excess byte.
    for wrong in [spoiled(0, 6), spoiled(1, 24), spoiled(1, 0), spoiled(2, 4), spoiled(2, 1), spoiled(3, 1)] {
        assert_eq!(parse(Flags::EXTENDED, &eth, &wrong), Err(WireError::Length));
    }
    assert_eq!(parse(Flags::EXTENDED, &eth, &[&bytes[..], &[0]].concat()), Err(WireError::Length));
    // An operand in both places, and an indirect operand without the flag.
    let both = atomic_eth::Repr { swap_add: 1, ..eth };
    assert_eq!(parse(Flags::EXTENDED, &both, &bytes), Err(WireError::Length));
    assert_eq!(parse(Flags::EXTENDED.and(Flags::DATA_INDIRECT), &eth, &bytes), Err(WireError::Length));
    // A FetchAdd has no compare operand.
    let compared = atomic_eth::Repr { compare: 1, swap_add: 7, ..ETH };
    let add = [0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(Repr::parse(false, Flags::EXTENDED, &compared, &add), Err(WireError::Length));
    assert!(Repr::parse(false, Flags::EXTENDED, &atomic_eth::Repr { compare: 0, ..compared }, &add).is_ok());
}

fn numbers(size: u8) -> impl Strategy<Value = Number> {
    any::<[u64; 4]>().prop_map(move |limbs| {
        std::array::from_fn(|index| if index < usize::from(size) / 8 { limbs[index] } else { 0 })
    })
}

fn operands(size: u8) -> impl Strategy<Value = Operand> {
    prop_oneof![numbers(size).prop_map(Operand::Immediate), any::<u64>().prop_map(Operand::At)]
}

fn reprs() -> impl Strategy<Value = Repr> {
    (0u8..6, prop_oneof![Just(8u8), Just(16), Just(32)]).prop_flat_map(|(mode, size)| {
        (numbers(size), numbers(size), operands(size), operands(size)).prop_map(
            move |(compare_mask, swap_mask, compare, swap_add)| Repr {
                mode: Mode::from_number(mode).unwrap(),
                size,
                compare_mask,
                swap_mask,
                compare,
                swap_add,
            },
        )
    })
}

proptest! {
    #[test]
    fn any_operands_round_trip(repr in reprs()) {
        let (bytes, eth) = round_trip(true, &repr);
        prop_assert_eq!(Repr::parse(true, flags(&repr), &eth, &bytes), Ok(repr));
        let add = Repr { mode: Mode::Equal, swap_mask: [0; 4], compare: Operand::default(), ..repr };
        let (bytes, eth) = round_trip(false, &add);
        prop_assert_eq!(Repr::parse(false, flags(&add), &eth, &bytes), Ok(add));
    }

    #[test]
    fn any_bytes_are_answered(bytes: Vec<u8>, swaps: bool, flags: u8) {
        let _ = Repr::parse(swaps, Flags::from_bits(flags), &ETH, &bytes);
    }

    #[test]
    fn numbers_are_in_network_order(value: u128) {
        let bytes = value.to_be_bytes();
        prop_assert_eq!(number(&bytes), [value as u64, (value >> 64) as u64, 0, 0]);
        let mut out = [0; 16];
        put(&number(&bytes), &mut out);
        prop_assert_eq!(out, bytes);
    }
}

#[test]
fn no_number_is_wider_than_its_bytes_say() {
    let kinds = [Operand::Immediate([0; 4]), Operand::At(8)];
    for (size, swaps) in [8, 16, 32].into_iter().flat_map(|size| [(size, true), (size, false)]) {
        for (compare, swap_add) in kinds.into_iter().flat_map(|one| kinds.map(|two| (one, two))) {
            let compare_mask = [0; 4];
            let swap_mask = [0; 4];
            let repr = Repr { mode: Mode::Equal, size, compare_mask, swap_mask, compare, swap_add };
            let (len, ..) = repr.emit(swaps, &mut [0; MAX_LEN]);
            assert_eq!(len, repr.len(swaps));
            let most = size_at_most(swaps, len);
            assert!(usize::from(size) == most || size == 16 && most == 32, "{repr:?}: {len}");
        }
    }
}
