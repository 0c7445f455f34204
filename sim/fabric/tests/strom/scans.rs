//! The filter and aggregation kernels, compared with plain iterators.

use remora_fault::Random;
use remora_nic::kernel::{Aggregate, Filter, Predicate, Scan, Status, Sums};

use crate::bench::{Answer, Bench, LONGEST, OPCODE, every_seed};

const PREDICATES: [Predicate; 4] =
    [Predicate::Equal, Predicate::Less, Predicate::Greater, Predicate::NotEqual];

/// Creates a table of random rows. Returns the rows and a scan of them.
fn table(bench: &Bench, random: &mut Random) -> (Vec<Vec<u8>>, Scan) {
    let words = 1 + random.below(12);
    let rows: Vec<Vec<u8>> = (0..random.below(200))
        .map(|_| (0..words).flat_map(|_| random.below(16).to_le_bytes()).collect())
        .collect();
    bench.there.store(0, &rows.concat());
    let mut field = || 8 * random.below(words) as u16;
    let (field, sum) = (field(), field());
    let scan = Scan {
        address: bench.there.remote(0).addr,
        rows: rows.len() as u32,
        row: 8 * words as u16,
        predicate: PREDICATES[random.below(4) as usize],
        operand: random.below(16),
        field,
        sum,
    };
    (rows, scan)
}

fn number(row: &[u8], offset: u16) -> u64 {
    u64::from_le_bytes(row[usize::from(offset)..][..8].try_into().unwrap())
}

fn counts(scan: &Scan, row: &[u8]) -> bool {
    let there = number(row, scan.field);
    match scan.predicate {
        Predicate::Equal => there == scan.operand,
        Predicate::Less => there < scan.operand,
        Predicate::Greater => there > scan.operand,
        Predicate::NotEqual => there != scan.operand,
    }
}

#[test]
fn the_rows_that_a_predicate_holds_for_come_back_and_no_others() {
    every_seed::<3, Filter>(|bench, random| {
        let (rows, scan) = table(bench, random);
        let mut seen = [0; 3];
        for tag in 0..4 {
            let scan = Scan { operand: random.below(16), ..scan };
            bench.rpc(OPCODE, tag, &scan.emit());
            let wanted: Vec<u8> = rows.iter().filter(|row| counts(&scan, row)).flatten().copied().collect();
            let (status, bytes) = match wanted.len() > LONGEST as usize {
                true => (Status::NO_ROOM, Vec::new()),
                false => (Status::DONE, wanted),
            };
            seen[if status == Status::NO_ROOM { 2 } else { usize::from(bytes.is_empty()) }] += 1;
            assert_eq!(bench.run()[&tag], Answer { status, bytes }, "{scan:?}");
        }
        seen
    });
}

#[test]
fn number_sum_least_and_greatest_are_those_of_the_rows() {
    every_seed::<2, Aggregate>(|bench, random| {
        let (rows, scan) = table(bench, random);
        let mut seen = [0; 2];
        for tag in 0..4 {
            let scan = Scan { operand: random.below(16), ..scan };
            bench.rpc(OPCODE, tag, &scan.emit());
            let numbers: Vec<u64> =
                rows.iter().filter(|row| counts(&scan, row)).map(|row| number(row, scan.sum)).collect();
            let wanted = Sums {
                count: numbers.len() as u64,
                sum: numbers.iter().sum(),
                least: numbers.iter().copied().min().unwrap_or(u64::MAX),
                greatest: numbers.iter().copied().max().unwrap_or(0),
            };
            let answer = bench.run().remove(&tag).unwrap();
            assert_eq!((answer.status, Sums::parse(&answer.bytes)), (Status::DONE, Some(wanted)), "{scan:?}");
            seen[usize::from(numbers.is_empty())] += 1;
        }
        seen
    });
}
