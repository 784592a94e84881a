//! Processes in the host's namespace that answer queries: a host of Pithead's, and DuckDB. Requests and replies are lines of JSON.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use pithead_model::{Blame, Fault};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::drives::through;
use crate::tables::io;

/// Longest for a query, or a load.
const REPLY_LIMIT: Duration = Duration::from_secs(3_600);
const START_LIMIT: Duration = Duration::from_secs(60);

/// What a process is asked to do.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// To load TPC-H from its Parquet files. DuckDB is not asked to.
    Load {
        tables: PathBuf,
    },
    Run(RunRequest),
}

/// A query, and the file that its answer is written to once it is timed.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct RunRequest {
    pub(crate) sql: String,
    pub(crate) answer: PathBuf,
    /// DuckDB has none.
    #[serde(default)]
    pub(crate) pushdown: bool,
}

/// What it says.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reply {
    Ready(Ready),
    Loaded {},
    Ran(Ran),
    Failed { message: String },
}

/// Who answers, and how it is set up.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Ready {
    pub(crate) version: String,
    pub(crate) settings: Vec<String>,
}

/// A query that ran, from its statement to all rows in memory as Arrow.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Ran {
    pub(crate) seconds: f64,
    pub(crate) rows: usize,
}

/// One that waits for requests. It ends when this is dropped, or this process ends.
pub(crate) struct Runner {
    name: &'static str,
    // Dropped, it is killed.
    _child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    pub(crate) ready: Ready,
}

impl Runner {
    /// Starts one and waits until it is ready.
    pub(super) async fn start(
        name: &'static str,
        prefix: &[String],
        program: &Path,
        arguments: &[String],
    ) -> Result<Self, Fault> {
        let mut command = Command::from(through(prefix, program));
        // A proxy would be asked for the files.
        for variable in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env_remove(variable);
        }
        let mut child = command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| io(program, &error))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = pipes.ok_or_else(|| Fault::new(Blame::Bug, "a process without pipes"))?;
        let ready = Ready { version: String::new(), settings: vec![] };
        let mut runner = Self { name, _child: child, stdin, lines: BufReader::new(stdout).lines(), ready };
        match runner.reply(START_LIMIT).await? {
            Reply::Ready(ready) => runner.ready = ready,
            other => return Err(runner.unexpected(&other)),
        }
        Ok(runner)
    }

    /// Loads the tables.
    pub(super) async fn load(&mut self, tables: &Path) -> Result<(), Fault> {
        match self.ask(&Request::Load { tables: tables.to_owned() }).await? {
            Reply::Loaded {} => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Runs a query.
    pub(crate) async fn run(&mut self, request: RunRequest) -> Result<Ran, Fault> {
        match self.ask(&Request::Run(request)).await? {
            Reply::Ran(ran) => Ok(ran),
            other => Err(self.unexpected(&other)),
        }
    }

    async fn ask(&mut self, request: &Request) -> Result<Reply, Fault> {
        let line = serde_json::to_string(request).map_err(|error| Fault::new(Blame::Bug, error.to_string()))? + "\n";
        let sent = self.stdin.write_all(line.as_bytes()).await;
        sent.map_err(|error| self.failed(format!("does not take requests any more: {error}")))?;
        self.reply(REPLY_LIMIT).await
    }

    async fn reply(&mut self, limit: Duration) -> Result<Reply, Fault> {
        let line = tokio::time::timeout(limit, self.next_line()).await;
        let line = line.map_err(|_| self.failed(format!("said nothing for {} s", limit.as_secs())))??;
        match serde_json::from_str(&line).map_err(|error| self.failed(format!("said what cannot be read: {error}")))? {
            Reply::Failed { message } => Err(self.failed(message)),
            reply => Ok(reply),
        }
    }

    /// The next reply. Other lines, such as what a load says of itself, are for people.
    async fn next_line(&mut self) -> Result<String, Fault> {
        loop {
            let line = self.lines.next_line().await.map_err(|error| self.failed(error.to_string()))?;
            match line {
                Some(line) if line.starts_with('{') => return Ok(line),
                Some(line) => println!("{line}"),
                None => return Err(self.failed("ended early".to_owned())),
            }
        }
    }

    fn unexpected(&self, reply: &Reply) -> Fault {
        Fault::new(Blame::Bug, format!("{}: an unexpected reply: {reply:?}", self.name))
    }

    fn failed(&self, what: String) -> Fault {
        Fault::new(Blame::Device, format!("{}: {what}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_script_says_is_understood() {
        let ran = r#"{"ran": {"seconds": 0.25, "rows": 4}}"#;
        assert!(matches!(serde_json::from_str(ran), Ok(Reply::Ran(Ran { rows: 4, .. }))));
        let failed = r#"{"failed": {"message": "no"}}"#;
        assert!(matches!(serde_json::from_str(failed), Ok(Reply::Failed { message }) if message == "no"));
        let run = Request::Run(RunRequest { sql: "SELECT 1".to_owned(), answer: "a".into(), pushdown: true });
        assert_eq!(serde_json::to_string(&run).unwrap(), r#"{"run":{"sql":"SELECT 1","answer":"a","pushdown":true}}"#);
    }

    #[tokio::test]
    async fn a_process_that_ends_is_an_error_and_not_a_wait() {
        let arguments =
            ["-c".to_owned(), r#"echo '{"ready":{"version":"v","settings":[]}}'; echo hello; read line"#.to_owned()];
        let mut runner = Runner::start("sh", &[], Path::new("/bin/sh"), &arguments).await.unwrap();
        assert_eq!(runner.ready.version, "v");
        let fault = runner.load(Path::new("t")).await.unwrap_err();
        assert_eq!(fault.message, "sh: ended early");
    }
}
