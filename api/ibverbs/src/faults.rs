//! Faults of verbs by the rules of a file (`--fault`): calls that fail, completions with an error status, and
//! incidents of the device. Each is written to a log.

mod incidents;
mod log;

use remora_abi::objects::IbvWc;
pub(crate) use remora_verbs::faults::WorkKind;
use remora_verbs::faults::{Errno, QueuePairFaults, RegistrationFaults, VerbRules};
use remora_verbs::raw::Qp;
use remora_verbs::{Endpoint, Modify, OpenError, Operation, Rules, Service, State, Status};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

pub(crate) use incidents::{IncidentTarget, is_dead, shifted, start};
use log::{FaultSubject, Log};

/// The faults of the process's NIC.
#[derive(Debug)]
pub(crate) struct Faults {
    rules: VerbRules,
    log: Arc<Log>,
    /// The number of queue pairs that the program has created.
    created: AtomicU32,
    /// The queue pairs by their numbers in the NIC.
    pairs: Mutex<BTreeMap<u32, Arc<FaultyQp>>>,
    registrations: Mutex<Registrations>,
}

#[derive(Debug)]
struct Registrations {
    faults: RegistrationFaults,
    /// Bytes that are registered.
    held: u64,
}

/// A queue pair that rules may match.
#[derive(Debug)]
pub(crate) struct FaultyQp {
    /// The place of the queue pair in the order in which the program created them, from 1.
    number: u32,
    raw: Weak<Qp>,
    faults: Mutex<QueuePairFaults>,
    peer: Mutex<Option<Endpoint>>,
    /// True after a completion of the send or of the receive queue has failed: later ones are flushed.
    failed: [AtomicBool; 2],
    log: Arc<Log>,
}

const SUCCESS: c_int = Status::Success as c_int;

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number(errno: Errno) -> c_int {
    match errno {
        Errno::Enomem => libc::ENOMEM,
        Errno::Eagain => libc::EAGAIN,
        Errno::Einval => libc::EINVAL,
        Errno::Eio => libc::EIO,
    }
}

impl Faults {
    /// Opens the log for rules that have faults of verbs. `None` if they have none.
    pub(crate) fn of(rules: &Rules, log: Option<&str>) -> Result<Option<Faults>, OpenError> {
        if rules.verbs.is_empty() {
            return Ok(None);
        }
        let registrations = Registrations { faults: RegistrationFaults::new(&rules.verbs), held: 0 };
        Ok(Some(Faults {
            rules: rules.verbs.clone(),
            log: Arc::new(Log::open(log)?),
            created: AtomicU32::new(0),
            pairs: Mutex::default(),
            registrations: Mutex::new(registrations),
        }))
    }

    /// Returns whether completions may be changed.
    pub(crate) fn changes_completions(&self) -> bool {
        self.rules.changes_completions()
    }

    /// Enters a new queue pair.
    pub(crate) fn enter(&self, raw: &Arc<Qp>) -> Arc<FaultyQp> {
        let number = self.created.fetch_add(1, Ordering::Relaxed) + 1;
        let pair = Arc::new(FaultyQp {
            number,
            raw: Arc::downgrade(raw),
            faults: Mutex::new(QueuePairFaults::new(&self.rules, number)),
            peer: Mutex::default(),
            failed: Default::default(),
            log: Arc::clone(&self.log),
        });
        lock(&self.pairs).insert(raw.number().get(), Arc::clone(&pair));
        pair
    }

    /// Removes a queue pair that is destroyed.
    pub(crate) fn leave(&self, qp: u32) {
        lock(&self.pairs).remove(&qp);
    }

    /// Decides on a registration of `len` bytes, and counts them if it may succeed.
    pub(crate) fn register(&self, len: u64) -> Result<(), c_int> {
        let Registrations { faults, held } = &mut *lock(&self.registrations);
        if let Some((errno, occurrence)) = faults.register(*held, len) {
            self.log.write(&occurrence, &FaultSubject::Registration { held: *held, len });
            return Err(number(errno));
        }
        *held = held.saturating_add(len);
        Ok(())
    }

    /// Counts bytes that are registered no more.
    pub(crate) fn deregister(&self, len: u64) {
        let held = &mut lock(&self.registrations).held;
        *held = held.saturating_sub(len);
    }

    /// Changes a completion as the rules say. Returns whether it has an error then.
    pub(crate) fn change(&self, wc: &mut IbvWc) -> bool {
        let pair = lock(&self.pairs).get(&wc.qp_num).cloned();
        if let Some(pair) = pair.filter(|_| wc.status == SUCCESS) {
            (wc.status, wc.vendor_err) = pair.completion(work_of(wc.opcode));
        }
        wc.status != SUCCESS
    }

    /// The number in the NIC of the queue pair that was created as number `number`.
    fn numbered(&self, number: u32) -> Option<u32> {
        let pairs = lock(&self.pairs);
        pairs.iter().find(|(_, pair)| pair.number == number).map(|(qp, _)| *qp)
    }
}

impl FaultyQp {
    /// Records the peer, or that there is none any more.
    pub(crate) fn set_peer(&self, peer: Option<Endpoint>) {
        *lock(&self.peer) = peer;
    }

    /// Records that the queue pair is in RESET.
    pub(crate) fn reset(&self) {
        self.failed.iter().for_each(|failed| failed.store(false, Ordering::Relaxed));
    }

    /// Decides on a call that posts work. Returns the errno with which it fails.
    pub(crate) fn post(&self, work: WorkKind) -> Result<(), c_int> {
        let peer = *lock(&self.peer);
        match lock(&self.faults).post(work, peer) {
            None => Ok(()),
            Some((errno, occurrence)) => {
                self.log.write(&occurrence, &FaultSubject::QueuePair { number: self.number, work });
                Err(number(errno))
            }
        }
    }

    /// Returns the status and `vendor_err` of a successful completion. As on hardware, a connected queue pair
    /// is in the error state after a completion that fails, and what completes later is flushed.
    fn completion(&self, work: WorkKind) -> (c_int, u32) {
        let failed = &self.failed[usize::from(work == WorkKind::Receive)];
        if failed.load(Ordering::Relaxed) {
            return (Status::WrFlushed as c_int, 0);
        }
        let peer = *lock(&self.peer);
        let Some((status, vendor_err, occurrence)) = lock(&self.faults).completion(work, peer) else {
            return (SUCCESS, 0);
        };
        self.log.write(&occurrence, &FaultSubject::QueuePair { number: self.number, work });
        if let Some(raw) = self.raw.upgrade().filter(|raw| raw.service() != Service::Ud) {
            failed.store(true, Ordering::Relaxed);
            // Refused only if the queue pair is in an error state, or its NIC has failed.
            let _ = raw.modify(&Modify { state: Some(State::Err), ..Modify::default() });
        }
        (c_int::from(status), vendor_err)
    }
}

/// The kind of work of an operation.
pub(crate) fn work(operation: &Operation) -> WorkKind {
    match operation {
        Operation::Write(..) | Operation::WriteImm(..) => WorkKind::Write,
        Operation::Read(..) => WorkKind::Read,
        Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => WorkKind::Atomic,
        Operation::LocalInv(..) | Operation::BindWindow(..) => WorkKind::Memory,
        _ => WorkKind::Send,
    }
}

/// The kind of work of a completion, by its number in `enum ibv_wc_opcode`.
fn work_of(opcode: c_int) -> WorkKind {
    match opcode {
        1 => WorkKind::Write,
        2 => WorkKind::Read,
        3 | 4 => WorkKind::Atomic,
        5 | 6 => WorkKind::Memory,
        128.. => WorkKind::Receive,
        _ => WorkKind::Send,
    }
}
