//! From a file's text to a profile that makes sense, or to the line that does not.

use std::ops::Range;

use super::{
    Bound, Cpu, Link, Names, Parts, Profile, ProfileError, Quantity, RawProfile, builtin, quantity_text, section_names,
};

/// The longest file that is read.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// The longest name.
const NAME_BYTES_MAX: usize = 64;
/// The shortest interval of GET: an empty answer is counted for each.
const POLL_MIN_S: f64 = 1e-9;
/// Numbers that profiles had and have no more, each with the reason.
const GONE: [(&str, &str); 1] =
    [("block_bytes", "nothing is erased in the model, which only reads, so profiles have it no more; delete the line")];

pub(super) fn parse(text: &str, names: Names) -> Result<Profile, ProfileError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(ProfileError::Line { line: 1, reason: format!("a profile has at most {TEXT_BYTES_MAX} bytes") });
    }
    let raw: RawProfile = toml::from_str(text).map_err(|error| malformed(text, &error))?;
    let check = Check { text };
    check.name(&raw, names)?;
    let about = raw.about.get_ref().trim().to_owned();
    let name = raw.name.get_ref().clone();
    let parts = if raw.native { check.native(&raw).map(|()| None)? } else { Some(check.parts(raw)?) };
    Ok(Profile { name, about, parts })
}

/// What TOML's reader says, without its picture of the line.
fn malformed(text: &str, error: &toml::de::Error) -> ProfileError {
    let line = error.span().map_or(1, |span| line_of(text, &span));
    let said = error.message().lines().collect::<Vec<_>>().join("; ");
    let gone = GONE.iter().find(|(name, _)| said.starts_with(&format!("unknown field `{name}`")));
    let reason = gone.map_or(said, |(name, why)| format!("{name}: {why}"));
    ProfileError::Line { line, reason }
}

fn line_of(text: &str, span: &Range<usize>) -> usize {
    let before = text.as_bytes().get(..span.start.min(text.len())).unwrap_or_default();
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

struct Check<'a> {
    text: &'a str,
}

impl Check<'_> {
    fn refuse<T>(&self, span: &Range<usize>, reason: impl Into<String>) -> Result<T, ProfileError> {
        Err(ProfileError::Line { line: line_of(self.text, span), reason: reason.into() })
    }

    fn name(&self, raw: &RawProfile, names: Names) -> Result<(), ProfileError> {
        let name = raw.name.get_ref();
        let plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !plain {
            let reason = format!("name: expected up to {NAME_BYTES_MAX} lower-case letters, digits and dashes, found {name:?}");
            return self.refuse(&raw.name.span(), reason);
        }
        if names == Names::Own && builtin(name).is_some() {
            let reason = format!("name: {name} is a profile that comes with the program, so yours needs another name");
            return self.refuse(&raw.name.span(), reason);
        }
        if raw.about.get_ref().trim().is_empty() {
            return self.refuse(&raw.about.span(), "about: expected a sentence that says what the device is");
        }
        Ok(())
    }

    fn native(&self, raw: &RawProfile) -> Result<(), ProfileError> {
        let there = [
            raw.medium.as_ref().map(toml::Spanned::span),
            raw.memory.as_ref().map(toml::Spanned::span),
            raw.cpu.as_ref().map(toml::Spanned::span),
            raw.matcher.as_ref().map(toml::Spanned::span),
            raw.link.as_ref().map(toml::Spanned::span),
            raw.power.as_ref().map(toml::Spanned::span),
            raw.host.as_ref().map(toml::Spanned::span),
        ];
        match section_names().iter().zip(there).find_map(|(section, span)| Some((section, span?))) {
            Some((section, span)) => {
                self.refuse(&span, format!("[{section}]: the native device is the real hardware and has no sections"))
            }
            None => Ok(()),
        }
    }

    fn parts(&self, raw: RawProfile) -> Result<Parts, ProfileError> {
        let RawProfile { medium, memory, cpu, matcher, link, power, host, .. } = raw;
        let mut link = self.needed(link, "link")?;
        link.poll_least_s = link.poll_least_s.or(&link.poll_s, "as poll_s: the interval is fixed");
        let parts = Parts {
            medium: self.needed(medium, "medium")?,
            memory: self.needed(memory, "memory")?,
            cpu: cpu.map(toml::Spanned::into_inner),
            matcher: matcher.map(toml::Spanned::into_inner),
            link,
            power: self.needed(power, "power")?,
            host: self.needed(host, "host")?,
        };
        for (section, quantities) in parts.sections() {
            for (name, quantity, bound) in quantities {
                self.quantity(section, name, quantity, bound)?;
            }
        }
        self.together(&parts)?;
        Ok(parts)
    }

    fn needed<T>(&self, section: Option<toml::Spanned<T>>, name: &str) -> Result<T, ProfileError> {
        let end = self.text.trim_end().len();
        let missing = || self.refuse(&(end..end), format!("the section [{name}] is missing"));
        section.map_or_else(missing, |section| Ok(section.into_inner()))
    }

    fn quantity(&self, section: &str, name: &str, quantity: &Quantity, bound: Bound) -> Result<(), ProfileError> {
        let value = quantity.value;
        // NaN is within no bounds.
        if !(bound.least..=bound.most).contains(&value) || (bound.whole && value.fract() != 0.0) {
            let kind = if bound.whole { "a whole number" } else { "a number" };
            let (least, most) = (quantity_text(name, bound.least), quantity_text(name, bound.most));
            let reason = format!("{section}.{name}: expected {kind} from {least} to {most}, found {value}");
            return self.refuse(&quantity.span, reason);
        }
        if quantity.source.trim().is_empty() {
            let reason = format!("{section}.{name}: expected a source, or \"assumed\", found an empty text");
            return self.refuse(&quantity.span, reason);
        }
        Ok(())
    }

    /// What is absurd only beside something else.
    fn together(&self, parts: &Parts) -> Result<(), ProfileError> {
        let page = parts.medium.page_bytes.value;
        let at_least =
            [("memory.page_buffer_bytes", &parts.memory.page_buffer_bytes), ("link.read_bytes", &parts.link.read_bytes)];
        for (name, quantity) in at_least {
            if quantity.value < page {
                let reason = format!("{name}: {} bytes are less than one page of {page} bytes", quantity.value);
                return self.refuse(&quantity.span, reason);
            }
        }
        let buffers = parts.memory.page_buffer_bytes.value + parts.memory.output_buffer_bytes.value;
        if buffers > parts.memory.dram_bytes.value + parts.memory.sram_bytes.value {
            let reason = format!("memory: buffers of {buffers} bytes do not fit into the device's memory");
            return self.refuse(&parts.memory.page_buffer_bytes.span, reason);
        }
        if parts.host.threads.value > parts.host.cores.value {
            let reason = format!("host.threads: {} threads on {} cores", parts.host.threads.value, parts.host.cores.value);
            return self.refuse(&parts.host.threads.span, reason);
        }
        if parts.host.waiting_cores.value > parts.host.cores.value {
            let (waiting, cores) = (parts.host.waiting_cores.value, parts.host.cores.value);
            let reason = format!("host.waiting_cores: {waiting} cores wait, of {cores}");
            return self.refuse(&parts.host.waiting_cores.span, reason);
        }
        self.polls(&parts.link)?;
        self.takes_watts(parts)?;
        parts.cpu.as_ref().map_or(Ok(()), |cpu| self.takes_time(cpu))
    }

    /// Intervals of GET that can be counted, of which the shortest is no longer than the longest.
    fn polls(&self, link: &Link) -> Result<(), ProfileError> {
        let (longest, shortest) = (link.poll_s.value, link.poll_least_s.value);
        for (name, quantity) in [("poll_s", &link.poll_s), ("poll_least_s", &link.poll_least_s)] {
            if longest > 0.0 && quantity.value < POLL_MIN_S {
                let or = if name == "poll_s" { "0, or at least" } else { "at least" };
                let reason = format!("link.{name}: expected {or} {POLL_MIN_S:e}, found {:e}", quantity.value);
                return self.refuse(&quantity.span, reason);
            }
        }
        if shortest > longest {
            let reason =
                format!("link.poll_least_s: the shortest interval, {shortest}, is above the longest, poll_s, {longest}");
            return self.refuse(&link.poll_least_s.span, reason);
        }
        Ok(())
    }

    /// A system that draws nothing cannot be compared with any.
    fn takes_watts(&self, parts: &Parts) -> Result<(), ProfileError> {
        let sections = parts.sections();
        let mut watts = sections.iter().flat_map(|(_, quantities)| quantities).filter(|(name, ..)| name.ends_with("_w"));
        match watts.any(|(_, quantity, _)| quantity.value > 0.0) {
            true => Ok(()),
            false => self.refuse(&parts.power.idle_w.span, "power: expected watts for something, found 0 for everything"),
        }
    }

    /// Cores for which all work is free cannot be compared with any.
    fn takes_time(&self, cpu: &Cpu) -> Result<(), ProfileError> {
        let quantities = cpu.quantities();
        let mut cycles = quantities.iter().filter(|(name, ..)| name.ends_with("_cycles"));
        match cycles.any(|(_, quantity, _)| quantity.value > 0.0) {
            true => Ok(()),
            false => self.refuse(&cpu.page_cycles.span, "cpu: expected cycles for something, found 0 for everything"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{parse, parse_own};
    use super::*;

    fn smart() -> String {
        builtin("smart-ssd").unwrap().to_owned()
    }

    /// The refusal of the built-in profile with one text in the place of another, after the number of the changed line.
    fn refusal(from: &str, to: &str) -> (usize, ProfileError) {
        let text = smart();
        let at = text.find(from).unwrap_or_else(|| panic!("the profile has {from}"));
        (line_of(&text, &(at..at)), parse(&text.replacen(from, to, 1)).unwrap_err())
    }

    #[test]
    fn what_is_absurd_is_refused_with_its_line() {
        let cases = [
            ("cores = { value = 2,", "cores = { value = 0,", "cpu.cores: expected a whole number from 1 to"),
            ("cores = { value = 2,", "cores = { value = 1.5,", "cpu.cores: expected a whole number"),
            ("clock_hz = { value = 400e6,", "clock_hz = { value = nan,", "cpu.clock_hz: expected a number"),
            ("clock_hz = { value = 400e6,", "clock_hz = { value = inf,", "cpu.clock_hz: expected a number"),
            ("clock_hz = { value = 400e6,", "clock_hz = { value = -1,", "cpu.clock_hz: expected a number"),
            ("poll_s = { value = 0.01,", "poll_s = { value = 1e9,", "link.poll_s: expected a number from 0 s to 60.0 s"),
            (
                "read_bytes = { value = 262_144,",
                "read_bytes = { value = 4096,",
                "link.read_bytes: 4096 bytes are less than one page",
            ),
            ("threads = { value = 8,", "threads = { value = 64,", "host.threads: 64 threads on 8 cores"),
            ("waiting_cores = { value = 1,", "waiting_cores = { value = 9,", "host.waiting_cores: 9 cores wait, of 8"),
            ("poll_s = { value = 0.01,", "poll_s = { value = 1e-15,", "link.poll_s: expected 0, or at least 1e-9, found 1e-15"),
            (
                "poll_least_s = { value = 0.01,",
                "poll_least_s = { value = 0,",
                "link.poll_least_s: expected at least 1e-9, found 0e0",
            ),
            (
                "poll_least_s = { value = 0.01,",
                "poll_least_s = { value = 0.02,",
                "link.poll_least_s: the shortest interval, 0.02, is above the longest, poll_s, 0.01",
            ),
            ("poll_least_s = { value = 0.01,", "poll_least_s = { value = nan,", "link.poll_least_s: expected a number from"),
        ];
        for (from, to, expected) in cases {
            let (line, error) = refusal(from, to);
            let ProfileError::Line { line: found, reason } = error else { panic!("{to}: {error}") };
            assert!(reason.contains(expected), "{to}: {reason}");
            assert_eq!(found, line, "{to}");
        }
    }

    /// Profiles of before there was a shortest interval have a fixed one.
    #[test]
    fn a_profile_without_a_shortest_interval_polls_in_a_fixed_one() {
        let lines = |text: &str| text.lines().filter(|line| !line.starts_with("poll_least_s")).collect::<Vec<_>>().join("\n");
        let link = parse(&lines(&smart())).unwrap().parts.unwrap().link;
        assert_eq!((link.poll_least_s.value, link.poll_least_s.source.as_str()), (0.01, "as poll_s: the interval is fixed"));
        let both = smart().replacen("poll_least_s = { value = 0.01,", "poll_least_s = { value = 0.001,", 1);
        assert_eq!(parse(&both).unwrap().parts.unwrap().link.poll_least_s.value, 0.001);
    }

    #[test]
    fn a_number_that_profiles_have_no_more_is_refused_with_the_reason() {
        let text =
            smart().replacen("read_latency_s =", "block_bytes = { value = 4096, source = \"assumed\" }\nread_latency_s =", 1);
        let line = text.lines().position(|line| line.starts_with("block_bytes")).unwrap() + 1;
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("line {line}: block_bytes: nothing is erased in the model")), "{error}");
        assert!(error.ends_with("delete the line"), "{error}");
    }

    #[test]
    fn what_is_malformed_is_refused_with_its_line() {
        for (from, to, expected) in [
            ("poll_s = {", "pol_s = {", "unknown field `pol_s`"),
            ("clock_hz = { value = 400e6, source =", "clock_hz = { value = 400e6, sauce =", "unknown field `sauce`"),
            ("clock_hz = { value = 400e6,", "clock_hz = { value = \"fast\",", "invalid type"),
        ] {
            let (line, error) = refusal(from, to);
            let ProfileError::Line { line: found, reason } = error else { panic!("{to}: {error}") };
            assert!(reason.contains(expected), "{to}: {reason}");
            assert_eq!(found, line, "{to}");
        }
        let twice = smart().replacen("[memory]", "[medium]", 1);
        assert!(parse(&twice).is_err());
        assert!(parse("").is_err());
        assert!(parse(&smart()[..900]).is_err());
        let bare = smart().replacen("cores = { value = 2,", "cores = 2 # ", 1);
        let error = parse(&bare).unwrap_err().to_string();
        assert!(error.contains("expected a number with its source"), "{error}");
        let text = smart().replacen("cores = { value = 2,", "cores = { value = \"2\",", 1);
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains("expected a number") && !error.contains("f64"), "{error}");
    }

    #[test]
    fn a_source_is_needed_and_native_has_no_parts() {
        let text = smart();
        let unsourced = text.replacen("source = \"assumed\"", "source = \" \"", 1);
        assert!(parse(&unsourced).unwrap_err().to_string().contains("expected a source"));
        let native = format!("native = true\n{}", text.replacen("[medium]", "# no [medium]\n\n[medium]", 1));
        let line = native.lines().position(|line| line == "[medium]").unwrap() + 1;
        let error = parse(&native).unwrap_err().to_string();
        assert!(error.starts_with(&format!("line {line}: [medium]: the native device is the real hardware")), "{error}");
    }

    /// The lines of a profile in which all numbers whose names end so are 0.
    fn without(ending: &str) -> Vec<String> {
        let free = |line: &str| match line.split_once(" = ") {
            Some((name, _)) if name.ends_with(ending) => format!("{name} = {{ value = 0, source = \"assumed\" }}"),
            _ => line.to_owned(),
        };
        smart().lines().map(free).collect()
    }

    #[test]
    fn cores_that_take_no_time_are_refused() {
        let text = without("_cycles");
        let line = text.iter().position(|line| line.starts_with("page_cycles")).unwrap() + 1;
        let error = parse(&text.join("\n")).unwrap_err().to_string();
        assert_eq!(error, format!("line {line}: cpu: expected cycles for something, found 0 for everything"));
        let some = text.join("\n").replacen("sum_cycles = { value = 0,", "sum_cycles = { value = 1,", 1);
        assert!(parse(&some).is_ok());
    }

    #[test]
    fn a_system_that_draws_nothing_is_refused() {
        let text = without("_w");
        let line = text.iter().position(|line| line.starts_with("idle_w")).unwrap() + 1;
        let error = parse(&text.join("\n")).unwrap_err().to_string();
        assert_eq!(error, format!("line {line}: power: expected watts for something, found 0 for everything"));
        let some = text.join("\n").replacen("link_active_w = { value = 0,", "link_active_w = { value = 1,", 1);
        assert!(parse(&some).is_ok());
    }

    #[test]
    fn a_name_that_is_taken_is_refused_with_its_line() {
        let line = smart().lines().position(|line| line.starts_with("name = ")).unwrap() + 1;
        let error = parse_own(&smart()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("line {line}: name: smart-ssd is a profile that comes with")), "{error}");
        assert!(parse(&smart()).is_ok());
        assert!(parse_own(&smart().replacen("smart-ssd", "smart-ssd-2", 1)).is_ok());
    }

    #[test]
    fn bytes_without_sense_do_not_panic() {
        use proptest::prelude::*;
        proptest!(ProptestConfig::with_cases(256), |(start in 0..6000_usize, junk in "[ -~\n]{0,40}")| {
            let text = smart();
            let at = (0..=start.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            let _ = parse(&format!("{}{junk}{}", &text[..at], &text[at..]));
        });
    }
}
