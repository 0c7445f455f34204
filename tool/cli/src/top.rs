//! `remora top`: the counters of a running server, as rates, from its Prometheus endpoint.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
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

use remora_bench::command::number::seconds;
use remora_bench::command::print;

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

/// What the endpoint says, by sample name with its labels.
type Samples = BTreeMap<String, f64>;

/// `remora top`.
pub fn run(args: &Args) -> Result<()> {
    if !(args.once || io::stdout().is_terminal() && io::stdin().is_terminal()) {
        bail!("a screen of counters takes a terminal: run it in one, or print them with --once");
    }
    let first = look(&args.address)?;
    if args.once {
        for (name, value) in first {
            print::line(format_args!("{name} {value}"));
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

fn table<'a>(args: &Args, before: &Samples, now: &'a Samples, span: f64, all: bool) -> Table<'a> {
    let rows = now.iter().filter_map(|(name, value)| {
        let rate = (value - before.get(name).unwrap_or(value)) / span;
        let style = if rate == 0.0 { Style::new().dim() } else { Style::new().bold() };
        (all || rate != 0.0)
            .then(|| Row::new([name.clone(), format!("{value}"), format!("{rate:.0}/s")]).style(style))
    });
    let title = format!(" remora top · {} · q ends, z hides what stands still ", args.address);
    let widths = [Constraint::Fill(3), Constraint::Fill(1), Constraint::Fill(1)];
    Table::new(rows, widths)
        .header(Row::new(["counter", "value", "rate"]).underlined())
        .block(Block::bordered().title(title))
}

/// Asks the endpoint.
fn look(address: &str) -> Result<Samples> {
    let nowhere = || format!("{address} is no address of metrics (host:port)");
    let target = address.to_socket_addrs().with_context(nowhere)?.next().with_context(nowhere)?;
    let stream = TcpStream::connect_timeout(&target, PATIENCE).with_context(|| {
        format!("no metrics at {address}: start a server with `remora serve kv --metrics {address}`")
    })?;
    let answer = match ask(stream, address) {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => bail!(
            "{address} takes connections and has not answered for {} seconds: continue its server if it is stopped",
            PATIENCE.as_secs()
        ),
        // Whoever knows no HTTP may hang up after the first bytes: then the question cannot be sent, or the
        // answer not be read.
        asked => asked.unwrap_or_default(),
    };
    let (head, body) = answer.split_once("\r\n\r\n").with_context(|| {
        format!("what listens at {address} has no metrics: name the address that its `--metrics` has")
    })?;
    if !head.starts_with("HTTP/1.1 200") {
        bail!("the metrics endpoint answers: {}", head.lines().next().unwrap_or_default());
    }
    Ok(samples(body))
}

/// How long connecting may take, and an answer, however slowly it drips.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of an answer at most.
const LONGEST: usize = 4 << 20;

fn ask(mut stream: TcpStream, address: &str) -> io::Result<String> {
    let (started, mut answer, mut piece) = (Instant::now(), Vec::new(), [0; 4096]);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_lines_that_end_in_a_number() {
        let body = "# HELP a b\n# TYPE a counter\na{engine=\"0\"} 12\nb 1.5\nbroken\nworse x\n";
        let found = samples(body);
        assert_eq!(found.len(), 2);
        assert_eq!((found["a{engine=\"0\"}"], found["b"]), (12.0, 1.5));
    }

    #[test]
    fn control_c_and_q_end_it_and_other_keys_do_not() {
        let key = |code, modifiers| ends(&KeyEvent::new(code, modifiers));
        assert!(
            key(KeyCode::Char('c'), KeyModifiers::CONTROL) && key(KeyCode::Char('q'), KeyModifiers::NONE)
        );
        assert!(!key(KeyCode::Char('c'), KeyModifiers::NONE) && !key(KeyCode::Char('z'), KeyModifiers::NONE));
    }

    #[test]
    fn nothing_there_is_one_line_that_says_what_to_do() {
        let error = look("127.0.0.1:1").unwrap_err().to_string();
        assert!(error.contains("remora serve kv --metrics"), "{error}");
    }
}
