//! Two network namespaces of this machine, the host's and the drives', and the one link between them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pithead_model::{Blame, Fault, Rate};
use serde::Deserialize;

/// Where drives and the HTTP server are, as the host sees them.
pub(crate) const DRIVES_ADDRESS: &str = "10.77.0.2";
const HOST_ADDRESS: &str = "10.77.0.1";
/// Each end's name, in its own namespace.
const LINK: &str = "near0";
/// Names end with the run's process number and the side.
const PREFIX: &str = "pithead-neardata-";
const SIDES: [&str; 2] = ["host", "drives"];
/// What `ip netns` keeps its names in.
const NAMES: &str = "/run/netns";
/// How TCP finds a connection's rate: the one way that every kernel allows in a namespace. The machine's own may be BBR, which takes
/// the bursts that the bucket lets through for the link's rate.
pub(super) const CONGESTION: &str = "reno";
/// The kernel hands over up to 64 KiB at once; a bucket must hold more than that.
const BURST: &str = "128kb";
/// Longest that bytes wait before they are dropped.
const LATENCY: &str = "50ms";
/// The link counts as quiet when its counters stand still for so long.
const QUIET: Duration = Duration::from_millis(30);
const QUIET_WAIT_MAX: Duration = Duration::from_secs(5);

/// The namespaces of this run. Dropping it removes them, with whatever still runs in them.
#[derive(Debug)]
pub(crate) struct Namespaces {
    host: String,
    drives: String,
}

/// The part of `ip -s -j link show` that counts.
#[derive(Deserialize)]
struct LinkShown {
    stats64: Counters,
}

#[derive(Deserialize)]
struct Counters {
    rx: Counter,
    tx: Counter,
}

#[derive(Deserialize)]
struct Counter {
    bytes: u64,
}

impl Namespaces {
    /// Makes them and the link, which is not shaped yet. What killed runs left is removed first.
    pub(crate) fn make() -> Result<Self, Fault> {
        remove_stale();
        let named = |side| format!("{PREFIX}{}-{side}", std::process::id());
        // There from the start, so that a failure half-way is cleaned up too.
        let made = Self { host: named(SIDES[0]), drives: named(SIDES[1]) };
        for name in [&made.host, &made.drives] {
            ip(&["netns", "add", name])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            let chosen = format!("echo {CONGESTION} > /proc/sys/net/ipv4/tcp_congestion_control");
            ip(&["netns", "exec", name, "sh", "-c", &chosen])?;
        }
        ip(&["-n", &made.host, "link", "add", LINK, "type", "veth", "peer", "name", LINK, "netns", &made.drives])?;
        for (name, address) in [(&made.host, HOST_ADDRESS), (&made.drives, DRIVES_ADDRESS)] {
            // Without addresses of IPv6 the link is silent when nobody speaks.
            ip(&["-n", name, "link", "set", LINK, "addrgenmode", "none"])?;
            ip(&["-n", name, "address", "add", &format!("{address}/24"), "dev", LINK])?;
            ip(&["-n", name, "link", "set", LINK, "up"])?;
        }
        Ok(made)
    }

    /// Shapes the link to a rate in each direction.
    pub(crate) fn shape(&self, rate: Rate) -> Result<(), Fault> {
        let bits = format!("{:.0}bit", rate.bits_per_second);
        let shaped = ["root", "tbf", "rate", &bits, "burst", BURST, "latency", LATENCY];
        for name in [&self.host, &self.drives] {
            let words = [&["-n", name, "qdisc", "replace", "dev", LINK], &shaped[..]].concat();
            said("tc", &words)?;
        }
        Ok(())
    }

    /// How to start a command at the host, or with the drives, on one core or any.
    pub(crate) fn at_host(&self, core: Option<usize>) -> Vec<String> {
        inside(&self.host, core)
    }

    /// See [`Self::at_host`].
    pub(crate) fn at_drives(&self, core: Option<usize>) -> Vec<String> {
        inside(&self.drives, core)
    }

    /// Bytes over the link so far, both ways, as the interface of the host counts them. Waits until the link is quiet.
    pub(super) async fn bytes(&self) -> Result<u64, Fault> {
        let started = Instant::now();
        let mut last = self.counted()?;
        loop {
            tokio::time::sleep(QUIET).await;
            let now = self.counted()?;
            if now == last || started.elapsed() > QUIET_WAIT_MAX {
                return Ok(now);
            }
            last = now;
        }
    }

    fn counted(&self) -> Result<u64, Fault> {
        counters(&ip(&["-n", &self.host, "-s", "-j", "link", "show", "dev", LINK])?)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in [&self.host, &self.drives] {
            remove(name);
        }
    }
}

fn counters(text: &str) -> Result<u64, Fault> {
    let bug = |what: String| Fault::new(Blame::Device, format!("what `ip -s -j link` says cannot be read: {what}"));
    let links: Vec<LinkShown> = serde_json::from_str(text).map_err(|error| bug(error.to_string()))?;
    let link = links.first().ok_or_else(|| bug("no link".to_owned()))?;
    Ok(link.stats64.rx.bytes.saturating_add(link.stats64.tx.bytes))
}

fn inside(namespace: &str, core: Option<usize>) -> Vec<String> {
    let core = core.map(|core| core.to_string());
    let pinned = core.iter().flat_map(|core| ["taskset", "-c", core]);
    ["ip", "netns", "exec", namespace].into_iter().chain(pinned).map(str::to_owned).collect()
}

/// Removes namespaces of runs that are no more.
fn remove_stale() {
    let Ok(names) = std::fs::read_dir(NAMES) else { return };
    for name in names.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        if run_of(&name).is_some_and(|run| !runs(run)) {
            remove(&name);
        }
    }
}

/// The process number in a namespace's name. None: it is not of such a run.
fn run_of(name: &str) -> Option<u32> {
    let (run, side) = name.strip_prefix(PREFIX)?.split_once('-')?;
    SIDES.contains(&side).then(|| run.parse().ok()).flatten()
}

/// Whether a process is there and runs a benchmark.
fn runs(id: u32) -> bool {
    let line = Path::new("/proc").join(id.to_string()).join("cmdline");
    std::fs::read(line).is_ok_and(|line| is_this(&line))
}

/// Whether a command line, its words closed by zeros, is one of a benchmark.
fn is_this(line: &[u8]) -> bool {
    line.split(|byte| *byte == 0).any(|word| word == b"bench")
}

/// Kills what runs in a namespace of ours and removes it. It may be gone already; nothing is left to do about it either way.
fn remove(name: &str) {
    if !Path::new(NAMES).join(name).exists() {
        return;
    }
    for id in ip(&["netns", "pids", name]).unwrap_or_default().split_whitespace() {
        let _ = Command::new("kill").args(["-KILL", id]).stderr(Stdio::null()).status();
    }
    let _ = ip(&["netns", "delete", name]);
}

fn ip(words: &[&str]) -> Result<String, Fault> {
    said("ip", words)
}

/// What a command says. A fault if it fails, with its own words.
fn said(program: &str, words: &[&str]) -> Result<String, Fault> {
    let failed = |what: &str| Fault::new(Blame::Device, format!("{program} {}: {}", words.join(" "), what.trim()));
    let output = Command::new(program).args(words).stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(&error.to_string()))?;
    if !output.status.success() {
        return Err(failed(&String::from_utf8_lossy(&output.stderr))
            .hint("the kernel needs network namespaces, veth and tbf (CONFIG_NET_NS, CONFIG_VETH, CONFIG_NET_SCH_TBF)"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_namespaces_of_such_runs_are_taken_for_left_over() {
        assert_eq!(run_of("pithead-neardata-4711-host"), Some(4711));
        assert_eq!(run_of("pithead-neardata-4711-drives"), Some(4711));
        for name in ["pithead-neardata-4711", "pithead-neardata-x-host", "pithead-neardata-4711-other", "docker-4711-host"] {
            assert_eq!(run_of(name), None, "{name}");
        }
        assert!(is_this(b"/usr/bin/pithead\0bench\0neardata\0--runs\0"));
        // Another program that was given the number since.
        assert!(!is_this(b"vim\0neardata.rs\0") && !runs(0));
    }

    #[test]
    fn both_directions_are_counted() {
        let text = r#"[{"ifname":"link","stats64":{"rx":{"bytes":40,"packets":1},"tx":{"bytes":2,"packets":1}}}]"#;
        assert_eq!(counters(text).unwrap(), 42);
        assert!(counters("[]").is_err() && counters("no").is_err());
    }

    #[test]
    fn a_core_is_named_only_where_one_is_asked_for() {
        assert_eq!(inside("n", None).join(" "), "ip netns exec n");
        assert_eq!(inside("n", Some(1)).join(" "), "ip netns exec n taskset -c 1");
    }
}
