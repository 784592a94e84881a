//! What guests reach: files, searches, key-values, datasets; and compiled code that is kept.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;

use arrow::array::Int64Array;
use arrow::ipc::writer::FileWriter;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use parking_lot::Mutex;

use super::{TestBed, block_on, drain, guest, pool};
use crate::arrow_port::check_stream;
use crate::{
    Argument, CodeStore, Dataset, File, FolderServices, Level, Limits, LogLine, ProgramError, Runtime, RuntimeOptions, Secret,
    ServiceError, Services, Value,
};

/// Runs the only SSDlet of a module with a file and a string as arguments, and returns what it puts out.
async fn run(place: &TestBed, output: &str, body: &str, text: &str) -> Result<Vec<u8>, String> {
    let declared = format!("name reads\nargument file\nargument string\noutput {output}\n");
    let module = place.load(&guest(&[&declared], body)).await.map_err(|error| error.to_string())?;
    let application = place.application(Limits::default());
    let arguments = [Argument::File("/data/text".to_owned()), Argument::Value(Value::String(text.to_owned()))];
    let ssdlet = application.ssdlet(&module, "reads", &arguments).await.map_err(|error| error.to_string())?;
    let reader = application.reader(&ssdlet.output(0)).map_err(|error| error.to_string())?;
    application.start().map_err(|error| error.to_string())?;
    let all = drain(&reader).await.map_err(|error| error.to_string());
    application.wait().await.map_err(|error| error.to_string())?;
    all
}

fn place_with(text: &[u8]) -> TestBed {
    let place = TestBed::new();
    fs::create_dir(place.folder.path().join("data")).unwrap();
    fs::create_dir(place.folder.path().join("keys")).unwrap();
    fs::write(place.folder.path().join("data/text"), text).unwrap();
    fs::write(place.folder.path().join("keys/one"), b"value of one").unwrap();
    place
}

/// The arguments are the handle, 0, and the length of the string with the string, so that it is at address 8.
const ARGUMENTS: &str = "(drop (call $arguments (i32.const 0) (i32.const 1024)))";

#[test]
fn a_file_is_read_into_the_guest() {
    let text: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let place = place_with(&text);
    let body = format!(
        r"{ARGUMENTS} (block $end (loop $next
            (local.set $length (call $file_read (i32.const 0) (i64.extend_i32_u (local.get $at)) (i32.const 65536) (i32.const 65536)))
            (br_if $end (i32.eqz (local.get $length)))
            (block $done (loop $again
                (br_if $done (i32.ne (i32.const -2) (call $put (i32.const 0) (i32.const 65536) (local.get $length))))
                (call $output_wait (i32.const 0) (local.get $length))
                (br $again)))
            (local.set $at (i32.add (local.get $at) (local.get $length)))
            (br $next)))"
    );
    assert_eq!(block_on(run(&place, "u32", &body, "")).unwrap(), text);
}

#[test]
fn a_search_finds_what_overlaps_its_chunks() {
    let mut text = vec![b'.'; 600 << 10];
    for at in [0, 7, (256 << 10) - 3, 256 << 10, (512 << 10) - 1, (600 << 10) - 6] {
        text[at..at + 6].copy_from_slice(b"needle");
    }
    let expected: Vec<u64> = memchr::memmem::find_iter(&text, b"needle").map(|at| at as u64).collect();
    let place = place_with(&text);
    // The string with its length is just what a pattern looks like.
    let body = format!(
        r"{ARGUMENTS} (local.set $count (call $file_find (i32.const 0) (i64.const 0) (i64.const -1)
                (i32.const 4) (i32.const 10) (i32.const 4096) (i32.const 100)))
            (drop (call $put (i32.const 0) (i32.const 4096) (i32.mul (local.get $count) (i32.const 8))))"
    );
    let found = block_on(run(&place, "u64", &body, "needle")).unwrap();
    let found: Vec<u64> = found.chunks_exact(8).map(|hit| u64::from_le_bytes(hit.try_into().unwrap())).collect();
    assert_eq!(found, expected);
    assert_eq!(found.len(), 5, "the one that was written over is not there");
}

/// A search stops at the hits that there is room for, and goes on from there; hits as close as bytes come in order.
#[test]
fn a_search_stops_where_there_is_no_more_room() {
    let text = vec![b'a'; 300 << 10];
    let place = place_with(&text);
    // The patterns `a`, whose number is 0, and the argument, whose number is 1, as rows of bytes.
    let body = |from: usize, hits_max: usize| {
        format!(
            r"(drop (call $arguments (i32.const 5) (i32.const 1024)))
            (i32.store (i32.const 4) (i32.const 1)) (i32.store8 (i32.const 8) (i32.const 97))
            (local.set $count (call $file_find (i32.const 0) (i64.const {from}) (i64.const -1)
                (i32.const 4) (i32.const 11) (i32.const 65536) (i32.const {hits_max})))
            (drop (call $put (i32.const 0) (i32.const 65536) (i32.mul (local.get $count) (i32.const 8))))"
        )
    };
    let found = |from, hits_max| -> Vec<(u64, u64)> {
        let found = block_on(run(&place, "u64", &body(from, hits_max), "aa")).unwrap();
        let hits = found.chunks_exact(8).map(|hit| u64::from_le_bytes(hit.try_into().unwrap()));
        hits.map(|hit| (hit & ((1 << 56) - 1), hit >> 56)).collect()
    };
    let expected = |from: u64, count: u64| (0..count).map(|hit| (from + hit / 2, hit % 2)).collect::<Vec<_>>();
    assert_eq!(found(0, 5), expected(0, 5));
    assert_eq!(found((256 << 10) - 2000, 10_001), expected((256 << 10) - 2000, 10_001));
    let end = (300 << 10) - 2;
    assert_eq!(found(end, 100), [(end as u64, 0), (end as u64, 1), (end as u64 + 1, 0)]);
}

#[test]
fn key_values_and_files_are_looked_up_by_name() {
    let place = place_with(b"x");
    let value = format!(
        r"{ARGUMENTS} (i64.store (i32.const 4096) (call $value_get (i32.const 8) (i32.load (i32.const 4)) (i32.const 4104) (i32.const 8)))
            (drop (call $put (i32.const 0) (i32.const 4096) (i32.const 8)))"
    );
    let asked =
        |key: &str| block_on(run(&place, "i64", &value, key)).map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap()));
    assert_eq!(asked("one"), Ok(12), "the length comes without the value where there is no room");
    assert_eq!(asked("two"), Ok(-1));
    let denied = asked("../data/text").unwrap_err();
    let what = "\"keys/../data/text\" does not name a file below the folder of the drive";
    assert_eq!(denied, format!("module test.wasm, SSDlet reads: {what}"));
    let open = format!(
        r"{ARGUMENTS} (i32.store (i32.const 4096) (call $file_open (i32.const 8) (i32.load (i32.const 4))))
            (drop (call $put (i32.const 0) (i32.const 4096) (i32.const 4)))"
    );
    let asked =
        |name: &str| block_on(run(&place, "i32", &open, name)).map(|bytes| i32::from_le_bytes(bytes.try_into().unwrap()));
    assert_eq!(asked("data/text"), Ok(1), "the argument is the handle 0");
    assert_eq!(asked("data/none"), Ok(-1));
    std::os::unix::fs::symlink("/etc/passwd", place.folder.path().join("data/link")).unwrap();
    assert!(asked("data/link").unwrap_err().ends_with("\"data/link\" leads out of the folder of the drive"));
    assert!(asked("/etc/passwd").is_ok_and(|handle| handle == -1), "a leading slash stands for the folder");
}

#[test]
fn a_dataset_comes_as_record_batches() {
    let place = place_with(b"x");
    let column = |values: Vec<i64>| Arc::new(Int64Array::from(values)) as _;
    let batch = RecordBatch::try_from_iter([("a", column(vec![1, 2])), ("b", column(vec![3, 4]))]).unwrap();
    let file = fs::File::create(place.folder.path().join("numbers.arrow")).unwrap();
    let mut writer = FileWriter::try_new(file, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    // The dataset's name comes as the argument; its column b is asked for.
    let body = format!(
        r#"{ARGUMENTS} (i32.store8 (i32.const 512) (i32.const 98))
            (local.set $at (call $dataset_open (i32.const 8) (i32.load (i32.const 4)) (i32.const 512) (i32.const 1)))
            (if (i32.lt_s (local.get $at) (i32.const 0)) (then (call $fail (i32.const 1024) (i32.const 10))))
            (block $end (loop $next
                (local.set $length (call $dataset_get (local.get $at) (i32.const 65536) (i32.const 65536)))
                (br_if $end (i32.eqz (local.get $length)))
                (drop (call $put (i32.const 0) (i32.const 65536) (local.get $length)))
                (br $next)))"#
    );
    let all = block_on(run(&place, "arrow", &body, "numbers")).unwrap();
    let first = all.len() / 2;
    let schema = check_stream(&all[..first]).unwrap();
    assert_eq!(schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(all[..first], all[first..], "both batches came");
    assert!(block_on(run(&place, "arrow", &body, "none")).unwrap_err().ends_with("SSDlet reads: name reads"), "it is missing");
}

/// A batch that was larger than a call could not be read at all.
#[test]
fn large_batches_of_a_dataset_come_in_parts() {
    let place = place_with(b"x");
    let rows = 3 << 20;
    let numbers = Arc::new((0..rows).collect::<Int64Array>()) as _;
    let batch = RecordBatch::try_from_iter([("a", numbers)]).unwrap();
    let file = fs::File::create(place.folder.path().join("large.arrow")).unwrap();
    let mut writer = FileWriter::try_new(file, &batch.schema()).unwrap();
    writer.write(&batch.slice(0, 0)).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let services = FolderServices::new(place.folder.path()).unwrap();
    let (came, held) = block_on(async {
        let mut dataset = services.dataset("large", &[]).await.unwrap();
        let (mut came, mut held) = (Vec::new(), 0);
        while let Some(part) = dataset.next().await.unwrap() {
            assert!(part.len() < 5 << 20 && check_stream(&part).is_ok());
            came.extend(crate::from_ipc(&part).unwrap());
            held = held.max(dataset.held_bytes());
        }
        (came, held)
    });
    assert_eq!(came.iter().map(RecordBatch::num_rows).sum::<usize>(), rows as usize);
    assert_eq!(arrow::compute::concat_batches(&batch.schema(), &came).unwrap(), batch);
    assert!(held > 16 << 20 && held < 24 << 20, "{held}");
}

/// Services whose files are in memory, as those of drives are, and that remember what was logged.
#[derive(Debug, Default)]
struct InMemory {
    logged: Mutex<Vec<(Level, String)>>,
}

struct MemoryFile;

impl File for MemoryFile {
    fn size(&self) -> u64 {
        1000
    }

    fn read<'a>(&'a self, _: u64, _: &'a mut [u8]) -> BoxFuture<'a, Result<usize, ServiceError>> {
        ready(Ok(0)).boxed()
    }

    fn ahead(&self, _: u64, _: u64) {}

    fn held_bytes(&self) -> usize {
        300 << 10
    }
}

impl Services for InMemory {
    fn open<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Arc<dyn File>, ServiceError>> {
        ready(Ok(Arc::new(MemoryFile) as Arc<dyn File>)).boxed()
    }

    fn value<'a>(&'a self, _: &'a [u8]) -> BoxFuture<'a, Result<Option<Bytes>, ServiceError>> {
        ready(Ok(None)).boxed()
    }

    fn dataset<'a>(&'a self, name: &'a str, _: &'a [&'a str]) -> BoxFuture<'a, Result<Box<dyn Dataset>, ServiceError>> {
        ready(Err(ServiceError::NotFound(name.to_owned()))).boxed()
    }

    fn log(&self, line: LogLine<'_>) {
        self.logged.lock().push((line.level, line.text.to_owned()));
    }
}

#[test]
fn files_that_are_open_count_as_memory() {
    block_on(async {
        let place = TestBed::new();
        let module = place
            .load(&guest(
                &["name opens\nargument file\n"],
                "(loop $again
            (drop (call $file_open (i32.const 1024) (i32.const 4))) (br $again))",
            ))
            .await
            .unwrap();
        let opens = async |memory_bytes_max| {
            let limits = Limits { memory_bytes_max, ..Limits::default() };
            let application = place.runtime.application("test", Arc::new(InMemory::default()), limits);
            application.ssdlet(&module, "opens", &[Argument::File("a".to_owned())]).await?;
            application.start()?;
            application.wait().await
        };
        // The guest's own memory has 256 KiB, and the files 300 KiB each.
        let error = opens(2 << 20).await.unwrap_err().to_string();
        let none = |most| format!("there is no room for 300 KiB more in the {most} of memory that the application may hold");
        assert_eq!(error, format!("module test.wasm, SSDlet opens: it opened the file \"name\", and {}", none("2 MiB")));
        let error = opens(200 << 10).await.unwrap_err();
        assert!(matches!(error, ProgramError::Busy(_)), "{error}");
        assert_eq!(error.to_string(), format!("the argument \"a\" of opens is a file, and {}", none("200 KiB")));
    });
}

/// What was written to both streams became one line, and the last one was lost.
#[test]
fn each_stream_has_its_lines_and_the_last_ones_are_logged() {
    let write = |stream: u32, at: u32, length: u32| {
        format!(
            "(i32.store (i32.const 0) (i32.const {at})) (i32.store (i32.const 4) (i32.const {length}))
            (drop (call $fd_write (i32.const {stream}) (i32.const 0) (i32.const 1) (i32.const 8)))"
        )
    };
    // Of the declaration, which is at 1024: `name`, ` says`, the line feed.
    let body = [write(1, 1024, 4), write(2, 1029, 4), write(1, 1024, 4), write(1, 1033, 1), write(1, 1029, 3)].concat();
    let logged = |body: &str| {
        block_on(async {
            let (place, services) = (TestBed::new(), Arc::new(InMemory::default()));
            let module = place.load(&guest(&["name says\n"], body)).await.unwrap();
            let application = place.runtime.application("test", Arc::clone(&services) as _, Limits::default());
            application.ssdlet(&module, "says", &[]).await.unwrap();
            application.start().unwrap();
            let ended = application.wait().await.map_err(|error| error.to_string());
            (ended, std::mem::take(&mut *services.logged.lock()))
        })
    };
    let line = |level, text: &str| (level, text.to_owned());
    let lines = [line(Level::Info, "namename"), line(Level::Info, "say"), line(Level::Error, "says")];
    assert_eq!(logged(&body), (Ok(()), lines.to_vec()));
    let (ended, lines) = logged(&format!("{} unreachable", write(2, 1024, 4)));
    assert!(ended.unwrap_err().ends_with("; it wrote: name"), "its last words are quoted");
    assert_eq!(lines, [line(Level::Error, "name")]);
}

#[test]
fn the_arguments_name_files_that_are_there() {
    let place = TestBed::new();
    let error = block_on(run(&place, "i64", "", "")).unwrap_err();
    assert_eq!(error, "there is no file \"/data/text\"");
}

/// Compiled code in memory.
#[derive(Default)]
struct MemoryCodeStore {
    saved: Mutex<HashMap<[u8; 32], Vec<u8>>>,
    loads: Mutex<usize>,
}

impl CodeStore for MemoryCodeStore {
    fn load(&self, key: &[u8; 32]) -> Option<Vec<u8>> {
        *self.loads.lock() += 1;
        self.saved.lock().get(key).cloned()
    }

    fn save(&self, key: &[u8; 32], sealed: &[u8]) {
        self.saved.lock().insert(*key, sealed.to_vec());
    }
}

#[test]
fn code_of_a_module_that_nobody_keeps_is_not_saved() {
    let kept = Arc::new(MemoryCodeStore::default());
    let services: Arc<dyn Services> = Arc::new(InMemory::default());
    let bytes = wat::parse_str(guest(&["name once\n"], "")).unwrap();
    let store = Arc::clone(&kept) as Arc<dyn CodeStore>;
    let runtime = Runtime::with_code_store(pool(), RuntimeOptions::default(), store, Secret([1; 32])).unwrap();
    let module = block_on(runtime.load_once("once.wasm", bytes.into(), &services)).unwrap();
    assert_eq!((module.declared()[0].name.as_str(), kept.saved.lock().len()), ("once", 0));
}

#[test]
fn compiled_code_is_kept_under_a_seal() {
    let kept = Arc::new(MemoryCodeStore::default());
    let folder = tempfile::tempdir().unwrap();
    let services: Arc<dyn Services> = Arc::new(FolderServices::new(folder.path()).unwrap());
    let bytes = wat::parse_str(guest(&["name a\n"], "")).unwrap();
    let load = |secret: u8| {
        let store = Arc::clone(&kept) as Arc<dyn CodeStore>;
        let options = RuntimeOptions { instances_max: 2, ..RuntimeOptions::default() };
        let runtime = Runtime::with_code_store(pool(), options, store, Secret([secret; 32])).unwrap();
        block_on(runtime.load("kept.wasm", bytes.clone().into(), &services)).unwrap();
        let saved = kept.saved.lock();
        assert_eq!(saved.len(), 1, "one module has one key");
        saved.values().next().cloned().unwrap()
    };
    let first = load(1);
    assert_eq!(load(1), first, "code under its seal is used again");
    // Whoever writes into the store cannot have code run.
    kept.saved.lock().values_mut().for_each(|sealed| {
        let last = sealed.len() - 1;
        sealed[last] ^= 1;
    });
    assert_eq!(load(1), first, "code without its seal is compiled anew");
    assert_ne!(load(2)[..32], first[..32], "another drive has another seal");
    kept.saved.lock().values_mut().for_each(Vec::clear);
    assert_eq!(load(1), first, "too few bytes are no seal");
    assert_eq!(*kept.loads.lock(), 5);
}
