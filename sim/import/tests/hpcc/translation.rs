use crate::{text, warned};
use remora_import::hpcc::config::Config;
use remora_import::hpcc::translation::{Parts, scenario};
use remora_import::hpcc::{flows, topology};
use remora_scenario::scenario::{
    Balance, Buffering, Charging, ControlName, Failure, Hash, Mark, Mmu, OutputFormat, TransportName,
};
use remora_scenario::units::{Rate, Size, Time};
use remora_scenario::{Read, Scenario, ScenarioError};

const FAT: &str = include_str!("../../../scenario/tests/data/fat_k8_100G_OS2_n128_OS1.txt");
const FLOWS: &str = include_str!("../../../scenario/tests/data/I32_2MB.txt");
const PFC: &str = include_str!("../../../scenario/tests/data/ns3-I32-pfc-config.txt");

fn translated(config: &str, control: Option<ControlName>) -> Result<Read<Scenario>, ScenarioError> {
    let topology = topology::parse(text(FAT)).unwrap().value;
    let flows = flows::parse(text(FLOWS), Some(&topology)).unwrap().value;
    let config = Config::parse(text(config)).unwrap().value;
    scenario(text(""), &config, Parts { topology, flows, trace: vec![128] }, control)
}

#[test]
fn conweaves_files_become_a_scenario() {
    let read = translated(PFC, None).unwrap();
    assert!(read.warnings.is_empty(), "{:?}", read.warnings);
    let scenario = read.value;
    assert_eq!((scenario.charging, scenario.output.format), (Charging::Ns3, OutputFormat::Conweave));
    assert_eq!(
        (scenario.transport.name, scenario.control.name),
        (TransportName::RocePfc, ControlName::DcqcnNs3)
    );
    assert_eq!(scenario.transport.rto, Some(Time(4_000_000_000)));
    assert_eq!(
        (scenario.switch.kind, scenario.switch.mmu, scenario.switch.buffer),
        (Buffering::Shared, Mmu::Conweave, Size(9 << 20))
    );
    assert_eq!(scenario.switch.pfc.unwrap().expiry, Some(Time(5_000_000)));
    assert_eq!(scenario.switch.balance, Balance::Ecmp { hash: Hash::Ns3 });
    let ecn = scenario.switch.ecn.clone().unwrap();
    assert_eq!(
        (ecn.at, ecn.red[0].kmin, ecn.red[0].kmax, ecn.red[0].pmax),
        (Mark::Dequeue, Size(100_000), Size(400_000), 0.2)
    );
    assert_eq!(scenario.control.increase_interval, Some(Time(300_000_000)));
    assert_eq!(
        (scenario.control.gain, scenario.control.rate_hai),
        (Some(0.003_906_25), Some(Rate(100_000_000)))
    );
    assert_eq!((scenario.host.ack_class, scenario.failures.len()), (Some(0), 0));
    assert_eq!(scenario.until, Some(Time(12_010_000_000_000)));
    let topology = scenario.topology().unwrap();
    assert_eq!((topology.links.len(), scenario.flows(&topology).unwrap().len()), (384, 32));
    let irn = translated(&format!("{PFC} ENABLE_PFC 0 ENABLE_IRN 1"), None).unwrap().value;
    assert_eq!((irn.transport.name, irn.switch.pfc), (TransportName::Irn, None));
    assert_eq!(
        (irn.transport.rto_low, irn.transport.rto_high),
        (Some(Time(100_000_000)), Some(Time(320_000_000)))
    );
}

#[test]
fn modes_that_are_not_modelled_are_refused_by_name() {
    for (line, words) in [
        (
            "CC_MODE 3",
            "f: CC_MODE selects HPCC, which is not modelled: choose --control NAME of none, dcqcn, dcqcn-ns3, timely",
        ),
        ("CC_MODE 8", "f: CC_MODE selects DCTCP, which is not modelled: choose --control NAME of"),
        ("CC_MODE 10", "f: CC_MODE selects PINT, which is not modelled: choose --control NAME of"),
        ("CC_MODE 5", "f: CC_MODE 5 is not known: write 1 (DCQCN) or 7 (TIMELY)"),
        ("LB_MODE 2", "f: LB_MODE selects DRILL, which is not modelled: write LB_MODE 0 (ECMP)"),
        ("LB_MODE 3", "f: LB_MODE selects Conga, which is not modelled: write LB_MODE 0 (ECMP)"),
        ("LB_MODE 6", "f: LB_MODE selects Letflow, which is not modelled: write LB_MODE 0 (ECMP)"),
        ("LB_MODE 9", "f: LB_MODE selects ConWeave, which is not modelled: write LB_MODE 0 (ECMP)"),
    ] {
        let says = translated(&format!("{PFC} {line}"), None).unwrap_err().to_string();
        assert!(says.starts_with(words), "{says}");
    }
    let timely = translated(&format!("{PFC} CC_MODE 3"), Some(ControlName::Timely)).unwrap();
    assert_eq!(timely.value.control.name, ControlName::Timely);
}

#[test]
fn hpccs_files_pause_until_they_resume_and_stop_when_they_say() {
    let config = "CC_MODE 1\nSIMULATOR_STOP_TIME 4.00\nBUFFER_SIZE 32\nACK_HIGH_PRIO 0\nLINK_DOWN 50 0 128\n\
                  PACKET_PAYLOAD_SIZE 1000\nQLEN_MON_FILE q\nERROR_RATE_PER_LINK 0.001\nL2_BACK_TO_ZERO 1";
    let read = translated(config, None).unwrap();
    let expected = ["f: L2_BACK_TO_ZERO 1 goes back to the start of a chunk; go-back-N is taken"];
    assert_eq!(warned(&read), expected);
    let scenario = read.value;
    assert_eq!((scenario.output.format, scenario.output.trace.clone()), (OutputFormat::Hpcc, vec![128]));
    assert_eq!((scenario.switch.mmu, scenario.switch.pfc.unwrap().expiry), (Mmu::Hpcc, None));
    assert_eq!((scenario.until, scenario.transport.rto), (Some(Time(4_000_000_000_000)), None));
    assert_eq!((scenario.host.ack_class, scenario.switch.ecn.clone()), (None, None));
    // 50 us after 2 s.
    let failure = Failure { ends: [0, 128], nth: 0, at: Time(2_000_050_000_000), until: None };
    assert_eq!(scenario.failures, [failure]);
    assert_eq!(scenario.output.queues, Some([Time(2_000_000_000_000), Time(2_100_000_000_000)]));
    assert_eq!(scenario.topology().unwrap().links[0].loss, 0.001);
}

#[test]
fn every_rate_of_the_topology_stands_in_every_map() {
    let map = "CC_MODE 1 KMIN_MAP 1 100000000000 100 KMAX_MAP 1 100000000000 400 PMAX_MAP 1 25000000000 0.2";
    let says = translated(map, None).unwrap_err().to_string();
    assert_eq!(
        says,
        "f: PMAX_MAP lacks 100000000000, a rate of the topology: add the pair `100000000000 VALUE`"
    );
    // The values that run.py writes for the first two rates.
    let read = translated(&map.replace("25000000000 0.2", "100000000000 0"), None).unwrap();
    assert_eq!(warned(&read), ["f: PMAX_MAP has 0 for 100Gbps: nothing is marked up to KMAX"]);
    let says = translated("CC_MODE 1 LINK_DOWN 1 0 1", None).unwrap_err().to_string();
    assert_eq!(says, "f: LINK_DOWN names 0 and 1, which no link joins: name two ends");
}
