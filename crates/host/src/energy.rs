//! What a sub-plan that ran here would have taken on drives of a profile: seconds and joules, in virtual time.
//!
//! The work is that which was counted: rows and bytes read, passed and handed on. Rounds that drives took to different levels are
//! modelled each by itself, and added up.

use std::collections::BTreeSet;

use pithead_emulate::quantity_text;
use pithead_emulate::{
    Counts, DRIVES_MAX, Energy, Fleet, Level as Modelled, Prediction, Profile, builtin_names, find, predict,
};
use pithead_model::{Annotation, Blame, Bytes, Fault, Level};
use pithead_remote::SubPlanProfile;

/// The profile that the setting `pithead.device` names; none where it is empty.
pub(crate) fn profile(name: &str) -> Result<Option<Profile>, Fault> {
    if name.is_empty() {
        return Ok(None);
    }
    let unknown = || {
        let what = format!("there is no profile of drives {name:?}; there are {}", builtin_names().join(", "));
        Fault::new(Blame::User, what).hint("`pithead device ls` tells of each; SET pithead.device = '' asks for none")
    };
    let found = find(name).map_err(|_| unknown())?;
    if found.parts.is_none() {
        let what = format!("the profile {name} is this machine as it is, of which nothing is modelled");
        return Err(Fault::new(Blame::User, what).hint("name a device: `pithead device ls`"));
    }
    Ok(Some(found))
}

/// What a sub-plan would have taken, level by level, and on how many drives; none where nothing was read.
type Taken = Option<(u64, Result<Vec<Prediction>, String>)>;

fn taken(profile: &Profile, sub_plan: &SubPlanProfile) -> Taken {
    let sessions = sub_plan.sessions();
    let drives = sessions.iter().filter(|session| !session.annotations.is_empty()).map(|session| &session.label);
    let drives = (drives.collect::<BTreeSet<_>>().len() as u64).clamp(1, DRIVES_MAX);
    let rounds: Vec<&Annotation> = sessions.iter().flat_map(|session| &session.annotations).collect();
    let of = |level: Modelled| counted_work(rounds.iter().copied().filter(|round| modelled(round.level) == level));
    let parts = Modelled::ALL.map(|level| (level, of(level)));
    let parts = parts.iter().filter(|(_, counts)| *counts != Counts::default());
    let taken: Result<Vec<Prediction>, _> =
        parts.map(|(level, counts)| predict(profile, counts, *level, Fleet::even(drives))).collect();
    match taken {
        Ok(taken) if taken.is_empty() => None,
        taken => Some((drives, taken.map_err(|error| error.to_string()))),
    }
}

/// Joules of drives and host for a sub-plan; none where nothing was read, or the profile does not reach so far.
pub(crate) fn joules(profile: &Profile, sub_plan: &SubPlanProfile) -> Option<f64> {
    let (_, taken) = taken(profile, sub_plan)?;
    Some(taken.ok()?.iter().map(|taken| taken.energy.system_j()).sum())
}

/// The line for people; none where nothing was read.
pub(crate) fn emulated(profile: &Profile, sub_plan: &SubPlanProfile) -> Option<String> {
    let (drives, taken) = taken(profile, sub_plan)?;
    let noun = if drives == 1 { "drive" } else { "drives" };
    let taken = match taken {
        Ok(taken) => taken,
        Err(error) => return Some(format!("on {drives} {noun} {}: {error}", profile.name)),
    };
    let sum = |figure: fn(&Prediction) -> f64| taken.iter().map(figure).sum::<f64>();
    let joules = |part: fn(&Energy) -> f64| taken.iter().map(|taken| part(&taken.energy)).sum::<f64>();
    let bytes = |figure: fn(&Prediction) -> u64| Bytes(taken.iter().map(figure).fold(0, u64::saturating_add));
    let slowest = taken.iter().max_by(|a, b| a.elapsed_s.total_cmp(&b.elapsed_s))?;
    Some(format!(
        "on {drives} {noun} {} (emulated, virtual time): {}, {} from media, {} over links, waits for {}; {:.3} J: host CPU {:.3}, drives' \
         CPU {:.3}, media {:.3}, links {:.3}, drives on {:.3}, host on {:.3}",
        profile.name,
        quantity_text("elapsed_s", sum(|taken| taken.elapsed_s)),
        bytes(|taken| taken.medium_bytes),
        bytes(|taken| taken.link_bytes),
        slowest.bottleneck.name(),
        joules(Energy::system_j),
        joules(|energy| energy.host_cpu_j),
        joules(|energy| energy.device_cpu_j),
        joules(|energy| energy.medium_j),
        joules(|energy| energy.link_j),
        joules(|energy| energy.device_idle_j),
        joules(|energy| energy.host_idle_j),
    ))
}

/// The level of the model. Pages that may match come as they are stored, so the host has the work.
fn modelled(level: Level) -> Modelled {
    match level {
        Level::Whole => Modelled::Whole,
        Level::Filtered => Modelled::Filtered,
        Level::Hints | Level::Bytes => Modelled::Bytes,
    }
}

/// What rounds counted, for a model of drives.
pub fn counted_work<'a>(rounds: impl Iterator<Item = &'a Annotation>) -> Counts {
    rounds.fold(Counts::default(), |sums, round| Counts {
        rows: sums.rows.saturating_add(round.rows_in),
        read_bytes: sums.read_bytes.saturating_add(round.medium_bytes),
        stored_bytes: sums.stored_bytes.saturating_add(round.stored_bytes),
        passed_rows: sums.passed_rows.saturating_add(round.scan.rows),
        passed_bytes: sums.passed_bytes.saturating_add(round.scan.bytes),
        out_rows: sums.out_rows.saturating_add(round.rows_out),
        out_bytes: sums.out_bytes.saturating_add(round.batch_bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_known_or_refused() {
        assert!(profile("").unwrap().is_none());
        assert_eq!(profile("smart-ssd").unwrap().unwrap().name, "smart-ssd");
        let fault = profile("smart-sd").unwrap_err();
        assert!(fault.message.contains("smart-ssd"), "{fault}");
        assert!(profile("native").is_err());
    }
}
