//! Rules for faults of verbs, as values and as TOML.

use crate::occasions::Occasions;
use crate::peer::PeerMatch;
use crate::rules_error::RulesError;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// The faults of verbs on a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VerbRules {
    /// Seed of all random decisions.
    pub(crate) seed: u64,
    /// Calls that post work and fail (`[[post]]`).
    pub(crate) posts: Vec<VerbRule<Errno>>,
    /// Completions that carry an error (`[[completion]]`).
    pub(crate) completions: Vec<VerbRule<Failure>>,
    /// Registrations of memory that fail (`[[registration]]`).
    pub(crate) registrations: Vec<RegistrationRule>,
    /// Incidents, in the order of the file (`[[incident]]`).
    pub incidents: Vec<Incident>,
}

impl VerbRules {
    /// Returns true if there are no rules.
    pub fn is_empty(&self) -> bool {
        self.posts.is_empty()
            && self.completions.is_empty()
            && self.registrations.is_empty()
            && self.incidents.is_empty()
    }

    /// Returns true if any rule applies to completions.
    pub fn changes_completions(&self) -> bool {
        !self.completions.is_empty()
    }
}

/// The errno of a call that fails.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Errno {
    /// No memory, or the queue is full.
    Enomem,
    /// Try again.
    Eagain,
    /// An invalid argument.
    Einval,
    /// An error of the device.
    Eio,
}

impl Errno {
    /// The name in the C library.
    pub fn name(self) -> &'static str {
        match self {
            Errno::Enomem => "ENOMEM",
            Errno::Eagain => "EAGAIN",
            Errno::Einval => "EINVAL",
            Errno::Eio => "EIO",
        }
    }
}

/// The kind of a work request.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkKind {
    /// SEND, with or without immediate data or an invalidation.
    Send,
    /// RDMA WRITE, with or without immediate data.
    Write,
    /// RDMA READ.
    Read,
    /// Compare and swap, or fetch and add.
    Atomic,
    /// Binding of a memory window, or a local invalidation.
    Memory,
    /// A receive.
    Receive,
}

impl WorkKind {
    /// The name in rule files.
    pub fn name(self) -> &'static str {
        match self {
            WorkKind::Send => "send",
            WorkKind::Write => "write",
            WorkKind::Read => "read",
            WorkKind::Atomic => "atomic",
            WorkKind::Memory => "memory",
            WorkKind::Receive => "receive",
        }
    }
}

/// The error of a completion.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Index in [`STATUSES`], which is the number of `enum ibv_wc_status`.
    pub status: u8,
    pub vendor_err: u32,
}

/// The names of `enum ibv_wc_status`, without the prefix `IBV_WC_`.
pub(crate) const STATUSES: [&str; 22] = [
    "SUCCESS",
    "LOC_LEN_ERR",
    "LOC_QP_OP_ERR",
    "LOC_EEC_OP_ERR",
    "LOC_PROT_ERR",
    "WR_FLUSH_ERR",
    "MW_BIND_ERR",
    "BAD_RESP_ERR",
    "LOC_ACCESS_ERR",
    "REM_INV_REQ_ERR",
    "REM_ACCESS_ERR",
    "REM_OP_ERR",
    "RETRY_EXC_ERR",
    "RNR_RETRY_EXC_ERR",
    "LOC_RDD_VIOL_ERR",
    "REM_INV_RD_REQ_ERR",
    "REM_ABORT_ERR",
    "INV_EECN_ERR",
    "INV_EEC_STATE_ERR",
    "FATAL_ERR",
    "RESP_TIMEOUT_ERR",
    "GENERAL_ERR",
];

/// The names of `enum ibv_event_type`, without the prefix `IBV_EVENT_`.
const EVENTS: [&str; 20] = [
    "CQ_ERR",
    "QP_FATAL",
    "QP_REQ_ERR",
    "QP_ACCESS_ERR",
    "COMM_EST",
    "SQ_DRAINED",
    "PATH_MIG",
    "PATH_MIG_ERR",
    "DEVICE_FATAL",
    "PORT_ACTIVE",
    "PORT_ERR",
    "LID_CHANGE",
    "PKEY_CHANGE",
    "SM_CHANGE",
    "SRQ_ERR",
    "SRQ_LIMIT_REACHED",
    "QP_LAST_WQE_REACHED",
    "CLIENT_REREGISTER",
    "GID_CHANGE",
    "WQ_FATAL",
];

/// A rule for the work of queue pairs. Each queue pair has counts of its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VerbRule<F> {
    pub fault: F,
    /// The number of the queue pair in the order of creation, from 1; `None` matches all.
    pub qp: Option<u32>,
    /// Kinds of work that the rule matches; empty matches all.
    pub work: Vec<WorkKind>,
    /// Peer that the rule matches; `None` matches all.
    pub peer: Option<PeerMatch>,
    pub occasions: Occasions,
}

/// A rule for the registrations of a device.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RegistrationRule {
    pub errno: Errno,
    /// The rule matches a registration by which more than this many bytes would be registered.
    pub beyond: Option<u64>,
    pub occasions: Occasions,
}

/// An incident of the device.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// Milliseconds after the device was opened.
    pub at_ms: u64,
    /// The kind of incident.
    pub kind: IncidentKind,
}

/// The kind of an incident.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum IncidentKind {
    /// The port is down for a time, in milliseconds. No frame passes meanwhile.
    PortDown(u64),
    /// The device fails, and cannot be opened again for a time, in milliseconds.
    DeviceDead(u64),
    /// An asynchronous event, by its number in `enum ibv_event_type`. Events of a queue pair are those of the
    /// queue pair with this number in the order of creation.
    Event {
        /// Number of the event.
        number: u8,
        /// Number of the queue pair, from 1.
        qp: Option<u32>,
    },
}

impl IncidentKind {
    /// The description in a log.
    pub fn describe(&self) -> String {
        match self {
            IncidentKind::PortDown(ms) => format!("port down for {ms} ms"),
            IncidentKind::DeviceDead(ms) => format!("device dead for {ms} ms"),
            IncidentKind::Event { number, .. } => {
                EVENTS.get(usize::from(*number)).map_or_else(String::new, |name| (*name).to_owned())
            }
        }
    }
}

/// A rule as in the file: `[[post]]`, `[[completion]]` and `[[registration]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VerbRuleText {
    errno: Option<Errno>,
    status: Option<String>,
    vendor_err: Option<u32>,
    beyond_mib: Option<u64>,
    qp: Option<u32>,
    #[serde(default)]
    work: Vec<WorkKind>,
    peer: Option<String>,
    #[serde(default)]
    after: u64,
    every: Option<u64>,
    probability: Option<f64>,
    at_most: Option<u64>,
}

fn wrong<T>(why: impl Into<String>) -> Result<T, RulesError> {
    Err(RulesError::new(why))
}

impl VerbRuleText {
    fn occasions(&self) -> Result<Occasions, RulesError> {
        let occasions = Occasions::new(self.after, self.every, self.probability, self.at_most)?;
        if occasions.never() {
            return wrong("a rule with `probability = 0` or `at_most = 0` never fires: leave it out");
        }
        Ok(occasions)
    }

    fn rule<F>(&self, fault: F) -> Result<VerbRule<F>, RulesError> {
        if self.beyond_mib.is_some() {
            return wrong("`beyond_mib` goes only with [[registration]]");
        }
        if self.qp == Some(0) {
            return wrong("`qp` counts the queue pairs in the order of creation, from 1");
        }
        let peer = self.peer.as_deref().map(str::parse).transpose()?;
        Ok(VerbRule { fault, qp: self.qp, work: self.work.clone(), peer, occasions: self.occasions()? })
    }

    /// The rule of a `[[post]]`.
    fn post(&self) -> Result<VerbRule<Errno>, RulesError> {
        if self.status.is_some() || self.vendor_err.is_some() {
            return wrong("`status` and `vendor_err` go only with [[completion]]");
        }
        match self.errno {
            Some(errno) => self.rule(errno),
            None => wrong("[[post]] needs `errno`, such as \"ENOMEM\" or \"EAGAIN\""),
        }
    }

    /// The rule of a `[[completion]]`.
    fn completion(&self) -> Result<VerbRule<Failure>, RulesError> {
        if self.errno.is_some() {
            return wrong("`errno` goes with [[post]] and [[registration]]; a completion has a `status`");
        }
        let Some(name) = &self.status else {
            return wrong("[[completion]] needs `status`, such as \"RETRY_EXC_ERR\"");
        };
        let wanted = name.strip_prefix("IBV_WC_").unwrap_or(name);
        let place = STATUSES.iter().position(|status| status.eq_ignore_ascii_case(wanted));
        match place {
            None => wrong(format!(
                "no status is called `{name}`: they are those of `ibv_wc_status`, such as \"RETRY_EXC_ERR\""
            )),
            Some(0) => wrong("a completion with status \"SUCCESS\" is no fault"),
            Some(status) => {
                self.rule(Failure { status: status as u8, vendor_err: self.vendor_err.unwrap_or(0) })
            }
        }
    }

    /// The rule of a `[[registration]]`.
    fn registration(&self) -> Result<RegistrationRule, RulesError> {
        let others =
            [self.status.is_some(), self.vendor_err.is_some(), self.qp.is_some(), self.peer.is_some()];
        if others.contains(&true) || !self.work.is_empty() {
            return wrong("`status`, `vendor_err`, `qp`, `peer` and `work` do not go with [[registration]]");
        }
        let beyond = self.beyond_mib.map(|mib| mib.saturating_mul(1 << 20));
        let errno = self.errno.unwrap_or(Errno::Enomem);
        Ok(RegistrationRule { errno, beyond, occasions: self.occasions()? })
    }
}

/// Reads a value by its form in the file, so that an error has the position of the table.
macro_rules! read_as {
    ($value:ty, $text:ty, $convert:ident) => {
        impl<'de> Deserialize<'de> for $value {
            fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                <$text>::deserialize(source)?.$convert().map_err(|RulesError(why)| D::Error::custom(why))
            }
        }
    };
}

read_as!(VerbRule<Errno>, VerbRuleText, post);
read_as!(VerbRule<Failure>, VerbRuleText, completion);
read_as!(RegistrationRule, VerbRuleText, registration);
read_as!(Incident, IncidentText, incident);

/// An incident as in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IncidentText {
    at_ms: u64,
    port_down_ms: Option<u64>,
    device_dead_ms: Option<u64>,
    event: Option<String>,
    qp: Option<u32>,
}

impl IncidentText {
    fn incident(&self) -> Result<Incident, RulesError> {
        let kind = match (self.port_down_ms, self.device_dead_ms, &self.event) {
            (Some(0), None, None) => return wrong("`port_down_ms` is at least 1"),
            (Some(ms), None, None) => IncidentKind::PortDown(ms),
            (None, Some(ms), None) => IncidentKind::DeviceDead(ms),
            (None, None, Some(name)) => self.event(name)?,
            _ => return wrong("[[incident]] needs one of `port_down_ms`, `device_dead_ms` and `event`"),
        };
        if self.qp.is_some() && !matches!(kind, IncidentKind::Event { .. }) {
            return wrong("`qp` goes only with the `event` of a queue pair");
        }
        Ok(Incident { at_ms: self.at_ms, kind })
    }

    fn event(&self, name: &str) -> Result<IncidentKind, RulesError> {
        let wanted = name.strip_prefix("IBV_EVENT_").unwrap_or(name);
        let Some(number) = EVENTS.iter().position(|event| event.eq_ignore_ascii_case(wanted)) else {
            return wrong(format!(
                "no event is called `{name}`: they are those of `ibv_event_type`, such as \"QP_FATAL\""
            ));
        };
        let number = number as u8;
        let of_queue_pair = matches!(number, 1..=7 | 16);
        match (of_queue_pair, self.qp) {
            (true, None | Some(0)) => wrong(format!(
                "event {name} needs `qp`, the number of a queue pair in the order of creation, from 1"
            )),
            (false, Some(_)) => wrong(format!("event {name} is not one of a queue pair: leave `qp` out")),
            (_, qp) if of_queue_pair || matches!(number, 8..=13 | 17 | 18) => {
                Ok(IncidentKind::Event { number, qp })
            }
            _ => wrong(format!(
                "event {name} cannot be caused: choose one of a queue pair, the port or the device"
            )),
        }
    }
}
