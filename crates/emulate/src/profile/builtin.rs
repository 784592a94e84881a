//! The profiles that come with the program.

use super::{Profile, ProfileError, parse};

const BUILTIN: &[(&str, &str)] = &[
    ("smart-ssd", include_str!("../../profiles/smart-ssd.toml")),
    ("sas-ssd", include_str!("../../profiles/sas-ssd.toml")),
    ("sas-hdd", include_str!("../../profiles/sas-hdd.toml")),
    ("pm1725-biscuit", include_str!("../../profiles/pm1725-biscuit.toml")),
    ("pm1725", include_str!("../../profiles/pm1725.toml")),
    ("kinetic-envoy", include_str!("../../profiles/kinetic-envoy.toml")),
    ("kinetic-client", include_str!("../../profiles/kinetic-client.toml")),
    ("newport", include_str!("../../profiles/newport.toml")),
    ("dpu-array", include_str!("../../profiles/dpu-array.toml")),
    ("native", include_str!("../../profiles/native.toml")),
];

/// Their names.
pub fn builtin_names() -> Vec<&'static str> {
    BUILTIN.iter().map(|(name, _)| *name).collect()
}

/// The text of one.
pub fn builtin(name: &str) -> Option<&'static str> {
    BUILTIN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// One of them, by its name.
pub fn find(name: &str) -> Result<Profile, ProfileError> {
    let text = builtin(name).ok_or_else(|| ProfileError::Unknown { name: name.to_owned() })?;
    parse(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_builtin_profile_is_right_and_has_its_own_name() {
        for name in builtin_names() {
            let profile = find(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(profile.name, name);
            assert_eq!(profile.parts.is_none(), name == "native");
        }
    }

    #[test]
    fn an_unknown_name_is_told_what_there_is() {
        let error = find("floppy").unwrap_err().to_string();
        assert!(error.starts_with("no built-in profile floppy; there are smart-ssd, sas-ssd,"), "{error}");
    }

    /// What says neither where it is from nor that it is assumed cannot be traced.
    #[test]
    fn every_number_has_a_source_that_can_be_looked_up() {
        let known = [
            "Do et al. 2013",
            "Gu et al. 2016",
            "Jo et al. 2016",
            "Montana et al. 2023",
            "assumed",
            "calibrated on",
            "derived from",
        ];
        for name in builtin_names() {
            for (section, quantities) in find(name).unwrap().parts.iter().flat_map(|parts| parts.sections()) {
                for (field, quantity, _) in quantities {
                    let source = &quantity.source;
                    assert!(known.iter().any(|start| source.starts_with(start)), "{name} {section}.{field}: {source}");
                }
            }
        }
    }

    #[test]
    fn the_reference_has_every_number_and_profile() {
        let page = include_str!("../../../../docs/reference/devices.md");
        for (section, quantities) in find("pm1725-biscuit").unwrap().parts.unwrap().sections() {
            let (_, after) =
                page.split_once(&format!("### `{section}`\n")).unwrap_or_else(|| panic!("{section} has no heading"));
            let rows = after.split("\n##").next().unwrap();
            for (name, ..) in &quantities {
                assert!(rows.contains(&format!("\n| `{name}` |")), "{section}.{name}");
            }
            assert_eq!(rows.matches("\n| `").count(), quantities.len(), "{section} has a number too many");
        }
        assert!(builtin_names().iter().all(|name| page.contains(&format!("`{name}`"))));
    }
}
