//! SmallBank (Alomari, Cahill, Fekete, Röhm: *The cost of serializability on platforms that use snapshot
//! isolation*, ICDE 2008), as systems over RDMA use it. Each customer has a savings and a checking account,
//! and six kinds of transactions move money.
//!
//! The mix is that of OLTP-Bench and H-Store. A few accounts are hot: nine of ten transactions go to one
//! customer of twenty-five. Money is counted in cents.

use super::script::{Key, Script};
use super::{Extent, Step, Workload};
use crate::random::Random;
use crate::words::{set_u64, u64_at};

/// Kinds of transactions.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Moves all of one customer's money to another's checking account.
    Amalgamate,
    /// Reads both balances of a customer.
    Balance,
    /// Adds money to a checking account.
    DepositChecking,
    /// Moves money from one checking account to another, if there is enough.
    SendPayment,
    /// Adds money to a savings account, or withdraws it if there is enough.
    TransactSavings,
    /// Pays a cheque from a checking account, with a penalty of one cent if both accounts together have too
    /// little.
    WriteCheck,
}

impl Kind {
    /// All kinds, with their shares in percent.
    pub const MIX: [(Kind, u64); 6] = [
        (Kind::Amalgamate, 15),
        (Kind::Balance, 15),
        (Kind::DepositChecking, 15),
        (Kind::SendPayment, 25),
        (Kind::TransactSavings, 15),
        (Kind::WriteCheck, 15),
    ];
}

/// The parameters of one transaction.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SmallBankJob {
    /// Kind of the transaction.
    pub kind: Kind,
    /// The customer, and the second customer for kinds that involve two.
    pub customers: [u64; 2],
    /// Amount in cents; negative for a withdrawal.
    pub amount: i64,
    /// Number of the job, unique within the workload. Each balance that the job writes contains it.
    pub number: u64,
}

/// Customers per hot customer.
const HOT_PART: u64 = 25;
/// Percentage of the transactions that access hot customers.
const HOT_SHARE: u64 = 90;
/// Range of the initial balances in cents: 100 to 500 dollars.
const FIRST: (i64, i64) = (10_000, 50_000);
/// Maximum amount in cents, so large that balances are often too low.
const MOST: u64 = 20_000;
/// Bytes of an account: balance, number of the job that wrote it.
const VALUE: usize = 16;

/// The SmallBank workload.
#[derive(Clone, Debug)]
pub struct SmallBank {
    customers: u64,
    hot: u64,
    random: Random,
    /// Number of the next job.
    number: u64,
}

/// The kind of a customer's account.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Account {
    Savings,
    Checking,
}

fn key(account: Account, customer: u64) -> Key {
    let kind = match account {
        Account::Savings => b's',
        Account::Checking => b'c',
    };
    let mut bytes = customer.to_le_bytes();
    bytes[7] = kind;
    Key::of(&bytes)
}

fn put(script: &mut Script, account: Account, customer: u64, balance: i64, number: u64) {
    let out = script.write(key(account, customer), VALUE);
    set_u64(out, 0, balance as u64);
    set_u64(out, 8, number);
}

impl SmallBank {
    /// Returns the workload of a bank with `customers` customers (at least 2, below 2^32). `client` is the
    /// number of one of up to 2^16 clients of the same bank.
    pub fn new(customers: u64, client: u16, seed: u64) -> SmallBank {
        let customers = customers.clamp(2, 1 << 32);
        let random = Random::new(seed ^ u64::from(client).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // Number 0 belongs to the initial balances.
        let number = (u64::from(client) << 40) + 1;
        SmallBank { customers, hot: (customers / HOT_PART).max(2), random, number }
    }

    fn customer(&mut self, hot: bool) -> u64 {
        self.random.below(if hot { self.hot } else { self.customers })
    }

    /// Returns the balance that was read.
    fn balance(script: &Script, place: usize) -> i64 {
        script.value(place).filter(|value| value.len() == VALUE).map_or(0, |value| u64_at(value, 0) as i64)
    }
}

impl SmallBankJob {
    /// Returns the accounts that the job reads.
    fn accounts(&self) -> &'static [(Account, usize)] {
        use Account::{Checking, Savings};
        match self.kind {
            Kind::Amalgamate => &[(Savings, 0), (Checking, 0), (Checking, 1)],
            Kind::Balance | Kind::WriteCheck => &[(Savings, 0), (Checking, 0)],
            Kind::DepositChecking => &[(Checking, 0)],
            Kind::SendPayment => &[(Checking, 0), (Checking, 1)],
            Kind::TransactSavings => &[(Savings, 0)],
        }
    }
}

impl Workload for SmallBank {
    type Job = SmallBankJob;

    fn extent(&self) -> Extent {
        Extent { keys: 2 * self.customers, max_key: 8, max_value: VALUE as u32, max_keys: 3 }
    }

    fn draw(&mut self) -> SmallBankJob {
        let mut share = self.random.below(100);
        let kind = Kind::MIX.into_iter().find(|(_, part)| {
            let hit = share < *part;
            share = share.saturating_sub(*part);
            hit
        });
        let kind = kind.map_or(Kind::Balance, |(kind, _)| kind);
        let hot = self.random.below(100) < HOT_SHARE;
        let first = self.customer(hot);
        let mut second = first;
        while second == first {
            second = self.customer(hot);
        }
        let amount = 1 + self.random.below(MOST) as i64;
        let taken = kind == Kind::TransactSavings && self.random.below(2) == 0;
        let number = self.number;
        self.number += 1;
        let amount = if taken { -amount } else { amount };
        SmallBankJob { kind, customers: [first, second], amount, number }
    }

    fn step(&self, job: &SmallBankJob, script: &mut Script) -> Step {
        use Account::{Checking, Savings};
        if script.asked() == 0 {
            for (account, customer) in job.accounts() {
                script.read(key(*account, job.customers[*customer]));
            }
            return Step::Read;
        }
        let [one, other] = job.customers;
        let [first, second, third] = [0, 1, 2].map(|place| SmallBank::balance(script, place));
        let amount = job.amount;
        let number = job.number;
        match job.kind {
            Kind::Balance => {}
            Kind::Amalgamate => {
                put(script, Savings, one, 0, number);
                put(script, Checking, one, 0, number);
                put(script, Checking, other, third + first + second, number);
            }
            Kind::DepositChecking => {
                put(script, Checking, one, first + amount, number);
                script.gain = amount;
            }
            Kind::SendPayment if first < amount => return Step::Decline,
            Kind::SendPayment => {
                put(script, Checking, one, first - amount, number);
                put(script, Checking, other, second + amount, number);
            }
            Kind::TransactSavings if first + amount < 0 => return Step::Decline,
            Kind::TransactSavings => {
                put(script, Savings, one, first + amount, number);
                script.gain = amount;
            }
            Kind::WriteCheck => {
                let paid = if first + second < amount { amount + 1 } else { amount };
                put(script, Checking, one, second - paid, number);
                script.gain = -paid;
            }
        }
        Step::Commit
    }

    fn rows(&self) -> u64 {
        2 * self.customers
    }

    fn row(&self, index: u64, value: &mut Vec<u8>) -> (Key, bool) {
        let account = if index.is_multiple_of(2) { Account::Savings } else { Account::Checking };
        let balance = FIRST.0 + Random::new(index).below((FIRST.1 - FIRST.0 + 1) as u64) as i64;
        value.resize(VALUE, 0);
        set_u64(value, 0, balance as u64);
        set_u64(value, 8, 0);
        (key(account, index / 2), true)
    }

    fn worth(&self, _: u64, value: Option<&[u8]>) -> Option<i64> {
        value.filter(|value| value.len() == VALUE).map(|value| u64_at(value, 0) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the effect of a job on these balances: its writes, its gain, and its last step.
    fn job(kind: Kind, amount: i64, balances: &[i64]) -> (Vec<i64>, i64, Step) {
        let bank = SmallBank::new(100, 0, 1);
        let job = SmallBankJob { kind, customers: [3, 4], amount, number: 9 };
        let mut script = Script::default();
        assert_eq!(bank.step(&job, &mut script), Step::Read);
        assert_eq!(script.asked(), balances.len());
        for (place, balance) in balances.iter().enumerate() {
            let mut value = [0; VALUE];
            set_u64(&mut value, 0, *balance as u64);
            script.found(place, Some(&value));
        }
        let step = bank.step(&job, &mut script);
        let written = script.writes().map(|(_, value)| u64_at(value.unwrap(), 0) as i64).collect();
        (written, script.gain, step)
    }

    #[test]
    fn each_kind_moves_the_money_that_it_should_and_no_other() {
        let commit = |written: &[i64], gain| (written.to_vec(), gain, Step::Commit);
        let declined = (vec![], 0, Step::Decline);
        assert_eq!(job(Kind::Amalgamate, 7, &[100, 20, 5]), commit(&[0, 0, 125], 0));
        assert_eq!(job(Kind::Balance, 7, &[100, 20]), commit(&[], 0));
        assert_eq!(job(Kind::DepositChecking, 7, &[20]), commit(&[27], 7));
        assert_eq!(job(Kind::SendPayment, 7, &[20, 5]), commit(&[13, 12], 0));
        assert_eq!(job(Kind::SendPayment, 21, &[20, 5]), declined);
        assert_eq!(job(Kind::TransactSavings, -100, &[100]), commit(&[0], -100));
        assert_eq!(job(Kind::TransactSavings, -101, &[100]), declined);
        assert_eq!(job(Kind::WriteCheck, 120, &[100, 20]), commit(&[-100], -120));
        assert_eq!(job(Kind::WriteCheck, 121, &[100, 20]), commit(&[-102], -122));
    }

    #[test]
    fn the_mix_is_the_standard_one_and_nine_of_ten_go_to_hot_accounts() {
        let draws = 100_000;
        let mut bank = SmallBank::new(10_000, 0, 5);
        let mut counts = [0u32; 6];
        let mut hot = 0;
        for _ in 0..draws {
            let job = bank.draw();
            let kind = Kind::MIX.iter().position(|(kind, _)| *kind == job.kind).unwrap();
            counts[kind] += 1;
            hot += u32::from(job.customers.iter().all(|customer| *customer < 400));
            assert!(
                job.customers[0] != job.customers[1]
                    && job.customers.iter().all(|customer| *customer < 10_000)
            );
            assert!(job.amount > 0 || job.kind == Kind::TransactSavings);
        }
        for (count, (kind, share)) in counts.iter().zip(Kind::MIX) {
            let expected = f64::from(draws) * share as f64 / 100.0;
            assert!((f64::from(*count) - expected).abs() < 6.0 * expected.sqrt(), "{kind:?}: {count}");
        }
        assert!((89_000..91_500).contains(&hot), "{hot} of {draws}");
    }

    #[test]
    fn clients_draw_apart_and_number_their_deals_apart() {
        let draws = |client, seed| {
            let mut bank = SmallBank::new(1000, client, seed);
            (0..100).map(|_| bank.draw()).collect::<Vec<SmallBankJob>>()
        };
        assert_eq!(draws(1, 7), draws(1, 7));
        let one = draws(1, 7);
        let other = draws(2, 7);
        assert!(one.iter().zip(&other).any(|(one, other)| one.kind != other.kind));
        assert!(one.iter().all(|job| job.number > 0 && other.iter().all(|two| two.number != job.number)));
    }
}
