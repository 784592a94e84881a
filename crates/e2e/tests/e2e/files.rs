//! Files that are not what they say: a clear error that names the file, and no dataset.

use std::path::Path;

use pithead_e2e::tpch::parquet;
use pithead_e2e::{Mode, Setup, block_on, collect, load, refusal};
use pithead_host::{LoadMode, LoadSpec};
use pithead_model::Blame;

/// Loads a file that must be refused, and checks that nothing is left of it.
fn refused(file: &str, bytes: &[u8], words: &[&str]) {
    block_on(async {
        let setup = Setup::new(Mode { drives: 2, ..Mode::FOUR_HERE }).await;
        let path = setup.directory().join(file);
        std::fs::write(&path, bytes).unwrap();
        let outcome = load(&setup.engine, spec("bad", &path)).await;
        let fault = outcome.map(|report| report.rows).expect_err("the file is not what it says");
        assert_eq!(fault.blame, Blame::User, "{fault}");
        for word in words.iter().chain(&[file]) {
            assert!(fault.to_string().contains(word), "{word:?} should be named: {fault}");
        }
        assert!(setup.engine.host.fleet().datasets().await.unwrap().is_empty());
        refusal(&setup.session().await, "SELECT * FROM bad").await;
        setup.shutdown().await;
    });
}

fn spec(name: &str, path: &Path) -> LoadSpec {
    LoadSpec::new(name.parse().unwrap(), vec![path.display().to_string()])
}

/// The bytes of a Parquet file that is as it should be.
fn sound() -> Vec<u8> {
    // The first use of TPC-H makes its files.
    pithead_e2e::tpch::answers();
    std::fs::read(parquet("customer")).unwrap()
}

#[test]
fn a_truncated_parquet_file_is_refused() {
    let bytes = sound();
    refused("cut.parquet", &bytes[..bytes.len() / 2], &[]);
}

#[test]
fn a_parquet_file_with_damaged_pages_is_refused() {
    let mut bytes = sound();
    let middle = bytes.len() / 3;
    bytes[middle..middle + 4096].fill(0xa5);
    refused("damaged.parquet", &bytes, &[]);
}

#[test]
fn text_that_calls_itself_parquet_is_refused() {
    refused("words.parquet", b"these are only words, whatever the ending says", &[]);
}

#[test]
fn an_empty_file_is_refused() {
    refused("nothing.parquet", b"", &[]);
}

#[test]
fn a_truncated_arrow_file_is_refused() {
    refused("cut.arrow", b"ARROW1\0\0\xff\xff\xff\xff\x10\x00\x00\x00", &[]);
}

#[test]
fn a_csv_file_whose_later_rows_are_of_another_type_is_refused() {
    let mut text = "id,amount\n".to_owned();
    (0..30_000).for_each(|row| text += &format!("{row},{row}\n"));
    text += "30000,not a number\n";
    refused("lying.csv", text.as_bytes(), &["not a number"]);
}

/// A regression: the first rows did not fit the types that were guessed from them.
#[test]
fn a_csv_file_whose_first_rows_only_look_like_moments_is_loaded() {
    block_on(async {
        let setup = Setup::new(Mode::ONE_HERE).await;
        for (name, first, other) in
            [("a", "2024-01-01 00:00:00.123456789", "2500-01-01 00:00:00"), ("b", "2024-01-01 23:00:00", "2024-01-01 24:00:00")]
        {
            let path = setup.directory().join(format!("{name}.csv"));
            std::fs::write(&path, format!("t\n{first}\n{other}\n")).unwrap();
            load(&setup.engine, spec(name, &path)).await.unwrap();
            let table = collect(&setup.session().await, &format!("SELECT t FROM {name} ORDER BY t")).await.unwrap();
            assert_eq!(table.rows, [[first], [other]]);
        }
        setup.shutdown().await;
    });
}

#[test]
fn a_json_file_with_a_broken_line_is_refused_by_its_line() {
    refused("broken.jsonl", b"{\"a\":1}\n\n{\"a\":oops}\n", &["line 3, column 6", "not valid JSON"]);
    let mut text = "{\"a\":1}\n".repeat(30_000);
    text += "{\"a\":oops}\n";
    refused("later.jsonl", text.as_bytes(), &["line 30001, column 6", "not valid JSON"]);
}

#[test]
fn a_csv_file_with_rows_of_other_lengths_is_refused() {
    refused("ragged.csv", b"a,b,c\n1,2,3\n4,5\n6,7,8\n", &[]);
}

#[test]
fn a_csv_file_that_is_not_utf8_is_refused() {
    refused("latin.csv", b"id,name\n1,caf\xe9\n", &[]);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    block_on(async {
        let setup = Setup::new(Mode::ONE_HERE).await;
        let fault = load(&setup.engine, spec("t", &setup.directory().join("no-such-*.parquet"))).await.unwrap_err();
        assert_eq!(fault.blame, Blame::User, "{fault}");
        assert!(fault.to_string().contains("no-such-*.parquet"), "{fault}");
        setup.shutdown().await;
    });
}

#[test]
fn a_load_that_does_not_fit_the_dataset_leaves_it_as_it_was() {
    block_on(async {
        let setup = Setup::new(Mode { drives: 2, ..Mode::FOUR_HERE }).await;
        let (first, second) = (setup.directory().join("first.csv"), setup.directory().join("second.csv"));
        std::fs::write(&first, "id,name\n1,one\n2,two\n").unwrap();
        std::fs::write(&second, "number,flag\n3,true\n").unwrap();
        load(&setup.engine, spec("t", &first)).await.unwrap();
        assert_eq!(load(&setup.engine, spec("t", &first)).await.unwrap_err().blame, Blame::User, "it exists");
        let append = LoadSpec { mode: LoadMode::Append, ..spec("t", &second) };
        assert_eq!(load(&setup.engine, append).await.unwrap_err().blame, Blame::User, "other columns");
        let append = LoadSpec { mode: LoadMode::Append, ..spec("t", &first) };
        load(&setup.engine, append).await.unwrap();
        let table = collect(&setup.session().await, "SELECT id, count(*) FROM t GROUP BY id ORDER BY id").await.unwrap();
        assert_eq!(table.rows, [["1", "2"], ["2", "2"]]);
        let replace = LoadSpec { mode: LoadMode::Replace, ..spec("t", &second) };
        load(&setup.engine, replace).await.unwrap();
        let table = collect(&setup.session().await, "SELECT * FROM t").await.unwrap();
        assert_eq!(table.rows, [["3", "true"]]);
        setup.shutdown().await;
    });
}
