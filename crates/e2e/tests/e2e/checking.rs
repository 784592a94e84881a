//! What a drive does when its medium gives back other bytes than were written, and what `check` and `inspect` say of it.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use pithead_e2e::tpch::parquet;
use pithead_e2e::{pithead, repository};
use serde_json::Value as Json;
use tempfile::TempDir;

/// Rows of a slice of orders; a number that nothing else in the index has.
const SLICE_ROWS: &str = "12347";
const ORDERS: &str = "SELECT count(*), sum(o_totalprice), max(o_comment) FROM lab.orders";
const NATIONS: &str = "SELECT count(*), max(n_comment) FROM nation";

fn run(data: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(pithead());
    command.args(arguments).env("PITHEAD_DATA", data).env_remove("PITHEAD_DRIVES").env("NO_COLOR", "1").stdin(Stdio::null());
    command.output().expect("the program starts")
}

/// Runs a command that must do what it says. Returns its stdout.
fn done(data: &Path, arguments: &[&str]) -> String {
    let output = run(data, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("what is shown is UTF-8")
}

/// Runs a command that must fail with a code. Returns its stdout and its stderr.
fn failed(data: &Path, arguments: &[&str], code: i32) -> (String, String) {
    let output = run(data, arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    (String::from_utf8_lossy(&output.stdout).into_owned(), said)
}

fn json_lines(text: &str) -> Vec<Json> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect()
}

/// One drive with orders in a domain of its own. In the order of keys, many slices of lineitem lie between them and nation, so
/// that no page of the index has keys of both.
fn loaded() -> TempDir {
    let directory = TempDir::new().unwrap();
    // The first use of TPC-H makes its files.
    pithead_e2e::tpch::answers();
    for (name, rows) in [("lab.orders", SLICE_ROWS), ("lineitem", "4096"), ("nation", "1000")] {
        let table = name.rsplit('.').next().unwrap();
        let file = parquet(table).display().to_string();
        done(directory.path(), &["load", name, &file, "--slice-rows", rows, "--drives-new", "1", "--quiet"]);
    }
    directory
}

fn drive(data: &Path) -> PathBuf {
    data.join("drive-0")
}

/// A value of orders: its key, its file, and where it starts there.
fn slice_of_orders(data: &Path) -> (String, PathBuf, u64) {
    let drive = drive(data).display().to_string();
    let store = &json_lines(&done(data, &["inspect", "store", &drive, "--json"]))[0];
    for segment in store["segments"].as_array().unwrap() {
        let number = segment["file"].to_string();
        let facts = &json_lines(&done(data, &["inspect", "segment", &drive, &number, "--json"]))[0];
        for extent in facts["extents"].as_array().unwrap() {
            if let Some(key) = extent["key"].as_str().filter(|key| key.starts_with("slice/lab/orders@")) {
                let file = self::drive(data).join("segments").join(facts["name"].as_str().unwrap().rsplit('/').next().unwrap());
                return (key.to_owned(), file, extent["offset"].as_u64().unwrap());
            }
        }
    }
    panic!("no segment has a slice of orders")
}

fn flip(file: &Path, offset: u64) {
    let file = std::fs::File::options().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    byte[0] ^= 0x10;
    file.write_all_at(&byte, offset).unwrap();
}

fn findings(data: &Path) -> Vec<Json> {
    let (out, _) = failed(data, &["check", "--json"], 1);
    json_lines(&out)[0]["findings"].as_array().expect("a list").clone()
}

#[test]
fn a_store_that_is_whole_is_found_so_and_can_be_looked_at() {
    let directory = loaded();
    let data = directory.path();
    let drive = drive(data).display().to_string();
    assert_eq!(done(data, &["check"]), "", "nothing is wrong");
    let report = &json_lines(&done(data, &["check", &drive, "--json"]))[0];
    assert_eq!(report["findings"], Json::Array(vec![]));
    assert!(report["keys"].as_u64().unwrap() > 20 && report["value_bytes"].as_u64().unwrap() > 1 << 20, "{report}");

    assert!(done(data, &["inspect", "store", &drive]).contains(".seg"));
    let (key, file, _) = slice_of_orders(data);
    let segment = done(data, &["inspect", "segment", &file.display().to_string()]);
    assert!(segment.contains(&key) && segment.contains("of partition 0 of lab.orders"), "{segment}");
    let slice = done(data, &["inspect", "slice", &drive, &key]);
    assert!(slice.contains("12,347 rows") && slice.contains("o_orderdate") && slice.contains("Date32"), "{slice}");
    let slice = &json_lines(&done(data, &["inspect", "slice", &drive, &key, "--json", "--pages"]))[0];
    assert_eq!(
        (&slice["rows"], &slice["pages"], &slice["columns"][0]["name"]),
        (&12_347.into(), &2.into(), &"o_orderkey".into())
    );
    let manifest = done(data, &["inspect", "manifest", &drive, "lab"]);
    assert!(manifest.contains("orders") && !manifest.contains("lineitem"), "{manifest}");
    assert_eq!(json_lines(&done(data, &["inspect", "manifest", &drive, "--json"])).len(), 2);
    let (_, said) = failed(data, &["inspect", "slice", &drive, "slice/none"], 3);
    assert!(said.contains("slice/none"), "{said}");
    let (_, said) = failed(data, &["inspect", "segment", &drive, "999999"], 3);
    assert!(said.contains("999999"), "{said}");
    let (_, said) = failed(data, &["inspect", "store", &format!("{drive}/segments")], 3);
    assert!(said.contains("holds no store"), "{said}");
    // Looking has changed nothing.
    assert_eq!(done(data, &["check"]), "");
    done(data, &["sql", "-q", "-c", ORDERS]);
}

#[test]
fn a_flipped_bit_in_a_slice_fails_that_slice_and_is_named() {
    let directory = loaded();
    let data = directory.path();
    let nations = done(data, &["sql", "-q", "-c", NATIONS]);
    let (key, file, offset) = slice_of_orders(data);
    flip(&file, offset + 1_000);
    let found = findings(data);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&found[0]["key"], &found[0]["repaired"]), (&key.as_str().into(), &false.into()));
    assert!(found[0]["is"].as_str().is_some_and(|is| is.contains("lab.orders")), "{found:?}");
    let (table, said) = failed(data, &["check"], 1);
    assert!(table.contains(&key) && said.contains("1 finding"), "{table}{said}");

    let (_, said) = failed(data, &["sql", "-c", ORDERS], 1);
    assert!(said.contains("damaged") && said.contains("lab/orders"), "{said}");
    let (_, said) = failed(data, &["inspect", "slice", &drive(data).display().to_string(), &key], 1);
    assert!(said.contains(&key), "{said}");
    assert_eq!(done(data, &["sql", "-q", "-c", NATIONS]), nations);
    // No repair makes up a value: it stays, and stays named.
    failed(data, &["check", "--repair"], 1);
    assert_eq!(findings(data)[0]["key"], key.as_str());
    // Once it is dropped, and no version that is kept has it, all is well again.
    done(data, &["drop", "lab.orders"]);
    assert_eq!(findings(data)[0]["key"], key.as_str());
    done(data, &["log", "lab", "--forget"]);
    assert_eq!(done(data, &["check"]), "");
}

#[test]
fn a_flipped_bit_in_the_index_fails_what_lies_there_and_no_more() {
    let directory = loaded();
    let data = directory.path();
    let nations = done(data, &["sql", "-q", "-c", NATIONS]);
    let index = drive(data).join("index.redb");
    // The metadata slice of orders lists its slices; old pages may hold it, too.
    let mark = format!("{{\"rows\":{SLICE_ROWS},");
    let places: Vec<usize> = {
        let bytes = std::fs::read(&index).unwrap();
        let found = bytes.windows(mark.len()).enumerate().filter(|(_, window)| *window == mark.as_bytes());
        found.map(|(place, _)| place).collect()
    };
    assert!(!places.is_empty(), "the index holds the metadata slice");
    for place in places {
        flip(&index, place as u64);
    }
    let found = Json::from(findings(data)).to_string();
    assert!(found.contains("slice/lab/orders@"), "it is not said what is lost: {found}");
    let (_, said) = failed(data, &["sql", "-c", ORDERS], 1);
    assert!(said.contains("damaged") && said.contains("lab/orders"), "{said}");
    assert_eq!(done(data, &["sql", "-q", "-c", NATIONS]), nations);
}

#[test]
fn a_store_of_a_newer_format_is_refused_in_words() {
    let directory = loaded();
    let data = directory.path();
    let drive = drive(data);
    std::fs::write(drive.join("FORMAT"), "pithead store 6\n").unwrap();
    for arguments in [&["sql", "-c", NATIONS][..], &["check"], &["inspect", "store", &drive.display().to_string()]] {
        let (_, said) = failed(data, arguments, 3);
        assert!(said.contains("format 6") && said.contains("up to 5") && said.contains("hint:"), "{arguments:?}: {said}");
    }
}

#[test]
fn stores_of_the_first_format_are_read() {
    let directory = TempDir::new().unwrap();
    let data = directory.path();
    for name in ["drive-0", "drive-1"] {
        copy_folder(&repository().join("crates/e2e/suites/stores/format-1").join(name), &data.join(name));
    }
    let query = "SELECT count(*), sum(id), min(name), max(name), round(sum(x), 6) FROM wide";
    let wide = done(data, &["sql", "-q", "--format", "csv", "-c", query]);
    assert_eq!(wide.lines().nth(1), Some("6000,17997000,000787cf37661f83,ffff7b0209bc8a5c,2977.445975"), "{wide}");
    let small = done(data, &["sql", "-q", "--format", "csv", "-c", "SELECT * FROM small ORDER BY k"]);
    let rows: Vec<&str> = small.lines().skip(1).collect();
    let first: u64 = rows[0].split(',').next().unwrap().parse().unwrap();
    let expected: Vec<String> = (first..first + 10).map(|k| format!("{k},v{k}")).collect();
    assert_eq!(rows, expected, "{small}");
    assert_eq!(done(data, &["check"]), "", "what was upgraded is whole");
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_folder(&path, &copy);
        } else {
            std::fs::copy(&path, &copy).unwrap();
        }
    }
}
