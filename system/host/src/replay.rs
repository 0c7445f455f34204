//! Replays: a recording executed on a NIC without a port, in the time of the recording, up to the first
//! difference.
//!
//! | file | holds |
//! |---|---|
//! | `player.rs` | the events in order, and their comparison with what the NIC does |
//! | `difference.rs` | what a difference is, and the numbers of events |
//! | `wire.rs` | the port of the replayed NIC, which answers as the recorded port did |
//! | `text.rs` | frames, completions and counters as text |

mod difference;
mod player;
mod text;
mod wire;

use remora_memory::Table;
use remora_nic::Bare;
use remora_transport::Counters;
use std::io::Read;
use std::sync::Arc;

use crate::recording::{End, Event, Header, Reader, ReplayError};
pub use difference::{Difference, Tally};
use player::{Player, Stop};

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Description of the recorded NIC.
    pub header: Header,
    /// Number of events that were replayed.
    pub events: u64,
    /// Number of commands, of frames received and sent, and of completions among them.
    pub tally: Tally,
    /// Time from the first to the last call, in nanoseconds.
    pub duration_ns: u64,
    /// Counters of the replayed NIC.
    pub counters: Counters,
    /// The first difference; `None` if there was none.
    pub difference: Option<Difference>,
    /// The reason why the recording ends; `None` if it has no end, because the program was killed or still
    /// runs, or if a difference was found.
    pub end: Option<End>,
}

/// Replays a recording up to its end or to the first difference.
///
/// # Errors
/// [`ReplayError`]: the file is no recording, or damaged. Events before the damage were replayed without a
/// difference.
pub fn replay(file: impl Read) -> Result<Report, ReplayError> {
    let reader = Reader::new(file)?;
    let header = reader.header().clone();
    let config = player::checked(&header).ok_or(ReplayError::Header)?;
    let limits = remora_memory::Config {
        max_regions: header.memory.regions as usize,
        max_windows: header.memory.windows as usize,
        max_ranges: header.memory.ranges as usize,
        // A replay allocates no memory on the NIC: its regions have memory of their own.
        on_nic_bytes: 0,
        ..remora_memory::Config::default()
    };
    let table = Arc::new(Table::new(limits).map_err(|_| ReplayError::Header)?);
    let bare = Bare::new(&table, config);
    let mut player = Player::new(reader, config.endpoint);
    let stop = loop {
        if let Err(stop) = step(&mut player, &table, &bare) {
            break stop;
        }
    };
    let (difference, end) = match stop {
        Stop::Different(difference) => (Some(*difference), None),
        Stop::End(end) => (None, end),
        Stop::Damaged(error) => return Err(error),
    };
    let counters = *bare.enter().counters();
    Ok(Report {
        header,
        events: player.count(),
        tally: player.tally,
        duration_ns: player.duration_ns(),
        counters,
        difference,
        end,
    })
}

/// Replays one event, and the events that belong to it.
fn step(player: &mut Player<impl Read>, table: &Table, bare: &Bare) -> Result<(), Stop> {
    let event = player.next()?;
    if let Event::Table(change) = &event {
        let repeated = table.repeat(change);
        return repeated.map_err(|error| player.impossible(&error.to_string()));
    }
    let mut guard = bare.enter();
    let (nic, mem) = guard.parts();
    match event {
        Event::Table(_) => {}
        Event::Handed { number, slots } => {
            let ring = player.ring(slots)?;
            let found = nic.hand(ring.clone());
            player.equal(&number, &found)?;
            player.queues.add(number, ring, None);
        }
        Event::Command { now, command, reply } => {
            player.at(now);
            player.tally.commands += 1;
            let found = nic.execute(now, mem, command.clone());
            player.command(&command, &reply, &found)?;
            player.settle()?;
        }
        Event::Posted { ring, produced, first, slots } => player.post(ring, produced, first, &slots)?,
        Event::Polled { ring, consumed } => player.poll(ring, consumed)?,
        Event::Doorbell { qp } => {
            nic.doorbell(qp);
            player.settle()?;
        }
        Event::Received { now, frame } => {
            player.at(now);
            player.tally.received += 1;
            player.receive(&frame, |ingress| {
                let before = nic.counters().rx_icrc_encapsulated;
                nic.receive(now, mem, ingress);
                nic.counters().rx_icrc_encapsulated > before
            })?;
            player.settle()?;
        }
        Event::Expired { now, drained, budget } => {
            player.at(now);
            nic.expire(now, drained, budget as usize);
            player.settle()?;
        }
        Event::Transmit { now, budget } => {
            player.at(now);
            let mut wire = wire::Wire::new(player);
            let count = nic.transmit(now, mem, &mut wire, budget as usize);
            wire.finish(count as u64)?;
            player.settle()?;
        }
        Event::Woken { cq } => player.equal(&Some(cq), &nic.wake())?,
        Event::Raised(event) => player.equal(&Some(event), &nic.event())?,
        Event::Counters(counters) => player.counters(&counters, nic.counters())?,
        Event::End(end) => return Err(Stop::End(Some(end))),
        other => return Err(player.impossible(&format!("a {} without a call", other.name()))),
    }
    Ok(())
}
