//! Any scenario reads back unchanged, and no text makes the parser panic.

use std::sync::Arc;

use crate::text;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use remora_fabric::topology::Link;
use remora_scenario::format::own::{parse, to_toml};
use remora_scenario::scenario::{
    Balance, Buffering, Charging, Control, ControlName, Counted, Ecn, Failure, GivenPath, Hash, LevelText,
    LinkText, Mark, Mmu, Network, Output, OutputFormat, Payload, Pfc, QueuePairs, Red, Switch, Transport,
    TransportName,
};
use remora_scenario::units::{Rate, Size, Time};
use remora_scenario::workload::distribution::{Cdf, Point};
use remora_scenario::workload::{FlowText, NamedSizes, Repeat, Sizes, Traffic, Workload};
use remora_scenario::{After, Dependency, End, Flow, Scenario, Start, Verb};

fn time() -> impl Strategy<Value = Time> {
    (any::<u64>(), 0u32..64).prop_map(|(ps, shift)| Time(ps >> shift))
}

fn size() -> impl Strategy<Value = Size> {
    (any::<u64>(), 0u32..63).prop_map(|(bytes, shift)| Size((bytes >> shift).max(1)))
}

fn rate() -> impl Strategy<Value = Rate> {
    prop_oneof![any::<u64>().prop_map(Rate), (1u64..400).prop_map(|gbps| Rate(gbps * 1_000_000_000))]
}

fn networks() -> impl Strategy<Value = Network> {
    let link = (any::<u32>(), any::<u32>(), rate(), time(), prop_oneof![Just(0.0), 0.0f64..=1.0])
        .prop_map(|(a, b, rate, delay, loss)| LinkText(Link { a, b, rate: rate.0, delay: delay.0, loss }));
    let level =
        (rate(), time(), any::<u32>()).prop_map(|(rate, delay, bundle)| LevelText { rate, delay, bundle });
    let numbers = any::<[u32; 5]>();
    prop_oneof![
        (numbers, rate(), time()).prop_map(|([k, oversubscription, ..], rate, delay)| Network::FatTree {
            k,
            oversubscription,
            rate,
            delay
        }),
        (numbers, rate(), rate(), time()).prop_map(
            |([leaves, spines, hosts_per_leaf, ..], rate, uplink_rate, delay)| Network::LeafSpine {
                leaves,
                spines,
                hosts_per_leaf,
                rate,
                uplink_rate,
                delay
            }
        ),
        (numbers, level).prop_map(
            |([pods, tors_per_pod, hosts_per_tor, aggs_per_pod, cores_per_agg], level)| Network::Tree {
                pods,
                tors_per_pod,
                hosts_per_tor,
                aggs_per_pod,
                cores_per_agg,
                below: [level; 3]
            }
        ),
        (numbers, rate(), rate(), time()).prop_map(|([left, right, ..], rate, middle_rate, delay)| {
            Network::Dumbbell { left, right, rate, middle_rate, delay }
        }),
        (numbers, rate(), time()).prop_map(|([switches, hosts_per_switch, ..], rate, delay)| Network::Ring {
            switches,
            hosts_per_switch,
            rate,
            delay
        }),
        (any::<u32>(), vec(any::<u32>(), 0..4), vec(link, 0..5))
            .prop_map(|(nodes, switches, links)| Network::Links { nodes, switches, links }),
        ".{0,9}".prop_map(|path| Network::File { path }),
    ]
}

fn switches() -> impl Strategy<Value = Switch> {
    let kind = prop_oneof![Just(Buffering::Fifo), Just(Buffering::Voq), Just(Buffering::Shared)];
    let mmu = prop_oneof![Just(Mmu::Clean), Just(Mmu::Hpcc), Just(Mmu::Conweave)];
    let pfc = (of(size()), of(size()), any::<bool>(), of(time()), any::<bool>()).prop_map(
        |(xon, headroom, port, expiry, free)| Pfc {
            xoff: None,
            xon,
            headroom,
            counted: if port { Counted::Port } else { Counted::Class },
            expiry,
            reaction: Time(3),
            free,
        },
    );
    let red = (of(rate()), size(), 0.0f64..=1.0).prop_map(|(rate, kmin, pmax)| Red {
        rate,
        kmin,
        kmax: Size(kmin.0.saturating_mul(4)),
        pmax,
    });
    let ecn = (any::<bool>(), vec(red, 0..4))
        .prop_map(|(leaves, red)| Ecn { at: if leaves { Mark::Dequeue } else { Mark::Enqueue }, red });
    let balance = prop_oneof![
        Just(Balance::Ecmp { hash: Hash::Ns3 }),
        Just(Balance::Ecmp { hash: Hash::Own }),
        Just(Balance::Spray {}),
        time().prop_map(|gap| Balance::Flowlet { gap }),
        vec((any::<u64>(), vec(any::<u32>(), 0..=4)), 0..4).prop_map(|paths| Balance::Replay {
            paths: paths.into_iter().map(|(flow, above)| GivenPath { flow, above }).collect(),
        }),
    ];
    (kind, mmu, size(), of(0.01f64..9.0), of(any::<[u64; 3]>()), of(pfc), of(ecn), balance).prop_map(
        |(kind, mmu, buffer, alpha, latency, pfc, ecn, balance)| Switch {
            kind,
            mmu,
            buffer,
            alpha,
            latency_by_tier: latency.map(|latency| latency.map(Time)),
            pfc,
            ecn,
            balance,
            ..Switch::default()
        },
    )
}

fn flows() -> impl Strategy<Value = Flow> {
    let wait = (any::<u64>(), any::<bool>()).prop_map(|(flow, received)| Dependency {
        flow,
        end: if received { End::Received } else { End::Acknowledged },
    });
    let after = (vec(wait, 1..4), any::<u32>(), time())
        .prop_map(|(flows, count, delay)| Start::After(Arc::new(After { flows, count, delay: delay.0 })));
    let start = prop_oneof![time().prop_map(|time| Start::At(time.0)), after];
    let verb = prop_oneof![Just(Verb::Write), Just(Verb::Read), Just(Verb::Send)];
    (any::<u64>(), any::<[u32; 2]>(), size(), start, 0u8..8, verb, any::<[u16; 2]>()).prop_map(
        |(id, [src, dst], size, start, class, verb, ports)| Flow {
            id,
            src,
            dst,
            size: size.0,
            start,
            class,
            verb,
            ports,
        },
    )
}

fn workloads() -> impl Strategy<Value = Workload> {
    let points = [(0.0, 0.0), (3.5, 50.0), (1e6, 100.0)].map(|(bytes, percent)| Point { bytes, percent });
    let sizes = prop_oneof![
        Just(Sizes::Named(NamedSizes::WebSearch)),
        Just(Sizes::Named(NamedSizes::IrnUniform)),
        size().prop_map(Sizes::Fixed),
        [size(), size()].prop_map(Sizes::Uniform),
        [size(), size()].prop_map(Sizes::LogUniform),
        Just(Sizes::Table(Cdf::new(points.to_vec()).unwrap())),
    ];
    let repeat = (0.01f64..9.0, time()).prop_map(|(load, duration)| Repeat { load, duration });
    let traffic = prop_oneof![
        (sizes, 0.01f64..9.0, time()).prop_map(|(sizes, load, duration)| Traffic::Poisson {
            sizes,
            load,
            duration
        }),
        (any::<u32>(), size(), of(any::<u32>()), of(repeat))
            .prop_map(|(senders, size, to, repeat)| Traffic::Incast { senders, size, to, repeat }),
        size().prop_map(|size| Traffic::Permutation { size }),
        size().prop_map(|size| Traffic::AllToAll { size }),
        size().prop_map(|size| Traffic::RingAllReduce { size }),
        vec(flows().prop_map(FlowText), 0..5).prop_map(|flows| Traffic::Flows { flows }),
        ".{0,9}".prop_map(|path| Traffic::File { path }),
    ];
    (traffic, 0u8..8, time(), of(vec(any::<u32>(), 0..4))).prop_map(|(traffic, class, start, hosts)| {
        Workload { traffic, verb: Verb::Send, class, start, hosts }
    })
}

fn controls() -> impl Strategy<Value = (Transport, Control)> {
    let transport =
        (0..TransportName::ALL.len(), of(time()), of(time()), of(any::<u32>()), size(), any::<bool>());
    let control = (0..ControlName::ALL.len(), of(time()), of(0.0f64..=1.0), of(rate()), of(any::<bool>()));
    (transport, control).prop_map(
        |(
            (name, rto, rto_low, cap, extra_header, sacked_leave_cap),
            (control, interval, gain, rate, clamp),
        )| {
            let transport = Transport {
                name: TransportName::ALL[name],
                rto,
                rto_low,
                cap,
                sacked_leave_cap,
                extra_header,
                ..Transport::default()
            };
            let control = Control {
                name: ControlName::ALL[control],
                alpha_interval: interval,
                gain,
                min_rate: rate,
                clamp_target: clamp,
                ..Control::default()
            };
            (transport, control)
        },
    )
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let failure = (any::<[u32; 2]>(), any::<u32>(), time(), of(time()))
        .prop_map(|(ends, nth, at, until)| Failure { ends, nth, at, until });
    let heads =
        (0u64..=i64::MAX as u64, of(time()), 1u32..=9000, 0.0f64..=1.0, of(0u8..8), of([time(), time()]));
    (heads, networks(), switches(), vec(workloads(), 0..4), controls(), vec(failure, 0..3)).prop_map(
        |(
            (seed, until, mtu, loss, ack_class, queues),
            network,
            switch,
            workloads,
            (transport, control),
            failures,
        )| {
            let mut scenario = Scenario::on(network);
            scenario.host.ack_class = ack_class;
            scenario.host.queue_pairs = if mtu % 2 == 0 { QueuePairs::Kept } else { QueuePairs::Fresh };
            let payload = if mtu % 3 == 0 { Payload::Whole } else { Payload::Blank };
            let charging =
                [Charging::Ethernet, Charging::Ns3, Charging::Htsim, Charging::Ideal][mtu as usize % 4];
            let output = Output {
                format: OutputFormat::Htsim,
                trace: vec![mtu; mtu as usize % 2],
                queues,
                sampling: until,
            };
            Scenario {
                seed,
                until,
                mtu,
                payload,
                charging,
                loss,
                switch,
                transport,
                control,
                workloads,
                failures,
                output,
                ..scenario
            }
        },
    )
}

proptest! {
    #[test]
    fn a_scenario_reads_back(scenario in scenarios()) {
        let toml = to_toml(&scenario).unwrap();
        let read = parse(text(&toml)).map_err(|error| TestCaseError::fail(format!("{error}\n{toml}")))?;
        prop_assert_eq!(read.value, scenario, "{}", toml);
    }

    #[test]
    fn a_flow_reads_back(flow in flows()) {
        prop_assert_eq!(FlowText(flow.clone()).to_string().parse(), Ok(FlowText(flow)));
    }

    #[test]
    fn no_text_makes_the_parser_panic(words in vec("\\[network\\]|kind|=|\"fat-tree\"|\\[\\[workload\\]\\]|traffic|\\{|\\}|sizes|[0-9]{1,3}|\\PC{1,4}|\n", 0..60)) {
        let _ = parse(text(&words.join(" ")));
    }
}
