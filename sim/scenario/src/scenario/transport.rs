//! Transports and congestion controls: their names, and the settings of a scenario for them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::units::{Rate, Size, Time};

/// The settings of loss recovery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Transport {
    /// Name of the transport. Default: `"irn"`.
    pub name: TransportName,
    /// Go-back-N: retransmission timeout. Default: none with `roce+pfc`, 320 µs with `roce` and
    /// `resilient-roce`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rto: Option<Time>,
    /// IRN: timeout while at most `few-packets` packets are in flight (RTO_low). Default: 100 µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rto_low: Option<Time>,
    /// IRN: timeout while more packets are in flight (RTO_high). Default: 320 µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rto_high: Option<Time>,
    /// IRN: largest number of packets in flight for which `rto-low` applies. Default: 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub few_packets: Option<u32>,
    /// IRN: largest number of packets in flight (BDP-FC). Default: the bandwidth-delay product of the longest
    /// path, in full frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<u32>,
    /// IRN: if true, selectively acknowledged packets no longer count as in flight. Default: false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sacked_leave_cap: bool,
    /// Go-back-N: number of packets per ACK. Default: 1. IRN acknowledges every packet.
    pub packets_per_ack: u32,
    /// IRN: delay before each retransmission. Default: 0; Figure 12 of the paper has 2 µs.
    pub retransmission_delay: Time,
    /// Additional header bytes of each data packet. Default: 0; Figure 12 of IRN's paper has 16.
    pub extra_header: Size,
}

impl Default for Transport {
    /// IRN with the settings of its paper.
    fn default() -> Transport {
        Transport {
            name: TransportName::Irn,
            rto: None,
            rto_low: None,
            rto_high: None,
            few_packets: None,
            cap: None,
            sacked_leave_cap: false,
            packets_per_ack: 1,
            retransmission_delay: Time(0),
            extra_header: Size(0),
        }
    }
}

/// The settings of congestion control. Defaults depend on the named control: those of DCQCN's paper, or those
/// of ConWeave's ns-3 program with `dcqcn-ns3`, given in parentheses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Control {
    /// Name of the congestion control. Default: `"none"`.
    pub name: ControlName,
    /// DCQCN: period after which α is updated if no CNP arrived (K). Default: 55 µs (1 µs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpha_interval: Option<Time>,
    /// DCQCN: minimum time between two rate decreases. Default: 0 (4 µs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decrease_interval: Option<Time>,
    /// DCQCN: period of the timer that increases the rate (T). Default: 55 µs (300 µs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub increase_interval: Option<Time>,
    /// DCQCN: weight of a new mark in α (g), from 0 to 1. Default: 1/256.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
    /// DCQCN: number of fast-recovery rounds (F). Default: 5 (1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_recovery: Option<u32>,
    /// DCQCN: rate added in each additive increase. Default: 40 Mb/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_ai: Option<Rate>,
    /// DCQCN: rate added in each hyper increase. Default: 400 Mb/s (100 Mb/s).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_hai: Option<Rate>,
    /// Lowest rate of a flow, for DCQCN and TIMELY. Default: 10 Mb/s (100 Mb/s).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_rate: Option<Rate>,
    /// DCQCN: if true, every rate decrease also lowers the target rate. Default: true (false).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clamp_target: Option<bool>,
    /// If true, a flow may have at most the bandwidth-delay product of the longest path in flight, as with
    /// HPCC's `HAS_WIN`. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<bool>,
    /// If true, the window is the bandwidth-delay product of the flow's own path. Requires `window`. Default:
    /// false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_of_pair: Option<bool>,
    /// If true, the window shrinks in proportion to the rate of the congestion control. Requires `window`.
    /// Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_follows_rate: Option<bool>,
}

impl Control {
    /// Checks that all numbers are in range.
    ///
    /// # Errors
    /// The message is one line that says what is wrong and how to correct it.
    pub fn check(&self) -> Result<(), String> {
        match self.gain {
            Some(gain) if !(0.0..=1.0).contains(&gain) => {
                Err(format!("control.gain is {gain}: choose a number from 0 to 1"))
            }
            _ => Ok(()),
        }
    }
}

/// Defines an enum whose variants have the names that files and the command line use.
macro_rules! named {
    ($(#[$meta:meta])* $type:ident, $what:literal, { $($(#[$doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$meta])*
        #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $type {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl $type {
            /// List of all variants.
            pub const ALL: &[$type] = &[$($type::$variant,)*];

            /// Returns the name as written in files and on the command line.
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)*
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<$type, String> {
                $type::ALL.iter().copied().find(|known| known.name() == text).ok_or_else(|| {
                    let names: Vec<_> = $type::ALL.iter().map(|known| known.name()).collect();
                    let text = crate::error::excerpt(text);
                    format!("no {} is called `{text}`: choose one of {}", $what, names.join(", "))
                })
            }
        }
    };
}

named!(
    /// The transport of all flows: loss recovery, and whether switches use PFC.
    TransportName, "transport", {
        /// RoCE with go-back-N, without PFC: a packet that does not fit into a switch is lost.
        Roce = "roce",
        /// RoCE with go-back-N and PFC.
        RocePfc = "roce+pfc",
        /// IRN without PFC.
        #[default]
        Irn = "irn",
        /// IRN with PFC.
        IrnPfc = "irn+pfc",
        /// IRN with go-back-N instead of selective retransmission (Figure 7 of IRN's paper).
        IrnGoBackN = "irn-go-back-n",
        /// IRN without BDP-FC, its cap on packets in flight (Figure 7).
        IrnWithoutCap = "irn-no-bdpfc",
        /// IRN that retransmits without selective acknowledgements (Figure 7).
        IrnWithoutSack = "irn-no-sack",
        /// RoCE with go-back-N, without PFC, for use with DCQCN (Figure 10).
        ResilientRoce = "resilient-roce",
    }
);

named!(
    /// The congestion control of all flows.
    ControlName, "control", {
        /// No congestion control: flows send at link rate.
        #[default]
        None = "none",
        /// DCQCN with the algorithm and parameters of its paper.
        Dcqcn = "dcqcn",
        /// DCQCN as in the ns-3 programs. Here a CNP answers each marked packet, where their ACKs echo each
        /// mark.
        DcqcnNs3 = "dcqcn-ns3",
        /// TIMELY with the algorithm of its paper.
        Timely = "timely",
        /// TIMELY with the patch of "ECN or Delay" (Zhu et al., CoNEXT 2016), with which flows converge to a
        /// fair share.
        TimelyPatched = "timely-patched",
    }
);

impl TransportName {
    /// Returns true if switches use PFC with this transport.
    pub fn has_pfc(self) -> bool {
        matches!(self, TransportName::RocePfc | TransportName::IrnPfc)
    }
}
