//! Scenarios from files of four kinds, with the files that they name.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use remora_scenario::format::change::{self, Change};
use remora_scenario::format::hpcc::{config::Config, flows, topology, trace, translation};
use remora_scenario::format::{files, htsim, own, paths, supply};
use remora_scenario::scenario::{Balance, ControlName};
use remora_scenario::{FILE_MAX, Scenario, Source, Warning};

use super::ScenarioArgs;

/// A scenario and what was odd about its files.
pub struct Loaded {
    pub scenario: Scenario,
    pub warnings: Vec<Warning>,
}

/// Reads the scenario that the arguments name.
pub fn load(args: &ScenarioArgs) -> Result<Loaded> {
    let path = args.scenario.as_deref().context("which scenario? Give a file")?;
    let text = read(path)?;
    let name = path.display().to_string();
    let source = Source::new(&name, &text);
    let kind = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let kind = kind.to_ascii_lowercase();
    if kind != "cm" && !args.options.is_empty() {
        bail!("options behind `--` are htsim's, for a connection matrix (.cm): leave them out");
    }
    let mut loaded = match kind.as_str() {
        "toml" => from_toml(path, source, &args.set)?,
        "cm" => from_htsim(path, source, &args.options)?,
        "topo" => {
            bail!("{name} is a topology: name it in a scenario as network = {{ kind = \"file\", path = … }}")
        }
        _ => from_config(path, source, args.control)?,
    };
    if kind != "toml" {
        loaded.scenario = changed(&loaded.scenario, &args.set)?;
    }
    if let Some(control) = args.control {
        loaded.scenario.control.name = control;
    }
    if let Some(transport) = args.transport {
        loaded.scenario.transport.name = transport;
    }
    if let Some(seed) = args.seed {
        loaded.scenario.seed = seed;
    }
    if let Some(path) = &args.paths {
        replay(&mut loaded.scenario, path, args.paths_run)?;
    }
    Ok(loaded)
}

/// The scenario with the keys that `--set` names.
fn changed(scenario: &Scenario, changes: &[Change]) -> Result<Scenario> {
    change::apply(scenario, changes).map_err(anyhow::Error::msg).context("--set")
}

/// Flows take the paths of a table.
fn replay(scenario: &mut Scenario, path: &Path, run: u32) -> Result<()> {
    let (text, name) = (read(path)?, path.display().to_string());
    let topology = scenario.topology()?;
    let flows = scenario.flows(&topology)?;
    let paths = paths::parse(Source::new(&name, &text), run, &flows, &topology)?;
    scenario.switch.balance = Balance::Replay { paths };
    Ok(())
}

/// The text of a file.
pub fn read(path: &Path) -> Result<String> {
    let name = path.display();
    let len = std::fs::metadata(path).with_context(|| format!("cannot read {name}"))?.len();
    if len > FILE_MAX as u64 {
        bail!("{name} has {len} bytes, and the limit is {FILE_MAX}: cut it");
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        bail!("{name} is a text in UTF-16: save it as UTF-8");
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The file of this name, seen from the working directory, the folder of `by`, or the folder above that.
pub fn find(by: &Path, name: &str) -> Result<PathBuf> {
    let folder = by.parent().unwrap_or(Path::new(""));
    let above = folder.parent().map(|above| above.join(name));
    let places = [Some(PathBuf::from(name)), Some(folder.join(name)), above];
    let found = places.into_iter().flatten().find(|place| place.is_file());
    found.with_context(|| {
        format!(
            "{} names {name}, which is neither here, nor beside it, nor in the folder above",
            by.display()
        )
    })
}

/// What is set may name other files, so it comes before them.
fn from_toml(path: &Path, source: Source<'_>, set: &[Change]) -> Result<Loaded> {
    let read_scenario = own::parse(source)?;
    let (scenario, mut warnings) = (read_scenario.value, read_scenario.warnings);
    let mut scenario = changed(&scenario, set)?;
    for (_, name) in files(&scenario) {
        let text = read(&find(path, &name)?)?;
        warnings.extend(supply(&mut scenario, Source::new(&name, &text))?);
    }
    Ok(Loaded { scenario, warnings })
}

fn from_htsim(path: &Path, source: Source<'_>, options: &[String]) -> Result<Loaded> {
    let words: Vec<&str> = options.iter().map(String::as_str).collect();
    let options = htsim::options::parse(&words).map_err(anyhow::Error::msg)?;
    let matrix = htsim::connections::parse(source)?;
    let mut warnings = matrix.warnings;
    let file = match &options.topology {
        Some(name) => {
            let text = read(&find(path, name)?)?;
            let tree = htsim::topology::parse(Source::new(name, &text))?;
            warnings.extend(tree.warnings);
            Some(tree.value)
        }
        None => None,
    };
    let scenario = htsim::translation::scenario(source, &options, &matrix.value, file.as_ref())?;
    warnings.extend(scenario.warnings);
    Ok(Loaded { scenario: scenario.value, warnings })
}

fn from_config(path: &Path, source: Source<'_>, control: Option<ControlName>) -> Result<Loaded> {
    let config = Config::parse(source)?;
    let mut warnings = config.warnings;
    let named = |key: &str| {
        let name = config.value.text(key).with_context(|| {
            format!("{} has no {key}: is it a configuration of HPCC's or ConWeave's program?", path.display())
        })?;
        Ok::<_, anyhow::Error>((name.to_owned(), read(&find(path, name)?)?))
    };
    let (name, text) = named("TOPOLOGY_FILE")?;
    let network = topology::parse(Source::new(&name, &text))?;
    warnings.extend(network.warnings);
    let (name, text) = named("FLOW_FILE")?;
    let listed = flows::parse(Source::new(&name, &text), Some(&network.value))?;
    warnings.extend(listed.warnings);
    let traced = match config.value.text("TRACE_FILE") {
        Some(name) => {
            let text = read(&find(path, name)?)?;
            let traced = trace::parse(Source::new(name, &text), network.value.nodes.len())?;
            warnings.extend(traced.warnings);
            traced.value
        }
        None => Vec::new(),
    };
    let parts = translation::Parts { topology: network.value, flows: listed.value, trace: traced };
    let scenario = translation::scenario(source, &config.value, parts, control)?;
    warnings.extend(scenario.warnings);
    Ok(Loaded { scenario: scenario.value, warnings })
}
