//! Days and moments in text, as PostgreSQL takes them where they say more than their type holds.

/// The day, without a time or a zone after it.
pub(crate) fn day_of(text: &str) -> &str {
    match cut(text) {
        Some((day, rest)) if rest.bytes().all(|byte| byte.is_ascii_digit() || b":.+-TZz ".contains(&byte)) => day,
        _ => text,
    }
}

/// The moment, without a zone: of a type that has none it is left out, and changes nothing.
pub(crate) fn without_zone(text: &str) -> &str {
    let Some((day, rest)) = cut(text) else { return text };
    if rest.ends_with(['Z', 'z']) {
        return text.trim()[..day.len() + rest.len() - 1].trim_end();
    }
    let Some(sign) = rest.rfind(['+', '-']) else { return text };
    match rest[sign + 1..].bytes().all(|byte| byte.is_ascii_digit() || byte == b':') {
        true => text.trim()[..day.len() + sign].trim_end(),
        false => text,
    }
}

/// The time of day, without a zone after it.
pub(crate) fn time_without_zone(text: &str) -> &str {
    let text = text.trim();
    let is_zone = |zone: &str| zone.bytes().all(|byte| byte.is_ascii_digit() || byte == b':');
    match text.rfind(['+', '-']) {
        Some(sign) if sign > 0 && is_zone(&text[sign + 1..]) => text[..sign].trim_end(),
        _ => text.strip_suffix(['Z', 'z']).unwrap_or(text).trim_end(),
    }
}

/// `2024-02-29`, and what follows it after a space or a T; none: it is something else.
fn cut(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let end = text.find([' ', 'T'])?;
    let (day, rest) = text.split_at(end);
    let is_day = day.split('-').count() == 3 && day.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    is_day.then_some((day, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_type_does_not_hold_is_left_out() {
        for text in ["2024-02-29", "2024-02-29 +00", " 2024-02-29 01:02:03+01:00", "2024-02-29T01:02:03Z"] {
            assert_eq!(day_of(text).trim(), "2024-02-29", "{text}");
        }
        assert_eq!(day_of("2024-02-29 or so"), "2024-02-29 or so");
        for text in ["10:11:12", "10:11:12+01", " 10:11:12-05:30", "10:11:12Z"] {
            assert_eq!(time_without_zone(text), "10:11:12", "{text}");
        }
        for text in ["2024-02-29 01:02:03", "2024-02-29 01:02:03+01", " 2024-02-29 01:02:03 -05:30", "2024-02-29 01:02:03Z"] {
            assert_eq!(without_zone(text), "2024-02-29 01:02:03", "{text}");
        }
        assert_eq!(without_zone("2024-02-29T01:02:03 Europe/Berlin"), "2024-02-29T01:02:03 Europe/Berlin");
    }
}
