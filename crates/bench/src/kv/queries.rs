//! How long a GET takes while the same drive answers queries.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_host::Session;
use pithead_model::{Blame, Fault};
use serde::Serialize;

use super::clients::{self, Server, Work};
use super::{KvOptions, Measured, Operation};
use crate::drives::DriveProcess;
use crate::tables::generate;
use crate::timing::{run, unhelped};

/// An aggregate over all rows, which keeps every core of the drive busy.
const SQL: &str = "SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice * (1 - l_discount)), avg(l_tax), count(*) \
                   FROM lineitem GROUP BY l_returnflag, l_linestatus";

/// GETs of 4 KiB on 16 connections, alone and while queries run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct UnderQueries {
    pub(crate) alone: Measured,
    pub(crate) with_queries: Measured,
    /// Queries that ended meanwhile.
    pub(crate) queries: u64,
}

async fn gets(server: Server, options: &KvOptions) -> Result<Measured, Fault> {
    let work = Work { operation: Operation::Get, value_bytes: 4 << 10, connections: 16, seconds: options.seconds };
    clients::measure(server, work).await
}

/// Loads a table of TPC-H onto the drive, and measures.
pub(super) async fn measure(server: Server, drive: &DriveProcess, options: &KvOptions) -> Result<UnderQueries, Fault> {
    let tables = options.directory.join(format!("tpch-{}", options.scale));
    generate(&tables, options.scale)?;
    let engine = connect(&Target::Drives(vec![drive.address().to_owned()]), &EmbedOptions::default()).await?;
    let measured = with(&engine, server, &tables, options).await;
    engine.shutdown().await;
    measured
}

async fn with(engine: &Engine, server: Server, tables: &std::path::Path, options: &KvOptions) -> Result<UnderQueries, Fault> {
    let lineitem = crate::TABLES.iter().find(|table| table.name == "lineitem");
    let lineitem = lineitem.ok_or_else(|| Fault::new(Blame::Bug, "TPC-H has no lineitem"))?;
    engine.host.load(lineitem.load_spec(tables)?, Arc::new(|_| {})).await?;
    let session = unhelped(engine).await?;
    run(&session, SQL).await?;
    let alone = gets(server, options).await?;
    let (ended, queries) = (AtomicBool::new(false), AtomicU64::new(0));
    let measuring = async {
        let measured = gets(server, options).await;
        ended.store(true, Ordering::Release);
        measured
    };
    let (with_queries, asked) = tokio::join!(measuring, ask(&session, &ended, &queries));
    asked?;
    Ok(UnderQueries { alone, with_queries: with_queries?, queries: queries.load(Ordering::Acquire) })
}

/// Asks again and again until the other has ended.
async fn ask(session: &Session, ended: &AtomicBool, queries: &AtomicU64) -> Result<(), Fault> {
    while !ended.load(Ordering::Acquire) {
        run(session, SQL).await?;
        queries.fetch_add(1, Ordering::AcqRel);
    }
    Ok(())
}
