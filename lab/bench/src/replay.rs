//! `remora bench irn-receiver` and `irn-sender`: traces of other people's, replayed through the machines that
//! the NIC runs.
//!
//! A trace is text. Its first line is the number of lines that follow, each an event of one queue pair, named
//! by any number; every queue pair begins at PSN 0. What comes out is a line for each event.
//!
//! ```text
//! irn-receiver   QP op-code PSN               ->  nack expected-PSN PSN MSN completions
//! irn-sender     QP 0                         ->  0 sends PSN state
//!                QP 1 cumulative sack nack    ->  1 state
//!                QP 2 short                   ->  2 extended state
//! ```
//!
//! Flags are 0 or 1. `state` is: next PSN, last cumulative acknowledgement, PSN to send again (or last sent
//! again), PSN up to which the recovery goes, and the flags "send that again", "in recovery", "look for the
//! next hole".

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::str::SplitWhitespace;

use anyhow::{Context, Result, bail, ensure};
use remora_transport::rc::irn::{Answer, Ends, Receiver, Sender, Settings, Timeout};
use remora_transport::rc::{Seq, extend, psn, start};
use remora_wire::{Opcode, Psn};

use super::Args;
use remora_options::output::{self, Output};
use remora_options::print;

/// Replays `file` event by event and writes the output lines of `each` to `out`.
fn replay(
    args: &Args,
    mut each: impl FnMut(u64, &mut SplitWhitespace<'_>, &mut String) -> Result<()>,
) -> Result<()> {
    let file = args.file.as_deref().context("which trace? Name its FILE behind the benchmark")?;
    // Checks first that the output can be written.
    args.out.as_deref().map(Output::find).transpose()?;
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default().trim();
    let count: usize = head.parse().with_context(|| {
        format!("{}: the first line is the number of lines, not {head:?}", file.display())
    })?;
    let mut out = String::new();
    for number in 0..count {
        let here = || format!("{} line {}", file.display(), number + 2);
        let line = lines
            .next()
            .with_context(|| format!("{}: the file ends, and {count} lines were announced", here()))?;
        let mut words = line.split_whitespace();
        let qp = next(&mut words, "a queue pair", u64::MAX).with_context(here)?;
        each(qp, &mut words, &mut out).with_context(here)?;
        ensure!(words.next().is_none(), "{}: more than an event has", here());
    }
    ensure!(lines.all(|line| line.trim().is_empty()), "{}: more than {count} lines", Path::display(file));
    write(args.out.as_deref(), &out)
}

fn write(out: Option<&Path>, text: &str) -> Result<()> {
    match out {
        Some(path) => output::write(path, text.as_bytes()),
        None => {
            print::bytes(text.as_bytes());
            Ok(())
        }
    }
}

fn next(words: &mut SplitWhitespace<'_>, name: &str, most: u64) -> Result<u64> {
    let word = words.next().with_context(|| format!("{name} is missing"))?;
    match word.parse() {
        Ok(value) if value <= most => Ok(value),
        _ => bail!("{name} is a number from 0 to {most}, not {word:?}"),
    }
}

const PSNS: u64 = Psn::COUNT as u64 - 1;

/// Runs `remora bench irn-receiver`.
pub(crate) fn receiver(args: &Args) -> Result<()> {
    let settings = Settings::default();
    let mut receivers: BTreeMap<u64, Receiver> = BTreeMap::new();
    replay(args, |qp, words, out| {
        let opcode = Opcode(next(words, "an op-code", 255)? as u8);
        let arrived = Psn::new(next(words, "a PSN", PSNS)? as u32);
        let receiver =
            receivers.entry(qp).or_insert_with(|| Receiver::new(start(Psn::new(0)), settings.bitmap));
        let seq = extend(receiver.rcv_nxt(), arrived);
        let Answer { nack, rcv_nxt, sack, msn, completions } = receiver.arrive(seq, Ends::of(opcode));
        let nack = u8::from(nack);
        let rcv_nxt = psn(rcv_nxt).get();
        let sack = psn(sack).get();
        writeln!(out, "{nack} {rcv_nxt} {sack} {msn} {completions}")?;
        Ok(())
    })
}

/// Runs `remora bench irn-sender`.
pub(crate) fn sender(args: &Args) -> Result<()> {
    let first = start(Psn::new(0));
    // These settings are those of the authors' code, which produced the traces.
    let settings = Settings { cap: args.cap, eager: true, ..Settings::default() };
    let limit = first.saturating_add(args.packets.unwrap_or(u64::MAX));
    let mut senders: BTreeMap<u64, Sender> = BTreeMap::new();
    replay(args, |qp, words, out| {
        let sender = senders.entry(qp).or_insert_with(|| Sender::new(first, &settings, args.cap));
        match next(words, "an event", 2)? {
            0 => {
                let chosen = sender.choose(limit);
                sender.transmitted(chosen);
                let sent = chosen.map_or(0, |seq| psn(seq).get());
                writeln!(out, "0 {} {sent} {}", u8::from(chosen.is_some()), state(sender))?;
            }
            1 => {
                let cumulative = seq_of(sender, next(words, "a cumulative PSN", PSNS)?);
                let sack = seq_of(sender, next(words, "a selective PSN", PSNS)?);
                let nack = next(words, "a syndrome", 1)? == 1;
                sender.acknowledge(cumulative, nack.then_some(sack));
                writeln!(out, "1 {}", state(sender))?;
            }
            _ => {
                let short = next(words, "the timer", 1)? == 1;
                let extended = sender.timeout(short) == Timeout::Extended;
                writeln!(out, "2 {} {}", u8::from(extended), state(sender))?;
            }
        }
        Ok(())
    })
}

fn seq_of(sender: &Sender, number: u64) -> Seq {
    extend(sender.snd_una(), Psn::new(number as u32))
}

fn state(sender: &Sender) -> String {
    let [send_again, recovery, look] = sender.flags().map(u8::from);
    let [next, una, again, recover] =
        [sender.snd_nxt(), sender.snd_una(), sender.retransmit(), sender.recover()].map(|seq| psn(seq).get());
    format!("{next} {una} {again} {recover} {send_again} {recovery} {look}")
}
