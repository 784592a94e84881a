//! What the benchmark needs of the machine, and how to get it.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use pithead_model::{Blame, Fault};

use crate::TABLES;
use crate::tables::io;

/// From PyPI. Each extension pins the DuckDB that it is for.
const PACKAGES: [&str; 4] = [
    "duckdb-extension-httpfs==1.5.5",
    "duckdb-extension-postgres-scanner==1.5.5",
    "duckdb-extension-quack==1.5.5",
    "pyarrow==26.0.1",
];
/// What is imported of them.
const MODULES: &str =
    "import duckdb, duckdb_extension_httpfs, duckdb_extension_postgres_scanner, duckdb_extension_quack, pyarrow";

/// lineitem in the order of `l_shipdate`, in which drives keep it, as one more table for DuckDB.
pub(super) const SORTED: &str = "lineitem_sorted";
/// From the one file to the other; row groups as those of the others.
const SORT: &str = "\
import duckdb, sys
source, target = (path.replace(\"'\", \"''\") for path in sys.argv[1:])
duckdb.execute('SET enable_progress_bar = false')
rows = f\"SELECT * FROM read_parquet('{source}') ORDER BY l_shipdate\"
duckdb.execute(f\"COPY ({rows}) TO '{target}' (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 131072)\")
";

/// Programs that were found.
#[derive(Debug)]
pub(super) struct Needs {
    pub(super) nginx: PathBuf,
    /// One that has DuckDB and its extensions.
    pub(super) python: PathBuf,
}

impl Needs {
    /// Looks for all of it; a fault names everything that is missing. DuckDB is installed into an environment of its own in
    /// `directory` where it is not there.
    pub(super) async fn find(directory: &Path, split_cores: bool) -> Result<Self, Fault> {
        let nginx = nginx(directory);
        let taskset = split_cores.then_some("taskset");
        let mut missing: Vec<String> = ["ip", "tc", "python3"]
            .into_iter()
            .chain(taskset)
            .filter(|program| on_path(program).is_none())
            .map(str::to_owned)
            .collect();
        if nginx.is_none() {
            missing.push("nginx".to_owned());
        }
        if !is_root() {
            missing.insert(0, "the rights of root".to_owned());
        }
        let Some(nginx) = nginx.filter(|_| missing.is_empty()) else {
            return Err(absent(&missing, directory));
        };
        Ok(Self { nginx, python: python(directory).await? })
    }

    /// Puts links to the tables where nginx serves them.
    pub(super) fn links(&self, tables: &Path, files: &Path) -> Result<(), Fault> {
        std::fs::create_dir_all(files).map_err(|error| io(files, &error))?;
        for table in TABLES {
            let (file, link) = (table.parquet(tables), table.parquet(files));
            let file = std::path::absolute(&file).map_err(|error| io(&file, &error))?;
            std::os::unix::fs::symlink(file, &link).map_err(|error| io(&link, &error))?;
        }
        Ok(())
    }

    /// The same, and [`SORTED`] beside them.
    pub(super) async fn files(&self, tables: &Path, files: &Path) -> Result<(), Fault> {
        self.links(tables, files)?;
        let paths = [tables.join("lineitem.parquet"), files.join(format!("{SORTED}.parquet"))];
        let [source, target] = paths.each_ref().map(|path| path.to_string_lossy());
        if succeeds(&self.python, &["-c", SORT, &source, &target]).await {
            return Ok(());
        }
        Err(Fault::new(Blame::Device, format!("DuckDB could not write {target}: see above")))
    }
}

fn absent(missing: &[String], directory: &Path) -> Fault {
    let unpacked = directory.join("nginx");
    let unpack = format!(
        "mkdir -p {0} && cd {0} && apt-get download nginx && dpkg-deb -x nginx_*.deb . (no service is started)",
        unpacked.display()
    );
    let hint = format!(
        "run it as root; on Debian and Ubuntu: apt-get install iproute2 util-linux python3-venv, and for nginx: {unpack}, or \
         name one with PITHEAD_NGINX"
    );
    Fault::new(Blame::User, format!("missing for network namespaces and HTTP: {}", missing.join(", "))).hint(hint)
}

/// `$PITHEAD_NGINX`, one that was unpacked into the directory, or the system's.
fn nginx(directory: &Path) -> Option<PathBuf> {
    let named = std::env::var_os("PITHEAD_NGINX").map(PathBuf::from);
    let unpacked = std::path::absolute(directory.join("nginx/usr/sbin/nginx")).ok();
    named.into_iter().chain(unpacked).find(|path| path.is_file()).or_else(|| on_path("nginx"))
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

pub(crate) fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| effective_user(&status) == Some(0))
}

/// The second number of `Uid:` is the effective one.
fn effective_user(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// The Python of an environment in `directory`, which is made where it is not there or not whole.
pub(crate) async fn python(directory: &Path) -> Result<PathBuf, Fault> {
    let home = std::path::absolute(directory.join("duckdb-http")).map_err(|error| io(directory, &error))?;
    let python = home.join("bin/python");
    if succeeds(&python, &["-c", MODULES]).await {
        return Ok(python);
    }
    eprintln!("installing {} into {}", PACKAGES.join(" and "), home.display());
    let failed = |what: &str| Fault::new(Blame::Device, format!("{what} failed in {}", home.display()));
    let home_text = home.to_string_lossy();
    if !succeeds(Path::new("python3"), &["-m", "venv", "--clear", &home_text]).await {
        return Err(failed("python3 -m venv").hint("on Debian and Ubuntu: apt-get install python3-venv"));
    }
    let install = [&["-m", "pip", "install", "--quiet", "--disable-pip-version-check"], &PACKAGES[..]].concat();
    if !succeeds(&python, &install).await {
        return Err(failed("pip install").hint("check the network; behind a mirror, set PIP_INDEX_URL"));
    }
    Ok(python)
}

/// What the program says on stderr is shown where it is there at all and fails.
async fn succeeds(program: &Path, words: &[&str]) -> bool {
    let mut command = tokio::process::Command::new(program);
    let output = command.args(words).stdin(Stdio::null()).kill_on_drop(true).output().await;
    match output {
        Ok(output) if !output.status.success() => {
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
            false
        }
        Ok(_) => true,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_user_counts() {
        assert_eq!(effective_user("Name:\tx\nUid:\t1000\t0\t1000\t1000\n"), Some(0));
        assert_eq!(effective_user("Name:\tx\n"), None);
    }

    #[test]
    fn everything_that_is_missing_is_named_at_once() {
        let fault = absent(&["the rights of root".to_owned(), "nginx".to_owned()], Path::new("data"));
        assert!(fault.message.ends_with("the rights of root, nginx"), "{fault:?}");
        assert!(format!("{fault:?}").contains("cd data/nginx"), "{fault:?}");
    }
}
