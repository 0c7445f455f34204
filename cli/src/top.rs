//! `remora top`: the counters of a running server, as rates, from its Prometheus endpoint.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use ratatui::crossterm::event::{self, Event, KeyCode};
use ratatui::layout::Constraint;
use ratatui::style::{Style, Stylize};
use ratatui::widgets::{Block, Row, Table};

use crate::print;

/// Arguments of `remora top`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora serve kv --metrics 127.0.0.1:9464 &\n  remora top 127.0.0.1:9464\n  remora top 127.0.0.1:9464 --once\n\nKeys: q ends, z hides counters that do not move."
)]
pub struct Args {
    /// Address of the server's metrics endpoint.
    #[arg(default_value = "127.0.0.1:9464")]
    address: String,
    /// Seconds between two looks.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
    /// Print the counters once, as text, and end.
    #[arg(long)]
    once: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.1..=3600.0).contains(&value) => Ok(value),
        _ => Err("seconds from 0.1 to 3600".to_owned()),
    }
}

/// What the endpoint says, by sample name with its labels.
type Samples = BTreeMap<String, f64>;

/// `remora top`.
pub fn run(args: &Args) -> Result<()> {
    let first = look(&args.address)?;
    if args.once {
        for (name, value) in first {
            print::line(format_args!("{name} {value}"));
        }
        return Ok(());
    }
    let mut terminal = ratatui::init();
    let watched = watch(args, first, &mut terminal);
    ratatui::restore();
    watched
}

fn watch(args: &Args, first: Samples, terminal: &mut ratatui::DefaultTerminal) -> Result<()> {
    let (mut before, mut now, mut looked) = (first.clone(), first, Instant::now());
    let (mut span, mut all) = (args.interval, true);
    loop {
        terminal.draw(|frame| frame.render_widget(table(args, &before, &now, span, all), frame.area()))?;
        let left = Duration::from_secs_f64(args.interval).saturating_sub(looked.elapsed());
        if event::poll(left)? {
            match event::read()? {
                Event::Key(key) if matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) => return Ok(()),
                Event::Key(key) if key.code == KeyCode::Char('z') => all = !all,
                _ => {}
            }
        }
        if looked.elapsed().as_secs_f64() >= args.interval {
            span = looked.elapsed().as_secs_f64();
            looked = Instant::now();
            before = std::mem::replace(&mut now, look(&args.address)?);
        }
    }
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
        // Whoever knows no HTTP may hang up after the first bytes: then the question cannot be sent, or the answer not be read.
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
    fn nothing_there_is_one_line_that_says_what_to_do() {
        let error = look("127.0.0.1:1").unwrap_err().to_string();
        assert!(error.contains("remora serve kv --metrics"), "{error}");
    }
}
