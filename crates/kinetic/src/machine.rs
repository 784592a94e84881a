//! [`Machine`]: how busy and how warm the machine is, as Linux tells. What it does not tell is left out.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use parking_lot::Mutex;

use crate::proto::{Temperature, Utilization};

/// What the machine says of itself, between two looks.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The folder whose medium is looked at.
    folder: Option<PathBuf>,
    last: Mutex<Known>,
}

/// What was seen last.
#[derive(Debug)]
struct Known {
    look: Look,
    shares: Shares,
}

/// Shares of time in which parts of the machine were busy, by their names in the protocol.
type Shares = [(&'static str, Option<f64>); 3];

/// Counters that only grow, at one moment.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    /// Ticks of all processors, and those in which they did something.
    cpu: Option<(u64, u64)>,
    /// Milliseconds in which the medium did something.
    medium_ms: Option<u64>,
    /// Bytes on the first link whose speed is known, and that speed in bits a second.
    link: Option<(u64, f64)>,
}

impl Machine {
    pub fn new(folder: Option<PathBuf>) -> Machine {
        let last = Mutex::new(Known::of(Look::now(folder.as_deref()), uptime()));
        Machine { folder, last }
    }

    /// Shares of the time since the last call that parts of the machine were busy. If too little time has passed to say, those
    /// that are known; at first they are of the time since the machine was started.
    pub fn utilizations(&self) -> Vec<Utilization> {
        let mut known = self.last.lock();
        known.see(Look::now(self.folder.as_deref()));
        let told = known.shares.into_iter().filter_map(|(name, share)| Some((name, share?)));
        told.map(|(name, share)| Utilization { name: Some(name.to_owned()), value: Some(share as f32) }).collect()
    }
}

impl Known {
    /// What one look tells of a machine that has been running for so long.
    fn of(look: Look, uptime: Option<f64>) -> Known {
        let start = Look { at: look.at, cpu: Some((0, 0)), medium_ms: Some(0), link: look.link.map(|(_, speed)| (0, speed)) };
        let [medium, link, cpu] = look.shares(&start, uptime.unwrap_or_default());
        let [medium, link] = [medium, link].map(|(name, share)| (name, share.filter(|_| uptime.is_some())));
        Known { look, shares: [medium, link, cpu] }
    }

    fn see(&mut self, now: Look) {
        if now.cpu.is_some() && now.cpu == self.look.cpu {
            // Not a tick has passed.
            return;
        }
        let seconds = now.at.duration_since(self.look.at).as_secs_f64();
        for (known, (_, share)) in self.shares.iter_mut().zip(now.shares(&self.look, seconds)) {
            known.1 = share.or(known.1);
        }
        self.look = now;
    }
}

impl Look {
    fn now(folder: Option<&Path>) -> Look {
        let read = |path: &str| fs::read_to_string(path).ok();
        let medium = || {
            let device = fs::metadata(folder?).ok()?.dev();
            let (major, minor) = (libc_major(device), libc_minor(device));
            busy_ms(&read(&format!("/sys/dev/block/{major}:{minor}/stat"))?)
        };
        Look {
            at: Instant::now(),
            cpu: read("/proc/stat").and_then(|text| cpu_ticks(&text)),
            medium_ms: medium(),
            link: read("/proc/net/dev").and_then(|text| link(&text, |name| read(&format!("/sys/class/net/{name}/speed")))),
        }
    }

    /// Shares of the time since another look.
    fn shares(&self, before: &Look, seconds: f64) -> Shares {
        let seconds = seconds.max(1e-3);
        let medium = self.medium_ms.zip(before.medium_ms);
        let link = self.link.zip(before.link);
        let cpu = self.cpu.zip(before.cpu).filter(|(now, before)| now.0 > before.0);
        let shares = [
            ("HDA", medium.map(|(now, before)| now.saturating_sub(before) as f64 / 1_000.0 / seconds)),
            ("EN0", link.map(|(now, before)| now.0.saturating_sub(before.0) as f64 * 8.0 / seconds / now.1)),
            ("CPU", cpu.map(|(now, before)| now.1.saturating_sub(before.1) as f64 / (now.0 - before.0) as f64)),
        ];
        shares.map(|(name, share): (_, Option<f64>)| (name, share.map(|share| share.clamp(0.0, 1.0))))
    }
}

/// Seconds since the machine was started.
fn uptime() -> Option<f64> {
    fs::read_to_string("/proc/uptime").ok()?.split_whitespace().next()?.parse().ok().filter(|seconds| *seconds > 0.0)
}

/// All ticks and busy ticks in `/proc/stat`.
fn cpu_ticks(stat: &str) -> Option<(u64, u64)> {
    let ticks: Vec<u64> =
        stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().filter_map(|tick| tick.parse().ok()).collect();
    // The fourth and fifth are idle and waiting; the ninth and tenth are guests', which count in the first already.
    let all: u64 = ticks.iter().take(8).sum();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    (ticks.len() >= 5).then_some((all, all.saturating_sub(idle)))
}

/// Milliseconds in which a block device was busy, in its `stat`.
fn busy_ms(stat: &str) -> Option<u64> {
    stat.split_whitespace().nth(9)?.parse().ok()
}

/// Bytes received and sent on the first link whose speed is known, and that speed in bits a second.
fn link(dev: &str, speed: impl Fn(&str) -> Option<String>) -> Option<(u64, f64)> {
    dev.lines().skip(2).find_map(|line| {
        let (name, counts) = line.split_once(':')?;
        let megabits: f64 = speed(name.trim())?.trim().parse().ok().filter(|speed| *speed > 0.0)?;
        let counts: Vec<u64> = counts.split_whitespace().filter_map(|count| count.parse().ok()).collect();
        Some((counts.first()? + counts.get(8)?, megabits * 1e6))
    })
}

/// The numbers of a device, as the kernel packs them for programs (makedev(3)).
fn libc_major(device: u64) -> u64 {
    ((device >> 8) & 0xfff) | ((device >> 32) & !0xfff)
}

fn libc_minor(device: u64) -> u64 {
    (device & 0xff) | ((device >> 12) & !0xff)
}

/// All sensors of the machine.
pub(crate) fn temperatures() -> Vec<Temperature> {
    temperatures_in(Path::new("/sys/class"))
}

fn temperatures_in(class: &Path) -> Vec<Temperature> {
    let folders = |name: &str| -> Vec<PathBuf> {
        let entries = fs::read_dir(class.join(name)).into_iter().flatten().flatten();
        let mut folders: Vec<_> = entries.map(|entry| entry.path()).collect();
        folders.sort();
        folders
    };
    let sensors = folders("hwmon").into_iter().filter_map(|folder| sensor(&folder, "name", "temp1_input"));
    let zones = folders("thermal").into_iter().filter_map(|folder| sensor(&folder, "type", "temp"));
    sensors.chain(zones).collect()
}

fn sensor(folder: &Path, name: &str, current: &str) -> Option<Temperature> {
    let text = |file: &str| fs::read_to_string(folder.join(file)).ok().map(|text| text.trim().to_owned());
    let degrees = |file: &str| text(file)?.parse::<f32>().ok().map(|thousandths| thousandths / 1_000.0);
    let current = degrees(current)?;
    let name = match text(name)?.as_str() {
        // Sensors of media and of processors have the protocol's names.
        "nvme" | "drivetemp" => "HDA".to_owned(),
        "coretemp" | "k10temp" | "x86_pkg_temp" | "cpu-thermal" | "cpu_thermal" => "CPU".to_owned(),
        other => other.to_owned(),
    };
    let (minimum, maximum) = (degrees("temp1_min"), degrees("temp1_max"));
    Some(Temperature { name: Some(name), current: Some(current), minimum, maximum, target: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_has_passed() {
        let at = Instant::now();
        let before = Look { at, cpu: Some((1_000, 100)), medium_ms: Some(5_000), link: Some((0, 1e9)) };
        let after = Look {
            at: at + std::time::Duration::from_secs(10),
            cpu: Some((2_000, 350)),
            medium_ms: Some(7_500),
            link: Some((125_000_000, 1e9)),
        };
        let shares = [("HDA", Some(0.25)), ("EN0", Some(0.1)), ("CPU", Some(0.25))];
        assert_eq!(after.shares(&before, 10.0), shares);
        let nothing = Look { cpu: None, medium_ms: None, link: None, at };
        assert_eq!(nothing.shares(&before, 10.0), [("HDA", None), ("EN0", None), ("CPU", None)]);
        let mut known = Known::of(before, Some(20.0));
        assert_eq!(known.shares, [("HDA", Some(0.25)), ("EN0", Some(0.0)), ("CPU", Some(0.1))], "since the start");
        known.see(after);
        assert_eq!(known.shares, shares);
        // Not a tick later, and when nothing is told any more, what is known is told again.
        for same in [Look { medium_ms: Some(9_000), ..after }, nothing] {
            known.see(same);
            assert_eq!(known.shares, shares);
        }
        let unknown = Known::of(before, None).shares.map(|(_, share)| share);
        assert_eq!(unknown, [None, None, Some(0.1)]);
        assert_eq!(Known::of(nothing, Some(20.0)).shares.map(|(_, share)| share), [None; 3]);
    }

    #[test]
    fn what_was_told_once_is_told_at_once_again() {
        let machine = Machine::new(None);
        let names = || -> Vec<_> { machine.utilizations().into_iter().filter_map(|it| it.name).collect() };
        let first = names();
        for _ in 0..20 {
            assert_eq!(names(), first);
        }
        let counted = fs::read_to_string("/proc/stat").ok().and_then(|text| cpu_ticks(&text)).is_some_and(|(all, _)| all > 0);
        assert_eq!(first.contains(&"CPU".to_owned()), counted);
    }

    #[test]
    fn what_linux_writes_is_read() {
        assert_eq!(cpu_ticks("cpu  10 0 20 60 10 0 0 0 5 0\ncpu0 1"), Some((100, 30)));
        assert_eq!(cpu_ticks("intr 5"), None);
        assert_eq!(busy_ms("  9 0 72 1 2 0 8 1 0 1234 2 0"), Some(1234));
        let dev = "Inter-|\n face |\n  lo: 7 0 0 0 0 0 0 0 7 0\neth0: 100 1 0 0 0 0 0 0 50 1 0\n";
        let speed = |name: &str| (name == "eth0").then(|| "1000\n".to_owned());
        assert_eq!(link(dev, speed), Some((150, 1e9)));
        assert_eq!(link(dev, |_| Some("-1".to_owned())), None);
        assert_eq!((libc_major(0x0801), libc_minor(0x0801)), (8, 1));
    }

    #[test]
    fn sensors_have_the_protocols_names() {
        let class = tempfile::tempdir().unwrap();
        for (folder, file, text) in [
            ("hwmon/hwmon0", "name", "nvme\n"),
            ("hwmon/hwmon0", "temp1_input", "41850\n"),
            ("hwmon/hwmon0", "temp1_max", "81850\n"),
            ("hwmon/hwmon1", "name", "acpi\n"),
            ("thermal/thermal_zone0", "type", "x86_pkg_temp\n"),
            ("thermal/thermal_zone0", "temp", "52000\n"),
        ] {
            fs::create_dir_all(class.path().join(folder)).unwrap();
            fs::write(class.path().join(folder).join(file), text).unwrap();
        }
        let found = temperatures_in(class.path());
        let found: Vec<_> = found.iter().map(|it| (it.name.as_deref().unwrap(), it.current.unwrap(), it.maximum)).collect();
        assert_eq!(found, [("HDA", 41.85, Some(81.85)), ("CPU", 52.0, None)]);
        assert!(temperatures_in(Path::new("/no such folder")).is_empty());
    }
}
