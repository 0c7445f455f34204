//! The command line of `htsim_roce`: rates, MTU, queues and PFC stand there and in no file.

use crate::error::excerpt;
use crate::scenario::ControlName;
use crate::units::parse_saturating;

/// What a command line says. The defaults are the program's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `-nodes`: hosts, if the line has it.
    pub nodes: Option<u32>,
    /// `-tiers`, without a topology file: 2 or 3.
    pub tiers: u32,
    /// `-tm`: the connection matrix.
    pub matrix: Option<String>,
    /// `-topo`: the topology.
    pub topology: Option<String>,
    /// `-linkspeed`, in bit/s; the line has Mbit/s.
    pub rate: u64,
    /// `-mtu`: bytes of a data packet without headers.
    pub mtu: u32,
    /// `-q`: packets of an output queue that loses; a lossless one has no bound.
    pub queue: u64,
    /// `-pfc_thresholds`: packets at which an input resumes and pauses.
    pub thresholds: [u64; 2],
    /// `-hop_latency`, in ps; the line has us.
    pub hop_latency: u64,
    /// `-switch_latency`, in ps; the line has us.
    pub switch_latency: u64,
    /// `-end`, in ps; the line has us.
    pub end: u64,
    /// `-seed`.
    pub seed: u64,
    /// `-queue_type lossless` or `lossless_input`: both pause.
    pub lossless: bool,
    /// `-queue_type lossless`, whose thresholds follow from `-q` in the program.
    pub pauses_by_queue: bool,
    /// `-strat`: does each packet take a path of its own?
    pub sprays: bool,
    /// `--control`: with which control the flows run here.
    pub control: ControlName,
    /// Words that change nothing here.
    pub ignored: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            nodes: None,
            tiers: 3,
            matrix: None,
            topology: None,
            rate: 100_000_000_000,
            mtu: 9000,
            queue: 15,
            thresholds: [12, 15],
            hop_latency: MICROSECOND,
            switch_latency: 0,
            end: 1000 * MICROSECOND,
            seed: 13,
            lossless: true,
            pauses_by_queue: false,
            sprays: false,
            control: ControlName::None,
            ignored: Vec::new(),
        }
    }
}

const MICROSECOND: u64 = 1_000_000;

/// Options that have a value and change only logs, or what a path is drawn from.
const IGNORED: [&str; 9] = [
    "-o",
    "-log",
    "-logtime",
    "-paths",
    "-conns",
    "-host_queue_type",
    "-ar_sticky_delta",
    "-ar_method",
    "-start_delta",
];

/// Reads the words of a command line, the program's name in front or not.
///
/// # Errors
/// A program, queue or strategy that is not modelled, by name; an unknown option; a value that is none. Each
/// in one line with its remedy.
pub fn parse(words: &[&str]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut words = words.iter().copied().peekable();
    if let Some(program) = words.next_if(|word| !word.starts_with('-')) {
        check_program(program)?;
    }
    while let Some(word) = words.next() {
        let mut value = |what: &str| words.next().ok_or_else(|| format!("{word} has no value: add {what}"));
        match word {
            "-nodes" => options.nodes = Some(whole(word, value("a number of hosts")?, 100_000)? as u32),
            "-tiers" => match whole(word, value("2 or 3")?, 3)? {
                tiers @ 2..=3 => options.tiers = tiers as u32,
                tiers => return Err(format!("-tiers is {tiers}: write 2 or 3")),
            },
            "-tm" => options.matrix = Some(value("a file")?.to_owned()),
            "-topo" => options.topology = Some(value("a file")?.to_owned()),
            "-linkspeed" => options.rate = scaled(word, value("Mbit/s")?, 1_000_000)?,
            "-mtu" => options.mtu = whole(word, value("bytes")?, 9000)?.max(1) as u32,
            "-q" => options.queue = whole(word, value("packets")?, 1 << 40)?,
            "-pfc_thresholds" => {
                let low = whole(word, value("two numbers of packets")?, 1 << 40)?;
                let high = whole(word, words.next().unwrap_or(""), 1 << 40)?;
                if low > high {
                    return Err(format!("-pfc_thresholds {low} {high}: write the lower one first"));
                }
                options.thresholds = [low, high];
            }
            "-hop_latency" => options.hop_latency = scaled(word, value("us")?, MICROSECOND)?,
            "-switch_latency" => options.switch_latency = scaled(word, value("us")?, MICROSECOND)?,
            "-end" => options.end = scaled(word, value("us")?, MICROSECOND)?,
            "-seed" => options.seed = whole(word, value("a number")?, i64::MAX as u64)?,
            "-queue_type" => {
                let name = value("a type")?;
                options.lossless = queue_type(name)?;
                options.pauses_by_queue = name == "lossless";
            }
            "-strat" => options.sprays = strategy(value("a strategy")?)?,
            "--control" => options.control = value("a control")?.parse()?,
            _ if IGNORED.contains(&word) => {
                value("its value")?;
                options.ignored.push(word.to_owned());
            }
            _ => return Err(format!("the option `{}` is not known: remove it", excerpt(word))),
        }
    }
    Ok(options)
}

/// Only RoCE is modelled.
fn check_program(program: &str) -> Result<(), String> {
    let name = program.rsplit('/').next().unwrap_or(program);
    let protocol = match name {
        "htsim_roce" => return Ok(()),
        "htsim_ndp" => "NDP",
        "htsim_swift" => "Swift",
        "htsim_eqds" => "EQDS",
        "htsim_hpcc" => "HPCC",
        "htsim_uec" => "NSCC",
        "htsim_tcp" => "TCP",
        _ => {
            let name = excerpt(name);
            return Err(format!(
                "`{name}` is no program of htsim: begin with htsim_roce or with the options"
            ));
        }
    };
    let says = "is not modelled: give its options to htsim_roce, with --control NAME for a control";
    Err(format!("{name} runs {protocol}, which {says}"))
}

fn queue_type(name: &str) -> Result<bool, String> {
    match name {
        "lossless" | "lossless_input" => Ok(true),
        "random" => Ok(false),
        "composite" | "composite_ecn" => Err(format!(
            "-queue_type {name} trims packets as NDP does, which is not modelled: write lossless_input or random"
        )),
        _ => Err(format!("-queue_type {} is not known: write lossless_input or random", excerpt(name))),
    }
}

fn strategy(name: &str) -> Result<bool, String> {
    match name {
        "ecmp_host" | "ecmp" | "single" => Ok(false),
        "ecmp_rr" | "perm" | "rand" => Ok(true),
        "ecmp_ar" | "ecmp_host_ar" => {
            Err(format!("-strat {name} routes adaptively, which is not modelled: write ecmp_host or ecmp_rr"))
        }
        "pull" => Err("-strat pull is NDP's, which is not modelled: write ecmp_host or ecmp_rr".into()),
        _ => Err(format!("-strat {} is not known: write ecmp_host or ecmp_rr", excerpt(name))),
    }
}

fn whole(key: &str, word: &str, max: u64) -> Result<u64, String> {
    crate::units::whole(word, max).map_err(|fault| fault.of(key, word))
}

/// A rate or a time; one that is too large is the largest.
fn scaled(key: &str, word: &str, scale: u64) -> Result<u64, String> {
    parse_saturating(word, scale).ok_or_else(|| format!("{key} is `{}`: write a number", excerpt(word)))
}
