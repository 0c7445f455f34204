//! How switches hold, pause, mark and forward.

use serde::{Deserialize, Serialize};

use super::given_path::GivenPath;
use crate::units::{Rate, Size, Time};

/// A switch. All of a network are alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Switch {
    /// How packets are held.
    pub kind: Buffering,
    /// Of `shared`: how the memory is divided.
    pub mmu: Mmu,
    /// Bytes of memory: of each output (`fifo`), of each input (`voq`), or of the switch (`shared`).
    pub buffer: Size,
    /// Of `shared`: a queue may hold so many times the free memory; without it, all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpha: Option<f64>,
    /// Of `shared`: bytes that each port and class have for themselves; without it, what the MMU has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Size>,
    /// From a packet's last byte to when it may leave.
    pub latency: Time,
    /// The same for ToRs, aggregation switches and cores, where they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_by_tier: Option<[Time; 3]>,
    /// PFC; without it, what does not fit is dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pfc: Option<Pfc>,
    /// Marks; without it, none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn: Option<Ecn>,
    /// How one of several ports is chosen.
    pub balance: Balance,
}

impl Default for Switch {
    /// IRN's: 240 KB at each input, no PFC and no marks.
    fn default() -> Switch {
        Switch {
            kind: Buffering::Voq,
            mmu: Mmu::Clean,
            buffer: Size(240_000),
            alpha: None,
            reserve: None,
            latency: Time(0),
            latency_by_tier: None,
            pfc: None,
            ecn: None,
            balance: Balance::Ecmp { hash: Hash::Own },
        }
    }
}

/// How packets are held.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Buffering {
    /// A queue at each output.
    Fifo,
    /// Memory at each input with a queue for each output, served in turn.
    Voq,
    /// One memory for all ports.
    Shared,
}

/// How a shared memory is divided.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mmu {
    /// By dynamic thresholds alone.
    #[default]
    Clean,
    /// As HPCC's program does.
    Hpcc,
    /// As ConWeave's program does.
    Conweave,
}

/// When a switch pauses its neighbours.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Pfc {
    /// Bytes of an input at which it pauses; without it, computed from the memory and the headroom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xoff: Option<Size>,
    /// Bytes of an input at which it resumes; without it, two packets below `xoff`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xon: Option<Size>,
    /// Bytes that may still arrive after a pause; without it, computed from rate, delay and MTU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headroom: Option<Size>,
    /// Whether each class is counted for itself.
    pub counted: Counted,
    /// How long a pause holds, if it is not renewed; without it, as the MMU has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiry: Option<Time>,
    /// From the arrival of a pause to when the port obeys.
    pub reaction: Time,
    /// Do pause frames take no time on the link?
    pub free: bool,
}

/// What bytes a pause counts.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Counted {
    /// Those of an input and class: a pause names the class.
    #[default]
    Class,
    /// Those of an input: a pause stops all classes.
    Port,
}

/// Which packets are marked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Ecn {
    /// Whether a packet is judged when it comes or when it goes.
    #[serde(default)]
    pub at: Mark,
    /// Thresholds. One without a rate is for all links; else every rate of the network needs its own.
    pub red: Vec<Red>,
}

/// When a packet is judged.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// When it enters the queue.
    #[default]
    Enqueue,
    /// When it leaves, by what remains.
    Dequeue,
}

/// The thresholds of one rate: no mark up to `kmin`, `pmax` at `kmax`, always above.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Red {
    /// Rate of the egress; without it, any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Bytes up to which nothing is marked.
    pub kmin: Size,
    /// Bytes above which everything is marked.
    pub kmax: Size,
    /// Probability at `kmax`.
    pub pmax: f64,
}

/// How one of several ports is chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Balance {
    /// By a hash of the flow.
    Ecmp {
        /// Which hash.
        #[serde(default)]
        hash: Hash,
    },
    /// Each packet by itself, in turn.
    Spray {},
    /// By flow, and anew after a gap.
    Flowlet {
        /// The gap.
        gap: Time,
    },
    /// Flows take the paths that are given. Others are hashed by Remora's own hash.
    Replay {
        /// The paths, one for a flow.
        paths: Vec<GivenPath>,
    },
}

/// Which hash chooses a port.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hash {
    /// Remora's, which depends on the seed.
    #[default]
    Own,
    /// That of the ns-3 programs: addresses and ports, seeded by the switch's number. Flows without ports
    /// have those of Remora's packets.
    Ns3,
    /// htsim's: flow, path and a salt of the switch. Salts and path depend on the seed.
    Htsim,
}

impl Switch {
    /// Are all numbers within their bounds?
    ///
    /// # Errors
    /// What is wrong and the remedy.
    pub fn check(&self) -> Result<(), String> {
        if self.buffer.0 == 0 {
            return Err("switch.buffer is 0: choose a size like \"240KB\"".into());
        }
        if let Some(alpha) = self.alpha
            && !(alpha > 0.0 && alpha.is_finite())
        {
            return Err(format!("switch.alpha is {alpha}: choose a number above 0"));
        }
        if let Some(Pfc { xoff: Some(xoff), xon: Some(xon), .. }) = self.pfc
            && xon > xoff
        {
            return Err(format!("switch.pfc.xon is {xon}, above xoff {xoff}: lower it"));
        }
        for red in self.ecn.iter().flat_map(|ecn| &ecn.red) {
            if red.kmin > red.kmax || !(0.0..=1.0).contains(&red.pmax) {
                return Err("a line of switch.ecn.red has kmin <= kmax and pmax from 0 to 1: mend it".into());
            }
        }
        Ok(())
    }
}
