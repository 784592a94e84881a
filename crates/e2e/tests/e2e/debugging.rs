use futures::StreamExt;
use pithead_e2e::tpch::spec;
use pithead_e2e::{DriveProcess, block_on, collect, load};
use pithead_embed::{EmbedOptions, Target, connect};
use tempfile::TempDir;
#[test]
fn dbg_memory() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let target = Target::Data(directory.path().to_owned());
        let options = EmbedOptions { drives: Some(2), memory: Some(32 << 20), ..EmbedOptions::default() };
        let engine = connect(&target, &options).await.unwrap();
        load(&engine, spec("lineitem", "vortex")).await.unwrap_or_else(|fault| panic!("loading: {fault}"));
        let session = engine.host.session();
        let lists = "SELECT count(*) FROM (SELECT l_comment, array_agg(l_shipinstruct) AS a, count(*) FROM lineitem GROUP BY l_comment) AS t";
        let order = "SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY l_comment, l_orderkey, l_linenumber) AS r FROM lineitem) AS t";
        let distinct = "SELECT count(DISTINCT l_comment), count(DISTINCT l_orderkey) FROM lineitem";
        for statement in ["SELECT count(*) FROM lineitem", lists, order, distinct, "SELECT count(*) FROM lineitem"] {
            let t = std::time::Instant::now();
            match collect(&session, statement).await {
                Ok(t) => eprintln!("ok {} {statement}", t.rows.len()),
                Err(e) => eprintln!("{}: {e} -- {statement}", e.blame),
            }
            eprintln!("  {:?}", t.elapsed());
            for i in 0..2 {
                for (l, s) in engine.host.status().await {
                    let s = s.unwrap();
                    eprintln!("   {i} {} sessions {} reserved {} of {}", l.len(), s.sessions, s.memory_reserved, s.memory);
                }
                tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            }
        }
    });
}
#[test]
fn dbg_idle() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let processes = DriveProcess::start_many(directory.path(), 1, &["--link", "20mbit", "--idle", "2"]);
        let engine = connect(&Target::Drives(vec![processes[0].address().to_owned()]), &EmbedOptions::default()).await.unwrap();
        load(&engine, spec("lineitem", "vortex")).await.unwrap_or_else(|fault| panic!("loading: {fault}"));
        let mut answer = engine.host.session().run("SELECT * FROM lineitem").await.unwrap();
        answer.rows.next().await.expect("the stream has begun").unwrap();
        for _ in 0..16 {
            for (_, s) in engine.host.status().await {
                let s = s.unwrap();
                eprintln!(
                    "sessions {} reserved {} of {} {:?}",
                    s.sessions,
                    s.memory_reserved,
                    s.memory,
                    answer.profile.snapshot().link_bytes
                );
            }
            tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        }
        let mut n = 0;
        let mut e = None;
        while let Some(b) = answer.rows.next().await {
            match b {
                Ok(b) => n += b.num_rows(),
                Err(x) => {
                    e = Some(x);
                    break;
                }
            }
        }
        eprintln!("rows {n} {e:?}");
    });
}
