//! Options that slow a drive down: to rates and shares, or to the speeds of a profile.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use pithead_device::{CoreCosts, Device, Paced};
use pithead_emulate::{CoreSeconds, Profile, Throttle, parse, quantity_text};
use pithead_model::{Blame, Fault, Rate, parse_rate};

use crate::device;
use crate::error::CliError;
use crate::reference_work::{ReferenceWork, reference_work};
use crate::target;

/// Threads for each core of this machine at most, where a profile has so many cores: they only take turns.
const THREADS_A_CORE: usize = 16;

/// How fast the drive may be.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PaceArgs {
    /// Pace what the drive sends to a rate, such as 1gbit [default: not paced]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    link: Option<Rate>,
    /// Slow its CPU to a share of its speed, such as 1/15, as of a weaker engine [default: as it is]
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    cpu: Option<Share>,
    /// Slow CPU, medium and link to those of a device: a profile by its name, or a file; see `pithead device ls`
    #[arg(long, value_name = "PROFILE")]
    device: Option<String>,
}

/// A share of a CPU's speed: above 0, at most 1.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Share(f64);

/// What the options come to.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    link: Option<f64>,
    /// The share of a core that was asked for.
    share: Option<f64>,
    /// The profile's name, and its limits.
    profile: Option<(String, Throttle)>,
    /// Cores of this machine.
    machine: usize,
}

impl PaceArgs {
    /// Reads the profile, and compares its cores with this machine's, which takes about a second.
    pub(crate) async fn pace(&self) -> Result<Pace, CliError> {
        let profile = match self.device.as_deref().map(profile).transpose()?.flatten() {
            Some(profile) => Some(throttle(profile, &reference_work().await?)?),
            None => None,
        };
        Ok(self.of(profile))
    }

    fn of(&self, profile: Option<(String, Throttle)>) -> Pace {
        let limits = profile.as_ref().map(|(_, throttle)| throttle);
        Pace {
            link: self.link.map(|rate| rate.bits_per_second).or(limits.map(|limits| limits.link_bytes_per_s * 8.0)),
            share: self.cpu.map(|Share(share)| share),
            profile,
            machine: target::cores(),
        }
    }
}

/// A profile; none: it is the machine as it is.
fn profile(named: &str) -> Result<Option<Profile>, CliError> {
    let profile = parse(&device::text_of(named)?).map_err(|error| device::refused(&error).at(named))?;
    // One of a file is called by its path: the name in it may be another's.
    Ok(profile.parts.is_some().then(|| Profile { name: named.to_owned(), ..profile }))
}

fn throttle(profile: Profile, work: &ReferenceWork) -> Result<(String, Throttle), CliError> {
    match Throttle::of(&profile, &work.counts, work.cpu_s) {
        Ok(throttle) => Ok((profile.name, throttle)),
        Err(error) => {
            let hint = "a drive runs sub-plans: name a profile with cores, such as smart-ssd; `pithead device ls` lists all";
            Err(Fault::new(Blame::User, error.to_string()).hint(hint).into())
        }
    }
}

impl Pace {
    /// The cores of the profile, as many as this machine can take the place of.
    pub(crate) fn cores(&self) -> Option<usize> {
        let most = self.machine.saturating_mul(THREADS_A_CORE);
        self.profile.as_ref().map(|(_, limits)| usize::try_from(limits.cores).unwrap_or(most).min(most))
    }

    /// Memory for sessions: no more than the profile's device has.
    pub(crate) fn memory(&self, wanted: u64) -> u64 {
        self.profile.as_ref().map_or(wanted, |(_, limits)| wanted.min(limits.memory_bytes))
    }

    /// The device for a drive with so many threads.
    pub(crate) fn device(&self, threads: usize) -> Arc<dyn Device> {
        let mut device = Paced::default();
        if let Some(bits_per_second) = self.link {
            device = device.with_link(bits_per_second);
        }
        if let Some(share) = self.share {
            device = device.with_cpu(share, threads);
        } else if let Some((_, limits)) = &self.profile {
            device = device.with_counted_cpu(core_costs(&limits.core), limits.core_share.min(1.0), threads);
        }
        if let Some((name, limits)) = &self.profile {
            let latency = Duration::from_secs_f64(limits.read_latency_s);
            device = device
                .standing_for(name)
                .with_medium(limits.medium_bytes_per_s, latency, limits.page_buffer_bytes)
                .with_polling(Duration::from_secs_f64(limits.poll_least_s), Duration::from_secs_f64(limits.poll_s));
        }
        Arc::new(device)
    }

    /// In words.
    pub(crate) fn facts(&self) -> String {
        let link = match self.link {
            Some(bits_per_second) => format!("link paced to {}", Rate { bits_per_second }),
            None => "link not paced".to_owned(),
        };
        let profile = self.profile.as_ref().map(|(name, limits)| {
            let medium = quantity_text("bytes_per_s", limits.medium_bytes_per_s);
            let [least, most] = [limits.poll_least_s, limits.poll_s].map(|interval| quantity_text("poll_s", interval));
            let polled = match limits.poll_s {
                0.0 => String::new(),
                longest if limits.poll_least_s < longest => format!(", polled every {least} to {most}"),
                _ => format!(", polled every {most}"),
            };
            format!(", medium paced to {medium}{polled}, as a {name}")
        });
        format!("{link}{}{}", self.cpu_facts(), profile.unwrap_or_default())
    }

    fn cpu_facts(&self) -> String {
        match (self.share, &self.profile) {
            (Some(share), _) if share < 1.0 => format!(", CPU paced to {share:.3} of its speed"),
            (None, Some((_, limits))) => {
                let share = limits.core_share;
                format!(", CPU paced to what it counts, about {share:.3} of its speed{}", self.too_slow(limits))
            }
            _ => String::new(),
        }
    }

    /// Where this machine cannot be as fast as the profile's cores.
    fn too_slow(&self, limits: &Throttle) -> String {
        let (cores, machine) = (limits.cores, self.machine);
        let all = limits.core_share * cores as f64 / machine.max(1) as f64;
        let faster = if limits.core_share > 1.0 {
            format!(", though the profile's core is {:.1} times as fast as one here", limits.core_share)
        } else if all > 1.0 {
            format!(", though the profile's {cores} cores are {all:.1} times as fast as the {machine} here")
        } else {
            String::new()
        };
        match self.cores() {
            Some(used) if (used as u64) < cores => format!("{faster}, {used} of its {cores} cores"),
            _ => faster,
        }
    }
}

fn core_costs(core: &CoreSeconds) -> CoreCosts {
    let CoreSeconds { page_bytes, page_s, row_s, match_s, sum_s } = *core;
    CoreCosts { page_bytes, page_s, row_s, match_s, sum_s }
}

/// Reads `1/15` and `0.25`.
fn parse_share(text: &str) -> Result<Share, String> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let share = match text.split_once('/') {
        Some((part, whole)) => number(part).zip(number(whole)).map(|(part, whole)| part / whole),
        None => number(text),
    };
    match share {
        Some(share) if (1e-3..=1.0).contains(&share) => Ok(Share(share)),
        _ => Err("expected a share above 0.001 and at most 1, such as 1/15 or 0.25".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use pithead_device::CountedWork;
    use pithead_model::Counts;

    use super::*;

    /// A core that takes 10 ms for a million rows.
    const WORK: ReferenceWork = ReferenceWork {
        counts: Counts {
            rows: 1_000_000,
            read_bytes: 4_000_000,
            stored_bytes: 4_000_000,
            passed_rows: 400_000,
            passed_bytes: 3_200_000,
            out_rows: 1,
            out_bytes: 8,
        },
        cpu_s: 0.01,
    };

    fn limits(named: &str) -> Result<(String, Throttle), CliError> {
        throttle(profile(named)?.unwrap(), &WORK)
    }

    #[test]
    fn a_profile_sets_what_is_not_said_otherwise() {
        let pace = PaceArgs::default().of(Some(limits("smart-ssd").unwrap()));
        assert_eq!((pace.cores(), pace.memory(1 << 30), pace.memory(1 << 20)), (Some(2), 512 << 20, 1 << 20));
        let device = pace.device(2);
        assert_eq!(device.link_bits_per_second(), Some(4.4e9));
        assert_eq!(device.medium_bytes_per_second(), Some(1.56e9));
        assert!(device.cpu_share() < 0.5, "400 MHz of 2013: {}", device.cpu_share());
        let facts = pace.facts();
        assert!(facts.ends_with(" of its speed, medium paced to 1.56 GB/s, polled every 10.0 ms, as a smart-ssd"), "{facts}");
        assert_eq!(device.polled_every(), Some(Duration::from_millis(10)..=Duration::from_millis(10)));
        let newport = PaceArgs::default().of(Some(limits("newport").unwrap()));
        assert_eq!(newport.device(2).polled_every(), None, "the device speaks first");
        assert!(!newport.facts().contains("polled"), "{}", newport.facts());
        let rows = CountedWork { rows: 1_000_000, ..CountedWork::default() };
        assert_eq!(device.takes(&rows), Some(Duration::from_millis(100)), "40 cycles a row at 400 MHz");
        let said = PaceArgs { link: Some(Rate { bits_per_second: 1e9 }), cpu: Some(Share(0.5)), device: None };
        let device = said.of(Some(limits("smart-ssd").unwrap())).device(2);
        assert_eq!((device.link_bits_per_second(), device.cpu_share(), device.takes(&rows)), (Some(1e9), 0.5, None));
    }

    #[test]
    fn a_machine_that_is_slower_than_the_profile_says_so_and_starts_no_thousand_threads() {
        let (name, limits) = limits("smart-ssd").unwrap();
        let pace = |cores, core_share| Pace {
            profile: Some((name.clone(), Throttle { cores, core_share, ..limits })),
            machine: 4,
            ..Pace::default()
        };
        let told = |cores, core_share| pace(cores, core_share).facts();
        assert!(!told(4, 1.0).contains("though"), "{}", told(4, 1.0));
        assert!(told(2, 1.5).contains("the profile's core is 1.5 times as fast as one here"), "{}", told(2, 1.5));
        assert!(told(16, 0.5).contains("the profile's 16 cores are 2.0 times as fast as the 4 here"), "{}", told(16, 0.5));
        assert_eq!((pace(16, 0.5).cores(), pace(4096, 0.01).cores()), (Some(16), Some(64)));
        assert!(told(4096, 1e-5).contains("of its speed, 64 of its 4096 cores, medium"), "{}", told(4096, 1e-5));
        assert_eq!(pace(4, 7.0).device(4).cpu_share(), 1.0);
    }

    #[tokio::test]
    async fn the_machine_as_it_is_is_not_paced() {
        let pace = PaceArgs { device: Some("native".to_owned()), ..PaceArgs::default() }.pace().await.unwrap();
        assert_eq!((pace.cores(), pace.facts().as_str()), (None, "link not paced"));
        let device = pace.device(2);
        assert_eq!((device.cpu_share(), device.medium_bytes_per_second()), (1.0, None));
    }

    #[test]
    fn what_cannot_run_sub_plans_and_what_is_unknown_is_refused() {
        assert!(limits("sas-ssd").unwrap_err().to_string().contains("no cores for users' work"));
        assert!(limits("floppy").unwrap_err().to_string().contains("smart-ssd"));
    }

    #[test]
    fn shares_are_fractions_or_numbers() {
        assert_eq!(
            (parse_share("1/4"), parse_share("0.25"), parse_share("1")),
            (Ok(Share(0.25)), Ok(Share(0.25)), Ok(Share(1.0)))
        );
        for text in ["0", "1.5", "1/0", "x", "-1/4", "nan", "2/1", ""] {
            assert!(parse_share(text).is_err(), "{text}");
        }
    }
}
