//! Output files that are written while a run continues. They only ever contain whole lines.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context as _, Result};
use remora_import::htsim;
use remora_options::output;
use remora_scenario::format::hpcc::Dialect;
use remora_scenario::format::hpcc::outputs::FctLine;
use remora_scenario::format::own;
use remora_scenario::run::{Row, Run};
use remora_scenario::scenario::{OutputFormat, Scenario};
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use super::saved::SUMMARY;
use super::summary::Summary;

/// Column names of `flows.csv`.
const HEAD: &str = "id,src,dst,bytes,start_ps,fct_ps,alone_ps,slowdown,status\n";

/// The output files of a run.
pub(crate) struct Outputs {
    flows: Option<BufWriter<File>>,
    /// File of completed flows in the format of another simulator, if the scenario requests one.
    foreign: Option<(BufWriter<File>, OutputFormat)>,
    folder: Option<std::path::PathBuf>,
    json: bool,
    /// Lock of the folder, which is released when the value is dropped.
    _lock: Option<File>,
}

impl Outputs {
    /// Creates the folder and its files.
    pub(crate) fn create(folder: Option<&Path>, scenario: &Scenario, json: bool) -> Result<Outputs> {
        let Some(folder) = folder else {
            return Ok(Outputs { flows: None, foreign: None, folder: None, json, _lock: None });
        };
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let lock = lock(folder)?;
        // The summary states that all other files are complete, so the one of an earlier run is removed
        // first.
        match std::fs::remove_file(folder.join(SUMMARY)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot write into {}", folder.display()));
            }
            _ => {}
        }
        let file = |name: &str| {
            let path = folder.join(name);
            File::create(&path)
                .map(BufWriter::new)
                .with_context(|| format!("cannot write {}", path.display()))
        };
        let text = own::to_toml(scenario).map_err(anyhow::Error::msg)?;
        file("scenario.toml")?.write_all(text.as_bytes())?;
        let mut flows = file("flows.csv")?;
        flows.write_all(HEAD.as_bytes())?;
        let format = scenario.output.format;
        let foreign = match format {
            OutputFormat::Own => None,
            OutputFormat::Hpcc | OutputFormat::Conweave => Some((file("fct.txt")?, format)),
            OutputFormat::Htsim => Some((file("htsim.txt")?, format)),
        };
        Ok(Outputs { flows: Some(flows), foreign, folder: Some(folder.to_owned()), json, _lock: Some(lock) })
    }

    /// Writes a completed flow to all outputs.
    pub(crate) fn flow(&mut self, row: &Row) -> Result<()> {
        if let Some(flows) = &mut self.flows {
            flows.write_all(line(row).as_bytes())?;
            flows.flush()?;
        }
        if let Some((file, format)) = &mut self.foreign {
            file.write_all(foreign(row, *format).as_bytes())?;
            file.flush()?;
        }
        if self.json {
            let _ = writeln!(std::io::stdout(), "{}", json!({ "flow": object(row) }));
        }
        Ok(())
    }

    /// Writes the unfinished flows and then the summary, which is the last file of a run.
    pub(crate) fn end(&mut self, run: &Run, summary: &Summary) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let mut text = String::from("id,src,dst,bytes,start_ps,done_bytes\n");
        for open in run.unfinished() {
            let start = open.start.map_or(String::new(), |start| start.0.to_string());
            let flow = &open.flow;
            text += &format!("{},{},{},{},{start},{}\n", flow.id, flow.src, flow.dst, flow.size, open.done);
        }
        let path = folder.join("unfinished.csv");
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        output::write(&folder.join(SUMMARY), format!("{:#}\n", summary.object(run)).as_bytes())
    }
}

/// Locks the folder as long as the returned file is open, so that no other run writes into it.
fn lock(folder: &Path) -> Result<File> {
    let shown = folder.display();
    let file = File::open(folder).with_context(|| format!("cannot open {shown}"))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .with_context(|| format!("another run writes into {shown}: wait for it, or choose another --out"))?;
    Ok(file)
}

fn line(row: &Row) -> String {
    let flow = &row.flow;
    format!(
        "{},{},{},{},{},{},{},{:.6},{:?}\n",
        flow.id,
        flow.src,
        flow.dst,
        flow.size,
        row.start.0,
        row.fct,
        row.alone,
        row.slowdown(),
        row.status
    )
}

fn object(row: &Row) -> Value {
    let flow = &row.flow;
    json!({
        "id": flow.id, "src": flow.src, "dst": flow.dst, "bytes": flow.size, "start_ps": row.start.0,
        "fct_ps": row.fct, "alone_ps": row.alone, "slowdown": row.slowdown(), "status": format!("{:?}", row.status),
    })
}

fn foreign(row: &Row, format: OutputFormat) -> String {
    let flow = &row.flow;
    let ns = |ps: u64| ps / 1000;
    let dialect = if format == OutputFormat::Conweave { Dialect::Conweave } else { Dialect::Hpcc };
    if format == OutputFormat::Htsim {
        return htsim::output::finished(flow.src, flow.dst, flow.id, row.start.0 + row.fct, flow.size);
    }
    let line = FctLine {
        src: flow.src,
        dst: flow.dst,
        ports: flow.ports,
        size: flow.size,
        start: ns(row.start.0),
        fct: ns(row.fct),
        alone: ns(row.alone),
    };
    line.write(dialect)
}
