//! Loads scenarios from files of the four supported formats, and the files that they refer to.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use remora_import::hpcc::{config::Config, flows, topology, trace, translation};
use remora_import::{files, htsim, paths, supply};
use remora_scenario::format::change::{self, Change};
use remora_scenario::format::own;
use remora_scenario::scenario::{Balance, ControlName};
use remora_scenario::{FILE_MAX, Scenario, Source, Warning};

use crate::scenario_args::ScenarioArgs;

/// A scenario and the warnings about its files.
pub(crate) struct Loaded {
    pub scenario: Scenario,
    pub warnings: Vec<Warning>,
}

/// Loads the scenario that the arguments select.
pub(crate) fn load(args: &ScenarioArgs) -> Result<Loaded> {
    let path = args.scenario.as_deref().context("no scenario given: name a file")?;
    let text = read(path)?;
    let name = path.display().to_string();
    let source = Source::new(&name, &text);
    let kind = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let kind = kind.to_ascii_lowercase();
    if kind != "cm" && !args.options.is_empty() {
        bail!("options after `--` are for htsim's connection matrices (.cm) only: leave them out");
    }
    let mut loaded = match kind.as_str() {
        "toml" => from_toml(path, source, &args.set)?,
        "cm" => from_htsim(path, source, &args.options)?,
        "topo" => {
            bail!(
                "{name} is a topology, not a scenario: refer to it from a scenario by network = {{ kind = \"file\", path = … }}"
            )
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

/// Returns the scenario with the changes of `--set`.
fn changed(scenario: &Scenario, changes: &[Change]) -> Result<Scenario> {
    change::apply(scenario, changes).map_err(anyhow::Error::msg).context("--set")
}

/// Replaces the load balancing of the scenario by the paths in a table.
fn replay(scenario: &mut Scenario, path: &Path, run: u32) -> Result<()> {
    let text = read(path)?;
    let name = path.display().to_string();
    let topology = scenario.topology()?;
    let flows = scenario.flows(&topology)?;
    let paths = paths::parse(Source::new(&name, &text), run, &flows, &topology)?;
    scenario.switch.balance = Balance::Replay { paths };
    Ok(())
}

/// Reads a text file. Bytes that are not UTF-8 are replaced.
///
/// # Errors
/// Fails if the file cannot be read, is too long, or is in UTF-16.
pub(crate) fn read(path: &Path) -> Result<String> {
    let name = path.display();
    let len = std::fs::metadata(path).with_context(|| format!("cannot read {name}"))?.len();
    if len > FILE_MAX as u64 {
        bail!("{name} has {len} bytes, more than the maximum of {FILE_MAX}: shorten it");
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        bail!("{name} is a text in UTF-16: save it as UTF-8");
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Finds the file `name` that the file `by` refers to: in the working directory, in the folder of `by`, or
/// in the folder above that.
pub(crate) fn find(by: &Path, name: &str) -> Result<PathBuf> {
    let folder = by.parent().unwrap_or(Path::new(""));
    let above = folder.parent().map(|above| above.join(name));
    let places = [Some(PathBuf::from(name)), Some(folder.join(name)), above];
    let path = places.into_iter().flatten().find(|place| place.is_file());
    path.with_context(|| {
        format!(
            "{} refers to {name}, which is neither in the working directory, nor beside it, nor in the folder above",
            by.display()
        )
    })
}

/// Loads a TOML file. The changes are applied first, because they may name other files.
fn from_toml(path: &Path, source: Source<'_>, set: &[Change]) -> Result<Loaded> {
    let read_scenario = own::parse(source)?;
    let scenario = read_scenario.value;
    let mut warnings = read_scenario.warnings;
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
            format!(
                "{} has no {key}: it is not a configuration of HPCC's or ConWeave's simulator",
                path.display()
            )
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
