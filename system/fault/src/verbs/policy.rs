//! Applies rules to the work of a queue pair and to registrations. Pure: no clock, no I/O.

use remora_wire::frame::Endpoint;

use super::rules::{Errno, Failure, STATUSES, VerbRule, VerbRules, WorkKind};
use crate::Random;
use crate::occasions::Counted;

/// A fault that has occurred, for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// The rule: its table in the file, and its number in it, from 1.
    pub rule: (&'static str, usize),
    /// The matching occasion, counted from 1.
    pub count: u64,
    /// The name of the errno or status.
    pub effect: &'static str,
}

/// Rules for one kind of work, with their state.
#[derive(Clone, Debug)]
struct RuleCounters<F> {
    table: &'static str,
    rules: Vec<(usize, VerbRule<F>, Counted)>,
}

impl<F: Copy> RuleCounters<F> {
    /// The rules for queue pair `qp`. Its random numbers depend on nothing but seed, rule and queue pair.
    fn new(table: &'static str, seed: u64, qp: u32, rules: &[VerbRule<F>]) -> RuleCounters<F> {
        let mut seeds = Random::new(seed ^ u64::from(qp) << 32 ^ table.len() as u64);
        let numbered = rules
            .iter()
            .enumerate()
            .map(|(place, rule)| (place + 1, rule.clone(), Counted::new(seeds.split())));
        let rules = numbered.filter(|(_, rule, _)| rule.qp.is_none_or(|wanted| wanted == qp)).collect();
        RuleCounters { table, rules }
    }

    fn judge(&mut self, work: WorkKind, peer: Option<Endpoint>) -> Option<((&'static str, usize), u64, F)> {
        for (number, rule, counted) in &mut self.rules {
            let is_work = rule.work.is_empty() || rule.work.contains(&work);
            let is_peer = rule.peer.is_none_or(|wanted| peer.is_some_and(|peer| wanted.matches(peer)));
            if is_work && is_peer && counted.fires(&rule.occasions) {
                return Some(((self.table, *number), counted.matched, rule.fault));
            }
        }
        None
    }
}

/// The faults of one queue pair.
#[derive(Clone, Debug)]
pub struct QueuePairFaults {
    posts: RuleCounters<Errno>,
    completions: RuleCounters<Failure>,
}

impl QueuePairFaults {
    /// The faults of the queue pair with this number in the order of creation, from 1.
    pub fn new(rules: &VerbRules, qp: u32) -> QueuePairFaults {
        QueuePairFaults {
            posts: RuleCounters::new("post", rules.seed, qp, &rules.posts),
            completions: RuleCounters::new("completion", rules.seed, qp, &rules.completions),
        }
    }

    /// Decides on a call that posts work. Returns the errno with which it fails.
    pub fn post(&mut self, work: WorkKind, peer: Option<Endpoint>) -> Option<(Errno, Occurrence)> {
        let (rule, count, errno) = self.posts.judge(work, peer)?;
        Some((errno, Occurrence { rule, count, effect: errno.name() }))
    }

    /// Decides on a successful completion. Returns its status, as a number of `enum ibv_wc_status`, and its
    /// `vendor_err`.
    pub fn completion(&mut self, work: WorkKind, peer: Option<Endpoint>) -> Option<(u8, u32, Occurrence)> {
        let (rule, count, Failure { status, vendor_err }) = self.completions.judge(work, peer)?;
        let effect = STATUSES[usize::from(status)];
        Some((status, vendor_err, Occurrence { rule, count, effect }))
    }
}

/// The faults of a device's registrations.
#[derive(Clone, Debug)]
pub struct RegistrationFaults {
    rules: Vec<(super::rules::RegistrationRule, Counted)>,
}

impl RegistrationFaults {
    /// The faults by these rules.
    pub fn new(rules: &VerbRules) -> RegistrationFaults {
        let mut seeds = Random::new(!rules.seed);
        let rules = rules.registrations.iter().map(|rule| (rule.clone(), Counted::new(seeds.split())));
        RegistrationFaults { rules: rules.collect() }
    }

    /// Decides on a registration of `len` bytes beside `held` registered ones. Returns the errno with which
    /// it fails.
    pub fn register(&mut self, held: u64, len: u64) -> Option<(Errno, Occurrence)> {
        for (place, (rule, counted)) in self.rules.iter_mut().enumerate() {
            let matches = rule.beyond.is_none_or(|most| held.saturating_add(len) > most);
            if matches && counted.fires(&rule.occasions) {
                let rule_number = ("registration", place + 1);
                let occurrence =
                    Occurrence { rule: rule_number, count: counted.matched, effect: rule.errno.name() };
                return Some((rule.errno, occurrence));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rules;

    fn verbs(text: &str) -> VerbRules {
        Rules::parse(text).unwrap().verbs
    }

    #[test]
    fn the_nth_post_of_each_queue_pair_fails() {
        let rules = verbs("[[post]]\nerrno = 'EAGAIN'\nwork = ['write']\nafter = 2\nat_most = 1");
        for qp in 1..3 {
            let mut faults = QueuePairFaults::new(&rules, qp);
            let failed: Vec<u64> = (1..=6)
                .filter_map(|_| {
                    assert_eq!(faults.post(WorkKind::Send, None), None);
                    faults.post(WorkKind::Write, None).map(|(errno, occurrence)| {
                        assert_eq!((errno, occurrence.rule), (Errno::Eagain, ("post", 1)));
                        occurrence.count
                    })
                })
                .collect();
            assert_eq!(failed, [3], "queue pair {qp}");
        }
    }

    #[test]
    fn a_rule_for_one_queue_pair_leaves_others_alone() {
        let rules = verbs("[[completion]]\nqp = 2\nstatus = 'IBV_WC_RETRY_EXC_ERR'\nvendor_err = 0x81");
        assert_eq!(QueuePairFaults::new(&rules, 1).completion(WorkKind::Read, None), None);
        let (status, vendor_err, occurrence) =
            QueuePairFaults::new(&rules, 2).completion(WorkKind::Read, None).unwrap();
        assert_eq!((status, vendor_err, occurrence.effect), (12, 0x81, "RETRY_EXC_ERR"));
    }

    #[test]
    fn a_seed_decides_alike_whatever_other_queue_pairs_do() {
        let rules = verbs("seed = 7\n[[post]]\nerrno = 'ENOMEM'\nprobability = 0.3");
        let run = |qp| {
            let mut faults = QueuePairFaults::new(&rules, qp);
            (0..200).map(|_| faults.post(WorkKind::Send, None).is_some()).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn registrations_beyond_a_size_fail() {
        let mut faults = RegistrationFaults::new(&verbs("[[registration]]\nbeyond_mib = 2"));
        assert_eq!(faults.register(0, 2 << 20), None);
        assert_eq!(faults.register(2 << 20, 1).map(|(errno, _)| errno), Some(Errno::Enomem));
        assert_eq!(faults.register(0, u64::MAX).map(|(errno, _)| errno), Some(Errno::Enomem));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_reason() {
        for (text, reason) in [
            ("[[post]]", "needs `errno`"),
            ("[[post]]\nerrno = 'ENOMEM'\nstatus = 'GENERAL_ERR'", "only with [[completion]]"),
            ("[[post]]\nerrno = 'ENOMEM'\nat_most = 0", "never fires"),
            ("[[post]]\nerrno = 'ENOMEM'\nprobability = 0.0", "never fires"),
            ("[[post]]\nerrno = 'ENOMEM'\nqp = 0", "from 1"),
            ("[[post]]\nerrno = 'ENOENT'", "ENOENT"),
            ("[[post]]\nerrno = 'ENOMEM'\nwork = ['fly']", "fly"),
            ("[[completion]]", "needs `status`"),
            ("[[completion]]\nstatus = 'SUCCESS'", "is no fault"),
            ("[[completion]]\nstatus = 'TIRED'", "no status is called `TIRED`"),
            ("[[completion]]\nerrno = 'ENOMEM'", "has a `status`"),
            ("[[registration]]\nqp = 1", "do not go with [[registration]]"),
            ("[[incident]]\nat_ms = 5", "needs one of"),
            ("[[incident]]\nport_down_ms = 5", "at_ms"),
            ("[[incident]]\nat_ms = 5\nport_down_ms = 0", "at least 1"),
            ("[[incident]]\nat_ms = 5\nport_down_ms = 5\nqp = 1", "only with the `event`"),
            ("[[incident]]\nat_ms = 5\nevent = 'QP_FATAL'", "needs `qp`"),
            ("[[incident]]\nat_ms = 5\nevent = 'PORT_ERR'\nqp = 1", "leave `qp` out"),
            ("[[incident]]\nat_ms = 5\nevent = 'CQ_ERR'", "cannot be caused"),
            ("[[incident]]\nat_ms = 5\nevent = 'RAIN'", "no event is called `RAIN`"),
        ] {
            let error = Rules::parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
