//! Outputs in addition to the flows: each agrees with the counters of network and NICs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use remora_scenario::record::{Frame, Output, RecordConfig, Sink};
use remora_scenario::scenario::{
    Buffering, Control, ControlName, Ecn, Mark, OutputFormat, Pfc, Red, Switch, Transport, TransportName,
};
use remora_scenario::units::Size;

use super::*;

#[derive(Clone, Default)]
struct Collected(Arc<Mutex<BTreeMap<Output, Vec<u8>>>>);

impl Sink for Collected {
    fn append(&mut self, output: Output, bytes: &[u8]) {
        self.0.lock().unwrap().entry(output).or_default().extend(bytes);
    }

    fn frame(&mut self, _: usize, _: &Frame<'_>) {
        panic!("no port is captured");
    }
}

impl Collected {
    fn text(&self, output: Output) -> String {
        String::from_utf8(self.0.lock().unwrap().get(&output).cloned().unwrap_or_default()).unwrap()
    }

    /// Returns the numbers of each line, with 0 for a word that is not a number.
    fn rows(&self, output: Output) -> Vec<Vec<u64>> {
        let numbers =
            |line: &str| line.split([',', ' ']).map(|word| word.parse().unwrap_or(0)).collect::<Vec<u64>>();
        self.text(output).lines().map(numbers).collect()
    }
}

/// Returns a scenario in which hosts 0 to 5 send to host 15, with ECN and PFC.
fn incast(format: OutputFormat) -> Scenario {
    let flows: Vec<(u32, u32, u64)> = (0..6).map(|src| (src, 15, 100_000)).collect();
    let mut scenario = scenario(fat_tree(4), &flows);
    scenario.transport = Transport { name: TransportName::RocePfc, ..Transport::default() };
    scenario.control = Control { name: ControlName::DcqcnNs3, ..Control::default() };
    let red = Red { rate: None, kmin: Size(5_000), kmax: Size(20_000), pmax: 0.5 };
    let pfc = Pfc { xoff: Some(Size(20_000)), xon: Some(Size(15_000)), ..Pfc::default() };
    scenario.switch = Switch {
        kind: Buffering::Fifo,
        buffer: Size(1_000_000),
        pfc: Some(pfc),
        ecn: Some(Ecn { at: Mark::Dequeue, red: vec![red] }),
        ..Switch::default()
    };
    scenario.output.format = format;
    scenario
}

/// Runs a scenario to its end and collects its outputs.
fn record(scenario: &Scenario) -> (Run, Collected) {
    let mut run = Run::new(scenario).unwrap();
    let collected = Collected::default();
    let outputs = Output::of(scenario);
    let asked = RecordConfig { captures: &[], outputs: &outputs };
    run.record(scenario, &asked, Box::new(collected.clone())).unwrap();
    while !run.is_over() {
        run.advance(run.progress().now.after(20 * Picos::MICROSECOND));
    }
    run.end_recording();
    (run, collected)
}

#[test]
fn a_line_is_written_for_each_pause_frame_by_who_receives_it() {
    for format in [OutputFormat::Hpcc, OutputFormat::Own] {
        let (run, collected) = record(&incast(format));
        let totals = run.totals();
        let lines = collected.rows(Output::Pauses);
        let head = usize::from(format == OutputFormat::Own);
        let lines = &lines[head..];
        assert!(totals.pauses > 20, "{totals:?}");
        let sent = totals.pauses + totals.resumes;
        assert!((sent - 2..=sent).contains(&(lines.len() as u64)), "{} of {sent}", lines.len());
        let pauses = lines.iter().filter(|line| line[4] > 0).count() as u64;
        assert!((totals.pauses - 2..=totals.pauses).contains(&pauses));
        // Hosts 0 to 5 are attached to ToRs 16 to 18, and some of them are paused by port 1.
        let host = lines.iter().find(|line| line[1] < 16).expect("a host is paused");
        assert_eq!((host[1] < 6, host[2]), (true, if head == 0 { 0 } else { 1 }));
    }
}

#[test]
fn queues_are_counted_as_if_each_had_been_looked_at_each_100_ns() {
    let mut scenario = incast(OutputFormat::Hpcc);
    let range = [Time(10 * Picos::MICROSECOND), Time(60 * Picos::MICROSECOND)];
    scenario.output.queues = Some(range);
    let (_, collected) = record(&scenario);
    let text = collected.text(Output::Queues);
    let mut lines = text.lines();
    // The run continues after the last sample.
    assert_eq!(lines.next(), Some("time: 60000"));
    let mut looked = Run::new(&scenario).unwrap();
    let mut counts: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
    for sample in 0..=500 {
        let now = Picos(range[0].0 + sample * 100 * Picos::NANOSECOND);
        while looked.advance(now).is_some() {}
        let network = looked.simulation().network();
        for port in network.port_ids() {
            let (node, number) = network.name_of(port);
            if network.host_at(node).is_some() {
                continue;
            }
            let kb = network.port(port).queued as usize / 1000;
            let of_port = counts.entry((node, number + 1)).or_default();
            of_port.resize(of_port.len().max(kb + 1), 0);
            of_port[kb] += 1;
        }
    }
    let numbers = |line: &str| line.split(' ').map(|word| word.parse().unwrap()).collect::<Vec<u32>>();
    let written: BTreeMap<(u32, u32), Vec<u32>> =
        lines.map(numbers).map(|line| ((line[0], line[1]), line[2..].to_vec())).collect();
    assert_eq!(written, counts);
    assert!(counts.values().any(|counts| counts.len() > 15), "some queue is long");
}

#[test]
fn samples_agree_with_what_nics_and_ports_count() {
    let mut scenario = incast(OutputFormat::Conweave);
    scenario.output.sampling = Some(Time(10 * Picos::MICROSECOND));
    let (run, collected) = record(&scenario);
    let simulation = run.simulation();
    let cnps: u64 = collected.rows(Output::Cnps).iter().map(|line| line[4]).sum();
    assert_eq!(cnps, simulation.counters(15).np_cnp_sent);
    assert!(cnps > 0 && collected.rows(Output::Cnps).iter().all(|line| line[1] == 15));
    let connections = collected.rows(Output::Connections);
    let counts =
        |ns: u64, host: u64| connections.iter().find(|line| line[..2] == [ns, host]).unwrap()[2..].to_vec();
    // All flows start at once; 100 packets take 9 µs, and most of their acknowledgements arrive later.
    assert_eq!((counts(0, 0), counts(0, 5), counts(0, 15)), (vec![1, 1], vec![1, 1], vec![0, 0]));
    assert_eq!(counts(10_000, 0), [1, 0]);
    let last = connections.last().unwrap()[0];
    assert_eq!(counts(last, 0)[1], 0);
    // Data leaves ToRs 16 to 18 by ports 3 and 4.
    let uplinks = collected.rows(Output::Uplinks);
    let lines_at = |ns: u64| uplinks.iter().filter(move |line| line[0] == ns);
    assert_eq!(lines_at(0).count(), 8 * 2, "two ports of eight ToRs");
    let tors = |line: &&Vec<u64>| line[1] < 19;
    let sent: u64 = lines_at(last).filter(tors).map(|line| line[3]).sum();
    assert!((600_000..700_000).contains(&sent), "{sent}");
    assert!(lines_at(last).all(|line| line[2] == 3 || line[2] == 4));
}

/// Returns a little-endian number of a record.
fn number(record: &[u8], offset: usize, bytes: usize) -> u64 {
    record[offset..offset + bytes].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[test]
fn a_trace_has_what_befalls_each_packet_at_its_nodes() {
    let mut scenario = incast(OutputFormat::Hpcc);
    scenario.workloads = vec![Workload::listed(vec![
        Flow { ports: [10_000, 100], ..Flow::write(0, 0, 15, 3_500, 0) },
        Flow { ports: [10_001, 200], ..Flow::write(1, 0, 15, 100, 1_000_000_000) },
    ])];
    scenario.charging = remora_scenario::scenario::Charging::Ns3;
    scenario.output.trace = vec![0, 16];
    let (_, collected) = record(&scenario);
    let bytes = collected.0.lock().unwrap()[&Output::Trace].clone();
    // A header with 96 ports, followed by records.
    assert_eq!(number(&bytes, 0, 4), 96);
    let (head, records) = bytes.split_at(4 + 96 * 11 + 4);
    // Six links of 1 µs in both directions and six packets of 80 ns in one, at 100 Gb/s.
    assert_eq!(number(head, 4 + 96 * 11, 4), (2 * 6_000 + 6 * 80) * 100 / 8);
    assert_eq!(records.len() % 56, 0);
    let records: Vec<&[u8]> = records.chunks(56).collect();
    // Host 0 sends four packets and one, and receives as many ACKs. Each of them arrives at and leaves the
    // switch.
    let count = |node: u64, protocol: u64, event: u64| {
        let is_it = |record: &&&[u8]| {
            [number(record, 8, 2), number(record, 26, 1), number(record, 27, 1)] == [node, protocol, event]
        };
        records.iter().filter(is_it).count()
    };
    assert_eq!([count(0, 0x11, 2), count(0, 0xfc, 0), count(0, 0x11, 0)], [5, 5, 0]);
    assert_eq!([0, 1, 2, 3].map(|event| count(16, 0x11, event)), [5, 5, 5, 0]);
    assert_eq!([0, 1, 2, 3].map(|event| count(16, 0xfc, event)), [5, 5, 5, 0]);
    let first = records[0];
    let fields = [(0, 8), (8, 2), (10, 1), (11, 1), (16, 4), (20, 4), (24, 2), (28, 1), (29, 1)];
    let first_fields = fields.map(|(offset, bytes)| number(first, offset, bytes));
    assert_eq!(first_fields, [0, 0, 1, 3, 0x0b00_0001, 0x0b00_0f01, 1_048, 2, 0]);
    let data = |record: &[u8]| {
        [(32, 2), (34, 2), (36, 4), (48, 2), (50, 2)].map(|(offset, len)| number(record, offset, len))
    };
    let sent: Vec<_> = records.iter().filter(|record| record[8] == 0 && record[26] == 0x11).collect();
    assert_eq!(data(sent[0]), [10_000, 100, 0, 3, 1_000]);
    assert_eq!(data(sent[3]), [10_000, 100, 3_000, 3, 500]);
    assert_eq!(data(sent[4]), [10_001, 200, 0, 3, 100]);
    let acks: Vec<_> = records.iter().filter(|record| record[8] == 0 && record[26] == 0xfc).collect();
    let ack = [(32, 2), (34, 2), (40, 4)].map(|(offset, len)| number(acks[3], offset, len));
    assert_eq!(ack, [100, 10_000, 4_000]);
}

#[test]
fn csv_of_our_own_has_heads_and_as_many_columns() {
    let mut scenario = incast(OutputFormat::Own);
    scenario.output.queues = Some([Time(0), Time(Picos::MICROSECOND)]);
    scenario.output.sampling = Some(Time(10 * Picos::MICROSECOND));
    scenario.output.trace = vec![16];
    let (_, collected) = record(&scenario);
    for output in Output::of(&scenario) {
        let text = collected.text(output);
        let columns = |line: &str| line.split(',').count();
        let head = text.lines().next().expect("a head");
        assert!(head.starts_with("time_ps,node"), "{output:?}: {head}");
        assert!(text.lines().all(|line| columns(line) == columns(head)), "{output:?}");
        assert!(text.lines().count() > 1 && text.ends_with('\n'), "{output:?}");
    }
    let pauses = collected.text(Output::Trace).lines().filter(|line| line.contains(",pause,")).count();
    assert!(pauses > 0);
}

#[test]
fn a_node_that_cannot_be_traced_is_refused() {
    let mut scenario = incast(OutputFormat::Hpcc);
    scenario.output.trace = vec![36];
    let mut run = Run::new(&scenario).unwrap();
    let asked = RecordConfig { captures: &[], outputs: &[Output::Trace] };
    let says = run.record(&scenario, &asked, Box::new(Collected::default())).unwrap_err();
    assert_eq!(says, "output.trace names node 36, and there are 36: name one of them");
}
