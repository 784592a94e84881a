//! What `pithead.connect` was given.

use std::path::PathBuf;

use pithead_embed::{ClientTlsFiles, ConnectOptions, EmbedOptions, HISTORY, Target, Token};
use pithead_model::{Blame, Fault, parse_bytes};
use pyo3::prelude::*;

use crate::errors;

/// Below this not even small queries run.
const MEMORY_LEAST_BYTES: u64 = 1 << 20;

/// Where to connect to, and how: the arguments of `pithead.connect`, put in order by Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    directory: Option<PathBuf>,
    addresses: Vec<String>,
    drives: Option<usize>,
    threads: Option<usize>,
    memory: Option<String>,
    token: Option<String>,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    insecure: bool,
    attach: Vec<String>,
}

impl Options {
    pub(crate) fn target(&self) -> Target {
        match &self.directory {
            Some(directory) => Target::Data(directory.clone()),
            None => Target::Drives(self.addresses.clone()),
        }
    }

    pub(crate) fn embed(&self) -> PyResult<EmbedOptions> {
        if let Some(threads) = self.threads.filter(|threads| !(1..=1024).contains(threads)) {
            return Err(errors::user(format!("expected 1 to 1024 threads, got {threads}"), "leave it out for one a core"));
        }
        let read = || -> Result<EmbedOptions, Fault> {
            let memory = self.memory.as_deref().map(parse_bytes).transpose()?;
            if let Some(little) = memory.filter(|memory| *memory < MEMORY_LEAST_BYTES) {
                let message = format!("memory: expected at least {} MiB, got {little} bytes", MEMORY_LEAST_BYTES >> 20);
                return Err(Fault::new(Blame::User, message).hint("leave it out for a part of what the machine has"));
            }
            let token = self.token.as_deref().map(Token::parse).transpose()?;
            let identity = self.cert.clone().zip(self.key.clone());
            let tls = self.ca.clone().map(|ca| ClientTlsFiles { ca, identity });
            let connect = ConnectOptions { tls, token, insecure: self.insecure };
            let attach = self.attach.iter().map(|attach| attach.parse()).collect::<Result<_, Fault>>()?;
            Ok(EmbedOptions {
                attach,
                threads: self.threads,
                memory,
                drives: self.drives,
                connect,
                history: HISTORY,
                ..EmbedOptions::default()
            })
        };
        read().map_err(errors::to_python)
    }
}
