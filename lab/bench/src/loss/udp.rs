//! Loss over real UDP: two NICs in this process, with ports that lose and delay outgoing frames on purpose.
//! The path is as long as the simulated one (100 packets) at the rate to which the queue pairs are limited.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use remora_fault::{Action, Directions, Rule};
use remora_verbs::irn::Settings;
use remora_verbs::{Device, EMPTY, Modify, QpOptions, QueuePair, Ready, Remote, Rules, Status, work};

use super::{BDP, Bench, Contestant, MTU};
use crate::testbed::local::LocalNic;

/// The number of packets of one WRITE.
const MESSAGE: u32 = 64;
/// The number of packets that each side writes. Their number is so large that one timeout at the end does
/// not take half of a run.
const PACKETS: u64 = 8_000;
/// The packets per second of each side. A thread that sometimes waits for its core can keep this low rate.
const RATE: u64 = 10_000;
/// The delay of the path in one direction, in nanoseconds. The path then holds `BDP` packets per round trip.
const DELAY_NS: u64 = BDP * 1_000_000_000 / RATE / 2;
/// The number of WRITEs that each side keeps posted, with more packets than any window.
const POSTED: usize = 16;
/// The factor by which this path is slower, in everything, than a path with as many packets in flight at
/// 40 Gb/s, whose round trip takes 21.7 us.
const SLOWER: u64 = 2 * DELAY_NS / 21_700;
/// The local ACK timeout: 134 ms, the code next to RTO_high, as on the simulated path. With IRN the code
/// only limits the time until the connection fails, so there it is long.
const TIMEOUTS: [u8; 2] = [15, 19];
/// The maximum time of a run.
const PATIENCE: Duration = Duration::from_secs(120);

/// Measures two NICs that write to each other.
pub(crate) fn exchange(bench: &mut Bench<'_>) -> Result<()> {
    let messages = bench.args.packets.unwrap_or(PACKETS).div_ceil(u64::from(MESSAGE)) as usize;
    let title = "Goodput by loss: udp, 10 000 packets/s each way, a path of 100 packets, cap 110";
    bench.exchanges("udp", title, |contestant, loss, seed| goodput(contestant, loss, messages, seed))
}

/// Returns IRN's settings for this path, with timeouts as much longer than the paper's as the path is
/// slower. IRN measures round trips, and the configured times are only a minimum. But the measured times are
/// three round trips long where the paper's are fifteen, and nothing is measured before the first answer.
/// The default times, for a fabric that is 460 times as fast, would therefore cause everything to be sent
/// twice at the start.
fn over_this_path(settings: Settings) -> Settings {
    let [rto_low_ns, rto_high_ns] = [settings.rto_low_ns, settings.rto_high_ns].map(|time| SLOWER * time);
    Settings { rto_low_ns, rto_high_ns, ..settings }
}

/// A side of the exchange.
struct Side {
    pair: QueuePair<Ready>,
    nic: LocalNic,
}

/// Measures the payload bits per second of both directions together.
fn goodput(contestant: &Contestant, loss: f64, messages: usize, seed: u64) -> Result<f64> {
    let mut sides = connected(contestant, loss, seed)?;
    let mut posted = [0; 2];
    let mut done = [0; 2];
    let started = Instant::now();
    while done.iter().any(|done| *done < messages) {
        for side in 0..2 {
            let remote = sides[1 - side].nic.target.remote(0);
            let own = &mut sides[side];
            while posted[side] < messages && posted[side] - done[side] < POSTED {
                post(own, posted[side] as u64, remote)?;
                posted[side] += 1;
            }
            done[side] += poll(own)?;
        }
        ensure!(started.elapsed() < PATIENCE, "{}: {} % loss takes too long", contestant.name, loss * 100.0);
    }
    let bits = (2 * messages * (MESSAGE * MTU) as usize * 8) as f64;
    Ok(bits / started.elapsed().as_secs_f64())
}

fn post(own: &mut Side, id: u64, remote: Remote) -> Result<()> {
    let list = [own.nic.local.sge(0, (MESSAGE * MTU) as usize)];
    Ok(own.pair.post_send(&work::write(id, &list, remote))?)
}

fn poll(own: &mut Side) -> Result<usize> {
    let mut done = [EMPTY; POSTED];
    let got = own.nic.cq.poll(&mut done)?;
    for completion in &done[..got] {
        ensure!(completion.status == Status::Success, "a WRITE ended: {}", completion.status.explain());
    }
    Ok(got)
}

/// Connects two sides whose ports lose and delay frames, and limits them to the rate.
fn connected(contestant: &Contestant, loss: f64, seed: u64) -> Result<[Side; 2]> {
    let irn = contestant.irn.map(over_this_path);
    let options = QpOptions {
        path_mtu: MTU,
        max_send_wr: 2 * POSTED as u32,
        irn: irn.is_some(),
        timeout: TIMEOUTS[usize::from(irn.is_some())],
        ..QpOptions::default()
    };
    let open = |number| {
        let delay = Action::Delay { min_ns: DELAY_NS, max_ns: DELAY_NS };
        let mut rules = vec![Rule::new(delay).towards(Directions::Send)];
        if loss > 0.0 {
            rules.insert(0, Rule::chance(Action::Drop, loss).towards(Directions::Send));
        }
        let rules = Rules { seed: 2 * seed + number, rules, ..Rules::default() };
        let device = Device::udp("127.0.0.1:0")?.fault(rules).irn(irn.unwrap_or_default());
        LocalNic::open(device, 4 * POSTED as u32, (MESSAGE * MTU) as usize)
    };
    let [one, other] = [open(0)?, open(1)?];
    let mut pairs = LocalNic::connect([&one, &other], &options)?;
    // The pacer counts the bits of a packet from the BTH to the ICRC, each with a RETH as IRN has it.
    let rate = RATE * u64::from(MTU + 32) * 8;
    for pair in &mut pairs {
        pair.modify(&Modify { rate_limit: Some(rate), ..Modify::default() })?;
    }
    let [first, second] = pairs;
    Ok([Side { pair: first, nic: one }, Side { pair: second, nic: other }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timers_are_those_of_the_simulated_path_slowed_down_as_the_path_is() {
        let settings = over_this_path(Settings::default());
        assert_eq!((settings.rto_low_ns, settings.rto_high_ns), (46_000_000, 147_200_000));
        // IRN must not retransmit a packet whose answer can still be in flight.
        assert!(settings.rto_low_ns > 2 * DELAY_NS);
        assert_eq!((settings.cap, settings.few), (Settings::default().cap, Settings::default().few));
        // The timeout is 4.096 us multiplied by two to the power of the code.
        let timeout = 4_096 << TIMEOUTS[0];
        assert!(timeout < settings.rto_high_ns && settings.rto_high_ns < 2 * timeout);
    }
}
