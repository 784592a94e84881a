//! `pithead inspect manifest`: the manifests that drives hold, and their copies.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use pithead_model::{Blame, Bytes, Fault, Manifest};
use pithead_store::{Store, show_key};
use serde_json::json;

use crate::error::CliError;
use crate::output::{Align, Grid, Sink};
use crate::store_keys::{open, store_folders};
use crate::terminal::grouped;

const EXAMPLES: &str = "\
Examples:
  pithead inspect manifest pithead-data
  pithead inspect manifest /disk1 tpch --json | jq .manifest.datasets.lineitem";
const PREFIX: &str = "manifest/";

/// Show the manifests that drives hold: versions, drives, datasets, and which loads of them are visible.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ManifestArgs {
    /// A drive's folder, or a data directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// One domain only
    #[arg(value_name = "DOMAIN")]
    domain: Option<String>,
    /// All that is stored, one JSON object a manifest
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ManifestArgs) -> Result<(), CliError> {
    let mut sink = Sink::stdout();
    let mut shown = 0;
    for folder in store_folders(&args.directory)? {
        let store = open(&folder)?;
        for manifest in manifests(&store, args.domain.as_deref())? {
            match args.json {
                true => writeln!(sink, "{}", json!({ "store": folder.display().to_string(), "manifest": manifest }))?,
                false => write(&folder, manifest.home() == Some(store.drive_id()), &manifest, &mut sink)?,
            }
            shown += 1;
        }
    }
    sink.finish()?;
    match &args.domain {
        Some(domain) if shown == 0 => {
            let fault = Fault::new(Blame::User, format!("no drive in {} has a manifest of {domain}", args.directory.display()));
            Err(fault.hint("without DOMAIN, all manifests are shown").into())
        }
        _ => Ok(()),
    }
}

fn manifests(store: &dyn Store, domain: Option<&str>) -> Result<Vec<Manifest>, CliError> {
    let mut manifests = Vec::new();
    for entry in store.list(PREFIX.as_bytes()).map_err(Fault::from)? {
        if domain.is_some_and(|domain| entry.key[PREFIX.len()..] != *domain.as_bytes()) {
            continue;
        }
        let Some((value, _)) = store.get(&entry.key).map_err(Fault::from)? else { continue };
        let damaged = |error| Fault::new(Blame::Corrupt, format!("{} is no manifest: {error}", show_key(&entry.key)));
        manifests.push(serde_json::from_slice(&value).map_err(damaged)?);
    }
    Ok(manifests)
}

fn write(folder: &Path, home: bool, manifest: &Manifest, out: &mut dyn Write) -> Result<(), CliError> {
    let drives: Vec<String> = manifest.drives.iter().map(ToString::to_string).collect();
    writeln!(
        out,
        "{}: domain {}, version {}{}; drives {}",
        folder.display(),
        manifest.domain,
        manifest.version,
        if home { "" } else { ", kept for its home" },
        drives.join(", "),
    )?;
    grid(manifest).write(out)?;
    Ok(writeln!(out)?)
}

fn grid(manifest: &Manifest) -> Grid {
    use Align::{Left, Right};
    let mut grid = Grid::of(&[
        ("dataset", Left),
        ("incarnation", Left),
        ("partition", Right),
        ("drives", Left),
        ("load", Left),
        ("slices", Right),
        ("rows", Right),
        ("stored", Right),
    ]);
    for (name, dataset) in &manifest.datasets {
        let start = || vec![name.clone(), dataset.id.to_string()];
        if dataset.runs().next().is_none() {
            grid.push(start().into_iter().chain((2..8).map(|_| String::new())).collect());
        }
        for (number, partition) in dataset.partitions.iter().enumerate() {
            let drives: Vec<String> = partition.copies.iter().map(ToString::to_string).collect();
            for run in &partition.runs {
                let mut row = start();
                row.extend([number.to_string(), drives.join(" "), run.load.to_string()]);
                row.extend([grouped(run.slices.into()), grouped(run.rows), Bytes(run.bytes).to_string()]);
                grid.push(row);
            }
        }
    }
    grid
}

#[cfg(test)]
mod tests {
    use pithead_store::{Durability, MemoryStore, Write as Put};

    use super::*;

    #[test]
    fn manifests_are_found_by_domain_and_what_is_none_is_named() {
        let store = MemoryStore::new();
        let put = |key: &str, value: Vec<u8>| store.write(vec![Put::put(key.to_owned(), value)], Durability::Through).unwrap();
        for domain in ["lab", "main"] {
            put(&format!("manifest/{domain}"), serde_json::to_vec(&Manifest::empty(domain, vec![])).unwrap());
        }
        let domains = |domain: Option<&str>| -> Vec<String> {
            manifests(&store, domain).unwrap().into_iter().map(|manifest| manifest.domain).collect()
        };
        assert_eq!((domains(None), domains(Some("lab"))), (vec!["lab".to_owned(), "main".to_owned()], vec!["lab".to_owned()]));
        assert!(domains(Some("la")).is_empty());
        put("manifest/zoo", b"{".to_vec());
        let Err(CliError::Fault(fault)) = manifests(&store, None) else { panic!("one is damaged") };
        assert!(fault.blame == Blame::Corrupt && fault.message.contains("manifest/zoo"), "{fault}");
    }
}
