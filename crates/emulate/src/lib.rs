//! Computational storage without the hardware: profiles of devices, and a model of time and energy over counted work.
//!
//! - [`Profile`] says what a device and its host are made of. Each of its numbers has a source, or says "assumed".
//! - [`Layout`] writes real pages, row by row (NSM) or column by column (PAX), and [`Page`] runs selections and
//!   aggregates over them, which count what they touch.
//! - [`run`] turns the counted work of pages into time, bytes and joules on a profile: a simulation of discrete events
//!   that has the same outcome on any machine.
//! - [`predict`] does the same for a query that was counted elsewhere, on any number of drives.
//!
//! Nothing here does I/O, reads a clock, or is random but from a seed.

mod fleet;
mod layout;
mod model;
mod polling;
mod profile;
mod throttle;
mod work;

pub use fleet::{DRIVES_MAX, Fleet, Level, Others, Prediction, predict, predict_in_slices, predict_levels, predict_others};
pub use layout::{Answer, Layout, PAGE_BYTES, Page, PageError, Question, Scan};
pub use model::{Bottleneck, Busy, Bytes, ComputeSite, Energy, Load, ModelError, Outcome, run};
pub use polling::PollInterval;
pub use profile::{
    Bound, Cpu, HostCpu, Link, Matcher, Medium, Memory, Parts, Power, Profile, ProfileError, Quantity, builtin, builtin_names,
    find, parse, parse_own, quantity_text, section_names,
};
pub use throttle::{CoreSeconds, Throttle};
pub use work::{PageWork, Patterns, Work};
