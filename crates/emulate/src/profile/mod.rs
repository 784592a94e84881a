//! What a device and its host are made of, from TOML files in which every number names its source.

mod builtin;
mod check;
mod quantity;
mod shown;

use serde::Deserialize;

pub use builtin::{builtin, builtin_names, find};
pub use quantity::{Bound, Quantity};
pub use shown::quantity_text;

use quantity::{real, section, whole};

/// Why a profile is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// A line that cannot be right.
    #[error("line {line}: {reason}")]
    Line {
        /// The line, from 1 on.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// No built-in profile has this name.
    #[error("no built-in profile {name}; there are {}", builtin_names().join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
}

/// A device and its host.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// What it is called.
    pub name: String,
    /// What it is, in one sentence.
    pub about: String,
    /// What it is made of. None: the real hardware as it is, which nobody models.
    pub parts: Option<Parts>,
}

/// The parts of a device and its host that the model knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Parts {
    /// What holds the data.
    pub medium: Medium,
    /// The device's memory.
    pub memory: Memory,
    /// The device's cores, where users' work can run.
    pub cpu: Option<Cpu>,
    /// A pattern matcher in the path of the medium.
    pub matcher: Option<Matcher>,
    /// Between device and host.
    pub link: Link,
    /// The device's watts.
    pub power: Power,
    /// The host.
    pub host: HostCpu,
}

section! {
    /// The medium, its channels, and the bus that they share.
    Medium {
        /// Channels that read side by side.
        channels: whole(1.0, 4096.0),
        /// What one channel delivers.
        channel_bytes_per_s: real(1e5, 1e12),
        /// What all channels together can bring into the device's memory.
        bus_bytes_per_s: real(1e5, 1e13),
        /// The unit of a read.
        page_bytes: whole(512.0, 1_048_576.0),
        /// From a read's start until its first byte. Reads of the same channel overlap in it.
        read_latency_s: real(0.0, 1.0),
    }
}

impl Medium {
    /// What it delivers, all channels together and no more than the bus takes.
    pub fn bytes_per_s(&self) -> f64 {
        (self.channels.value * self.channel_bytes_per_s.value).min(self.bus_bytes_per_s.value)
    }
}

section! {
    /// The device's memory.
    Memory {
        /// Fast memory on the chip, of which each core has its part: what an aggregate holds and does not fit it is in slow memory.
        sram_bytes: whole(0.0, 1e12),
        /// Memory beside it: for both buffers, and for what a session holds until its last page.
        dram_bytes: whole(0.0, 1e13),
        /// The part of it that pages may be pinned in.
        page_buffer_bytes: whole(512.0, 1e12),
        /// The part of it that answers wait in for the host.
        output_buffer_bytes: whole(512.0, 1e12),
    }
}

section! {
    /// The device's cores.
    Cpu {
        /// How many there are for users' work.
        cores: whole(1.0, 4096.0),
        /// Their clock.
        clock_hz: real(1e6, 1e11),
        /// Cycles that a page costs, whatever is in it.
        page_cycles: real(0.0, 1e9),
        /// Cycles that a comparison costs, with its loop.
        compare_cycles: real(0.0, 1e6),
        /// Cycles that a row costs if it passes.
        match_cycles: real(0.0, 1e6),
        /// Cycles to add a value to an aggregate.
        sum_cycles: real(0.0, 1e6),
        /// Cycles that an access to pages' memory takes: what a cache would hide.
        access_cycles: real(0.0, 1e6),
        /// Cycles for each word of an access.
        word_cycles: real(0.0, 1e4),
        /// Bytes that one access can take.
        burst_bytes: whole(4.0, 4096.0),
    }
}

section! {
    /// A pattern matcher that each channel has.
    Matcher {
        /// What one channel's matcher looks at.
        bytes_per_s: real(1e5, 1e12),
        /// Patterns that it looks for at one time.
        patterns: whole(1.0, 4096.0),
        /// Bytes of a pattern at most.
        pattern_bytes: whole(1.0, 4096.0),
    }
}

section! {
    /// The link between device and host.
    Link {
        /// What it carries.
        bytes_per_s: real(1e5, 1e13),
        /// One way.
        latency_s: real(0.0, 10.0),
        /// What the device does for a command before anything else happens.
        command_s: real(0.0, 1.0),
        /// Bytes that one read command asks for.
        read_bytes: whole(512.0, 1_073_741_824.0),
        /// Read commands under way at one time.
        queue_depth: whole(1.0, 65_536.0),
        /// From one GET to the next, at most. 0: the device says by itself when it has something.
        poll_s: real(0.0, 60.0),
        /// The same at least: the interval adapts between the two. A file that does not name it has one fixed interval.
        #[serde(default = "Quantity::absent")]
        poll_least_s: real(0.0, 60.0),
    }
}

section! {
    /// The device's watts.
    Power {
        /// All of it, while nothing happens.
        idle_w: real(0.0, 10_000.0),
        /// More, while the medium delivers all that it can.
        medium_active_w: real(0.0, 10_000.0),
        /// More, for each core that works.
        core_active_w: real(0.0, 1000.0),
        /// More, while bytes are on the link.
        link_active_w: real(0.0, 1000.0),
    }
}

section! {
    /// The host.
    HostCpu {
        /// Cores.
        cores: whole(1.0, 4096.0),
        /// Of these, how many a query uses.
        threads: whole(1.0, 4096.0),
        /// Their clock.
        clock_hz: real(1e6, 1e11),
        /// What it takes in from all devices together.
        bytes_per_s: real(1e5, 1e13),
        /// Cycles that a page costs that came from the device.
        page_cycles: real(0.0, 1e9),
        /// Cycles for each row of such a page.
        row_cycles: real(0.0, 1e7),
        /// Cycles for each row that the device computed.
        result_cycles: real(0.0, 1e7),
        /// The share of a core that waits for the device busily while a session is open.
        waiting_cores: real(0.0, 64.0),
        /// The whole host without the device, while nothing happens.
        idle_w: real(0.0, 100_000.0),
        /// More, for each core that works.
        core_active_w: real(0.0, 1000.0),
    }
}

/// A file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProfile {
    name: toml::Spanned<String>,
    about: toml::Spanned<String>,
    #[serde(default)]
    native: bool,
    medium: Option<toml::Spanned<Medium>>,
    memory: Option<toml::Spanned<Memory>>,
    cpu: Option<toml::Spanned<Cpu>>,
    matcher: Option<toml::Spanned<Matcher>>,
    link: Option<toml::Spanned<Link>>,
    power: Option<toml::Spanned<Power>>,
    host: Option<toml::Spanned<HostCpu>>,
}

/// Reads a profile's text. What is malformed, missing, unknown or absurd is refused, with its line and the reason.
pub fn parse(text: &str) -> Result<Profile, ProfileError> {
    check::parse(text, Names::Any)
}

/// The same of a profile that somebody wrote, whose name must not be that of a built-in one.
pub fn parse_own(text: &str) -> Result<Profile, ProfileError> {
    check::parse(text, Names::Own)
}

/// What a profile may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    /// Anything that is a name.
    Any,
    /// Not what a built-in profile is called.
    Own,
}

/// A profile's sections, in the order of the file.
pub fn section_names() -> [&'static str; 7] {
    ["medium", "memory", "cpu", "matcher", "link", "power", "host"]
}

/// A section's quantities, each with its name and bounds.
pub type Quantities<'a> = Vec<(&'static str, &'a Quantity, Bound)>;

impl Parts {
    /// Every section that there is, with its quantities.
    pub fn sections(&self) -> Vec<(&'static str, Quantities<'_>)> {
        let mut sections = vec![("medium", self.medium.quantities()), ("memory", self.memory.quantities())];
        sections.extend(self.cpu.iter().map(|cpu| ("cpu", cpu.quantities())));
        sections.extend(self.matcher.iter().map(|matcher| ("matcher", matcher.quantities())));
        sections.extend([
            ("link", self.link.quantities()),
            ("power", self.power.quantities()),
            ("host", self.host.quantities()),
        ]);
        sections
    }
}
