//! Joules, by part.

use super::{Busy, Bytes};
use crate::profile::Parts;

/// Joules of each part. What a part takes for being on is in the idle parts; the others are what work adds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Energy {
    /// The host's cores.
    pub host_cpu_j: f64,
    /// The device's cores.
    pub device_cpu_j: f64,
    /// The medium.
    pub medium_j: f64,
    /// The link.
    pub link_j: f64,
    /// The device, for being on.
    pub device_idle_j: f64,
    /// The host, for being on.
    pub host_idle_j: f64,
}

impl Energy {
    pub(super) fn of(parts: &Parts, elapsed_s: f64, busy: &Busy, bytes: &Bytes) -> Self {
        Self {
            host_cpu_j: parts.host.core_active_w.value * busy.host_cores_s,
            device_cpu_j: parts.power.core_active_w.value * busy.device_cores_s,
            medium_j: parts.power.medium_active_w.value * bytes.medium as f64 / parts.medium.bytes_per_s(),
            link_j: parts.power.link_active_w.value * busy.link_s,
            device_idle_j: parts.power.idle_w.value * elapsed_s,
            host_idle_j: parts.host.idle_w.value * elapsed_s,
        }
    }

    /// Both.
    pub(crate) fn and(&self, other: &Energy) -> Energy {
        Energy {
            host_cpu_j: self.host_cpu_j + other.host_cpu_j,
            device_cpu_j: self.device_cpu_j + other.device_cpu_j,
            medium_j: self.medium_j + other.medium_j,
            link_j: self.link_j + other.link_j,
            device_idle_j: self.device_idle_j + other.device_idle_j,
            host_idle_j: self.host_idle_j + other.host_idle_j,
        }
    }

    /// The I/O subsystem: all of the device.
    pub fn io_j(&self) -> f64 {
        self.device_cpu_j + self.medium_j + self.link_j + self.device_idle_j
    }

    /// The entire system.
    pub fn system_j(&self) -> f64 {
        self.io_j() + self.host_cpu_j + self.host_idle_j
    }
}
