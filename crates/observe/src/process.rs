//! The resources that the process uses, from `/proc/self`, under the names that Prometheus' client libraries use.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// Linux reports CPU time in hundredths of a second here (USER_HZ), whatever its timer's rate is.
const TICKS_PER_SECOND: f64 = 100.0;

/// The resources that a process uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessUse {
    /// Resident memory, bytes.
    pub resident_bytes: u64,
    /// CPU time of user and system, seconds.
    pub cpu_seconds: f64,
    /// Open files and sockets.
    pub open_files: u64,
    /// Threads.
    pub threads: u64,
}

impl ProcessUse {
    /// Those of this process; zeros if `/proc` does not exist.
    pub fn of_self() -> Self {
        Self::of("self")
    }

    /// Those of the process with this number.
    pub fn of_process(id: u32) -> Self {
        Self::of(&id.to_string())
    }

    fn of(process: &str) -> Self {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{process}/{name}")).unwrap_or_default();
        let open_files = std::fs::read_dir(format!("/proc/{process}/fd")).map_or(0, |entries| entries.count() as u64);
        Self { open_files, ..Self::parse(&read("stat"), &read("status")) }
    }

    /// Reads `/proc/PID/stat` and `/proc/PID/status`, which do not have the number of open files.
    fn parse(stat: &str, status: &str) -> Self {
        // The name, in brackets, may contain any characters.
        let fields: Vec<&str> = stat.rsplit_once(") ").map_or(stat, |(_, rest)| rest).split_whitespace().collect();
        let number = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        let kibibytes = resident.split_whitespace().next().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        Self {
            resident_bytes: kibibytes * 1024,
            cpu_seconds: (number(11) + number(12)) as f64 / TICKS_PER_SECOND,
            open_files: 0,
            threads: number(17),
        }
    }
}

/// Adds the process's figures to a registry without a prefix.
pub fn register_process(registry: &mut Registry) {
    registry.register_collector(Box::new(ProcessCollector));
}

#[derive(Debug)]
struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let used = ProcessUse::of_self();
        let mut gauge = |name: &str, help: &str, value: u64| {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        gauge("process_resident_memory_bytes", "Resident memory of the process.", used.resident_bytes)?;
        gauge("process_open_fds", "Open files and sockets of the process.", used.open_files)?;
        gauge("process_threads", "Threads of the process.", used.threads)?;
        let cpu = ConstCounter::new(used.cpu_seconds);
        let help = "CPU time of the process, user and system.";
        cpu.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, cpu.metric_type())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_moves_no_field() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 7 0 99 1000 300 0";
        let status = "Name:\ta\nVmHWM:\t  9000 kB\nVmRSS:\t  1234 kB\n";
        let used = ProcessUse::parse(&format!("42 (a) b (c) {rest}"), status);
        assert_eq!((used.threads, used.resident_bytes), (7, 1234 << 10));
        assert!((used.cpu_seconds - 3.0).abs() < 1e-9);
        assert_eq!(ProcessUse::parse("", ""), ProcessUse::default());
    }

    #[test]
    fn this_process_takes_something() {
        let used = ProcessUse::of_self();
        assert!(used.resident_bytes > 100_000 && used.open_files > 0 && used.threads > 0, "{used:?}");
    }
}
