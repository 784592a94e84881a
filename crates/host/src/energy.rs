//! What a sub-plan that ran here would have taken on drives of a profile: seconds and joules, in virtual time.
//!
//! The work is that which was counted: rows and bytes read, passed and handed on. Rounds that drives took to different levels are
//! modelled each by itself, and added up.

use std::collections::BTreeSet;

use pithead_emulate::{
    DRIVES_MAX, Fleet, Level, ModelError, Others, Prediction, Profile, builtin_names, find, parse, predict_levels,
    predict_others, quantity_text,
};
use pithead_model::{Blame, ByLevel, Bytes, Counts, Fault};
use pithead_remote::SubPlanProfile;

/// The profile that the setting `pithead.device` names; none where it is empty. It takes no file: the one who sets it may be the
/// client of a server, and must not read what is there.
pub(crate) fn profile(name: &str) -> Result<Option<Profile>, Fault> {
    if name.is_empty() {
        return Ok(None);
    }
    device_profile(name, None).map(Some).map_err(|fault| if is_path(name) { no_file(name) } else { fault })
}

fn no_file(name: &str) -> Fault {
    let what = format!("this setting takes the name of a profile that comes with the program, and no file, found {name:?}");
    let hint =
        "files are for `pithead whatif`, `pithead status --device` and Python's emulated(); `pithead device ls` has the names";
    Fault::new(Blame::User, what).hint(hint)
}

/// Whether this can only be meant as a file.
fn is_path(name: &str) -> bool {
    name.contains(['/', '\\', '.'])
}

/// A profile with a model, from its text, or by its name where there is none. One of a text is called by the name that is given
/// here, its file's: the name in it may be that of another one.
pub fn device_profile(name: &str, text: Option<&str>) -> Result<Profile, Fault> {
    let found = match text {
        Some(text) => parse(text).map_err(|error| Fault::new(Blame::User, error.to_string()).at(name))?,
        None => find(name).map_err(|_| unknown(name))?,
    };
    match found.parts {
        Some(_) => Ok(Profile { name: name.to_owned(), ..found }),
        None => {
            let what = format!("the profile {} is this machine as it is, of which nothing is modelled", found.name);
            Err(Fault::new(Blame::User, what).hint("name a device: `pithead device ls`"))
        }
    }
}

fn unknown(name: &str) -> Fault {
    let what = format!("there is no profile of drives {name:?}; there are {}", builtin_names().join(", "));
    Fault::new(Blame::User, what).hint("`pithead device ls` tells of each")
}

/// What sub-plans would have taken on drives of a profile.
#[derive(Clone, Copy, Debug)]
pub struct Emulated {
    /// Drives. Each has as much of the work as any other.
    pub drives: u64,
    /// The sum over sub-plans, and over the levels to which rounds were taken.
    pub prediction: Prediction,
}

/// What these sub-plans would have taken on drives of a profile, as many as answered here: one after the other, each at the levels to
/// which it was taken here. None where nothing was read.
pub fn emulate<'a>(
    profile: &Profile,
    sub_plans: impl IntoIterator<Item = &'a SubPlanProfile>,
) -> Result<Option<Emulated>, ModelError> {
    let mut sum: Option<Emulated> = None;
    for sub_plan in sub_plans {
        let sessions = sub_plan.sessions();
        let labels = sessions.iter().filter(|session| !session.annotations.is_empty()).map(|session| &session.label);
        let drives = (labels.collect::<BTreeSet<_>>().len() as u64).clamp(1, DRIVES_MAX);
        let counts = ByLevel::<Counts>::of(sessions.iter().flat_map(|session| &session.annotations));
        let others = Others::of(sessions.iter().filter_map(|session| session.session.as_ref()));
        // Drives read other datasets for rounds that they take to their end, and for no others.
        let before = predict_others(profile, others, Level::Whole, Fleet::even(drives))?;
        let driving = predict_levels(profile, &counts, Fleet::even(drives))?;
        let Some(prediction) = before.into_iter().chain(driving).reduce(|sum, part| sum.and(&part)) else { continue };
        sum = Some(match sum {
            None => Emulated { drives, prediction },
            Some(sum) => Emulated { drives: sum.drives.max(drives), prediction: sum.prediction.and(&prediction) },
        });
    }
    Ok(sum)
}

/// Joules of drives and host for a sub-plan; none where nothing was read, or the profile does not reach so far.
pub(crate) fn joules(profile: &Profile, sub_plan: &SubPlanProfile) -> Option<f64> {
    Some(emulate(profile, [sub_plan]).ok()??.prediction.system_j)
}

/// The line for people; none where nothing was read.
pub(crate) fn emulated<'a>(profile: &Profile, sub_plans: impl IntoIterator<Item = &'a SubPlanProfile>) -> Option<String> {
    match emulate(profile, sub_plans) {
        Ok(emulated) => emulated.map(|emulated| line(profile, &emulated)),
        Err(error) => Some(format!("on drives {}: {error}", profile.name)),
    }
}

fn line(profile: &Profile, Emulated { drives, prediction }: &Emulated) -> String {
    let energy = &prediction.energy;
    format!(
        "on {drives} {} {} (emulated, virtual time): {}, {} from media, {} over links, waits for {}; {:.3} J: host CPU {:.3}, drives' CPU \
         {:.3}, media {:.3}, links {:.3}, drives on {:.3}, host on {:.3}",
        if *drives == 1 { "drive" } else { "drives" },
        profile.name,
        quantity_text("elapsed_s", prediction.elapsed_s),
        Bytes(prediction.medium_bytes),
        Bytes(prediction.link_bytes),
        prediction.bottleneck.name(),
        energy.system_j(),
        energy.host_cpu_j,
        energy.device_cpu_j,
        energy.medium_j,
        energy.link_j,
        energy.device_idle_j,
        energy.host_idle_j,
    )
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
        for file in ["mine.toml", "./mine", "/etc/passwd"] {
            let fault = profile(file).unwrap_err();
            assert!(fault.message.contains(file) && fault.message.contains("no file"), "{fault}");
            assert!(fault.hint.unwrap().contains("whatif"), "{file}");
        }
    }

    #[test]
    fn a_file_is_not_taken_for_the_built_in_profile_whose_name_it_has() {
        let text = pithead_emulate::builtin("newport");
        assert_eq!(device_profile("copy.toml", text).unwrap().name, "copy.toml");
        assert_eq!(device_profile("newport", None).unwrap().name, "newport");
    }
}
