//! Figure 16: GETs over time while their server is killed and restarted.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::curves::{Curve, Curves, Stated};
use remora_options::output;
use remora_plot as plot;

/// The time slots in which GETs are counted.
const SLOT: Duration = Duration::from_millis(50);
/// Values of §5.6: a vanilla Memcached takes 1 s to start, and 1.25 s for its metadata and tables.
const STARTED: f64 = 1.0 + 1.25;

/// Number of completed GETs over the time of a round.
pub(crate) struct Course {
    /// Number of GETs that succeeded in each slot of 50 ms.
    pub counts: Vec<u32>,
    /// Time from the start of the round until the server was killed.
    pub killed: Duration,
}

/// Counts one GET that succeeded at time `time` of the round.
pub(crate) fn count(counts: &mut Vec<u32>, time: Duration) {
    let slot = (time.as_nanos() / SLOT.as_nanos()) as usize;
    if counts.len() <= slot {
        counts.resize(slot + 1, 0);
    }
    counts[slot] += 1;
}

impl Course {
    /// Returns the GETs per second before the server was killed.
    fn before(&self) -> f64 {
        let slots = (self.killed.as_nanos() / SLOT.as_nanos()).max(1) as usize;
        let counts = &self.counts[..slots.min(self.counts.len())];
        counts.iter().copied().map(f64::from).sum::<f64>() / (slots as f64 * SLOT.as_secs_f64())
    }

    /// Returns the points of the curve: the time in seconds, shifted so that the server is killed at
    /// `killed`, and the rate relative to the rate before that. The last slot is incomplete and left out.
    fn points(&self, killed: f64) -> Vec<(f64, f64)> {
        let whole = self.counts.iter().take(self.counts.len().saturating_sub(1)).enumerate();
        let points = whole.map(|(slot, count)| {
            let middle = (slot as f64 + 0.5) * SLOT.as_secs_f64() - self.killed.as_secs_f64() + killed;
            (middle, f64::from(*count) / SLOT.as_secs_f64() / self.before().max(1.0))
        });
        points.filter(|(time, _)| *time >= 0.0).collect()
    }
}

/// Writes the plot of a chain's and memcached's GETs, each relative to its own rate before the server was
/// killed. The server is killed at second `seconds` of the plot.
pub(crate) fn draw(folder: &Path, seconds: f64, courses: [&Course; 2]) -> Result<()> {
    output::folder(folder)?;
    let curve = |name: &str, course: &Course| Curve {
        name: format!("{name}: {:.0} k/s", course.before() / 1e3),
        points: course.points(seconds),
    };
    let [chains, memcached] = courses;
    let x = format!("seconds; the server is killed at {seconds} and started again at once");
    let stated = vec![
        Stated { curve: 0, x: None, y: Some(1.0) },
        Stated { curve: 1, x: Some(seconds + STARTED), y: None },
    ];
    let curves = Curves {
        title: "Figure 16 in real time: GETs while a server dies",
        x: &x,
        y: "GETs a second, over those before",
        curves: vec![curve("RedN", chains), curve("memcached", memcached)],
        by_factors: false,
        stated,
    };
    plot::write(&folder.join("redn-figure-16.svg"), &[&curves])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gets_are_told_beside_those_before_by_seconds_around_the_death() {
        let mut counts = Vec::new();
        for milliseconds in [10, 20, 60, 70, 210, 260] {
            count(&mut counts, Duration::from_millis(milliseconds));
        }
        assert_eq!(counts, [2, 2, 0, 0, 1, 1]);
        let course = Course { counts, killed: Duration::from_millis(100) };
        assert!((course.before() - 40.0).abs() < 1e-9);
        let points = course.points(0.05);
        let rounded: Vec<(i64, i64)> = points
            .iter()
            .map(|(time, part)| ((time * 1e3).round() as i64, (part * 1e3).round() as i64))
            .collect();
        assert_eq!(rounded, [(25, 1000), (75, 0), (125, 0), (175, 500)]);
    }
}
