//! [`Admitted`]: a statement's text that may be read and planned.
//!
//! Each word, value and sign of a text becomes a token, then syntax, then a part of a plan: hundreds of bytes for two or three. A text
//! is counted before it is read, its memory is reserved, and the longest are read and planned one after the other, on a thread that no
//! other statement waits for. All texts together have as much memory as operators have, and none of these: one that sorts takes all that
//! there is, and short statements are read beside it.

use std::sync::Arc;

use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::sql::sqlparser::tokenizer::TokenWithSpan;
use parking_lot::Mutex;
use pithead_model::{Blame, Bytes, Fault, FaultKind, TOKENS_MAX, boxed};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;

use crate::aside::aside;
use crate::operators::refuse_what_is_too_deep;
use crate::statement::Parsed;
use crate::tokens::{is_gap, read};
use crate::{Host, Parameters, Session};

/// A text that is not longer takes so little memory that it is not counted.
const SMALL_BYTES: usize = 4 << 10;
/// Longer texts are read and planned one after the other.
const LARGE_BYTES: usize = 256 << 10;
/// What a token takes until the statement is planned, about: 825 bytes of rows of VALUES, where 100,000 were measured.
const TOKEN_BYTES: usize = 768;
/// What of that is left in a plan.
const PLANNED_TOKEN_BYTES: usize = TOKEN_BYTES / 4;
/// What a space takes, or a comment.
const GAP_BYTES: usize = 96;
/// Copies of a text that there are while its statement runs.
const COPIES: usize = 4;
/// What there is to do with many rows.
const HOW: &str = "load rows by COPY … FROM STDIN or `pithead load`, or write several statements";

/// What the texts of all statements have together.
pub(crate) struct Texts {
    turn: Arc<Semaphore>,
    memory: Arc<dyn MemoryPool>,
}

/// The turn to read a long text. The next one has it when this is dropped.
#[derive(Debug)]
pub struct Turn(#[expect(dead_code, reason = "it is held, and not looked at")] OwnedSemaphorePermit);

/// Memory of a text, which is reserved until this is dropped.
#[derive(Debug)]
pub struct KeptText(MemoryReservation);

/// A text that may be read and planned. What it takes is reserved until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Admitted {
    memory: Option<KeptText>,
    /// What it has until it is planned.
    reading: Mutex<Option<Reading>>,
    is_large: bool,
}

#[derive(Debug)]
struct Reading {
    _turn: Option<Turn>,
    /// Bytes that are free afterwards.
    bytes: usize,
}

impl Texts {
    /// None yet, and so many bytes for all.
    pub(crate) fn new(bytes: usize) -> Texts {
        Texts { turn: Arc::new(Semaphore::new(1)), memory: Arc::new(GreedyMemoryPool::new(bytes)) }
    }

    fn reserved(&self, bytes: usize, of_text: usize) -> Result<KeptText, Fault> {
        let memory = MemoryConsumer::new("texts of statements").register(&self.memory);
        match memory.try_grow(bytes) {
            Ok(()) => Ok(KeptText(memory)),
            Err(_) => {
                let (wanted, text) = (Bytes(bytes as u64), Bytes(of_text as u64));
                let message = format!("a statement of {text} takes about {wanted} of memory, which the host does not have now");
                Err(Fault::new(Blame::Limit, message).of_kind(FaultKind::Memory).hint(HOW))
            }
        }
    }
}

impl Host {
    /// The turn to read a text of so many bytes, for who reads it before a session does. None: it is short, and no other waits for it.
    #[boxed]
    pub async fn turn_to_read(&self, bytes: usize) -> Option<Turn> {
        match bytes > LARGE_BYTES {
            true => Arc::clone(&self.texts().turn).acquire_owned().await.ok().map(Turn),
            false => None,
        }
    }

    /// Reserves memory for a text that is kept. None: it is short.
    pub fn keep_text(&self, bytes: usize) -> Result<Option<KeptText>, Fault> {
        (bytes > SMALL_BYTES).then(|| self.texts().reserved(bytes, bytes)).transpose()
    }
}

impl Session {
    /// Waits until a text may be read and planned, unless it is too long for that.
    pub(crate) async fn admit(&self, sql: &str) -> Result<Admitted, Fault> {
        if sql.len() <= SMALL_BYTES {
            return Ok(Admitted::default());
        }
        let is_large = sql.len() > LARGE_BYTES;
        let turn = self.host.turn_to_read(sql.len()).await;
        let (tokens, gaps) = aside(is_large, || {
            // What cannot be read is told by who reads it for its meaning.
            let tokens = read(sql)?.unwrap_or_default();
            refuse_what_is_too_deep(&tokens)?;
            Ok::<_, Fault>(counted(&tokens))
        })?;
        let planned = tokens * PLANNED_TOKEN_BYTES + sql.len() * COPIES;
        let bytes = tokens * (TOKEN_BYTES - PLANNED_TOKEN_BYTES) + gaps * GAP_BYTES;
        let memory = Some(self.host.texts().reserved(planned + bytes, sql.len())?);
        Ok(Admitted { memory, reading: Mutex::new(Some(Reading { _turn: turn, bytes })), is_large })
    }

    /// Reads a text that may be read.
    pub(crate) async fn read(&self, sql: &str, parameters: &Parameters, admitted: &Admitted) -> Result<Parsed, Fault> {
        let parsed = aside(admitted.is_large, || self.parsed(sql, parameters));
        admitted.pause().await;
        parsed
    }
}

impl Admitted {
    pub(crate) fn is_large(&self) -> bool {
        self.is_large
    }

    /// Lets a statement end here whose client waits no more: its text may have taken long.
    pub(crate) async fn pause(&self) {
        if self.is_large {
            yield_now().await;
        }
    }

    /// It is planned. The next long text may be read, and what reading took is free.
    pub(crate) fn planned(&self) {
        if let (Some(reading), Some(KeptText(memory))) = (self.reading.lock().take(), &self.memory) {
            memory.shrink(reading.bytes);
        }
    }
}

/// How many tokens there are, and how many gaps between them.
pub(crate) fn counted(tokens: &[TokenWithSpan]) -> (usize, usize) {
    let gaps = tokens.iter().filter(|token| is_gap(token)).count();
    (tokens.len() - gaps, gaps)
}

/// That a text has more words than are read.
pub(crate) fn too_long(tokens: usize, gaps: usize) -> Result<(), Fault> {
    let what = match (tokens > TOKENS_MAX, gaps > 2 * TOKENS_MAX) {
        (true, _) => format!("the statement has more than {TOKENS_MAX} words, values and signs, which is the limit"),
        (_, true) => {
            format!("the statement has more than {} spaces, line ends and comments, which is the limit", 2 * TOKENS_MAX)
        }
        _ => return Ok(()),
    };
    Err(Fault::new(Blame::Limit, what).hint(HOW))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pithead_door::Door;
    use pithead_fakes::FakeDoor;
    use tokio::time::timeout;

    use super::*;
    use crate::HostOptions;

    async fn host(memory: u64) -> Host {
        let drive: Arc<dyn Door> = FakeDoor::new(1);
        Host::connect(vec![drive], HostOptions { memory, ..HostOptions::default() }).await.unwrap()
    }

    fn list(count: usize) -> String {
        (0..count).map(|number| number.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Statements that people write.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_hundred_thousand_rows_and_literals_are_taken() {
        let host = host(2 << 30).await;
        let session = host.session();
        session.run("CREATE TABLE t (a TEXT, b BIGINT, c BIGINT)").await.unwrap();
        let rows = vec!["('x', 1, 2)"; 100_000].join(", ");
        assert_eq!(session.run(&format!("INSERT INTO t VALUES {rows}")).await.unwrap().changed, Some(100_000));
        let answer = session.run(&format!("SELECT a FROM t WHERE b IN ({})", list(100_000))).await.unwrap();
        assert!(host.texts().memory.reserved() > 0, "what is planned is counted until the rows have ended");
        drop(answer);
        assert_eq!(host.texts().memory.reserved(), 0);
    }

    /// A regression: three clients with texts of 13 MiB took 16 GB, and nobody counted these.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_has_no_memory_is_refused_before_it_is_planned() {
        let host = host(16 << 20).await;
        let session = host.session();
        let asked = format!("SELECT 1 IN ({})", list(20_000));
        for fault in [
            session.run(&asked).await.err().unwrap(),
            session.prepare(&asked, &Parameters::default()).await.err().unwrap(),
            session.placeholders(&asked).await.err().unwrap(),
        ] {
            assert_eq!((fault.blame, fault.kind, fault.hint.is_some()), (Blame::Limit, FaultKind::Memory, true), "{fault}");
        }
        let statement = session.prepare(&format!("SELECT 1 IN ({})", list(2_000)), &Parameters::default()).await.unwrap();
        let kept = host.texts().memory.reserved();
        assert!(kept > 4_000 * PLANNED_TOKEN_BYTES && kept < 4_000 * TOKEN_BYTES, "{kept}");
        drop(statement);
        assert!(host.keep_text(20 << 20).is_err() && host.keep_text(8 << 20).unwrap().is_some());
        assert_eq!(host.texts().memory.reserved(), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn long_texts_wait_for_each_other_and_no_others_do() {
        let host = host(2 << 30).await;
        let session = host.session();
        let long = format!("SELECT length('{}')", "x".repeat(LARGE_BYTES));
        let turn = host.turn_to_read(LARGE_BYTES + 1).await;
        assert!(timeout(Duration::from_millis(100), session.run(&long)).await.is_err(), "another one reads a long text");
        session.run("SELECT 1").await.unwrap();
        drop(turn);
        let answer = session.run(&long).await.unwrap();
        // It is planned, and its rows are not fetched yet.
        let statement = session.prepare(&long, &Parameters::default()).await.unwrap();
        assert!(statement.is_large() && session.run(&long).await.is_ok());
        drop(answer);
    }

    #[tokio::test]
    async fn chains_are_refused_before_others_wait_for_them() {
        let session = host(2 << 30).await.session();
        let fault = session.run(&format!("SELECT {}1", "1+".repeat(500_000))).await.err().unwrap();
        assert!(fault.blame == Blame::Limit && fault.message.contains("operators"), "{fault}");
    }
}
