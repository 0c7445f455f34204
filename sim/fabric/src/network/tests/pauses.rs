//! Tests of pause frames: when they are sent, arrive, take effect and end, to the picosecond.

use super::*;

/// Host 0 sends to host 1 through a switch whose output is slow.
fn congested(pause: PauseConfig, thresholds: Thresholds) -> Network {
    let buffer = BufferConfig::Fifo { limit: 1 << 20, pause: Some(thresholds), per_port: false };
    let config = NetworkConfig { buffer, pause: Some(pause), ..NetworkConfig::default() };
    Network::new(star(2, RATE / 1_000, MICROSECOND), config).unwrap()
}

/// Returns the times at which the port of host 0 is paused for the first time and at which it resumes.
fn first_pause(network: &mut Network) -> (u64, u64) {
    let uplink = network.uplinks(0)[0];
    let mut left = 60;
    let mut since = None;
    network.wake(0, Picos(0));
    while network.now() < Picos(20_000 * MICROSECOND) {
        // Advance by picoseconds until the pause. Its end is an event of the host and therefore due.
        let limit = since.map_or(network.now(), |_| Picos(20_000 * MICROSECOND));
        let mut due = network.next_due(limit);
        if due.is_none() && since.is_none() && network.port(uplink).paused == 0 {
            due = network.next_due(limit.after(1));
        }
        match due {
            Some(Due::Arrived(_, id)) => drop(network.take(id)),
            Some(_) if network.can_send(uplink, 3) && left > 0 => {
                left -= 1;
                network.send(uplink, packet(1, 3, 1_000));
                network.expect_free(uplink);
            }
            _ => {}
        }
        let now = network.now().0;
        let is_paused = network.port(uplink).paused & 1 << 3 != 0;
        match since {
            None if is_paused => since = Some(now),
            Some(since) if !is_paused => return (since, now),
            _ => {}
        }
    }
    panic!("no pause that ends")
}

#[test]
fn a_pause_begins_a_frame_and_a_delay_after_the_threshold_and_lasts_its_quanta() {
    // The first packet leaves the switch at once. With the fourth, more than 2,500 bytes wait.
    let thresholds = Thresholds { xoff: 2_500, xon: 0 };
    let pause = PauseConfig { lasts: Lasts::Quanta(100), ..PauseConfig::default() };
    let threshold_at = 4 * 80_000 + MICROSECOND;
    let effect = threshold_at + 84 * 80 + MICROSECOND;
    // After half of the 100 quanta of 5.12 ns another frame is sent, and so on: the pause is renewed until
    // the slow port, which needs 80 µs for a packet, has drained the buffer.
    let (start, until) = first_pause(&mut congested(pause, thresholds));
    assert_eq!(start, effect);
    assert!(until > 80 * MICROSECOND, "{until}");
    let never_renewed = PauseConfig { lasts: Lasts::Picos(5 * MICROSECOND), ..pause };
    let (start, until) = first_pause(&mut congested(never_renewed, thresholds));
    assert_eq!(start, effect);
    // 14 packets are on their way by then; the frame for the last one comes 13 packets later.
    let last = effect + 13 * 80_000;
    assert!((last + 4 * MICROSECOND..last + 7 * MICROSECOND).contains(&until), "{until}");
}

#[test]
fn a_reaction_time_delays_the_pause() {
    let thresholds = Thresholds { xoff: 2_500, xon: 0 };
    let pause = PauseConfig { reaction: 300_000, ..PauseConfig::default() };
    let (start, _) = first_pause(&mut congested(pause, thresholds));
    assert_eq!(start, 4 * 80_000 + MICROSECOND + 84 * 80 + MICROSECOND + 300_000);
}

#[test]
fn a_pause_frame_that_takes_no_time_passes_the_packet_that_leaves() {
    let thresholds = Thresholds { xoff: 2_500, xon: 0 };
    let pause = PauseConfig { charge: 0, lasts: Lasts::UntilResume, ..PauseConfig::default() };
    let (start, _) = first_pause(&mut congested(pause, thresholds));
    assert_eq!(start, 4 * 80_000 + MICROSECOND + MICROSECOND);
}

#[test]
fn a_resume_ends_the_pause_when_the_account_is_below_xon() {
    let thresholds = Thresholds { xoff: 2_500, xon: 2_500 };
    let (_, until) = first_pause(&mut congested(PauseConfig::default(), thresholds));
    // 1,086.72 ns pass until the pause takes effect. By then 28 packets have been sent, including those on
    // the link. The slow port starts a packet every 80 µs; when two packets wait, the resume frame is sent.
    let sent = (4 * 80_000 + MICROSECOND + 84 * 80 + MICROSECOND).div_ceil(80_000);
    let first_at = 80_000 + MICROSECOND;
    let begins = first_at + (sent - 3) * 80 * MICROSECOND;
    assert_eq!(until, begins + 84 * 80 + MICROSECOND);
}

#[test]
fn other_classes_go_on() {
    let thresholds = Thresholds { xoff: 2_500, xon: 0 };
    let mut network = congested(PauseConfig::default(), thresholds);
    let mut sources = [Source { host: 0, packet: packet(1, 3, 1_000), left: 60 }];
    run(&mut network, &mut sources, Picos(10 * MICROSECOND));
    let uplink = network.uplinks(0)[0];
    assert!(!network.can_send(uplink, 3) && network.can_send(uplink, 5));
    network.send(uplink, Packet::new(1, 5, 100, 55));
    assert!(arrivals(&mut network).iter().any(|arrival| arrival.2 == 55));
}

#[test]
fn a_port_that_is_paused_all_the_time_is_a_storm() {
    let buffer = BufferConfig::Fifo {
        limit: 1 << 20,
        pause: Some(Thresholds { xoff: 2_500, xon: 100 }),
        per_port: false,
    };
    let config = NetworkConfig {
        buffer,
        pause: Some(PauseConfig::default()),
        watch_period: 100 * MICROSECOND,
        ..NetworkConfig::default()
    };
    let mut network = Network::new(star(2, RATE / 10_000, MICROSECOND), config).unwrap();
    let mut sources = [Source { host: 0, packet: packet(1, 3, 1_000), left: 40 }];
    run(&mut network, &mut sources, Picos(5_000 * MICROSECOND));
    let storm = network.findings().kept().iter().find_map(|finding| match finding {
        Finding::PauseStorm { node, port, .. } => Some((*node, *port)),
        _ => None,
    });
    assert_eq!(storm, Some((0, 0)), "{:?}", network.findings());
}
