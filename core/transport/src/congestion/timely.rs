//! TIMELY (Mittal et al., "TIMELY: RTT-based Congestion Control for the Datacenter", SIGCOMM 2015). The rate
//! follows the gradient of the round-trip time between two thresholds.
//!
//! Names are the paper's (§4.3, algorithm 1): δ, β, the weight α of the moving average, `T_low`, `T_high`,
//! the minimum round-trip time, and N, the completions before hyperactive increase. One round trip is
//! measured at a time, so the rate changes once per round trip.
//!
//! With the plain algorithm, two flows with different rates can keep them, because the algorithm is stable
//! wherever the gradient is zero (Zhu et al., "ECN or Delay", CoNEXT 2016, §4). The patch of that paper also
//! steers towards a fixed queue length. It is on by default.

/// The parameters, under the names of the paper.
#[derive(Copy, Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Settings {
    /// `T_low`, in nanoseconds: below it the rate grows regardless of the gradient.
    pub t_low_ns: u64,
    /// `T_high`, in nanoseconds: above it the rate falls regardless of the gradient.
    pub t_high_ns: u64,
    /// Round-trip time of an idle network in nanoseconds, which normalizes the gradient.
    pub min_rtt_ns: u64,
    /// δ: rate added by one step of increase, in bits per second.
    pub delta: u64,
    /// β in thousandths: the factor from gradient to multiplicative decrease.
    pub beta_thousandths: u32,
    /// α in thousandths: the weight of a new difference in the moving average.
    pub alpha_thousandths: u32,
    /// N: consecutive round trips without growth after which a step of increase is 5 δ.
    pub n: u32,
    /// Enables the patch of "ECN or Delay": between the thresholds, the decrease depends on the distance
    /// from `T_low`, weighted by the gradient.
    #[cfg(feature = "experiments")]
    pub patched: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            t_low_ns: 50_000,
            t_high_ns: 500_000,
            min_rtt_ns: 20_000,
            delta: 10_000_000,
            beta_thousandths: 800,
            alpha_thousandths: 875,
            n: 5,
            #[cfg(feature = "experiments")]
            patched: true,
        }
    }
}

impl Settings {
    /// Returns true if the patch is in use, as it always is outside of experiments.
    fn is_patched(&self) -> bool {
        #[cfg(feature = "experiments")]
        return self.patched;
        #[cfg(not(feature = "experiments"))]
        true
    }
}

/// Size of a step of hyperactive increase, in units of δ.
const HYPER: f64 = 5.0;

/// Slope of the patched decrease's weight over the gradient, as in "ECN or Delay".
const PATCH_SLOPE: f64 = 2.0;

/// β of the patched decrease, as in "ECN or Delay".
const PATCH_BETA: f64 = 0.008;

/// The rate of one flow.
#[derive(Clone, Debug)]
pub struct Timely {
    settings: Settings,
    line: f64,
    least: f64,
    rate: f64,
    previous: Option<f64>,
    /// Moving average of the differences between round trips, in nanoseconds.
    difference: f64,
    /// Consecutive round trips that did not grow.
    falling: u32,
}

fn thousandths(value: u32) -> f64 {
    f64::from(value) / 1000.0
}

impl Timely {
    /// Returns the state of a new flow, which sends at line rate. Its rate is never below `min_rate`; both
    /// are in bits per second.
    pub fn new(settings: &Settings, line_rate: u64, min_rate: u64) -> Timely {
        let line = line_rate as f64;
        Timely {
            settings: *settings,
            line,
            least: min_rate as f64,
            rate: line,
            previous: None,
            difference: 0.0,
            falling: 0,
        }
    }

    /// Returns the rate in bits per second.
    pub fn rate(&self) -> u64 {
        self.rate as u64
    }

    /// Processes a measured round trip of `ns` nanoseconds.
    pub fn round_trip(&mut self, ns: u64) {
        let round = ns as f64;
        let Some(previous) = self.previous.replace(round) else { return };
        let alpha = thousandths(self.settings.alpha_thousandths);
        self.difference = (1.0 - alpha) * self.difference + alpha * (round - previous);
        let gradient = self.difference / (self.settings.min_rtt_ns.max(1) as f64);
        self.falling = if gradient <= 0.0 { self.falling + 1 } else { 0 };
        let low = self.settings.t_low_ns as f64;
        let high = self.settings.t_high_ns as f64;
        let delta = self.settings.delta as f64;
        let beta = thousandths(self.settings.beta_thousandths);
        let rate = if round < low {
            self.rate + delta
        } else if round > high {
            self.rate * (1.0 - beta * (1.0 - high / round))
        } else if self.settings.is_patched() {
            self.patched(round, low, gradient)
        } else if gradient <= 0.0 {
            self.rate + if self.falling >= self.settings.n { HYPER * delta } else { delta }
        } else {
            self.rate * (1.0 - beta * gradient).max(0.0)
        };
        self.rate = rate.clamp(self.least, self.line);
    }

    /// Returns the new rate between the thresholds: a mixture of an increase by δ and a decrease towards the
    /// queue length of `T_low` ("ECN or Delay", algorithm 2).
    fn patched(&self, round: f64, low: f64, gradient: f64) -> f64 {
        let weight = (PATCH_SLOPE * gradient + 0.5).clamp(0.0, 1.0);
        let error = (round - low) / low.max(1.0);
        let down = self.rate * (1.0 - PATCH_BETA * weight * error);
        down + self.settings.delta as f64 * (1.0 - weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timely(patched: bool) -> Timely {
        let settings = super::super::Settings::default();
        let timely = super::super::timely::Settings { patched, ..settings.timely };
        Timely { rate: 10e9, ..Timely::new(&timely, settings.line_rate, settings.min_rate) }
    }

    fn after(timely: &mut Timely, rounds: &[u64]) -> f64 {
        rounds.iter().for_each(|ns| timely.round_trip(*ns));
        timely.rate
    }

    #[test]
    fn short_round_trips_add_delta_even_while_they_grow() {
        assert_eq!(after(&mut timely(false), &[20_000, 49_999]), 10e9 + 10e6);
    }

    #[test]
    fn long_round_trips_cut_by_how_far_they_are_above_t_high() {
        // A round trip of 2 T_high: factor 1 - 0.8 (1 - 1/2).
        let rate = after(&mut timely(false), &[1_000_000, 1_000_000]);
        assert!((rate - 6e9).abs() < 1.0, "{rate}");
    }

    #[test]
    fn between_the_thresholds_the_gradient_decides() {
        // A growth of 2 µs, divided by 20 µs and weighted with 0.875: a gradient of 0.0875.
        let rate = after(&mut timely(false), &[100_000, 102_000]);
        assert!((rate - 10e9 * (1.0 - 0.8 * 0.0875)).abs() < 1.0, "{rate}");
        let rate = after(&mut timely(false), &[100_000, 98_000]);
        assert!((rate - (10e9 + 10e6)).abs() < 1.0, "{rate}");
    }

    #[test]
    fn after_five_round_trips_without_growth_a_step_is_five_times_as_high() {
        let mut timely = timely(false);
        let before = after(&mut timely, &[100_000, 99_000, 98_000, 97_000, 96_000]);
        assert!((before - (10e9 + 4.0 * 10e6)).abs() < 1.0);
        assert!((after(&mut timely, &[95_000]) - before - 50e6).abs() < 1.0);
        // A round trip that makes the average positive resets the count.
        let before = after(&mut timely, &[115_000]);
        assert!((after(&mut timely, &[90_000]) - before - 10e6).abs() < 1.0);
    }

    #[test]
    fn patched_two_rates_at_one_round_trip_move_towards_each_other() {
        let mut fast = timely(true);
        let mut slow = timely(true);
        slow.rate = 5e9;
        for round in 0..2_000u64 {
            let ns = 100_000 + 500 * (round % 3);
            fast.round_trip(ns);
            slow.round_trip(ns);
        }
        assert!(fast.rate / slow.rate < 1.05, "{} {}", fast.rate, slow.rate);
        let mut fast = timely(false);
        let mut slow = timely(false);
        slow.rate = 5e9;
        for _ in 0..2_000 {
            fast.round_trip(100_000);
            slow.round_trip(100_000);
        }
        assert!(
            fast.rate - slow.rate > 4.9e9 || fast.rate == fast.line,
            "without the patch, the rates keep their difference"
        );
    }

    #[test]
    fn the_rate_stays_between_the_least_and_the_line() {
        let mut timely = timely(false);
        (0..10_000).for_each(|_| timely.round_trip(10_000_000));
        assert_eq!(timely.rate(), 10_000_000);
        (0..10_000).for_each(|_| timely.round_trip(1_000));
        assert_eq!(timely.rate(), 40_000_000_000);
    }
}
