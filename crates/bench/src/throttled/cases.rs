//! Devices and queries.

use pithead_emulate::{Level, builtin};
use pithead_model::{Blame, Fault};

/// A profile that comes with the program, with some numbers changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Device {
    pub(super) name: &'static str,
    base: &'static str,
    /// Section, number, value.
    changes: &'static [(&'static str, &'static str, &'static str)],
    /// The only level that it is asked at; none: all.
    only: Option<Level>,
}

/// One question, and how far the drive takes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) name: &'static str,
    pub(super) sql: &'static str,
    pub(super) level: Level,
}

pub(super) const DEVICES: [Device; 6] = [
    Device { name: "smart-ssd", base: "smart-ssd", changes: &[], only: Some(Level::Whole) },
    Device { name: "pm1725-biscuit", base: "pm1725-biscuit", changes: &[], only: Some(Level::Whole) },
    Device { name: "kinetic-envoy", base: "kinetic-envoy", changes: &[], only: Some(Level::Whole) },
    Device {
        name: "smart-ssd-slow-medium",
        base: "smart-ssd",
        changes: &[("medium", "bus_bytes_per_s", "20e6")],
        only: Some(Level::Whole),
    },
    Device { name: "smart-ssd-slow-link", base: "smart-ssd", changes: &[("link", "bytes_per_s", "10e6")], only: None },
    Device {
        name: "smart-ssd-adaptive",
        base: "smart-ssd",
        changes: &[("link", "poll_least_s", "0.2e-3")],
        only: Some(Level::Whole),
    },
];

pub(super) const QUERIES: [Question; 5] = [
    Question { name: "filter of 1%", sql: "SELECT v, w FROM numbers WHERE k < 655", level: Level::Whole },
    Question { name: "sum of 10%", sql: "SELECT sum(v) FROM numbers WHERE k < 6554", level: Level::Whole },
    Question { name: "sum of all", sql: "SELECT sum(v) FROM numbers WHERE k < 65536", level: Level::Whole },
    Question { name: "groups", sql: "SELECT g, sum(v) FROM numbers GROUP BY g", level: Level::Whole },
    Question { name: "stored bytes", sql: "SELECT sum(v) FROM numbers WHERE k < 6554", level: Level::Bytes },
];

/// Makes the table: a key in no order, a group, and two values.
pub(super) fn table(rows: u64) -> String {
    format!(
        "CREATE TABLE numbers AS SELECT (value * 2654435761) % 65536 AS k, value % 50 AS g, value * 7919 % 1000003 AS v, \
         value * 104729 % 1000033 AS w FROM generate_series(1, {rows})"
    )
}

impl Device {
    /// Whether a question is one of its cases.
    pub(super) fn asks(&self, question: &Question) -> bool {
        self.only.is_none_or(|only| only == question.level)
    }

    /// The profile's text.
    pub(super) fn text(&self) -> Result<String, Fault> {
        let bug = |what: String| Fault::new(Blame::Bug, what);
        let base = builtin(self.base).ok_or_else(|| bug(format!("no profile {}", self.base)))?;
        let (mut section, mut changed, mut lines) = (String::new(), 0, Vec::new());
        for line in base.lines() {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = name.to_owned();
            }
            let wanted =
                |(within, number, _): &&(&str, &str, &str)| *within == section && line.starts_with(&format!("{number} = "));
            match self.changes.iter().find(wanted) {
                Some((_, number, value)) => {
                    changed += 1;
                    lines.push(format!("{number} = {{ value = {value}, source = \"assumed; for this measurement\" }}"));
                }
                None if line.starts_with("name = ") => lines.push(format!("name = \"{}\"", self.name)),
                None => lines.push(line.to_owned()),
            }
        }
        if changed != self.changes.len() {
            return Err(bug(format!("{} numbers of {} were changed, of {}", changed, self.base, self.changes.len())));
        }
        Ok(lines.join("\n") + "\n")
    }
}

#[cfg(test)]
mod tests {
    use pithead_emulate::parse;

    use super::*;

    #[test]
    fn devices_are_profiles_with_what_was_changed() {
        let profiles = DEVICES.map(|device| parse(&device.text().unwrap()).unwrap());
        assert_eq!(profiles.each_ref().map(|profile| profile.name.as_str()), DEVICES.map(|device| device.name));
        let parts = profiles[4].parts.as_ref().unwrap();
        assert_eq!((parts.link.bytes_per_s.value, parts.medium.bytes_per_s()), (10e6, 1.56e9));
        let link = &profiles[5].parts.as_ref().unwrap().link;
        assert_eq!((link.poll_least_s.value, link.poll_s.value), (0.2e-3, 0.01));
    }
}
