//! MANAGE_APPLET EXECUTE: Kinetic clients run SSDlets, of modules that the drive keeps or that they have put as key-values, and push
//! sub-plans to the drive's own engine.

use std::sync::Arc;
use std::time::Duration;

use arrow::ipc::writer::StreamWriter;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use pithead_drive::{Drive, PlanRequest, PlanRows};
use pithead_embed::{ApplicationEvent, ApplicationRun, Door, MODULE_BYTES_MAX, Reads, RunApplication, SsdletSpec};
use pithead_kinetic::proto::ManageApplet;
use pithead_kinetic::{Applets, Caller, Code, Failure, Managing, Output, Permission, SLICES, keys};
use pithead_model::{Blame, DatasetName, Fault};
use pithead_sched::{Class, TaskLost};

use crate::program::{LineFormat, Lines};

/// Comes before the name of a module that the drive keeps, where a client names it as a program.
const MODULES: &[u8] = b"pithead/program/";
/// Comes before `DOMAIN/DATASET` where a client has the drive's engine run a sub-plan over that dataset; the values of the keys after
/// it are the plan.
const ENGINE: &[u8] = b"pithead/engine/";
/// Begins a parameter that names a function which the sub-plan calls.
const EXTENSION: &str = "extension=";
/// The longest that a sub-plan runs, and how long one runs whose client does not say.
const RUN_MAX: Duration = Duration::from_secs(600);
/// Begins a parameter that names the SSDlet.
const SSDLET: &str = "ssdlet=";
const EXECUTE: i32 = 1;
const VENDOR_DEPENDENT: i32 = 1;
const ON_COMPLETION: i32 = 2;
/// Memory that a program asks for, in bytes.
const MEMORY: u64 = 256 << 20;
/// Keys of a program at most.
const SHARDS_MAX: usize = 64;
/// Bytes of output at most: what a value may have.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Bytes of output that the status message quotes at most.
const QUOTED_BYTES_MAX: usize = 64 << 10;

/// The drive that programs run on.
#[derive(Debug)]
pub(crate) struct DriveApplets(pub(crate) Arc<Drive>);

impl Applets for DriveApplets {
    fn manage<'a>(&'a self, request: &'a ManageApplet, caller: &'a Caller) -> Managing<'a> {
        Box::pin(self.execute(request, caller))
    }
}

impl DriveApplets {
    async fn execute(&self, request: &ManageApplet, caller: &Caller) -> Result<Output, Failure> {
        check(request, caller)?;
        if request.program_key[0].starts_with(ENGINE) {
            let (output, rows) = match self.planned(request, caller).await? {
                Ok((output, rows)) => (Ok(output), rows),
                Err(fault) => (Err(fault), 0),
            };
            return answer(request, caller, output, Some(&format!("{rows} rows")));
        }
        let (module, application) = self.application(request, caller).await?;
        let (drive, reads) = (Arc::clone(&self.0), Arc::new(CallerReads(caller.clone())));
        // On the drive's own reactors. The application ends with its events, and those with this task.
        let pool = drive.shared().pool;
        let running = pool.spawn(Class::Foreground, async move {
            let run = match module {
                None => drive.run_application(application, stream::empty().boxed(), reads).await,
                Some(bytes) => drive.run_module(bytes, application, stream::empty().boxed(), reads).await,
            };
            match run {
                Ok(run) => Ok(output(run).await),
                Err(fault) => Err(failure(&fault)),
            }
        });
        answer(request, caller, running.abort_on_drop().await.map_err(lost)??, None)
    }

    /// The rows of a sub-plan as a stream of Arrow IPC, and how many they are, or why it failed.
    async fn planned(&self, request: &ManageApplet, caller: &Caller) -> Result<Result<(Vec<u8>, usize), Fault>, Failure> {
        let refuse = |what: &str| Failure::new(Code::InvalidExecute, what.to_owned());
        let name = std::str::from_utf8(&request.program_key[0][ENGINE.len()..]).ok().and_then(|name| name.split_once('/'));
        let dataset = name.and_then(|(domain, dataset)| DatasetName::new(domain, dataset).ok());
        let dataset = dataset.ok_or_else(|| refuse("expected pithead/engine/DOMAIN/DATASET"))?;
        if !(CallerReads(caller.clone()).domain(&dataset.domain) || asks_engine(caller, &request.program_key[0])) {
            let what = "no scope of the identity names pithead/engine/ or the domain's slices, with READ";
            return Err(Failure::new(Code::NotAuthorized, what));
        }
        if request.program_key.len() < 2 {
            return Err(refuse("expected the keys of the sub-plan's Substrait after the engine's"));
        }
        let plan = self.shards(&request.program_key[1..], caller).await?;
        let mut extensions = Vec::new();
        for parameter in &request.program_param {
            match parameter.strip_prefix(EXTENSION) {
                Some(extension) => extensions.push(extension.to_owned()),
                None => return Err(refuse("parameters of a sub-plan are extension=NAME/VERSION")),
            }
        }
        let wanted = request.max_run_time.and_then(|limit| u64::try_from(limit).ok()).filter(|limit| *limit > 0);
        let run = wanted.map_or(RUN_MAX, |limit| Duration::from_millis(limit).min(RUN_MAX));
        let (drive, request) =
            (Arc::clone(&self.0), PlanRequest { dataset, plan, extensions, run, bytes_max: OUTPUT_BYTES_MAX });
        // Who drops this ends the sub-plan with its session's events.
        let running = self.0.shared().pool.spawn(Class::Foreground, async move { drive.run_plan(request).await });
        let rows = running.abort_on_drop().await.map_err(lost)?;
        Ok(rows.and_then(|rows| ipc(&rows)))
    }

    /// The application, and its module where the drive does not keep it.
    async fn application(&self, request: &ManageApplet, caller: &Caller) -> Result<(Option<Bytes>, RunApplication), Failure> {
        let (module, bytes) = match &request.program_key[..] {
            [only] if only.starts_with(MODULES) => (String::from_utf8_lossy(&only[MODULES.len()..]).into_owned(), None),
            shards => ("kinetic".to_owned(), Some(self.shards(shards, caller).await?)),
        };
        let (ssdlet, arguments) = match request.program_param.split_first() {
            Some((first, rest)) if first.starts_with(SSDLET) => (Some(first[SSDLET.len()..].to_owned()), rest),
            _ => (None, &request.program_param[..]),
        };
        let spec = SsdletSpec { module: module.clone(), ssdlet, arguments: arguments.to_vec() };
        let run_ms = request.max_run_time.and_then(|limit| u64::try_from(limit).ok()).filter(|limit| *limit > 0);
        let (ssdlets, connections) = (vec![spec], vec![]);
        Ok((bytes, RunApplication { name: module, ssdlets, connections, memory: MEMORY, run_ms, window: None }))
    }

    /// A module from the values of its keys, one after the other.
    async fn shards(&self, shards: &[Bytes], caller: &Caller) -> Result<Bytes, Failure> {
        shards.iter().try_for_each(|key| caller.check(Permission::Read, Some(key)))?;
        let (store, shards) = (self.0.shared().store, shards.to_vec());
        let read = move || -> Result<Bytes, Failure> {
            let mut module = Vec::new();
            for key in shards {
                let missing = || Failure::new(Code::InvalidExecute, format!("there is no key {}", key.escape_ascii()));
                let (value, _) = store.get(&keys::stored(&key))?.ok_or_else(missing)?;
                if module.len() + value.len() > MODULE_BYTES_MAX {
                    let what = format!("the program has more than the {MODULE_BYTES_MAX} bytes of a module");
                    return Err(Failure::new(Code::InvalidExecute, what));
                }
                module.extend_from_slice(&value);
            }
            Ok(module.into())
        };
        self.0.shared().pool.spawn_blocking(read).await.map_err(lost)?
    }
}

/// The output, and where the client wants it put. `described`: what is said of output that is no text.
fn answer(
    request: &ManageApplet,
    caller: &Caller,
    outcome: Result<Vec<u8>, Fault>,
    described: Option<&str>,
) -> Result<Output, Failure> {
    let output = match outcome {
        Ok(output) => Bytes::from(output),
        Err(fault) => return Ok(Output { message: message(1, &fault.to_string(), b""), ..Output::default() }),
    };
    let put = request.output_key.as_ref().map(|key| caller.put(key, output.clone())).transpose()?;
    let quoted = match described {
        Some(described) => described.as_bytes(),
        None if put.is_some() => &[],
        None => &output[..output.len().min(QUOTED_BYTES_MAX)],
    };
    let message = message(0, "", quoted);
    let value = if request.set_value_in_response == Some(true) { output } else { Bytes::new() };
    Ok(Output { message, value, put })
}

fn lost(lost: TaskLost) -> Failure {
    Failure::new(Code::InternalError, lost.to_string())
}

/// The exit code, no signal, what is wrong, and the output: the form that clients read.
fn message(code: i32, wrong: &str, output: &[u8]) -> String {
    format!("{code}:0:{}:{}", wrong.replace(':', ";"), String::from_utf8_lossy(output))
}

/// Refuses what is not done, and what the caller may not have done.
fn check(request: &ManageApplet, caller: &Caller) -> Result<(), Failure> {
    let refuse = |what: String| Err(Failure::new(Code::InvalidExecute, what));
    if let Some(other) = request.applet_type.filter(|kind| *kind != EXECUTE) {
        return refuse(format!("this drive does EXECUTE (1) alone, and not {other}"));
    }
    if let Some(other) = request.language.filter(|language| *language != VENDOR_DEPENDENT) {
        return refuse(format!("programs are WebAssembly, language VENDOR_DEPENDENT (1), and not {other}"));
    }
    if request.acknowledge_mode.is_some_and(|mode| mode != ON_COMPLETION) {
        return refuse("programs are answered ON_COMPLETION (2)".to_owned());
    }
    if !(1..=SHARDS_MAX).contains(&request.program_key.len()) {
        return refuse(format!("a program has 1 to {SHARDS_MAX} keys"));
    }
    for key in &request.program_key {
        caller.check(Permission::Applet, Some(key))?;
    }
    match &request.output_key {
        Some(key) => caller.check_put(key, 0),
        None => Ok(()),
    }
}

/// Whether a scope that names the engine lets the caller read what its key names. As with slices, one for every key does not.
fn asks_engine(caller: &Caller, key: &[u8]) -> bool {
    caller.identity.may_under(ENGINE, Permission::Read, key, caller.tls)
}

/// Rows as a stream of Arrow IPC, and how many they are.
fn ipc(rows: &PlanRows) -> Result<(Vec<u8>, usize), Fault> {
    let written = || {
        let mut writer = StreamWriter::try_new(Vec::new(), &rows.schema)?;
        rows.batches.iter().try_for_each(|batch| writer.write(batch))?;
        writer.into_inner()
    };
    let bytes = written().map_err(Fault::bug)?;
    if bytes.len() > OUTPUT_BYTES_MAX {
        return Err(Fault::new(Blame::Limit, format!("the rows have more than {OUTPUT_BYTES_MAX} bytes")));
    }
    Ok((bytes, rows.batches.iter().map(|batch| batch.num_rows()).sum()))
}

/// All rows that come out, as lines, or why the program failed.
async fn output(run: ApplicationRun) -> Result<Vec<u8>, Fault> {
    let ApplicationRun { outputs, mut events, .. } = run;
    let lines: Vec<Lines> =
        outputs.iter().map(|port| Lines::of(LineFormat::Text, &port.signature)).collect::<Result<_, _>>()?;
    let mut output = Vec::new();
    while let Some(event) = events.next().await {
        let ApplicationEvent::Batch { port, bytes } = event? else { continue };
        let Some(lines) = lines.get(port as usize) else { continue };
        lines.append(&bytes, &mut output)?;
        if output.len() > OUTPUT_BYTES_MAX {
            return Err(Fault::new(Blame::Limit, format!("it put out more than {OUTPUT_BYTES_MAX} bytes")));
        }
    }
    Ok(output)
}

/// Why a program was not started.
fn failure(fault: &Fault) -> Failure {
    let code = match fault.blame {
        Blame::Access => Code::NotAuthorized,
        Blame::Limit => Code::ServiceBusy,
        Blame::Bug => Code::InternalError,
        _ => Code::InvalidExecute,
    };
    Failure::new(code, fault.message.clone())
}

/// What programs of a Kinetic client may read: its keys, and datasets of domains whose slices it may read.
#[derive(Debug)]
struct CallerReads(Caller);

impl Reads for CallerReads {
    fn domain(&self, domain: &str) -> bool {
        let slices = [SLICES, domain.as_bytes(), b"/"].concat();
        self.0.identity.may_under(SLICES, Permission::Read, &slices, self.0.tls)
    }

    fn key(&self, key: &[u8]) -> bool {
        self.0.check(Permission::Read, Some(key)).is_ok()
    }
}

#[cfg(test)]
#[path = "../../program/src/tests/guests.rs"]
#[allow(dead_code, reason = "of the guests that tests share, one is enough here")]
mod guests;

#[cfg(test)]
mod tests {
    use pithead_drive::{DriveOptions, FILE_PREFIX};
    use pithead_embed::LoadModule;
    use pithead_kinetic::{Identity, Limits, Scope};
    use pithead_store::{Durability, Write};

    use super::guests::guest;
    use super::*;

    /// Puts out its argument.
    const ECHO: &str = "(local.set $length (call $arguments (i32.const 0) (i32.const 1024)))
        (drop (call $put (i32.const 0) (i32.const 0) (local.get $length)))";

    fn module(body: &str) -> Bytes {
        wat::parse_str(guest(&["name idEcho\nargument string\noutput string\n"], body)).unwrap().into()
    }

    fn execute(keys: &[&str], parameters: &[&str]) -> ManageApplet {
        ManageApplet {
            applet_type: Some(EXECUTE),
            language: Some(VENDOR_DEPENDENT),
            program_key: keys.iter().map(|key| Bytes::copy_from_slice(key.as_bytes())).collect(),
            program_param: parameters.iter().map(|text| (*text).to_owned()).collect(),
            acknowledge_mode: Some(ON_COMPLETION),
            ..ManageApplet::default()
        }
    }

    async fn managed(drive: &Arc<Drive>, request: ManageApplet, identity: Identity) -> Result<Output, Failure> {
        let applets = DriveApplets(Arc::clone(drive));
        let caller = Caller { identity: Arc::new(identity), tls: false, limits: Limits::default() };
        applets.manage(&request, &caller).await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn clients_run_modules_of_the_drive_and_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let drive = Drive::open(DriveOptions { memory: 256 << 20, ..DriveOptions::new(folder.path()) }).unwrap();
        for (name, body) in [("echo", ECHO), ("dies", "unreachable")] {
            drive.load_module(LoadModule { name: name.into(), replace: false, bytes: module(body) }).await.unwrap();
        }
        let output = managed(&drive, execute(&["pithead/program/echo"], &["a: b"]), Identity::factory()).await.unwrap();
        assert_eq!((output.message.as_str(), output.value.len()), ("0:0::a: b\n", 0));
        let named = execute(&["pithead/program/echo"], &["ssdlet=idEcho", "x"]);
        assert_eq!(managed(&drive, named, Identity::factory()).await.unwrap().message, "0:0::x\n");
        let died = managed(&drive, execute(&["pithead/program/dies"], &["x"]), Identity::factory()).await.unwrap();
        assert!(died.message.starts_with("1:0:module dies, SSDlet idEcho; it gave up"), "{}", died.message);
        let missing = managed(&drive, execute(&["pithead/program/none"], &[]), Identity::factory()).await.unwrap_err();
        assert_eq!((missing.code, missing.what.as_str()), (Code::InvalidExecute, "the drive has no module none"));

        // A program in shards, whose output goes to a key and into the answer.
        let (store, bytes) = (drive.shared().store, module(ECHO));
        let shards = [("shard-1", bytes.slice(..100)), ("shard-2", bytes.slice(100..))];
        let puts = shards.map(|(key, value)| Write::put(keys::stored(key.as_bytes()), value));
        store.write(puts.into(), Durability::Through).unwrap();
        let request = ManageApplet {
            output_key: Some("out".into()),
            set_value_in_response: Some(true),
            ..execute(&["shard-1", "shard-2"], &["kept"])
        };
        let output = managed(&drive, request, Identity::factory()).await.unwrap();
        assert_eq!((output.message.as_str(), &output.value[..]), ("0:0::", &b"kept\n"[..]));
        assert_eq!(output.put, Some(Write::put(keys::stored(b"out"), "kept\n")), "the service puts it");
        // What a PUT could not name is refused before the program runs.
        for (key, code) in [("pithead/slice/x", Code::NotAuthorized), (&*"k".repeat(4_097), Code::InvalidRequest)] {
            let request = ManageApplet {
                output_key: Some(Bytes::copy_from_slice(key.as_bytes())),
                ..execute(&["pithead/program/echo"], &["x"])
            };
            assert_eq!(managed(&drive, request, Identity::factory()).await.unwrap_err().code, code, "{key}");
        }
        let absent = managed(&drive, execute(&["shard-1", "shard-3"], &["kept"]), Identity::factory()).await.unwrap_err();
        assert_eq!((absent.code, absent.what.as_str()), (Code::InvalidExecute, "there is no key shard-3"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_identity_runs_what_its_scopes_name() {
        let folder = tempfile::tempdir().unwrap();
        let drive = Drive::open(DriveOptions { memory: 256 << 20, ..DriveOptions::new(folder.path()) }).unwrap();
        drive.load_module(LoadModule { name: "echo".into(), replace: false, bytes: module(ECHO) }).await.unwrap();
        let scope = |value: &[u8], permission| Scope {
            offset: 0,
            value: value.to_vec(),
            permissions: vec![permission],
            tls_required: false,
        };
        let only = |scope| Identity { scopes: vec![scope], ..Identity::factory() };
        let request = || execute(&["pithead/program/echo"], &["x"]);
        let may = only(scope(b"pithead/program/echo", Permission::Applet));
        assert_eq!(managed(&drive, request(), may.clone()).await.unwrap().message, "0:0::x\n");
        for other in [scope(b"pithead/program/other", Permission::Applet), scope(b"", Permission::Read)] {
            assert_eq!(managed(&drive, request(), only(other)).await.unwrap_err().code, Code::NotAuthorized);
        }
        let written = ManageApplet { output_key: Some("out".into()), ..request() };
        assert_eq!(managed(&drive, written, may).await.unwrap_err().code, Code::NotAuthorized);
    }

    /// A scope for every key and one for another domain together let a program read all domains.
    #[test]
    fn a_scope_for_one_domain_opens_no_other() {
        let scope = |value: &str, permission, tls_required| Scope {
            offset: 0,
            value: value.into(),
            permissions: vec![permission],
            tls_required,
        };
        let reads = |scopes: Vec<Scope>| {
            let identity = Arc::new(Identity { scopes, ..Identity::factory() });
            let caller = Caller { identity, tls: false, limits: Limits::default() };
            let engine = asks_engine(&caller, b"pithead/engine/main/t");
            (CallerReads(caller).domain("main"), engine)
        };
        let all = || scope("", Permission::Read, false);
        let read = |value| scope(value, Permission::Read, false);
        assert_eq!(reads(vec![read("pithead/slice/main/"), read("pithead/engine/")]), (true, true));
        let others = vec![all(), read("pithead/slice/lab/"), read("pithead/engine/lab/")];
        assert_eq!(reads(others), (false, false));
        let to_run = |value| scope(value, Permission::Applet, false);
        assert_eq!(reads(vec![all(), to_run("pithead/slice/main/"), to_run("pithead/engine/")]), (false, false));
        let by_tls = |value| scope(value, Permission::Read, true);
        assert_eq!(reads(vec![all(), by_tls("pithead/slice/main/"), by_tls("pithead/engine/")]), (false, false));
    }

    #[test]
    fn files_of_programs_are_keys_of_kinetic_clients() {
        assert_eq!(FILE_PREFIX.as_bytes(), keys::CLIENT_PREFIX);
    }

    #[test]
    fn what_clients_read_has_four_parts() {
        assert_eq!(message(0, "", b"a:b\n"), "0:0::a:b\n");
        assert_eq!(message(1, "module m: it gave up", b""), "1:0:module m; it gave up:");
    }

    #[test]
    fn only_programs_that_are_run_to_their_end_are_done() {
        let caller = Caller { identity: Arc::new(Identity::factory()), tls: false, limits: Limits::default() };
        let good = ManageApplet { program_key: vec!["k".into()], applet_type: Some(1), ..ManageApplet::default() };
        assert!(check(&good, &caller).is_ok());
        let wrong: [fn(&mut ManageApplet); 5] = [
            |it| it.applet_type = Some(5),
            |it| it.language = Some(3),
            |it| it.acknowledge_mode = Some(1),
            |it| it.program_key.clear(),
            |it| it.program_key = vec!["k".into(); SHARDS_MAX + 1],
        ];
        for change in wrong {
            let mut request = good.clone();
            change(&mut request);
            assert_eq!(check(&request, &caller).unwrap_err().code, Code::InvalidExecute, "{request:?}");
        }
    }
}
