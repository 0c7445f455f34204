//! The command line of `htsim_roce`, which sets the link rate, MTU, queues and PFC: htsim has no file for
//! them.

use remora_scenario::error::excerpt;
use remora_scenario::scenario::ControlName;
use remora_scenario::units::parse_saturating;

/// The options of a command line. The defaults are those of `htsim_roce`, except [`Options::control`], which
/// htsim does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `-nodes`: number of hosts, or `None` without the option.
    pub nodes: Option<u32>,
    /// `-tiers`: number of tiers, 2 or 3, of the network that is used without `-topo`.
    pub tiers: u32,
    /// `-tm`: path of the connection matrix.
    pub matrix: Option<String>,
    /// `-topo`: path of the topology.
    pub topology: Option<String>,
    /// `-linkspeed`: link rate in bit/s; the command line has Mbit/s.
    pub rate: u64,
    /// `-mtu`: payload of a full data packet, in bytes without headers.
    pub mtu: u32,
    /// `-q`: capacity of an output queue in packets. It applies to `-queue_type random` only; lossless queues
    /// are unbounded.
    pub queue: u64,
    /// `-pfc_thresholds`: numbers of packets of one input at which it resumes and pauses its sender.
    pub thresholds: [u64; 2],
    /// `-hop_latency`: propagation delay of a link in ps; the command line has µs.
    pub hop_latency: u64,
    /// `-switch_latency`: latency of a switch in ps; the command line has µs.
    pub switch_latency: u64,
    /// `-end`: end of the run in ps; the command line has µs.
    pub end: u64,
    /// `-seed`: seed of the random numbers.
    pub seed: u64,
    /// `-queue_type`: true for `lossless` and `lossless_input`, which use PFC; false for `random`.
    pub lossless: bool,
    /// `-queue_type lossless`: true if htsim would derive the PFC thresholds from `-q`. They are taken from
    /// `-pfc_thresholds` here, with a warning.
    pub pauses_by_queue: bool,
    /// `-strat`: true if each packet may take another path (`ecmp_rr`, `perm` or `rand`).
    pub sprays: bool,
    /// `--control`: congestion control of the flows. This option is not htsim's.
    pub control: ControlName,
    /// Options that were accepted but have no effect, in the order of the command line.
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

/// Options with a value that are accepted but have no effect: they control logs, or parts of htsim that are
/// not modelled.
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

/// Reads the words of a command line, with or without the name of the program in front.
///
/// # Errors
/// Fails on a program, queue type or strategy that is not modelled (the message names it), on an unknown
/// option, and on a missing or invalid value. The message is one line and says what to write instead.
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

/// Checks the program's name: only `htsim_roce` is modelled.
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
                "`{name}` is not a program of htsim: start with htsim_roce or with the options"
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
    remora_scenario::units::whole(word, max).map_err(|fault| fault.of(key, word))
}

/// Reads a rate or a time and multiplies it by `scale`. A result that does not fit becomes `u64::MAX`.
fn scaled(key: &str, word: &str, scale: u64) -> Result<u64, String> {
    parse_saturating(word, scale).ok_or_else(|| format!("{key} is `{}`: write a number", excerpt(word)))
}
