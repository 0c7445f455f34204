//! Logging to standard error: coloured on a terminal, and with a limit on repeated warnings.

use std::collections::BTreeMap;
use std::fmt;
use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::time::Instant;

use remora_host::LogLimit;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Installs the global log subscriber. The level comes from `RUST_LOG` and is `warn` by default.
pub(crate) fn begin() {
    let (levels, refused) = levels(std::env::var("RUST_LOG").ok().as_deref());
    let events =
        tracing_subscriber::fmt::layer().event_format(Limited::new(coloured())).with_writer(std::io::stderr);
    tracing_subscriber::registry().with(levels).with(events).init();
    if let Some(error) = refused {
        tracing::warn!("RUST_LOG is not understood, and warnings are shown: {error}");
    }
}

/// Returns the levels that `text` asks for, such as `debug` or `warn,remora_port=trace`, and why it was
/// refused.
fn levels(text: Option<&str>) -> (Targets, Option<String>) {
    let warnings = Targets::new().with_default(LevelFilter::WARN);
    match text.map(str::trim).filter(|text| !text.is_empty()).map(str::parse) {
        None => (warnings, None),
        Some(Ok(levels)) => (levels, None),
        Some(Err(error)) => (warnings, Some(format!("{error}: write debug, or warn,remora_port=trace"))),
    }
}

/// Returns whether logs are coloured: on a terminal, unless `NO_COLOR` is set (<https://no-color.org>).
fn coloured() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty())
}

/// An event format that limits repeated warnings, separately for each place in the code.
struct Limited {
    inner: Format,
    is_coloured: bool,
    limits: Mutex<BTreeMap<&'static str, LogLimit>>,
}

impl Limited {
    fn new(is_coloured: bool) -> Limited {
        Limited { inner: Format::default().with_ansi(false), is_coloured, limits: Mutex::default() }
    }

    /// Returns the number of similar warnings that were left out, or `None` if this event must be left out
    /// as well.
    fn due(&self, event: &Event<'_>) -> Option<u64> {
        // A log level above warnings was requested explicitly, so nothing is left out.
        if *event.metadata().level() > Level::WARN {
            return Some(0);
        }
        let mut limits = self.limits.lock().ok()?;
        limits.entry(event.metadata().name()).or_default().due(Instant::now())
    }
}

impl<S, N> FormatEvent<S, N> for Limited
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(left_out) = self.due(event) else { return Ok(()) };
        if left_out > 0 {
            writeln!(writer, "({left_out} lines like the next one were left out)")?;
        }
        let mut line = String::new();
        self.inner.format_event(context, Writer::new(&mut line), event)?;
        let line = escaped(line.trim_end_matches('\n'));
        let level = event.metadata().level();
        match colour(*level).filter(|_| self.is_coloured) {
            Some(colour) => {
                let coloured = format!("\x1b[{colour}m{level}\x1b[0m");
                writeln!(writer, "{}", line.replacen(level.as_str(), &coloured, 1))
            }
            None => writeln!(writer, "{line}"),
        }
    }
}

/// Returns the line with its control characters escaped. A name of another user's program may hold some,
/// which would begin a line of their own or be obeyed by the terminal.
fn escaped(line: &str) -> String {
    line.chars().fold(String::with_capacity(line.len()), |mut text, letter| {
        if letter.is_control() {
            text.extend(letter.escape_default());
        } else {
            text.push(letter);
        }
        text
    })
}

/// Returns the colour of a level as a parameter of the terminal's escape sequence, or `None` for no colour.
fn colour(level: Level) -> Option<u8> {
    match level {
        Level::ERROR => Some(31),
        Level::WARN => Some(33),
        Level::INFO => Some(32),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tracing_subscriber::fmt::MakeWriter;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Written {
        type Writer = Written;

        fn make_writer(&self) -> Written {
            self.clone()
        }
    }

    #[test]
    fn levels_are_of_all_or_of_one_crate_and_nonsense_says_what_to_write() {
        let shows = |text, target, level| levels(Some(text)).0.would_enable(target, &level);
        assert!(shows("debug", "remora_port", Level::DEBUG) && !shows("", "remora_port", Level::INFO));
        assert!(shows("warn,remora_port=trace", "remora_port::udp", Level::TRACE));
        assert!(!shows("warn,remora_port=trace", "remora_host", Level::INFO));
        let (shown, refused) = levels(Some("remora_port=loud"));
        assert!(shown.would_enable("remora_host", &Level::WARN));
        assert!(refused.unwrap().contains("write debug, or warn,remora_port=trace"));
    }

    #[test]
    fn a_thousand_warnings_of_one_place_are_ten_lines_and_another_place_has_its_own() {
        let output = Written::default();
        let log =
            tracing_subscriber::fmt().event_format(Limited::new(false)).with_writer(output.clone()).finish();
        tracing::subscriber::with_default(log, || {
            (0..1000).for_each(|number| tracing::warn!(number, "out of descriptors"));
            tracing::warn!("something else");
            (0..20).for_each(|_| tracing::info!("who asks for all gets all"));
        });
        let text = String::from_utf8(output.0.lock().unwrap().clone()).unwrap();
        let count = |words: &str| text.lines().filter(|line| line.contains(words)).count();
        assert_eq!(count("out of descriptors"), LogLimit::BURST as usize, "{text}");
        assert_eq!((count("something else"), count("gets all")), (1, 20), "{text}");
    }

    #[test]
    fn a_name_in_a_log_line_neither_ends_the_line_nor_reaches_the_terminal_unescaped() {
        let written = Written::default();
        for is_coloured in [false, true] {
            let log = tracing_subscriber::fmt()
                .event_format(Limited::new(is_coloured))
                .with_writer(written.clone())
                .finish();
            tracing::subscriber::with_default(log, || {
                let name = "a\u{1b}[2J\u{9b}31m\rb\nWARN forged";
                tracing::warn!("tenant {name} is gone");
                tracing::warn!(name, "a tenant is gone");
                tracing::warn!(%name, "a tenant is gone");
            });
            let text = String::from_utf8(std::mem::take(&mut *written.0.lock().unwrap())).unwrap();
            assert_eq!(text.lines().count(), 3, "{text:?}");
            assert!(!text.contains("\u{1b}[2J") && !text.contains(['\u{9b}', '\r']), "{text:?}");
            assert_eq!(text.contains("\u{1b}["), is_coloured, "{text:?}");
        }
    }
}
