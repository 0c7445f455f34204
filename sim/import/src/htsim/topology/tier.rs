//! A tier of a topology file, and the tree that all tiers together describe.

use std::fmt::Write as _;

use remora_fabric::topology::{Level, Tree};

use remora_scenario::error::{ScenarioError, Source, Warnings, excerpt};
use remora_scenario::units;

/// The contents of a topology file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeFile {
    /// Number of hosts.
    pub nodes: u32,
    /// Number of hosts per pod.
    pub pod: u32,
    /// The tiers from the ToR switches upwards; two or three.
    pub tiers: Vec<TierText>,
}

/// The word after a key, with its place for error messages.
pub(super) struct Value<'a> {
    pub source: Source<'a>,
    pub line: u32,
    pub key: &'a str,
    pub word: &'a str,
}

impl Value<'_> {
    /// Reads the word as a whole number of at most `max`.
    pub(super) fn number(&self, max: u64) -> Result<u64, ScenarioError> {
        let Value { key, word, .. } = self;
        units::whole(word, max).map_err(|fault| self.error(fault.of(&excerpt(key), word)))
    }

    fn error(&self, says: impl Into<String>) -> ScenarioError {
        self.source.error(self.line, says)
    }
}

/// The keys of one tier. Rate, latency and bundle describe the links below the switches of the tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierText {
    /// `Downlink_speed_Gbps`: rate of a link downwards, in Gbit/s.
    pub speed: Option<u64>,
    /// `Downlink_Latency_ns`: delay of a link downwards, in ns.
    pub latency: Option<u64>,
    /// `Radix_Down`: number of links downwards of each switch.
    pub radix_down: Option<u64>,
    /// `Radix_Up`: number of links upwards of each switch; absent in the top tier.
    pub radix_up: Option<u64>,
    /// `Queue_Down`: capacity of the output queue of a link downwards, in bytes.
    pub queue_down: Option<u64>,
    /// `Queue_Up`: capacity of the output queue of a link upwards, in bytes; absent in the top tier.
    pub queue_up: Option<u64>,
    /// `Oversubscribed`: bandwidth downwards divided by bandwidth upwards; 1 if absent.
    pub oversubscribed: Option<u64>,
    /// `Bundle`: number of parallel links to each lower neighbour; 1 if absent.
    pub bundle: Option<u64>,
    /// `Switch_Latency_ns`: switching latency, in ns; 0 if absent.
    pub switch_latency: Option<u64>,
}

/// Largest value of a key other than the speed: a second in ns, or a gigabyte.
const MAX: u64 = 1_000_000_000;
/// Largest `Downlink_speed_Gbps`, in Gbit/s.
const SPEED_MAX: u64 = 8000;

impl TierText {
    fn keys(&mut self) -> [(&'static str, &mut Option<u64>); 9] {
        [
            ("Downlink_speed_Gbps", &mut self.speed),
            ("Radix_Down", &mut self.radix_down),
            ("Radix_Up", &mut self.radix_up),
            ("Downlink_Latency_ns", &mut self.latency),
            ("Switch_Latency_ns", &mut self.switch_latency),
            ("Queue_Down", &mut self.queue_down),
            ("Queue_Up", &mut self.queue_up),
            ("Oversubscribed", &mut self.oversubscribed),
            ("Bundle", &mut self.bundle),
        ]
    }

    /// Sets the key named `key`, in any capitalisation. Warns about an unknown key; fails if the key is
    /// already set in this tier.
    pub(super) fn set(
        &mut self,
        tier: usize,
        key: &str,
        value: &Value<'_>,
        warnings: &mut Warnings<'_>,
    ) -> Result<(), ScenarioError> {
        let entry = self.keys().into_iter().find(|(name, _)| name.eq_ignore_ascii_case(key));
        let Some((name, place)) = entry else {
            warnings.add(value.line, format!("the key {} is not known; it is skipped", excerpt(value.key)));
            return Ok(());
        };
        if place.is_some() {
            return Err(value.error(format!("{name} occurs twice in tier {tier}: remove one")));
        }
        *place = Some(value.number(if name == "Downlink_speed_Gbps" { SPEED_MAX } else { MAX })?);
        if tier == 2 && matches!(name, "Radix_Up" | "Queue_Up") {
            return Err(value.error(format!("tier 2 has no links upwards: remove {name}")));
        }
        Ok(())
    }

    /// Checks that the tier has all keys that it needs.
    pub(super) fn check(&self, source: Source<'_>, tier: usize, top: bool) -> Result<(), ScenarioError> {
        let need = [
            ("Downlink_speed_Gbps", self.speed),
            ("Downlink_Latency_ns", self.latency),
            ("Radix_Down", self.radix_down),
            ("Radix_Up", self.radix_up.or(top.then_some(1))),
            ("Oversubscribed", self.oversubscribed.or(Some(1))),
            ("Bundle", self.bundle.or(Some(1))),
            ("Queue_Down", self.queue_down.or(Some(1))),
        ];
        match need.into_iter().find(|(_, value)| matches!(value, None | Some(0))) {
            Some((name, _)) => {
                Err(source.error(0, format!("{name} of tier {tier} is missing or 0: add `{name} N`")))
            }
            None => Ok(()),
        }
    }

    /// Writes the keys that are set, one per line.
    pub(super) fn write(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.clone().keys() {
            if let Some(value) = value {
                let _ = writeln!(text, "{name} {value}");
            }
        }
        text
    }
}

/// Returns `a / b`, or an error that names `what` if the quotient is not whole.
fn whole(a: u64, b: u64, what: &str) -> Result<u64, String> {
    match b != 0 && a.is_multiple_of(b) {
        true => Ok(a / b),
        false => {
            Err(format!("{what} is {a} / {b}, not a whole number: correct radix, speed or Oversubscribed"))
        }
    }
}

/// Computes the tree of a file by htsim's rules.
///
/// # Errors
/// Fails if the numbers contradict each other. htsim rejects the same files.
pub fn tree(file: &TreeFile) -> Result<Tree, String> {
    let [tor, agg, rest @ ..] = &file.tiers[..] else {
        return Err("there is one tier: write two or three".into());
    };
    let speed = |tier: &TierText| tier.speed.unwrap_or(0);
    let radix = |radix: Option<u64>| radix.unwrap_or(0);
    let bundle = |tier: &TierText| tier.bundle.unwrap_or(1);
    let over = |tier: &TierText| tier.oversubscribed.unwrap_or(1);
    if bundle(tor) != 1 {
        return Err("Bundle of tier 0 is not 1, and hosts have one link: remove it".into());
    }
    let nodes = u64::from(file.nodes);
    let pods = whole(nodes, u64::from(file.pod), "the number of pods")?;
    let tors_per_pod = whole(u64::from(file.pod), radix(tor.radix_down), "the number of ToRs in a pod")?;
    if radix(tor.radix_down) / radix(tor.radix_up).max(1) != over(tor) {
        return Err(format!(
            "tier 0 has {} links down and {} up, which contradicts Oversubscribed {}: correct one of them",
            radix(tor.radix_down),
            radix(tor.radix_up),
            over(tor)
        ));
    }
    let uplinks =
        whole(nodes * speed(tor), speed(agg) * over(tor), "the number of links of all ToRs upwards")?;
    let aggs = whole(uplinks, pods * radix(agg.radix_down), "the number of agg switches in a pod")?;
    if aggs * bundle(agg) != radix(tor.radix_up) {
        return Err(format!(
            "a ToR has {} links upwards to {aggs} aggs with Bundle {}: correct Radix_Up or Bundle of tier 1",
            radix(tor.radix_up),
            bundle(agg)
        ));
    }
    let mut cores_per_agg = 0;
    let mut top = agg;
    if let [core] = rest {
        top = core;
        let up =
            whole(uplinks * speed(agg), speed(core) * over(agg), "the number of links of all aggs upwards")?;
        let cores = whole(up, radix(core.radix_down), "the number of cores")?;
        cores_per_agg = whole(cores, aggs, "the number of cores of an agg")?;
        if cores_per_agg * bundle(core) != radix(agg.radix_up) {
            return Err(format!(
                "an agg has {} links upwards to {cores_per_agg} cores with Bundle {}: correct Radix_Up or Bundle",
                radix(agg.radix_up),
                bundle(core)
            ));
        }
    }
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let level = |tier: &TierText| Level {
        rate: speed(tier).saturating_mul(1_000_000_000),
        delay: tier.latency.unwrap_or(0) * 1000,
        bundle: small(bundle(tier)),
    };
    let tree = Tree {
        pods: small(pods),
        tors_per_pod: small(tors_per_pod),
        hosts_per_tor: small(radix(tor.radix_down)),
        aggs_per_pod: small(aggs),
        cores_per_agg: small(cores_per_agg),
        below: [level(tor), level(agg), level(top)],
    };
    tree.topology().map_err(|error| error.to_string())?;
    Ok(tree)
}
