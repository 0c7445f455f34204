//! Tests of the headroom of a lossless class, to the byte.

use super::*;

const MTU: u32 = 1_000;

/// Returns the number of packets that a switch loses while host 1 sends to host 2 over a slow link. Host 0
/// sends to host 1 at the same times, so that a packet of `MTU` bytes has just started when the pause frame
/// to host 1 is due.
fn lost(headroom: u32, delay: u64) -> u64 {
    let shared = SharedConfig {
        size: 3 * u64::from(headroom) + 50_000,
        reserve: 0,
        headroom,
        ingress_alpha: 64,
        hysteresis: 0,
        lossless: 1 << 3,
    };
    let config = NetworkConfig {
        buffer: BufferConfig::Shared(shared),
        pause: Some(PauseConfig::default()),
        ..NetworkConfig::default()
    };
    let mut network = Network::new(star(3, RATE / 1_000, delay), config).unwrap();
    let mut sources = [(0, 1), (1, 2)].map(|(host, receiver)| Source {
        host,
        packet: packet(receiver, 3, MTU as u16),
        left: 400,
    });
    run(&mut network, &mut sources, Picos(2_000 * MICROSECOND));
    network.totals().lost().packets
}

#[test]
fn the_computed_headroom_loses_nothing_and_a_byte_less_does() {
    let pause = PauseConfig::default();
    // The round trip and the pause frame correspond to ten packets, so that the last packet starts exactly
    // when the pause takes effect.
    let delay = (10 * 80_000 - 84 * 80) / 2;
    let headroom = pause.headroom(RATE, delay, MTU);
    assert_eq!(headroom, 13_000);
    assert_eq!(lost(headroom, delay), 0);
    assert!(lost(headroom - 1, delay) > 0, "a byte less is enough");
}

#[test]
fn ten_thousand_random_incasts_lose_nothing() {
    let mut random = Random::new(11);
    let mut pauses = 0;
    for round in 0..10_000 {
        let hosts = random.between(3, 9) as u32;
        let delay = random.below(2_000_000);
        let headroom = PauseConfig::default().headroom(RATE, delay, 1_500);
        let shared = SharedConfig {
            size: u64::from(hosts) * u64::from(headroom) + random.between(2_000, 30_000),
            reserve: 0,
            headroom,
            ingress_alpha: random.pick(&[16, 64, 256]),
            hysteresis: random.pick(&[0, 1_500]),
            lossless: 1 << 3,
        };
        let config = NetworkConfig {
            seed: round,
            buffer: BufferConfig::Shared(shared),
            pause: Some(PauseConfig::default()),
            ..NetworkConfig::default()
        };
        let mut network = Network::new(star(hosts, RATE, delay), config).unwrap();
        let mut sources: Vec<_> = (0..hosts - 1)
            .map(|host| {
                let bytes = random.between(84, 1_500) as u16;
                let left = random.between(1, 60) as usize;
                Source { host, packet: packet(hosts as u16 - 1, 3, bytes), left }
            })
            .collect();
        let sent: usize = sources.iter().map(|source| source.left).sum();
        let arrived = run(&mut network, &mut sources, Picos(20_000 * MICROSECOND)).len();
        network.check();
        assert!(network.findings().kept().is_empty(), "round {round}: {:?}", network.findings());
        assert_eq!(arrived, sent, "round {round}");
        pauses += network.totals().pauses;
    }
    assert!(pauses > 1_000, "{pauses}");
}
