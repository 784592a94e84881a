//! Time and energy of counted work on a profile: a simulation of discrete events. See `docs/internals/model.md`.

mod device;
mod energy;
mod host;
mod path;
mod servers;

use pithead_model::Bytes as Size;

use crate::profile::{Parts, Profile};
use crate::work::Work;

pub use energy::Energy;

use path::Path;

/// Where a query's work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComputeSite {
    /// At the device: a session with OPEN, GET and CLOSE; answers travel.
    Device,
    /// At the host: read commands; pages travel.
    Host,
}

/// How work is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Where.
    pub place: ComputeSite,
    /// Whether anything is computed. Otherwise pages are only read, as a benchmark of sequential reads does.
    pub computes: bool,
    /// Whether the device's pattern matchers throw pages away before they reach its memory. Where they cannot look for all of the
    /// work's patterns at one time, its cores search.
    pub matcher: bool,
    /// The most pages under way at one time. 1: each read depends on the one before.
    pub pages_in_flight: Option<u64>,
    /// How many times this device's work the host has, from devices alike beside it: 1 where it is alone.
    pub host_times: f64,
    /// How many times this device's bytes the host takes in.
    pub host_bytes_times: f64,
}

impl Load {
    /// Computes at this place.
    pub const fn at(place: ComputeSite) -> Self {
        Self { place, computes: true, matcher: false, pages_in_flight: None, host_times: 1.0, host_bytes_times: 1.0 }
    }

    /// Computes at this place, with so many devices alike at one host.
    pub const fn beside(place: ComputeSite, devices: f64) -> Self {
        Self { host_times: devices, host_bytes_times: devices, ..Self::at(place) }
    }

    /// Reads only, as far as this place.
    pub const fn reading(place: ComputeSite) -> Self {
        Self { computes: false, ..Self::at(place) }
    }
}

/// Why the model refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The profile is of the real hardware.
    #[error("the profile {0} is the real hardware, which has no virtual time")]
    Native(String),
    /// Users' work cannot run there.
    #[error("the device {0} has no cores for users' work")]
    NoCpu(String),
    /// It has none.
    #[error("the device {0} has no pattern matchers")]
    NoMatcher(String),
    /// A drive would refuse all work.
    #[error("the device {name} has {} of memory, less than the {} that a session of a drive takes", Size(*.has), Size(*.least))]
    Memory {
        /// The profile.
        name: String,
        /// Bytes of its memory.
        has: u64,
        /// Bytes of a session at least.
        least: u64,
    },
    /// What it has to hold does not fit, by far.
    #[error(
        "a session on the device {name} would hold {} until its last page and has room for {}: it would read everything more than \
         {most} times",
        Size(*.held),
        Size(*.room),
        most = PASSES_MAX
    )]
    Held {
        /// The profile.
        name: String,
        /// Bytes to hold.
        held: u64,
        /// Bytes for that.
        room: u64,
    },
    /// No page fits.
    #[error("a page of {page_bytes} bytes does not fit into the {room} bytes that {name} has for pages")]
    Page {
        /// The profile.
        name: String,
        /// Bytes of a page.
        page_bytes: u64,
        /// Bytes for pages.
        room: u64,
    },
    /// Virtual time has an end.
    #[error("on the device {0} the work would take more than 200 days")]
    Endless(String),
}

/// A part that can be what everything waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// The medium's channels.
    Channels,
    /// The bus that they share.
    Bus,
    /// The device's cores.
    DeviceCpu,
    /// The link.
    Link,
    /// What the host takes in from all devices.
    HostInput,
    /// The host's cores.
    HostCpu,
    /// None of them: time goes by between them.
    Latency,
}

impl Bottleneck {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Bottleneck::Channels => "channels",
            Bottleneck::Bus => "device bus",
            Bottleneck::DeviceCpu => "device CPU",
            Bottleneck::Link => "link",
            Bottleneck::HostInput => "host input",
            Bottleneck::HostCpu => "host CPU",
            Bottleneck::Latency => "latency",
        }
    }
}

/// How long each part was busy, in seconds, summed over its units.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Busy {
    /// The medium's channels.
    pub channels_s: f64,
    /// The bus that they share.
    pub bus_s: f64,
    /// The device's cores.
    pub device_cores_s: f64,
    /// The device's cores, with an answer for which there is no room.
    pub blocked_s: f64,
    /// The link.
    pub link_s: f64,
    /// What the host takes in from all devices.
    pub host_input_s: f64,
    /// The host's cores, that work or wait busily.
    pub host_cores_s: f64,
}

/// Bytes that passed each part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// From the medium.
    pub medium: u64,
    /// Over the device's bus, into its memory.
    pub bus: u64,
    /// Over the link, to the host.
    pub link: u64,
}

/// What a run took.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// From the first command until all is done at the host.
    pub elapsed_s: f64,
    /// How long each part was busy.
    pub busy: Busy,
    /// Bytes that passed each part.
    pub bytes: Bytes,
    /// Pages that were read.
    pub pages: u64,
    /// How often each of them was: more than once where what a session holds does not fit the device's memory.
    pub passes: u64,
    /// Rows that the host took from the device; of pages that it read itself, their rows.
    pub rows: u64,
    /// Commands, GET among them.
    pub commands: u64,
    /// GETs.
    pub polls: u64,
    /// Joules of each part.
    pub energy: Energy,
    /// The part that was busy for the largest share of the time.
    pub bottleneck: Bottleneck,
}

/// How often a session may read everything, each time for another part of what it holds.
const PASSES_MAX: u64 = 16;

/// Runs `work` on a profile, in virtual time.
pub fn run(profile: &Profile, work: &Work, load: Load) -> Result<Outcome, ModelError> {
    let name = || profile.name.clone();
    let parts = profile.parts.as_ref().ok_or_else(|| ModelError::Native(name()))?;
    let room = parts.memory.page_buffer_bytes.whole();
    if work.page_bytes == 0 || work.page_bytes > room {
        return Err(ModelError::Page { name: name(), page_bytes: work.page_bytes, room });
    }
    if load.place == ComputeSite::Device && load.computes && parts.cpu.is_none() {
        return Err(ModelError::NoCpu(name()));
    }
    if load.matcher && parts.matcher.is_none() {
        return Err(ModelError::NoMatcher(name()));
    }
    let matcher = load.matcher && parts.matcher.as_ref().is_some_and(|matcher| matcher.takes(work.patterns));
    let load = Load { matcher, ..load };
    let passes = passes(profile, parts, work, load)?;
    let path = match load.place {
        ComputeSite::Device => device::Session::new(parts, work, load, passes).finish(),
        ComputeSite::Host => host::Reads::new(parts, work, load).finish(),
    };
    if path.end_ps == u64::MAX {
        return Err(ModelError::Endless(name()));
    }
    Ok(outcome(parts, path, passes))
}

/// How often a session has to read everything: each time it holds as much as there is room for.
fn passes(profile: &Profile, parts: &Parts, work: &Work, load: Load) -> Result<u64, ModelError> {
    if load.place == ComputeSite::Host || !load.computes || work.held_bytes == 0 {
        return Ok(1);
    }
    let room = parts.memory.held_bytes_max();
    let passes = if room == 0 { u64::MAX } else { work.held_bytes.div_ceil(room) };
    match passes <= PASSES_MAX {
        true => Ok(passes),
        false => Err(ModelError::Held { name: profile.name.clone(), held: work.held_bytes, room }),
    }
}

fn outcome(parts: &Parts, path: Path, passes: u64) -> Outcome {
    let elapsed_s = seconds(path.end_ps);
    let computing_s = seconds(path.host.busy_ps);
    // A core that computes does not wait.
    let free_s = (parts.host.cores.value * elapsed_s - computing_s).max(0.0);
    let waiting_s = if path.waits { (parts.host.waiting_cores.value * elapsed_s).min(free_s) } else { 0.0 };
    let busy = Busy {
        channels_s: seconds(path.channels.busy_ps),
        bus_s: seconds(path.bus.busy_ps),
        device_cores_s: seconds(path.cores_ps),
        blocked_s: seconds(path.blocked_ps),
        link_s: seconds(path.link.busy_ps),
        host_input_s: seconds(path.host_input.busy_ps),
        host_cores_s: computing_s + waiting_s,
    };
    let energy = Energy::of(parts, elapsed_s, &busy, &path.bytes);
    let bottleneck = bottleneck(parts, elapsed_s, &Busy { host_cores_s: computing_s, ..busy });
    let Path { bytes, pages, rows, commands, polls, .. } = path;
    Outcome { elapsed_s, busy, bytes, pages, passes, rows, commands, polls, energy, bottleneck }
}

/// Below this share of the time no part is what all wait for.
const BUSY_SHARE_MIN: f64 = 0.5;

fn bottleneck(parts: &Parts, elapsed_s: f64, busy: &Busy) -> Bottleneck {
    let cores = parts.cpu.as_ref().map_or(1.0, |cpu| cpu.cores.value);
    let shares = [
        (Bottleneck::DeviceCpu, busy.device_cores_s / cores),
        (Bottleneck::Bus, busy.bus_s),
        (Bottleneck::Channels, busy.channels_s / parts.medium.channels.value),
        (Bottleneck::Link, busy.link_s),
        (Bottleneck::HostInput, busy.host_input_s),
        (Bottleneck::HostCpu, busy.host_cores_s / parts.host.threads.value),
    ];
    let (part, longest_s) =
        shares.into_iter().fold((Bottleneck::Latency, 0.0), |most, share| if share.1 > most.1 { share } else { most });
    if longest_s >= elapsed_s * BUSY_SHARE_MIN { part } else { Bottleneck::Latency }
}

/// Virtual time is counted in whole picoseconds, so that it is the same on any machine.
fn picoseconds(seconds: f64) -> u64 {
    (seconds * 1e12).round() as u64
}

fn seconds(picoseconds: u64) -> f64 {
    picoseconds as f64 / 1e12
}

#[cfg(test)]
mod tests;
