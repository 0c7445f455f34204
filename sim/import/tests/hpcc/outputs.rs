use crate::{says, text};
use remora_scenario::format::hpcc::Dialect;
use remora_scenario::format::hpcc::outputs::{
    FctLine, Hop, PfcLine, QueueLengths, address, alone, cnp_line, conn_line, node, parse_fct, qlen_time,
    uplink_line,
};
use remora_scenario::format::hpcc::packet_trace::{Event, Packet, Record, TracedPort, header};

#[test]
fn a_flow_that_ends_is_a_line_of_either_dialect() {
    let line = FctLine {
        src: 1,
        dst: 300,
        ports: [10_000, 100],
        size: 2_000_000,
        start: 2_000_000_000,
        fct: 178_439,
        alone: 180_160,
    };
    let rest = "10000 100 2000000 2000000000 178439 180160\n";
    assert_eq!(line.write(Dialect::Hpcc), format!("0b000101 0b012c01 {rest}"));
    assert_eq!(line.write(Dialect::Conweave), format!("1 300 {rest}"));
    assert_eq!((address(1), address(300), node(address(300))), (0x0b00_0101, 0x0b01_2c01, 300));
    for dialect in [Dialect::Hpcc, Dialect::Conweave] {
        assert_eq!(parse_fct(text(&line.write(dialect))).unwrap().value, [line]);
    }
    assert!(says(parse_fct(text("1 2 3 4 5 6 7"))).contains("a completion time alone"));
}

#[test]
fn the_time_alone_is_what_the_program_prints() {
    // 6 links of 100 Gbit/s and 1 µs, 2 MB: the last column of ConWeave's own outputs, for 6, 4 and 2 links.
    let hop = Hop { rate: 100_000_000_000, delay: 1000 };
    let fct = include_str!("../../../scenario/tests/data/ns3-one-irn-fct.txt");
    let lines = parse_fct(text(fct)).unwrap().value;
    for (line, links) in lines.iter().zip([6, 4, 2]) {
        assert_eq!(alone(line.size, 1000, &vec![hop; links]), line.alone, "{links} links");
    }
    assert_eq!(lines.len(), 3);
    // Each division is rounded down: 83.84 ns become 83.
    assert_eq!(alone(1000, 1000, &[Hop { rate: 100_000_000_000, delay: 0 }]), 80 + 83);
}

#[test]
fn the_other_outputs_have_their_columns() {
    let pfc = PfcLine { time: 2_000_195_709, node: 84, is_switch: false, interface: 1, is_pause: true };
    assert_eq!(pfc.write(), "2000195709 84 0 1 1\n");
    assert_eq!(PfcLine { is_switch: true, is_pause: false, ..pfc }.write(), "2000195709 84 1 1 0\n");
    let mut lengths = QueueLengths::default();
    [(0, 1), (999, 1), (1000, 1), (3500, 1), (9999, 0)]
        .into_iter()
        .for_each(|(bytes, samples)| lengths.add(bytes, samples));
    assert_eq!(qlen_time(2_000_000_000) + &lengths.write(128, 1), "time: 2000000000\n128 1 2 1 0 1\n");
    assert_eq!(cnp_line(5, 1, 2, 3, 5), "5 1 2 3 5\n");
    assert_eq!(uplink_line(5, 128, 17, 1048), "5,128,17,1048\n");
    assert_eq!(conn_line(5, 1, 2, 1), "5,1,2,1\n");
}

#[test]
fn the_bytes_of_a_trace_lie_where_its_readers_look() {
    let port = TracedPort { node: 0x102, interface: 3, rate: 100_000_000_000 };
    let bytes = header(&[port], 7);
    assert_eq!(bytes, [1, 0, 0, 0, 2, 1, 3, 0, 0xe8, 0x76, 0x48, 0x17, 0, 0, 0, 7, 0, 0, 0]);
    let data =
        Packet::Data { ports: [0x1111, 0x2222], sequence: 0x3333_3333, sent: 0x44, class: 3, payload: 1000 };
    let record = Record {
        time: 0x0807_0605_0403_0201,
        node: 0x0a09,
        interface: 11,
        queue: 3,
        length: 0x0f0e_0d0c,
        source: 0x1312_1110,
        destination: 0x1716_1514,
        size: 1048,
        event: Event::Dequeue,
        ecn: 3,
        is_switch: true,
        packet: data,
    };
    let bytes = record.bytes();
    assert_eq!(bytes[..12], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 3]);
    assert_eq!(bytes[12..28], [12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 0x18, 4, 0x11, 2]);
    assert_eq!(bytes[28..40], [3, 1, 0, 0, 0x11, 0x11, 0x22, 0x22, 0x33, 0x33, 0x33, 0x33]);
    assert_eq!(bytes[40..], [0x44, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0xe8, 3, 0, 0, 0, 0]);
    let ack = Packet::Ack { is_nack: true, ports: [1, 2], flags: 1, class: 3, sequence: 9, sent: 0x55 };
    let bytes = Record { packet: ack, ..record }.bytes();
    assert_eq!(
        (bytes[26], &bytes[32..56]),
        (0xfd, &[1, 0, 2, 0, 1, 0, 3, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0x55, 0, 0, 0, 0, 0, 0, 0][..])
    );
    let pfc = Packet::Pfc { time: 5, length: 6, class: 3 };
    let bytes = Record { packet: pfc, ..record }.bytes();
    assert_eq!((bytes[26], &bytes[32..44]), (0xfe, &[5, 0, 0, 0, 6, 0, 0, 0, 3, 0, 0, 0][..]));
    assert_eq!(Record { packet: Packet::Cnp, ..record }.bytes()[26], 0xff);
}
