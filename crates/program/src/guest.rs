//! [`Guest`]: what the sandbox holds for one instance of a module, and how host calls reach its memory.

use std::sync::Arc;

use parking_lot::Mutex;
use wasmtime::{Caller, Memory};

use crate::budget::{Budget, Fault, Grants, Held, Meter, NoRoom, fault};
use crate::channel::{Reader, Writer};
use crate::graph::Graph;
use crate::last_words::LastWords;
use crate::limits::{CALL_BYTES_MAX, FILES_MAX, LOG_CALL_BYTES_MAX, LOG_LINE_BYTES, LOG_LINE_BYTES_MAX, SSDLETS_MAX};
use crate::{Dataset, Declared, File, Level, LogLine, Services};

/// The names by which people know a guest.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub application: Arc<str>,
    pub module: Arc<str>,
    pub ssdlet: Arc<str>,
}

/// The state of one guest.
pub(crate) struct Guest {
    pub names: Names,
    pub meter: Arc<Meter>,
    pub grants: Grants,
    pub services: Arc<dyn Services>,
    /// Set once the instance is there.
    pub memory: Option<Memory>,
    pub ports: Ports,
    pub arguments: Vec<u8>,
    pub open: Vec<Option<Opened>>,
    /// What the module has declared; None where the guest is past its declarations.
    pub declared: Option<Vec<Declared>>,
    /// The beginnings of lines that were written to standard output and to standard error.
    lines: [Vec<u8>; 2],
    pub last_words: LastWords,
}

/// The ports of a guest. An end that was closed is None.
#[derive(Default)]
pub(crate) struct Ports {
    /// The application and the number of the SSDlet in it, for waits; None while a module declares its SSDlets.
    pub graph: Option<(Arc<Mutex<Graph>>, usize)>,
    pub inputs: Vec<Option<Reader>>,
    pub outputs: Vec<Option<Writer>>,
    /// Outputs that had no room for a batch that the guest still holds, and its bytes.
    pub full: Vec<(u32, usize)>,
    /// Why a stream that it reads was cut off.
    pub cut: Option<Arc<str>>,
}

/// What a handle stands for.
pub(crate) enum Opened {
    File(OpenFile),
    Dataset(OpenDataset),
}

/// A dataset that is being read.
pub(crate) struct OpenDataset {
    pub dataset: Box<dyn Dataset>,
    /// A batch for which its guest had too little room.
    pub waiting: Option<(bytes::Bytes, Held)>,
    /// What the dataset takes in memory.
    pub held: Option<Held>,
}

/// A file, and how far it was read in order.
pub(crate) struct OpenFile {
    pub file: Arc<dyn File>,
    pub next: u64,
    pub announced: u64,
    _held: Held,
}

impl OpenFile {
    /// Counts what the file takes in memory.
    pub fn new(file: Arc<dyn File>, budget: &Arc<Budget>) -> Result<Self, NoRoom> {
        let held = budget.hold(file.held_bytes())?;
        Ok(Self { file, next: 0, announced: 0, _held: held })
    }
}

/// The standard streams of a guest.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stream {
    Output,
    Error,
}

impl Guest {
    pub fn new(names: Names, meter: Arc<Meter>, services: Arc<dyn Services>) -> Self {
        let grants = Grants::new(Arc::clone(meter.budget()));
        Self {
            names,
            meter,
            grants,
            services,
            memory: None,
            ports: Ports::default(),
            arguments: Vec::new(),
            open: Vec::new(),
            declared: None,
            lines: Default::default(),
            last_words: LastWords::default(),
        }
    }

    /// Keeps something open and returns its handle.
    pub fn keep(&mut self, opened: Opened) -> wasmtime::Result<u32> {
        let free = self.open.iter().position(Option::is_none).unwrap_or(self.open.len());
        if free == FILES_MAX {
            return Err(fault(format!("it has {FILES_MAX} files and datasets open, and may not open more; close some")));
        }
        if free == self.open.len() {
            self.open.push(None);
        }
        self.open[free] = Some(opened);
        Ok(free as u32)
    }

    pub fn file(&mut self, call: &str, handle: u32) -> wasmtime::Result<&mut OpenFile> {
        match self.open.get_mut(handle as usize) {
            Some(Some(Opened::File(file))) => Ok(file),
            _ => Err(fault(format!("it passed {call} the handle {handle}, which is no open file"))),
        }
    }

    pub fn declare(&mut self, bytes: &[u8]) -> wasmtime::Result<()> {
        let declared = Declared::parse(bytes).map_err(fault)?;
        let Some(all) = &mut self.declared else {
            return Err(fault("it called declare outside of pithead_describe"));
        };
        if all.len() == SSDLETS_MAX {
            return Err(fault(format!("it declared more than {SSDLETS_MAX} SSDlets")));
        }
        if all.iter().any(|other| other.name == declared.name) {
            return Err(fault(format!("it declared two SSDlets that are called {}", declared.name)));
        }
        all.push(declared);
        Ok(())
    }

    /// Writes a line to the log, without control characters and cut to its bound.
    pub fn log(&mut self, level: Level, bytes: &[u8]) -> Result<(), Fault> {
        self.meter.budget().log(bytes.len() + LOG_LINE_BYTES)?;
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LOG_LINE_BYTES_MAX)]);
        let text: String = text.chars().map(|one| if one.is_control() && one != '\t' { ' ' } else { one }).collect();
        let Names { application, module, ssdlet } = &self.names;
        self.services.log(LogLine { application, module, ssdlet, level, text: &text });
        if level == Level::Error {
            self.last_words.hear(text);
        }
        Ok(())
    }

    /// Takes what a guest writes to a standard stream, and logs whole lines, at most so many, which are counted down. Returns how many
    /// bytes it took.
    pub fn print(&mut self, stream: Stream, bytes: &[u8], lines_max: &mut usize) -> Result<usize, Fault> {
        let mut taken = 0;
        for part in bytes[..bytes.len().min(LOG_CALL_BYTES_MAX)].split_inclusive(|byte| *byte == b'\n') {
            if *lines_max == 0 {
                break;
            }
            taken += part.len();
            let line = &mut self.lines[stream as usize];
            line.extend_from_slice(part);
            if line.ends_with(b"\n") || line.len() >= LOG_LINE_BYTES_MAX {
                *lines_max -= 1;
                self.end_line(stream)?;
            }
        }
        Ok(taken)
    }

    /// Logs what is left of lines that were not ended, once nothing more comes.
    pub fn end_lines(&mut self) {
        for stream in [Stream::Output, Stream::Error] {
            if !self.lines[stream as usize].is_empty() {
                // One who flooded the log has no last line.
                let _ = self.end_line(stream);
            }
        }
    }

    fn end_line(&mut self, stream: Stream) -> Result<(), Fault> {
        let line = std::mem::take(&mut self.lines[stream as usize]);
        let level = match stream {
            Stream::Output => Level::Info,
            Stream::Error => Level::Error,
        };
        self.log(level, line.trim_ascii_end())
    }
}

/// A place in a guest's memory, as it passes it: hostile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuestRange {
    pub pointer: u32,
    pub bytes: u32,
}

impl GuestRange {
    /// The range in a memory of `memory_bytes`. The error names the call and the bounds.
    pub fn range(self, call: &str, memory_bytes: usize) -> wasmtime::Result<std::ops::Range<usize>> {
        let Self { pointer, bytes } = self;
        let end = u64::from(pointer) + u64::from(bytes);
        if end > memory_bytes as u64 {
            let what = format!("it passed {call} {bytes} bytes at {pointer:#x}, beyond its memory of {memory_bytes} bytes");
            return Err(fault(what));
        }
        if bytes as usize > CALL_BYTES_MAX {
            return Err(fault(format!("it passed {call} {bytes} bytes; one call takes at most {CALL_BYTES_MAX}")));
        }
        Ok(pointer as usize..end as usize)
    }
}

/// The guest's memory beside its state.
pub(crate) fn parts<'a>(caller: &'a mut Caller<'_, Guest>) -> wasmtime::Result<(&'a mut [u8], &'a mut Guest)> {
    let memory = caller.data().memory.ok_or_else(|| fault("it called the host before its memory was there"))?;
    Ok(memory.data_and_store_mut(caller))
}

/// Bytes of the guest's memory, beside its state.
pub(crate) fn bytes<'a>(
    caller: &'a mut Caller<'_, Guest>,
    call: &str,
    place: GuestRange,
) -> wasmtime::Result<(&'a mut [u8], &'a mut Guest)> {
    let (memory, guest) = parts(caller)?;
    let range = place.range(call, memory.len())?;
    Ok((&mut memory[range], guest))
}
