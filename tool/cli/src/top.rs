//! `remora top`: the counters of a running server, as rates, from its Prometheus endpoint.

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
pub struct Args {
    /// Address of the server's metrics endpoint.
    #[arg(default_value = "127.0.0.1:9464")]
    address: String,
    /// Seconds between two readings of the counters.
    #[arg(long, default_value_t = 1.0, value_parser = seconds(0.1..=3600.0), conflicts_with = "once")]
    interval: f64,
    /// Print the counters once, as text, and end.
    #[arg(long)]
    once: bool,
}

/// `remora top`.
pub fn run(args: &Args) -> Result<()> {
    if !(args.once || io::stdout().is_terminal() && io::stdin().is_terminal()) {
        bail!("a screen of counters takes a terminal: run it in one, or print them with --once");
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
        signal_hook::flag::register(signal, Arc::clone(&ended)).context("waiting for signals")?;
    }
    // It restores the terminal when this program panics, too.
    let mut terminal = ratatui::try_init().context("taking the terminal: print the counters with --once")?;
    let watched = watch(args, first, &mut terminal, &ended);
    ratatui::restore();
    watched
}

/// Returns a sample as one line. The server chooses the name, which is escaped.
fn sample_line(name: &str, value: f64) -> String {
    format!("{} {value}", shown(name.as_bytes()))
}

/// Time between two looks for a signal.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// Does this key end it? In raw mode Ctrl-C is a key, and no signal.
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
    let (mut span, mut all) = (args.interval, true);
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

/// A rate: one that is below 10 with its fraction, such as the seconds of each second that a window was full.
fn per_second(rate: f64) -> String {
    if rate != 0.0 && rate.abs() < 10.0 { format!("{rate:.2}/s") } else { format!("{rate:.0}/s") }
}

/// A line for each histogram that has counted anything: what half and 99 % of its values did not exceed
/// between the two readings, or since the program's start if nothing was counted then.
fn delays(before: &Samples, now: &Samples) -> Vec<[String; 3]> {
    let (before, now) = (histograms(before), histograms(now));
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
        let found = delays(&reading([5.0, 5.0, 5.0]), &reading([95.0, 105.0, 105.0]));
        assert_eq!(found, [["delay_seconds{engine=\"0\"}", "p50 2.0 us", "p99 4.0 ms"]]);
        assert!(delays(&Samples::new(), &reading([0.0; 3])).is_empty());
    }

    #[test]
    fn small_rates_keep_their_fraction() {
        assert_eq!([0.0, 0.41, 12.4, 1e6].map(per_second), ["0/s", "0.41/s", "12/s", "1000000/s"]);
    }
}
