//! `remora top`: shows the counters of a running server and their rates, read from its Prometheus endpoint.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Constraint;
use ratatui::style::{Style, Stylize};
use ratatui::widgets::{Block, Row, Table};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use remora_options::number::seconds;
use remora_options::print;

use crate::metrics::{Samples, bucket, duration, histograms, lately, look, quantile};
use remora_options::escape::shown;

/// Arguments of `remora top`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora serve kv --metrics 127.0.0.1:9464 &\n  remora top 127.0.0.1:9464\n  remora top 127.0.0.1:9464 --once\n\nKeys: q or Ctrl-C ends, z hides counters that do not move."
)]
pub(crate) struct Args {
    /// Metrics endpoint of the server (HOST:PORT).
    #[arg(default_value = "127.0.0.1:9464")]
    address: String,
    /// Seconds between two readings of the counters, from 0.1 to 3600.
    #[arg(long, default_value_t = 1.0, value_parser = seconds(0.1..=3600.0), conflicts_with = "once")]
    interval: f64,
    /// Print the counters once as text and end.
    #[arg(long)]
    once: bool,
}

/// Runs `remora top`.
pub(crate) fn run(args: &Args) -> Result<()> {
    if !(args.once || io::stdout().is_terminal() && io::stdin().is_terminal()) {
        bail!("the live display needs a terminal: use --once to print the counters as text");
    }
    let first = look(&args.address)?;
    if args.once {
        for (name, value) in first {
            print::line(format_args!("{}", sample_line(&name, value)));
        }
        return Ok(());
    }
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&ended)).context("installing signal handlers")?;
    }
    // try_init also installs a panic hook that restores the terminal.
    let mut terminal =
        ratatui::try_init().context("opening the terminal (use --once to print the counters as text)")?;
    let watched = watch(args, first, &mut terminal, &ended);
    ratatui::restore();
    watched
}

/// Returns a sample as one line. The server chooses the name, which is escaped.
fn sample_line(name: &str, value: f64) -> String {
    format!("{} {value}", shown(name.as_bytes()))
}

/// Interval between two checks whether a signal has arrived.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// Returns whether the key ends the command. In raw mode Ctrl-C arrives as a key, not as a signal.
fn ends(key: &KeyEvent) -> bool {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c' | 'd') => control,
        _ => false,
    }
}

fn watch(
    args: &Args,
    first: Samples,
    terminal: &mut ratatui::DefaultTerminal,
    ended: &AtomicBool,
) -> Result<()> {
    let (mut before, mut now, mut looked) = (first.clone(), first, Instant::now());
    let mut span = args.interval;
    let mut all = true;
    let mut changed = true;
    while !ended.load(Ordering::Relaxed) {
        if std::mem::take(&mut changed) {
            terminal
                .draw(|frame| frame.render_widget(table(args, &before, &now, span, all), frame.area()))?;
        }
        let left = Duration::from_secs_f64(args.interval).saturating_sub(looked.elapsed());
        if event::poll(left.min(SIGNALS_EVERY))? {
            changed = true;
            match event::read()? {
                Event::Key(key) if ends(&key) => return Ok(()),
                Event::Key(key) if key.code == KeyCode::Char('z') => all = !all,
                _ => {}
            }
        }
        if looked.elapsed().as_secs_f64() >= args.interval {
            span = looked.elapsed().as_secs_f64();
            looked = Instant::now();
            before = std::mem::replace(&mut now, look(&args.address)?);
            changed = true;
        }
    }
    Ok(())
}

fn table(args: &Args, before: &Samples, now: &Samples, span: f64, all: bool) -> Table<'static> {
    let counters = now.iter().filter(|(name, _)| bucket(name).is_none()).filter_map(|(name, value)| {
        let rate = (value - before.get(name).unwrap_or(value)) / span;
        let style = if rate == 0.0 { Style::new().dim() } else { Style::new().bold() };
        (all || rate != 0.0)
            .then(|| Row::new([shown(name.as_bytes()), format!("{value}"), per_second(rate)]).style(style))
    });
    let rows = delays(before, now).into_iter().map(|words| Row::new(words).bold()).chain(counters);
    let title = format!(" remora top · {} · q ends, z hides what stands still ", args.address);
    let widths = [Constraint::Fill(3), Constraint::Fill(1), Constraint::Fill(1)];
    Table::new(rows, widths)
        .header(Row::new(["counter", "value", "rate"]).underlined())
        .block(Block::bordered().title(title))
}

/// Formats a rate per second. Rates below 10 keep two decimals, for example the fraction of each second in
/// which a window was full.
fn per_second(rate: f64) -> String {
    if rate != 0.0 && rate.abs() < 10.0 { format!("{rate:.2}/s") } else { format!("{rate:.0}/s") }
}

/// Returns one line for each histogram with values: its median and 99th percentile between the two
/// readings, or since the start of the program if nothing was counted in between.
fn delays(before: &Samples, now: &Samples) -> Vec<[String; 3]> {
    let before = histograms(before);
    let now = histograms(now);
    let lines = now.into_iter().filter_map(|(name, buckets)| {
        let fresh = lately(before.get(&name), &buckets);
        let [half, most] = [0.5, 0.99].map(|share| quantile(&fresh, share).map(duration));
        Some([shown(name.as_bytes()), format!("p50 {}", half?), format!("p99 {}", most?)])
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_c_and_q_end_it_and_other_keys_do_not() {
        let key = |code, modifiers| ends(&KeyEvent::new(code, modifiers));
        assert!(
            key(KeyCode::Char('c'), KeyModifiers::CONTROL) && key(KeyCode::Char('q'), KeyModifiers::NONE)
        );
        assert!(!key(KeyCode::Char('c'), KeyModifiers::NONE) && !key(KeyCode::Char('z'), KeyModifiers::NONE));
    }

    #[test]
    fn the_name_of_a_sample_is_escaped() {
        assert_eq!(
            sample_line("sent{tenant=\"a\u{1b}[2J\u{9b}\"}", 1.0),
            "sent{tenant=\"a\\x1b[2J\\xc2\\x9b\"} 1"
        );
    }

    #[test]
    fn a_histogram_is_one_line_of_two_quantiles() {
        let reading = |counts: [f64; 3]| {
            let bounds = ["0.000002048", "0.004", "+Inf"];
            let name = |bound| format!("delay_seconds_bucket{{engine=\"0\",le=\"{bound}\"}}");
            bounds.into_iter().map(name).zip(counts).collect::<Samples>()
        };
        let rows = delays(&reading([5.0, 5.0, 5.0]), &reading([95.0, 105.0, 105.0]));
        assert_eq!(rows, [["delay_seconds{engine=\"0\"}", "p50 2.0 us", "p99 4.0 ms"]]);
        assert!(delays(&Samples::new(), &reading([0.0; 3])).is_empty());
    }

    #[test]
    fn small_rates_keep_their_fraction() {
        assert_eq!([0.0, 0.41, 12.4, 1e6].map(per_second), ["0/s", "0.41/s", "12/s", "1000000/s"]);
    }
}
