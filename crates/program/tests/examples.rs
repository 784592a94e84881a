//! The templates of `sdk` and the applications of `sdk/examples/ssdlets`, built as a newcomer builds them, each beside a twin that
//! does the same without a drive.

mod build;
#[path = "build/functions.rs"]
mod function_modules;
mod functions;
mod library;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::build::{out, root, run as compile};
use pithead_program::{
    Application, Argument, FolderServices, HostReader, Limits, Module, Runtime, RuntimeOptions, Services, Signature, Value,
    decode_rows, encode_row,
};
use pithead_sched::{Pool, PoolOptions};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A drive over a folder of its own.
struct Drive {
    runtime: Arc<Runtime>,
    services: Arc<dyn Services>,
    folder: tempfile::TempDir,
}

impl Drive {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let services = Arc::new(FolderServices::new(folder.path()).expect("services"));
        let options = PoolOptions { name: "drive".to_owned(), cores: None, reactors: 2, blocking_threads_max: 2 };
        let pool = Arc::new(Pool::new(options).expect("a pool"));
        let runtime = Runtime::new(pool, RuntimeOptions { instances_max: 16, ..RuntimeOptions::default() });
        Self { runtime: runtime.expect("a runtime"), services, folder }
    }

    async fn load(&self, path: &Path) -> Arc<Module> {
        let bytes = fs::read(path).expect("the module was built");
        let name = path.file_name().expect("a name").to_string_lossy();
        self.runtime.load(&name, bytes.into(), &self.services).await.unwrap()
    }

    fn application(&self) -> Application {
        self.runtime.application("example", Arc::clone(&self.services), Limits::default())
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> Argument {
        fs::write(self.folder.path().join(name), bytes).expect("a file");
        Argument::File(name.to_owned())
    }
}

fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let limited = async { tokio::time::timeout(Duration::from_secs(300), test).await };
    runtime.block_on(limited).expect("the test ends")
}

async fn rows(reader: &HostReader) -> Vec<Vec<Value>> {
    let Signature::Rows(types) = reader.signature().clone() else { panic!("the port carries rows") };
    let mut all = Vec::new();
    while let Some(batch) = reader.get().await.unwrap() {
        all.extend(decode_rows(&types, &batch).unwrap());
    }
    all
}

/// Runs the only SSDlet of a graph that reads nothing but its arguments.
async fn run(drive: &Drive, module: &Arc<Module>, name: &str, arguments: &[Argument]) -> Vec<Vec<Value>> {
    let application = drive.application();
    let ssdlet = application.ssdlet(module, name, arguments).await.unwrap();
    let reader = application.reader(&ssdlet.output(0)).unwrap();
    application.start().unwrap();
    let all = rows(&reader).await;
    application.wait().await.unwrap();
    all
}

/// A text of words that repeat, with lines of different lengths; the same for each seed.
fn text(seed: u64, lines: usize) -> String {
    let mut random = StdRng::seed_from_u64(seed);
    let mut text = String::new();
    for _ in 0..lines {
        for _ in 0..random.random_range(0..20) {
            let word = random.random_range(0_u32..3000);
            text += &format!("word{}{}", word * word % 2377, if word % 7 == 0 { "\t " } else { " " });
        }
        text += "\n";
    }
    text
}

/// Cargo in a folder of its own settings and its own target.
fn cargo(folder: &str, command: &str) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([command, "--release", "--locked", "--target-dir"]).arg(out("rust")).current_dir(root().join(folder));
    forget_settings(&mut cargo);
    cargo
}

/// The settings of the build that runs this test are for another machine.
fn forget_settings(cargo: &mut Command) {
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_TARGET"] {
        cargo.env_remove(name);
    }
}

/// A module in Rust.
fn rust(folder: &str, module: &str) -> PathBuf {
    compile(&mut cargo(folder, "build"));
    out("rust").join("wasm32-wasip1/release").join(module)
}

/// A module in Go; none where Go is not installed, as the other parts of the house do not need it.
fn go(folder: &str, module: &str) -> Option<PathBuf> {
    if Command::new("go").arg("version").output().is_err() {
        eprintln!("skipped: go is not installed");
        return None;
    }
    compile(Command::new("make").current_dir(root().join(folder)).arg(format!("OUT={}", out("go").display())));
    Some(out("go").join(module))
}

fn doubles(module: &Path) {
    block_on(async {
        let drive = Drive::new();
        let module = drive.load(module).await;
        assert_eq!(module.declared()[0].name, "idDoubler");
        let application = drive.application();
        let ssdlet = application.ssdlet(&module, "idDoubler", &[]).await.unwrap();
        let (writer, reader) = (application.writer(&ssdlet.input(0)).unwrap(), application.reader(&ssdlet.output(0)).unwrap());
        application.start().unwrap();
        let write = async {
            for first in (0..100_000_i64).step_by(1000) {
                let mut batch = Vec::new();
                (first..first + 1000).for_each(|value| encode_row(&[Value::I64(value)], &mut batch));
                assert!(writer.put(batch).await.unwrap(), "the SSDlet reads");
            }
            drop(writer);
        };
        let (all, ()) = tokio::join!(rows(&reader), write);
        assert!(all.into_iter().eq((0..100_000).map(|value| vec![Value::I64(2 * value)])), "all doubles, in order");
        application.wait().await.unwrap();
    });
}

/// Values that nobody reads any more gathered in the guest's memory.
fn discards(module: &Path) {
    block_on(async {
        let drive = Drive::new();
        let module = drive.load(module).await;
        let limits = Limits { memory_bytes_max: 24 << 20, ..Limits::default() };
        let application = drive.runtime.application("example", Arc::clone(&drive.services), limits);
        let ssdlet = application.ssdlet(&module, "idDoubler", &[]).await.unwrap();
        let writer = application.writer(&ssdlet.input(0)).unwrap();
        drop(application.reader(&ssdlet.output(0)).unwrap());
        application.start().unwrap();
        for _ in 0..1000 {
            assert!(writer.put(vec![1; 64 << 10]).await.unwrap(), "the SSDlet reads on");
        }
        drop(writer);
        application.wait().await.unwrap();
    });
}

/// One that filled an output, and waited for room there, kept what it had gathered for the other one: the SSDlet that reads both waited
/// for that, and the application was ended.
fn keeps_nothing_back(module: &Path) {
    let reader = build::cpp("crates/program/tests/guests", "ports.wasm");
    block_on(async {
        let drive = Drive::new();
        let (writer, reader) = (drive.load(module).await, drive.load(&reader).await);
        // One number that is gathered, and more of them than wait in a connection.
        for numbers in [0, 40_000] {
            let application = drive.application();
            let arguments = [Argument::Value(Value::I64(numbers))];
            let from = application.ssdlet(&writer, "idTwoOut", &arguments).await.unwrap();
            let to = application.ssdlet(&reader, "idTwoIn", &[]).await.unwrap();
            for port in 0..2 {
                application.connect(&from.output(port), &to.input(port)).unwrap();
            }
            let lines = application.reader(&to.output(0)).unwrap();
            application.start().unwrap();
            assert_eq!(rows(&lines).await, [[Value::I64(100_000)]]);
            application.wait().await.unwrap();
        }
    });
}

#[test]
fn two_outputs_in_cpp() {
    keeps_nothing_back(&build::cpp("crates/program/tests/guests", "ports.wasm"));
}

#[test]
fn two_outputs_in_rust() {
    keeps_nothing_back(&rust("crates/program/tests/guests/rust", "ports.wasm"));
}

#[test]
fn two_outputs_in_go() {
    if let Some(module) = go("crates/program/tests/guests/go", "ports.wasm") {
        keeps_nothing_back(&module);
    }
}

/// A copy of the template within another workspace was said to be a member of that which was none.
#[test]
fn the_template_in_rust_can_be_copied_into_a_workspace() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("mine");
    fs::create_dir_all(copy.join("src")).expect("a folder");
    fs::write(folder.path().join("Cargo.toml"), "[workspace]\nmembers = []\n").expect("a file");
    fs::copy(root().join("sdk/rust/template/src/lib.rs"), copy.join("src/lib.rs")).expect("a file");
    let manifest = fs::read_to_string(root().join("sdk/rust/template/Cargo.toml")).expect("the manifest");
    let library = format!("path = {:?}", root().join("sdk/rust"));
    fs::write(copy.join("Cargo.toml"), manifest.replace("path = \"..\"", &library)).expect("a file");
    let mut cargo = Command::new(env!("CARGO"));
    forget_settings(&mut cargo);
    compile(cargo.args(["metadata", "--offline", "--format-version", "1"]).current_dir(&copy));
}

#[test]
fn the_template_in_cpp() {
    let module = build::cpp("sdk/cpp/template", "doubler.wasm");
    doubles(&module);
    discards(&module);
}

#[test]
fn the_template_in_rust() {
    let module = rust("sdk/rust/template", "doubler.wasm");
    doubles(&module);
    discards(&module);
}

#[test]
fn the_library_in_rust() {
    let here = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    compile(cargo("sdk/rust", "test").args(["--lib", "--package", "pithead-ssdlet", "--target", &here]));
}

#[test]
fn the_template_in_go() {
    if let Some(module) = go("sdk/go/template", "doubler.wasm") {
        doubles(&module);
        discards(&module);
    }
}

#[test]
fn word_count() {
    let text = text(1, 20_000);
    let mut twin = BTreeMap::<&str, u32>::new();
    text.split_ascii_whitespace().for_each(|word| *twin.entry(word).or_default() += 1);
    let module = build::cpp("sdk/examples/ssdlets/cpp", "wordcount.wasm");
    let counted = block_on(async {
        let drive = Drive::new();
        let file = drive.write("text", &text);
        let module = drive.load(&module).await;
        let application = drive.application();
        let mapper = application.ssdlet(&module, "idMapper", &[file]).await.unwrap();
        let shuffler = application.ssdlet(&module, "idShuffler", &[]).await.unwrap();
        let reducer = application.ssdlet(&module, "idReducer", &[]).await.unwrap();
        application.connect(&mapper.output(0), &shuffler.input(0)).unwrap();
        application.connect(&shuffler.output(0), &reducer.input(0)).unwrap();
        let reader = application.reader(&reducer.output(0)).unwrap();
        application.start().unwrap();
        let all = rows(&reader).await;
        application.wait().await.unwrap();
        all
    });
    let expected = twin.into_iter().map(|(word, count)| vec![Value::String(word.to_owned()), Value::U32(count)]);
    assert!(counted.into_iter().eq(expected), "all words with their counts, in order");
}

#[test]
fn key_value_server() {
    let module = build::cpp("sdk/examples/ssdlets/cpp", "kvstore.wasm");
    block_on(async {
        let drive = Drive::new();
        let module = drive.load(&module).await;
        let application = drive.application();
        let store = application.ssdlet(&module, "KVStore", &[]).await.unwrap();
        let [command, key, value] = [0, 1, 2].map(|port| application.writer(&store.input(port)).unwrap());
        let result = application.reader(&store.output(0)).unwrap();
        application.start().unwrap();
        let mut twin = BTreeMap::new();
        let mut random = StdRng::seed_from_u64(2);
        let text = |text: &str| [Value::String(text.to_owned())];
        for turn in 0..2000 {
            let name = format!("key{}", random.random_range(0..50));
            if random.random_bool(0.5) {
                twin.insert(name.clone(), format!("value {turn}"));
                command.put_row(&text("put")).await.unwrap();
                key.put_row(&text(&name)).await.unwrap();
                value.put_row(&text(&twin[&name])).await.unwrap();
            } else {
                command.put_row(&text("get")).await.unwrap();
                key.put_row(&text(&name)).await.unwrap();
                let answer = result.get().await.unwrap().expect("an answer");
                let expected = twin.get(&name).cloned().unwrap_or_default();
                assert_eq!(decode_rows(&[pithead_program::Type::String], &answer).unwrap(), [text(&expected)]);
            }
        }
        drop(command);
        application.wait().await.unwrap();
    });
}

#[test]
fn string_search() {
    let text = text(3, 50_000);
    let mut twin = Vec::new();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        if line.contains("word12") {
            twin.push(vec![Value::U64(offset), Value::Bytes(line.trim_end_matches('\n').as_bytes().to_vec())]);
        }
        offset += line.len() as u64;
    }
    let module = rust("sdk/examples/ssdlets/rust", "tasks.wasm");
    let found = block_on(async {
        let drive = Drive::new();
        let arguments = [drive.write("text", &text), Argument::Value(Value::String("word12".to_owned()))];
        let module = drive.load(&module).await;
        run(&drive, &module, "idSearch", &arguments).await
    });
    assert!(twin.len() > 4096, "more lines than one host call finds: {}", twin.len());
    assert_eq!(found, twin);
}

#[test]
fn pointer_chasing() {
    let mut random = StdRng::seed_from_u64(4);
    let nodes = 20_000;
    let lists: Vec<Vec<u64>> =
        (0..nodes).map(|_| (0..random.random_range(0..12)).map(|_| random.random_range(0..nodes)).collect()).collect();
    let mut graph = vec![nodes, 0];
    for list in &lists {
        graph.push(graph.last().copied().unwrap_or_default() + list.len() as u64);
    }
    graph.extend(lists.iter().flatten());
    let walk = |start: u64| {
        let mut node = start;
        for step in 0..100 {
            match lists[node as usize].as_slice() {
                [] => break,
                list => node = list[step % list.len()],
            }
        }
        vec![Value::U64(start), Value::U64(node)]
    };
    let module = rust("sdk/examples/ssdlets/rust", "tasks.wasm");
    let ends = block_on(async {
        let drive = Drive::new();
        let file = drive.write("graph", graph.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>());
        let module = drive.load(&module).await;
        let application = drive.application();
        let chase = application.ssdlet(&module, "idChase", &[file, Argument::Value(Value::U64(100))]).await.unwrap();
        let (writer, reader) = (application.writer(&chase.input(0)).unwrap(), application.reader(&chase.output(0)).unwrap());
        application.start().unwrap();
        for start in 0..200 {
            writer.put_row(&[Value::U64(start)]).await.unwrap();
        }
        drop(writer);
        let ends = rows(&reader).await;
        application.wait().await.unwrap();
        ends
    });
    assert_eq!(ends, (0..200).map(walk).collect::<Vec<_>>());
}

#[test]
fn filter_and_aggregate() {
    let Some(module) = go("sdk/examples/ssdlets/go", "totals.wasm") else { return };
    let mut random = StdRng::seed_from_u64(5);
    let lines: Vec<(String, i64)> =
        (0..30_000).map(|_| (format!("group{}", random.random_range(0..40)), random.random_range(-1000..1000))).collect();
    let mut twin = BTreeMap::<&str, (i64, i64)>::new();
    for (group, value) in lines.iter().filter(|(_, value)| *value >= 100) {
        let total = twin.entry(group).or_default();
        *total = (total.0 + 1, total.1 + value);
    }
    let text: String = lines.iter().map(|(group, value)| format!("{group},{value}\n")).collect();
    let totals = block_on(async {
        let drive = Drive::new();
        let arguments = [drive.write("lines", text), Argument::Value(Value::I64(100))];
        let module = drive.load(&module).await;
        run(&drive, &module, "idTotals", &arguments).await
    });
    let row =
        |(group, (count, sum)): (&str, (i64, i64))| vec![Value::String(group.to_owned()), Value::I64(count), Value::I64(sum)];
    assert_eq!(totals, twin.into_iter().map(row).collect::<Vec<_>>());
}

/// An SSDlet in Rust that failed ended its outputs first, as if that were all.
#[test]
fn a_failure_in_rust_is_no_end_of_what_it_puts_out() {
    let module = rust("sdk/examples/ssdlets/rust", "tasks.wasm");
    block_on(async {
        let drive = Drive::new();
        // One node without neighbours.
        let file = drive.write("graph", [1_u64, 0, 0].iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>());
        let module = drive.load(&module).await;
        for _ in 0..20 {
            let application = drive.application();
            let arguments = [file.clone(), Argument::Value(Value::U64(1))];
            let chase = application.ssdlet(&module, "idChase", &arguments).await.unwrap();
            let (writer, reader) =
                (application.writer(&chase.input(0)).unwrap(), application.reader(&chase.output(0)).unwrap());
            application.start().unwrap();
            let read = async {
                loop {
                    match reader.get().await {
                        Ok(Some(_)) => {}
                        other => return other,
                    }
                }
            };
            let write = async {
                for node in [0, 7] {
                    let _ = writer.put_row(&[Value::U64(node)]).await;
                }
            };
            let (read, ()) = tokio::join!(read, write);
            let error = "module tasks.wasm, SSDlet idChase: the graph has 1 nodes and no node 7";
            assert_eq!(read.unwrap_err().to_string(), error);
            assert_eq!(application.wait().await.unwrap_err().to_string(), error);
        }
    });
}

#[test]
fn a_failure_in_each_language_is_told_in_its_words() {
    let Some(module) = go("sdk/examples/ssdlets/go", "totals.wasm") else { return };
    let error = block_on(async {
        let drive = Drive::new();
        let arguments = [drive.write("lines", "a,1\nb\n"), Argument::Value(Value::I64(0))];
        let module = drive.load(&module).await;
        let application = drive.application();
        let ssdlet = application.ssdlet(&module, "idTotals", &arguments).await.unwrap();
        let _reader = application.reader(&ssdlet.output(0)).unwrap();
        application.start().unwrap();
        application.wait().await.unwrap_err().to_string()
    });
    assert_eq!(error, "module totals.wasm, SSDlet idTotals: line 2 is \"b\", not group,value");
}
