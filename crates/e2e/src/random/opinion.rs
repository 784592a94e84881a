//! DuckDB as a process that answers queries, one after another.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use pithead_host::LoadMode;
use serde::Deserialize;
use serde_json::json;

use crate::compare::{Column, Table};
use crate::places::repository;
use crate::random::tables::Database;

/// No query of the generator takes as long, even on a machine that is busy.
const ANSWER_LIMIT: Duration = Duration::from_secs(300);

/// DuckDB. Dropping it ends the process.
pub(crate) struct Opinion {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
}

#[derive(Deserialize)]
struct Answer {
    error: Option<String>,
    #[serde(default)]
    letters: String,
    #[serde(default)]
    rows: Vec<Vec<String>>,
}

impl Opinion {
    /// Starts it with the Python of `$PITHEAD_PYTHON` or the tools' own; none if that has no DuckDB, which stderr is told.
    pub(crate) fn start() -> Option<Opinion> {
        let own = std::env::var_os("PITHEAD_PYTHON").map(PathBuf::from);
        let python = own.unwrap_or_else(|| repository().join(".tools/bin/python"));
        let opinion = Self::spawn(&python);
        if opinion.is_none() {
            eprintln!("random queries: no opinion from DuckDB, which {} does not have\nhint: tools/setup.sh", python.display());
        }
        opinion
    }

    fn spawn(python: &Path) -> Option<Opinion> {
        let mut command = Command::new(python);
        command.arg(repository().join("crates/e2e/suites/opinion.py")).env("PYTHONDONTWRITEBYTECODE", "1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let (requests, output) = (child.stdin.take()?, child.stdout.take()?);
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // Once nobody asks any more, nobody listens.
                let _ = sender.send(line);
            }
        });
        let mut opinion = Opinion { child, requests, answers };
        opinion.ask("SELECT 1").ok().map(|_| opinion)
    }

    /// Takes over the tables of a database, whose files are in a directory, and forgets all others.
    pub(crate) fn load(&mut self, database: &Database, directory: &Path) -> Result<(), String> {
        let tables: BTreeMap<&str, Vec<PathBuf>> =
            database.tables.iter().map(|table| (table.name.as_str(), table.files(directory))).collect();
        self.send(&json!({ "tables": tables })).map(drop)
    }

    /// Adds the rows of a file to a table, or puts them in place of its rows.
    pub(crate) fn change(&mut self, table: &str, mode: LoadMode, file: &Path) -> Result<(), String> {
        let verb = if mode == LoadMode::Replace { "replace" } else { "append" };
        self.send(&json!({ verb: table, "file": file })).map(drop)
    }

    /// Its answer; the error is DuckDB's.
    pub(crate) fn ask(&mut self, sql: &str) -> Result<Table, String> {
        self.post(sql)?;
        self.answer()
    }

    /// Begins to ask. [`Opinion::answer`] has to follow.
    pub(crate) fn post(&mut self, sql: &str) -> Result<(), String> {
        self.write(&json!({ "sql": sql }))
    }

    /// The answer to what was posted.
    pub(crate) fn answer(&mut self) -> Result<Table, String> {
        let answer = self.read()?;
        let columns = answer.letters.chars().map(Column::lettered).collect();
        Ok(Table { columns, rows: answer.rows })
    }

    fn send(&mut self, request: &serde_json::Value) -> Result<Answer, String> {
        self.write(request)?;
        self.read()
    }

    fn write(&mut self, request: &serde_json::Value) -> Result<(), String> {
        writeln!(self.requests, "{request}").map_err(|error| format!("DuckDB's process is gone: {error}"))
    }

    fn read(&mut self) -> Result<Answer, String> {
        let line = self.answers.recv_timeout(ANSWER_LIMIT).map_err(|error| format!("no answer from DuckDB: {error}"))?;
        let answer: Answer = serde_json::from_str(&line).map_err(|error| format!("DuckDB's process says {line:?}: {error}"))?;
        match answer.error {
            Some(error) => Err(error),
            None => Ok(answer),
        }
    }
}

impl Drop for Opinion {
    fn drop(&mut self) {
        // It may be gone already; nothing is left to do about it either way.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
