//! Switches: buffers, PFC, ECN marks and load balancing.

use serde::{Deserialize, Serialize};

use super::given_path::GivenPath;
use crate::units::{Rate, Size, Time};

/// The settings of the switches. All switches of a network are equal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Switch {
    /// Organisation of the packet buffer. Default: `"voq"`.
    pub kind: Buffering,
    /// Rules by which a `shared` buffer is divided. Default: `"clean"`. Other kinds ignore this key.
    pub mmu: Mmu,
    /// Size of the packet buffer: per output port (`fifo`), per input port (`voq`), or of the whole switch
    /// (`shared`). Default: 240 KB.
    pub buffer: Size,
    /// Dynamic threshold of a `shared` buffer: a queue may hold `alpha` times the free memory. It applies to
    /// inputs with `mmu = "clean"` and to outputs with `"conweave"`; `"hpcc"` always uses 1/8 for inputs.
    /// Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpha: Option<f64>,
    /// Memory of a `shared` buffer that is reserved for each port and class. Default: 0 with `mmu = "clean"`,
    /// 4096 bytes with `"hpcc"`, one full frame with `"conweave"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Size>,
    /// Time from the arrival of a packet's last bit until the switch can forward the packet. Default: 0.
    pub latency: Time,
    /// Replaces `latency` by one value each for ToR, aggregation and core switches. Switches of a network
    /// that is not a tree keep `latency`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_by_tier: Option<[Time; 3]>,
    /// PFC settings for transports with PFC (`roce+pfc`, `irn+pfc`); other transports ignore them. Default:
    /// all settings at their defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pfc: Option<Pfc>,
    /// ECN marking. By default nothing is marked, except with DCQCN: then from 5 KB to 200 KB with at most 1
    /// %, the thresholds of DCQCN's paper.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn: Option<Ecn>,
    /// Choice among several shortest paths. Default: ECMP with Remora's hash.
    pub balance: Balance,
}

impl Default for Switch {
    /// The switches of IRN's paper: 240 KB at each input port, no ECN marks, ECMP.
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

/// The organisation of a switch's packet buffer.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Buffering {
    /// A queue for each output port and class. The queues of an output port share its buffer.
    Fifo,
    /// Virtual output queues: each input port has a buffer with a queue for each output port. Output ports
    /// serve the inputs in turn, packet by packet.
    Voq,
    /// A single buffer for the whole switch, divided by dynamic thresholds.
    Shared,
}

/// The rules by which a shared buffer is divided.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mmu {
    /// Dynamic thresholds (`alpha`) only.
    #[default]
    Clean,
    /// The rules of HPCC's ns-3 program.
    Hpcc,
    /// The rules of ConWeave's ns-3 program.
    Conweave,
}

/// The settings of PFC (IEEE 802.1Qbb): when a switch pauses the sender at the far end of an input port.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Pfc {
    /// Bytes of an input port (see `counted`) above which the sender is paused. Default: `buffer` minus
    /// headroom. Switches with a `shared` buffer ignore this key: their threshold is dynamic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xoff: Option<Size>,
    /// Bytes of an input port at or below which the sender resumes. Default: two full frames below `xoff`.
    /// Switches with a `shared` buffer ignore this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xon: Option<Size>,
    /// Buffer space for data that arrives after a pause was sent. Default: the most that a link of the
    /// network needs for its rate, delay and the longest frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headroom: Option<Size>,
    /// Unit of counting and pausing. Default: `"class"`.
    pub counted: Counted,
    /// Duration of a pause that is not renewed. Default: 65 535 quanta with `mmu = "clean"`, 5 µs with
    /// `"conweave"`, unlimited with `"hpcc"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiry: Option<Time>,
    /// Time from the arrival of a pause frame until the port stops sending. Default: 0.
    pub reaction: Time,
    /// If true, pause frames take no time on the link and do not wait for a packet that is being sent.
    /// Default: false.
    pub free: bool,
}

/// The unit by which PFC counts and pauses.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Counted {
    /// Each traffic class of an input port is counted and paused separately.
    #[default]
    Class,
    /// All classes of an input port are counted together and paused together. Only `fifo` switches count so;
    /// `voq` and `shared` switches keep counting each class.
    Port,
}

/// The settings of ECN marking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Ecn {
    /// Moment at which the queue length decides about the mark. Default: `"enqueue"`.
    #[serde(default)]
    pub at: Mark,
    /// Thresholds by link rate. An entry without a rate applies to all rates without an entry of their own.
    /// Links without any entry do not mark.
    pub red: Vec<Red>,
}

/// The moment at which the queue length decides about a mark.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// On arrival in the queue, by the bytes ahead of the packet.
    #[default]
    Enqueue,
    /// On departure from the queue, by the bytes that remain queued.
    Dequeue,
}

/// RED thresholds of an egress queue: the probability of a mark is 0 up to `kmin`, rises linearly to `pmax`
/// at `kmax`, and is 1 above.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Red {
    /// Rate of the links to which the thresholds apply. Default: all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Queue length up to which no packet is marked.
    pub kmin: Size,
    /// Queue length above which every packet is marked.
    pub kmax: Size,
    /// Probability of a mark at `kmax`, from 0 to 1.
    pub pmax: f64,
}

/// The choice among several ports on shortest paths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Balance {
    /// By a hash of the flow: all packets of a flow take one path (ECMP).
    Ecmp {
        /// Hash function. Default: `"own"`.
        #[serde(default)]
        hash: Hash,
    },
    /// Each packet takes the next port in turn.
    Spray {},
    /// A flow keeps its path until it has sent nothing for `gap`; then it takes a new one.
    Flowlet {
        /// Idle time after which a flow takes a new path.
        gap: Time,
    },
    /// Flows take the given paths. Flows without a path are hashed by Remora's own hash.
    Replay {
        /// Paths by flow: at most one for each flow.
        paths: Vec<GivenPath>,
    },
}

/// The hash function of ECMP.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hash {
    /// Remora's hash of host numbers and UDP ports, salted by the seed.
    #[default]
    Own,
    /// The hash of HPCC's and ConWeave's ns-3 programs: addresses and UDP ports, salted by the switch's
    /// number. A flow without ports is hashed by the UDP ports of its packets.
    Ns3,
    /// htsim's hash of flow id, path number and a salt of the switch. Salts and path number depend on the
    /// seed, so flows take other paths than in htsim.
    Htsim,
}

impl Switch {
    /// Checks that all numbers are in range.
    ///
    /// # Errors
    /// The message is one line that says what is wrong and how to correct it.
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
                return Err(
                    "an entry of switch.ecn.red is invalid: choose kmin <= kmax and pmax from 0 to 1".into(),
                );
            }
        }
        Ok(())
    }
}
