//! SSDlets at a CSE: modules that it keeps, and applications that run there.

use std::fmt::Debug;

use bytes::Bytes;
use futures::stream::BoxStream;
use pithead_model::{Blame, Fault, SessionId};
use serde::{Deserialize, Serialize};

/// Bytes of a module at most.
pub const MODULE_BYTES_MAX: usize = 32 << 20;
/// Bytes of a batch that goes through a port at most.
pub const PORT_BATCH_BYTES_MAX: usize = 16 << 20;
/// The largest window of a port: see [`RunApplication::window`].
pub const PORT_WINDOW_BYTES_MAX: u64 = 1 << 20;
/// SSDlets of an application at most.
const SSDLETS_MAX: usize = 64;
/// Connections of an application at most: each of its SSDlets has up to 32 outputs.
const CONNECTIONS_MAX: usize = SSDLETS_MAX * 32;
/// Arguments of an SSDlet at most, and bytes of all arguments of an application.
const ARGUMENTS_MAX: usize = 32;
const ARGUMENT_BYTES_MAX: usize = 1 << 20;
/// Bytes of the name of a module, and of an application.
const NAME_BYTES_MAX: usize = 64;

/// A module to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadModule {
    /// Its name: 1 to 64 letters, digits, `_`, `-` and `.`.
    pub name: String,
    /// Whether it may take the place of another module of that name. The same bytes are no other module.
    pub replace: bool,
    /// WebAssembly.
    pub bytes: Bytes,
}

/// A module that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredModule {
    /// Its name.
    pub name: String,
    /// Grows by one each time the module is replaced.
    pub version: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Their SHA-256 in hexadecimal digits.
    pub sha256: String,
    /// When it was loaded: seconds since 1970.
    pub loaded_s: u64,
    /// Its SSDlets.
    pub ssdlets: Vec<DeclaredSsdlet>,
}

/// An SSDlet as its module declares it. Types are texts such as `string,u32`, `arrow` and `file`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredSsdlet {
    /// Its name.
    pub name: String,
    /// What its inputs take.
    pub inputs: Vec<String>,
    /// What its outputs put out.
    pub outputs: Vec<String>,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// An application to be run. Inputs and outputs that no connection names are the host's: see [`ApplicationRun`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunApplication {
    /// How logs and errors name it: as a module is named.
    pub name: String,
    /// Its SSDlets.
    pub ssdlets: Vec<SsdletSpec>,
    /// Connections between them.
    #[serde(default)]
    pub connections: Vec<Connection>,
    /// Memory wanted for all of its SSDlets, bytes; the CSE may grant less.
    pub memory: u64,
    /// Processor time that they may take, milliseconds; none: as long as the CSE allows.
    #[serde(default)]
    pub run_ms: Option<u64>,
    /// Bytes that may be on their way through each of the host's ports, which then wait for no other port: a batch is sent while those
    /// before it that were not taken yet have fewer bytes than this. None: ports wait for each other, and nothing is said to be taken.
    #[serde(default)]
    pub window: Option<u64>,
}

/// An SSDlet of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SsdletSpec {
    /// The module.
    pub module: String,
    /// The SSDlet's name in it; none: the only one.
    #[serde(default)]
    pub ssdlet: Option<String>,
    /// Its arguments as a person types them, in their order; a file by its name.
    #[serde(default)]
    pub arguments: Vec<String>,
}

/// A port of an SSDlet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortAt {
    /// The SSDlet, by its place in the application.
    pub ssdlet: usize,
    /// The port, by its place in the declaration.
    pub port: usize,
}

/// A connection from an output to an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// The output.
    pub from: PortAt,
    /// The input.
    pub to: PortAt,
}

/// A port between an application and its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPort {
    /// The SSDlet's port.
    pub at: PortAt,
    /// What goes through it.
    pub signature: String,
}

/// What goes into an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortInput {
    /// A batch for the input of this number among [`ApplicationRun::inputs`].
    Batch {
        /// The input.
        port: u32,
        /// Bytes of its type, see `docs/reference/program-abi.md`.
        bytes: Bytes,
    },
    /// Nothing more comes for this input.
    End {
        /// The input.
        port: u32,
    },
    /// The host has taken so much of an output. Only where there are windows.
    Taken {
        /// The output.
        port: u32,
        /// Bytes of its batches.
        bytes: u64,
    },
    /// Nobody reads this output any more. Only where there are windows.
    Unread {
        /// The output.
        port: u32,
    },
}

/// What goes into an application, to the end of all of its inputs.
pub type PortInputs = BoxStream<'static, Result<PortInput, Fault>>;

/// What comes out of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplicationEvent {
    /// A batch of the output of this number among [`ApplicationRun::outputs`].
    Batch {
        /// The output.
        port: u32,
        /// Bytes of its type.
        bytes: Bytes,
    },
    /// Nothing more comes from this output.
    End {
        /// The output.
        port: u32,
    },
    /// SSDlets have taken so much of an input, or it waits where they take it. Only where there are windows.
    Taken {
        /// The input.
        port: u32,
        /// Bytes of its batches.
        bytes: u64,
    },
    /// No SSDlet reads this input any more. Only where there are windows.
    Unread {
        /// The input.
        port: u32,
    },
    /// No SSDlet can go on unless the host sends or takes something. Only where there are windows.
    Idle {
        /// What had come from the host by then: [`PortInput`]s.
        received: u64,
        /// Who waits for what, in words.
        waits: String,
    },
    /// All SSDlets have ended well. The last event.
    Finished {
        /// The processor time that they took, nanoseconds.
        run_ns: u64,
    },
}

/// An application that runs. Dropping its events stops it.
pub struct ApplicationRun {
    /// Its session, by which it is seen and ended.
    pub session: SessionId,
    /// The host's inputs, in the order of SSDlets and ports.
    pub inputs: Vec<HostPort>,
    /// The host's outputs, likewise.
    pub outputs: Vec<HostPort>,
    /// What comes out.
    pub events: BoxStream<'static, Result<ApplicationEvent, Fault>>,
}

impl Debug for ApplicationRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { session, inputs, outputs, .. } = self;
        f.debug_struct("ApplicationRun")
            .field("session", session)
            .field("inputs", inputs)
            .field("outputs", outputs)
            .finish_non_exhaustive()
    }
}

/// What the caller of an application may read, through its SSDlets too.
pub trait Reads: Send + Sync + Debug {
    /// Whether the datasets of a domain.
    fn domain(&self, domain: &str) -> bool;
    /// Whether a key-value.
    fn key(&self, key: &[u8]) -> bool;
}

/// Everything may be read.
#[derive(Clone, Copy, Debug)]
pub struct ReadsAll;

impl Reads for ReadsAll {
    fn domain(&self, _: &str) -> bool {
        true
    }

    fn key(&self, _: &[u8]) -> bool {
        true
    }
}

/// Nothing may be read.
#[derive(Clone, Copy, Debug)]
pub struct ReadsNothing;

impl Reads for ReadsNothing {
    fn domain(&self, _: &str) -> bool {
        false
    }

    fn key(&self, _: &[u8]) -> bool {
        false
    }
}

/// Refuses what cannot be the name of a module or an application.
pub fn check_module_name(name: &str) -> Result<(), Fault> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(allowed) {
        return Ok(());
    }
    let shown: String = name.chars().take(NAME_BYTES_MAX).collect();
    Err(user(format!("{shown:?} is no name of a module: expected 1 to {NAME_BYTES_MAX} letters, digits, _, - and .")))
}

/// Refuses a module that can be refused without a look at its code.
pub fn check_module(module: &LoadModule) -> Result<(), Fault> {
    check_module_name(&module.name)?;
    match module.bytes.len() {
        0..=MODULE_BYTES_MAX => Ok(()),
        bytes => Err(Fault::new(
            Blame::Limit,
            format!("the module {} has {bytes} bytes; a module has at most {MODULE_BYTES_MAX}", module.name),
        )),
    }
}

/// Refuses an application that can be refused without a look at its modules.
pub fn check_application(request: &RunApplication) -> Result<(), Fault> {
    check_module_name(&request.name)?;
    let ssdlets = request.ssdlets.len();
    if !(1..=SSDLETS_MAX).contains(&ssdlets) {
        return Err(user(format!("expected an application of 1 to {SSDLETS_MAX} SSDlets, got {ssdlets}")));
    }
    if request.connections.len() > CONNECTIONS_MAX {
        let connections = request.connections.len();
        return Err(user(format!("expected at most {CONNECTIONS_MAX} connections, got {connections}")));
    }
    if let Some(wrong) = request.connections.iter().flat_map(|it| [it.from, it.to]).find(|at| at.ssdlet >= ssdlets) {
        return Err(user(format!("a connection names SSDlet {}, and there are {ssdlets}, counted from 0", wrong.ssdlet)));
    }
    if let Some(window) = request.window.filter(|window| !(1..=PORT_WINDOW_BYTES_MAX).contains(window)) {
        return Err(user(format!("expected a window of 1 to {PORT_WINDOW_BYTES_MAX} bytes, got {window}")));
    }
    let mut bytes = 0;
    for ssdlet in &request.ssdlets {
        check_module_name(&ssdlet.module)?;
        if ssdlet.arguments.len() > ARGUMENTS_MAX {
            return Err(user(format!("expected at most {ARGUMENTS_MAX} arguments, got {}", ssdlet.arguments.len())));
        }
        bytes += ssdlet.arguments.iter().map(String::len).sum::<usize>();
    }
    match bytes {
        0..=ARGUMENT_BYTES_MAX => Ok(()),
        _ => Err(user(format!("arguments of {bytes} bytes; an application has at most {ARGUMENT_BYTES_MAX}"))),
    }
}

fn user(what: String) -> Fault {
    Fault::new(Blame::User, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn application() -> RunApplication {
        let ssdlet = SsdletSpec { module: "a.b-c_1".into(), ssdlet: None, arguments: vec!["x".into()] };
        let at = |ssdlet| PortAt { ssdlet, port: 0 };
        let connections = vec![Connection { from: at(0), to: at(1) }];
        let ssdlets = vec![ssdlet.clone(), ssdlet];
        RunApplication { name: "run".into(), ssdlets, connections, memory: 1, run_ms: None, window: Some(1) }
    }

    #[test]
    fn names_cannot_be_read_as_other_keys() {
        assert!(check_module_name("word-count_2.wasm").is_ok());
        for name in ["", "a/b", "a b", "ä", "a\n", &"x".repeat(65)] {
            assert_eq!(check_module_name(name).unwrap_err().blame, Blame::User, "{name:?}");
        }
    }

    #[test]
    fn applications_have_bounds() {
        assert_eq!(check_application(&application()), Ok(()));
        let wrong: [fn(&mut RunApplication); 8] = [
            |it| it.ssdlets.clear(),
            |it| it.ssdlets = vec![it.ssdlets[0].clone(); 65],
            |it| it.connections[0].to.ssdlet = 2,
            |it| it.ssdlets[1].module = "../a".into(),
            |it| it.ssdlets[1].arguments = vec![String::new(); 33],
            |it| it.ssdlets[0].arguments = vec!["x".repeat(1 << 20)],
            |it| it.window = Some(0),
            |it| it.window = Some(PORT_WINDOW_BYTES_MAX + 1),
        ];
        for change in wrong {
            let mut request = application();
            change(&mut request);
            assert_eq!(check_application(&request).unwrap_err().blame, Blame::User);
        }
    }

    #[test]
    fn a_module_has_a_bound() {
        let module = |bytes| LoadModule { name: "m".into(), replace: false, bytes: vec![0; bytes].into() };
        assert_eq!(check_module(&module(MODULE_BYTES_MAX)), Ok(()));
        assert_eq!(check_module(&module(MODULE_BYTES_MAX + 1)).unwrap_err().blame, Blame::Limit);
    }
}
