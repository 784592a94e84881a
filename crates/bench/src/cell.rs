//! `pithead bench cell`: differential expression at the drives, beside scanpy, TileDB-SOMA and DuckDB.
//!
//! What is compared is Python, so the work is done by the scripts in `bench/cell`. They are part of this program; here they are
//! started with what they need, and what they measured is put beside where and how it was.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pithead_model::{Blame, Fault};
use serde::Serialize;
use serde_json::Value;

use crate::machine::Machine;
use crate::tables::{generate, io};

/// The scripts, by their names in the package `cell`.
const SCRIPTS: [(&str, &str); 12] = [
    ("__init__.py", include_str!("../../../bench/cell/__init__.py")),
    ("__main__.py", include_str!("../../../bench/cell/__main__.py")),
    ("answers.py", include_str!("../../../bench/cell/answers.py")),
    ("fetch.py", include_str!("../../../bench/cell/fetch.py")),
    ("generate.py", include_str!("../../../bench/cell/generate.py")),
    ("measure.py", include_str!("../../../bench/cell/measure.py")),
    ("ours.py", include_str!("../../../bench/cell/ours.py")),
    ("peers.py", include_str!("../../../bench/cell/peers.py")),
    ("report.py", include_str!("../../../bench/cell/report.py")),
    ("run.py", include_str!("../../../bench/cell/run.py")),
    ("slices.py", include_str!("../../../bench/cell/slices.py")),
    ("tasks.py", include_str!("../../../bench/cell/tasks.py")),
];
/// The package `pithead` as `make test` leaves it, from the root of the repository.
const PACKAGE: &str = "python";
const PACKAGE_LIBRARY: &str = "python/pithead/_pithead.abi3.so";

/// What to measure.
#[derive(Clone, Debug)]
pub struct CellOptions {
    /// Runs of each question; their median counts.
    pub runs: usize,
    /// Parts to measure; empty: all.
    pub only: Vec<CellPart>,
    /// Who is asked; empty: all that are installed.
    pub engines: Vec<CellEngine>,
    /// TPC-H's scale, in gigabytes of text, of the table that goes into data frames.
    pub scale: f64,
    /// Where matrices are kept, and stores while they are measured: up to 10 GB.
    pub directory: PathBuf,
    /// A Python with the package `pithead`; none: that of `.tools`, or the system's.
    pub python: Option<PathBuf>,
    /// Where to write everything as JSON. The figure goes beside it.
    pub json: Option<PathBuf>,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellPart {
    /// 2,000 cells.
    Small,
    /// 100,000 cells.
    Medium,
    /// 500,000 cells, with a quarter of the file's size as memory.
    Large,
    /// The first experiment of Montana et al. 2023, section 6.2 (see `docs/bibliography.md`).
    Slices,
    /// A table into data frames.
    Fetch,
}

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellEngine {
    /// We.
    Pithead,
    /// scanpy, in memory.
    Scanpy,
    /// TileDB-SOMA.
    Tiledbsoma,
    /// DuckDB, over Parquet.
    Duckdb,
}

/// Everything that was measured, and where.
#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    command: String,
    #[serde(flatten)]
    measured: Value,
}

/// Measures, prints tables and writes the JSON. Blocks.
pub fn cell(options: &CellOptions) -> Result<(), Fault> {
    let machine = Machine::here();
    println!("{}", machine.line());
    let python = python(options)?;
    let home = options.directory.join("cell");
    let lineitem = if options.wants(CellPart::Fetch) {
        let tables = options.directory.join(format!("tpch-{}", options.scale));
        generate(&tables, options.scale)?;
        Some(tables.join("lineitem.parquet"))
    } else {
        None
    };
    let scripts = Scripts::write(&home)?;
    let out = scripts.0.join("measured.json");
    let program = std::env::current_exe().map_err(|error| io(Path::new("pithead"), &error))?;
    let mut command = Command::new(&python);
    command.args(["-m", "cell", "--program"]).arg(program).arg("--directory").arg(&home).arg("--out").arg(&out);
    command.args(options.words()).env("PYTHONPATH", python_path(&scripts.0)?).stdin(Stdio::null());
    if let Some(lineitem) = lineitem {
        command.arg("--lineitem").arg(lineitem);
    }
    if let Some(json) = options.json.as_ref().filter(|_| options.wants(CellPart::Slices)) {
        command.arg("--figure").arg(json.with_file_name("cell-slices.svg"));
    }
    let status = command.status().map_err(|error| io(&python, &error))?;
    if !status.success() {
        return Err(Fault::new(Blame::Device, format!("the benchmark's Python ended with {status}; what it said is above")));
    }
    let Some(path) = &options.json else { return Ok(()) };
    let text = std::fs::read_to_string(&out).map_err(|error| io(&out, &error))?;
    let measured =
        serde_json::from_str(&text).map_err(|error| Fault::new(Blame::Bug, format!("what was measured: {error}")))?;
    let report = Report { machine, command: command_line(), measured };
    let text = serde_json::to_string_pretty(&report).unwrap_or_default();
    std::fs::write(path, text + "\n").map_err(|error| io(path, &error))
}

impl CellOptions {
    fn wants(&self, part: CellPart) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    /// What the scripts are told.
    fn words(&self) -> Vec<String> {
        let mut words = vec!["--runs".to_owned(), self.runs.to_string()];
        let lists = [
            ("--only", self.only.iter().map(|part| format!("{part:?}")).collect::<Vec<_>>()),
            ("--engines", self.engines.iter().map(|engine| format!("{engine:?}")).collect()),
        ];
        for (flag, names) in lists.into_iter().filter(|(_, names)| !names.is_empty()) {
            words.push(flag.to_owned());
            words.extend(names.iter().map(|name| name.to_lowercase()));
        }
        words
    }
}

/// The scripts in a folder of their own. Dropping it removes it.
#[derive(Debug)]
struct Scripts(PathBuf);

impl Scripts {
    fn write(home: &Path) -> Result<Self, Fault> {
        let folder = home.join(format!("scripts-{}", std::process::id()));
        let package = folder.join("cell");
        std::fs::create_dir_all(&package).map_err(|error| io(&package, &error))?;
        let scripts = Self(folder);
        for (name, text) in SCRIPTS {
            let path = package.join(name);
            std::fs::write(&path, text).map_err(|error| io(&path, &error))?;
        }
        Ok(scripts)
    }
}

impl Drop for Scripts {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("note: {} is left behind: {error}", self.0.display());
        }
    }
}

/// Where Python finds the scripts and, unless it is installed, the package.
fn python_path(scripts: &Path) -> Result<OsString, Fault> {
    let mut places = vec![std::path::absolute(scripts).map_err(|error| io(scripts, &error))?];
    if Path::new(PACKAGE_LIBRARY).exists() {
        places.push(std::path::absolute(PACKAGE).map_err(|error| io(Path::new(PACKAGE), &error))?);
    }
    let before = std::env::var_os("PYTHONPATH").unwrap_or_default();
    places.extend(std::env::split_paths(&before));
    std::env::join_paths(places).map_err(|error| Fault::new(Blame::User, format!("PYTHONPATH: {error}")))
}

/// The Python that was named: `$PITHEAD_PYTHON`, the tools' own, or the system's, if it has what the scripts need.
fn python(options: &CellOptions) -> Result<PathBuf, Fault> {
    if let Some(named) = &options.python {
        return Ok(named.clone());
    }
    crate::python::python_with("anndata").ok_or_else(|| {
        let fault = Fault::new(Blame::User, "there is no Python that has anndata");
        fault.hint("tools/setup.sh puts one into .tools; or name another: --python FILE")
    })
}

fn command_line() -> String {
    let words = std::env::args().skip(1);
    ["pithead".to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_scripts_are_part_of_the_program() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/cell");
        let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{error}"));
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| name.ends_with(".py")).collect();
        names.sort();
        assert_eq!(names, SCRIPTS.map(|(name, _)| name.to_owned()));
    }

    #[test]
    fn parts_and_engines_are_named_as_the_scripts_name_them() {
        let options = CellOptions {
            runs: 2,
            only: vec![CellPart::Small, CellPart::Fetch],
            engines: vec![CellEngine::Tiledbsoma],
            scale: 0.1,
            directory: PathBuf::from("d"),
            python: None,
            json: None,
        };
        assert_eq!(options.words().join(" "), "--runs 2 --only small fetch --engines tiledbsoma");
        assert!(options.wants(CellPart::Fetch) && !options.wants(CellPart::Slices));
        let all = CellOptions { only: vec![], engines: vec![], ..options };
        assert_eq!(all.words(), ["--runs", "2"]);
        assert!(all.wants(CellPart::Slices));
    }
}
