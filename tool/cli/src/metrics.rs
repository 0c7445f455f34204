//! Reads the samples and histograms of a metrics endpoint.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use remora_options::escape::shown;

/// Values of all samples. The key is the sample name with its labels.
pub(crate) type Samples = BTreeMap<String, f64>;

/// Requests the samples of the metrics endpoint at `address` (host:port).
pub(crate) fn look(address: &str) -> Result<Samples> {
    let nowhere = || format!("{address} is not a metrics address (host:port)");
    let target = address.to_socket_addrs().with_context(nowhere)?.next().with_context(nowhere)?;
    let stream = TcpStream::connect_timeout(&target, PATIENCE).with_context(|| {
        format!("no metrics at {address}: start a server with `remora serve kv --metrics {address}`")
    })?;
    let answer = match ask(stream, address) {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => bail!(
            "{address} accepts connections and has not answered for {} seconds: continue its server if it is stopped",
            PATIENCE.as_secs()
        ),
        // A server that does not speak HTTP may close the connection after the first bytes. Then the
        // request cannot be written or the answer cannot be read; both count as an empty answer.
        asked => asked.unwrap_or_default(),
    };
    let (head, body) = answer.split_once("\r\n\r\n").with_context(|| {
        format!("the server at {address} serves no metrics: give the address of its `--metrics` option")
    })?;
    if !head.starts_with("HTTP/1.1 200") {
        let answer = head.lines().next().unwrap_or_default();
        bail!("the metrics endpoint answers: {}", shown(answer.as_bytes()));
    }
    Ok(samples(body))
}

/// Time limit for connecting, and another one for reading the whole answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum length of an answer in bytes.
const LONGEST: usize = 4 << 20;

fn ask(mut stream: TcpStream, address: &str) -> io::Result<String> {
    let started = Instant::now();
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    stream.set_write_timeout(Some(PATIENCE))?;
    let question = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(question.as_bytes())?;
    while answer.len() < LONGEST {
        let left = PATIENCE.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(got) => answer.extend_from_slice(&piece[..got]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
    }
    String::from_utf8(answer).map_err(|_| io::ErrorKind::InvalidData.into())
}

fn samples(body: &str) -> Samples {
    let lines = body.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.rsplit_once(' '));
    pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// A histogram in ascending order of bounds: pairs of an upper bound in seconds and the number of values up
/// to that bound.
pub(crate) type Buckets = Vec<(f64, f64)>;

/// Returns the histograms. The key is the name with all labels except `le`.
pub(crate) fn histograms(samples: &Samples) -> BTreeMap<String, Buckets> {
    let mut all = BTreeMap::<String, Buckets>::new();
    for (sample, below) in samples {
        let Some((name, bound)) = bucket(sample) else { continue };
        all.entry(name).or_default().push((bound, *below));
    }
    for buckets in all.values_mut() {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    all
}

/// Returns the histogram name and the upper bound of a sample, or `None` if the sample is not a histogram
/// bucket.
pub(crate) fn bucket(sample: &str) -> Option<(String, f64)> {
    let (name, labels) = sample.split_once("_bucket{")?;
    let (others, bound) = labels.strip_suffix("\"}")?.rsplit_once("le=\"")?;
    let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
    let others = others.trim_end_matches(',');
    Some((if others.is_empty() { name.to_owned() } else { format!("{name}{{{others}}}") }, bound))
}

/// Returns the counts between two readings. If nothing was counted in between, returns the whole counts of
/// the second reading.
pub(crate) fn lately(before: Option<&Buckets>, now: &Buckets) -> Buckets {
    let earlier = |index: usize| before.and_then(|all| all.get(index)).map_or(0.0, |(_, below)| *below);
    let fresh: Buckets =
        now.iter().enumerate().map(|(index, (bound, below))| (*bound, below - earlier(index))).collect();
    if fresh.last().is_some_and(|(_, count)| *count > 0.0) { fresh } else { now.clone() }
}

/// Returns the upper bound of the bucket that contains this quantile, where `share` is between 0 and 1.
/// `None` if the histogram has no values.
pub(crate) fn quantile(buckets: &Buckets, share: f64) -> Option<f64> {
    let count = buckets.last()?.1;
    let bucket = buckets.iter().find(|(_, below)| *below >= share * count)?;
    (count > 0.0).then_some(bucket.0)
}

/// Formats a duration with a unit that fits: us, ms or s.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        s if s.is_infinite() => "longer than all buckets".to_owned(),
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_lines_that_end_in_a_number() {
        let body = "# HELP a b\n# TYPE a counter\na{engine=\"0\"} 12\nb 1.5\nbroken\nworse x\n";
        let values = samples(body);
        assert_eq!(values.len(), 2);
        assert_eq!((values["a{engine=\"0\"}"], values["b"]), (12.0, 1.5));
    }

    #[test]
    fn nothing_there_is_one_line_that_says_what_to_do() {
        let error = look("127.0.0.1:1").unwrap_err().to_string();
        assert!(error.contains("remora serve kv --metrics"), "{error}");
    }

    #[test]
    fn quantiles_are_upper_bounds_of_what_was_counted_lately() {
        let text = |below: [u32; 4]| {
            let bounds = ["0.001", "0.002", "0.016", "+Inf"];
            let line = |(bound, below)| format!("d_bucket{{engine=\"0\",le=\"{bound}\"}} {below}\n");
            bounds.into_iter().zip(below).map(line).collect::<String>()
        };
        let read = |below| histograms(&samples(&text(below)))["d{engine=\"0\"}"].clone();
        let before = read([10, 10, 10, 10]);
        let now = read([10, 60, 109, 110]);
        let fresh = lately(Some(&before), &now);
        let quantiles = [0.5, 0.99, 1.0].map(|share| quantile(&fresh, share));
        assert_eq!(quantiles, [Some(0.002), Some(0.016), Some(f64::INFINITY)]);
        assert_eq!(lately(Some(&now), &now), now, "nothing was counted: all of it");
        assert_eq!(quantile(&read([0; 4]), 0.5), None);
        assert_eq!(
            histograms(&samples("a_bucket{le=\"1\"} 3\n")).keys().next().map(|name| &**name),
            Some("a")
        );
    }

    #[test]
    fn durations_have_a_unit_that_fits() {
        let words = [0.000_001_024, 0.016, 8.6].map(duration);
        assert_eq!(words, ["1.0 us", "16.0 ms", "8.6 s"]);
    }
}
