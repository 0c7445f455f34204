//! The client commands of `remora rma`: read, write, rekey and regions.

use std::io::Read as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use remora_grants::{RegionGrant, RmaSession, key_of_file};
use remora_options::number::natural;
use remora_options::output::{Output, input};
use remora_options::print;
use remora_options::print_table;
use remora_verbs::rma::RegionKey;
use serde_json::json;

use super::rights::rights_in_words;
use super::target::Target;

/// Number of bytes that one operation reads or writes at most.
const PIECE: usize = 1 << 20;

/// Arguments of `remora rma read`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  remora rma serve --credentials server.json &\n  remora rma read --credentials server.json --len 64\n  remora rma read --connect 10.0.0.1:7501 --address 10.0.0.2 --fingerprint 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef --certificate own.pem --offset 4096 --file page"
)]
pub(crate) struct ReadArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    region: RegionArgs,
    /// Offset of the first byte in the region.
    #[arg(long, default_value_t = 0, value_parser = natural::<u64>)]
    offset: u64,
    /// Number of bytes to read [default: to the end of the region].
    #[arg(long, value_parser = natural::<u64>)]
    len: Option<u64>,
    /// File to write the bytes to; - is standard output.
    #[arg(long, default_value = "-")]
    file: PathBuf,
    /// Print one JSON object, with the bytes in base64.
    #[arg(long)]
    json: bool,
}

/// Arguments of `remora rma write`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  remora rma serve --credentials server.json --rights read,write &\n  echo hello | remora rma write --credentials server.json --offset 4096\n  remora rma write --credentials server.json --file page\n\nA write that fails may have taken effect in part."
)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    region: RegionArgs,
    /// Offset of the first byte in the region.
    #[arg(long, default_value_t = 0, value_parser = natural::<u64>)]
    offset: u64,
    /// Maximum number of bytes to write [default: all bytes of the file].
    #[arg(long, value_parser = natural::<u64>)]
    len: Option<u64>,
    /// File with the bytes to write; - is standard input.
    #[arg(long, default_value = "-")]
    file: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Arguments of `remora rma rekey`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  remora rma serve --credentials server.json --rights read,rekey &\n  remora rma rekey --credentials server.json\n\nClients with grants under the old key ask for new ones by themselves."
)]
pub(crate) struct RekeyArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    region: RegionArgs,
    /// File with the new key: 16 bytes or 32 hexadecimal digits. No other user may have read access
    /// [default: a random key].
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Arguments of `remora rma regions`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  remora rma serve --credentials server.json &\n  remora rma regions --credentials server.json --json"
)]
pub(crate) struct RegionsArgs {
    #[command(flatten)]
    target: Target,
    /// Print one JSON object per region.
    #[arg(long)]
    json: bool,
}

/// Option that selects a region.
#[derive(Args, Clone, Debug)]
struct RegionArgs {
    /// Name or RegionId of the region [default: the only region of the server].
    #[arg(long)]
    region: Option<String>,
}

impl RegionArgs {
    fn of(&self, session: &RmaSession) -> Result<RegionGrant> {
        let all = session.regions();
        let named = |wanted: &str| all.iter().find(|one| one.name == wanted);
        let numbered = |wanted: &str| all.iter().find(|one| Ok(one.grant.region) == wanted.parse());
        let grant = match (&self.region, all) {
            (Some(wanted), _) => named(wanted).or_else(|| numbered(wanted)),
            (None, [one]) => Some(one),
            (None, _) => None,
        };
        let names: Vec<_> = all.iter().map(|one| &*one.name).collect();
        grant.cloned().with_context(|| match &self.region {
            Some(wanted) => {
                format!("the server grants no region {wanted}: choose one of {}", names.join(", "))
            }
            None => format!("the server grants {}: choose one by --region", names.join(", ")),
        })
    }
}

/// Runs `remora rma read`.
pub(crate) fn read(args: &ReadArgs) -> Result<()> {
    let ReadArgs { offset, ref file, .. } = *args;
    let to_file = (file.as_os_str() != "-").then(|| Output::find(file)).transpose()?;
    let mut session = args.target.session()?;
    let RegionGrant { name, grant, .. } = args.region.of(&session)?;
    let len = args.len.unwrap_or_else(|| grant.len.saturating_sub(offset));
    let end = offset.checked_add(len).filter(|end| *end <= grant.len);
    if end.is_none() {
        bail!("region {name} has {} bytes: {len} bytes from offset {offset} on exceed it", grant.len);
    }
    let streams = to_file.is_none() && !args.json;
    let mut kept = Vec::new();
    let mut piece = vec![0; PIECE];
    let mut done = 0;
    while done < len {
        let piece = &mut piece[..PIECE.min((len - done) as usize)];
        session.read(&name, offset + done, piece)?;
        if streams {
            print::bytes(piece);
        } else {
            kept.extend_from_slice(piece);
        }
        done += piece.len() as u64;
    }
    if let Some(file) = &to_file {
        file.write(&kept)?;
    }
    if args.json {
        let data = to_file.is_none().then(|| STANDARD.encode(&kept));
        print::line(json!({ "region": name, "offset": offset, "len": len, "data": data }));
    }
    Ok(())
}

/// Runs `remora rma write`.
pub(crate) fn write(args: &WriteArgs) -> Result<()> {
    let mut session = args.target.session()?;
    let RegionGrant { name, .. } = args.region.of(&session)?;
    let (reader, shown, _) = input(&args.file)?;
    let mut reader = reader.take(args.len.unwrap_or(u64::MAX));
    let mut piece = Vec::with_capacity(PIECE);
    let mut done = 0;
    loop {
        piece.clear();
        reader
            .by_ref()
            .take(PIECE as u64)
            .read_to_end(&mut piece)
            .with_context(|| format!("reading {shown}"))?;
        if piece.is_empty() {
            break;
        }
        session.write(&name, args.offset.saturating_add(done), &piece)?;
        done += piece.len() as u64;
    }
    ensure!(done > 0, "nothing written: {shown} is empty");
    if args.json {
        print::line(json!({ "region": name, "offset": args.offset, "len": done }));
    }
    Ok(())
}

/// Runs `remora rma rekey`.
pub(crate) fn rekey(args: &RekeyArgs) -> Result<()> {
    let key = match &args.key_file {
        Some(path) => key_of_file(path)?,
        None => random_key()?,
    };
    let mut session = args.target.session()?;
    let RegionGrant { name, .. } = args.region.of(&session)?;
    session.rekey(&name, &key)?;
    if args.json {
        print::line(json!({ "region": name, "changed": true }));
    } else {
        eprintln!("region {name} has a new key");
    }
    Ok(())
}

fn random_key() -> Result<RegionKey> {
    Ok(remora_host::random_key()?)
}

/// Runs `remora rma regions`.
pub(crate) fn regions(args: &RegionsArgs) -> Result<()> {
    let session = args.target.session()?;
    if args.json {
        for RegionGrant { name, rights, grant } in session.regions() {
            print::line(json!({
                "name": name, "region": grant.region, "len": grant.len,
                "rights": rights_in_words(*rights), "nic": grant.server.to_string(),
            }));
        }
        return Ok(());
    }
    let rows = session.regions().iter().map(|RegionGrant { name, rights, grant }| {
        let numbers = [grant.region.to_string(), grant.len.to_string()];
        let [region, len] = numbers;
        [name.clone(), region, len, rights_in_words(*rights), grant.server.to_string()]
    });
    print_table(["name", "RegionId", "bytes", "rights", "NIC"], rows);
    Ok(())
}
