//! Intervals as only PostgreSQL takes them: ISO 8601 (`P1Y2MT3H`, `P0001-02-03T04:05:06`), SQL's own (`1-2`, `3 04:05:06`), and
//! `@ 1 day ago`.

/// The same interval with a unit behind each number; clock times stay. None: it is written so, or it is none.
pub fn interval_in_units(text: &str) -> Option<String> {
    let text = text.trim();
    match text.strip_prefix('P') {
        Some(parts) => iso(parts),
        None => in_words(text),
    }
}

/// `1Y2M3W4DT5H6M7.5S`, or `0001-02-03T04:05:06`.
fn iso(parts: &str) -> Option<String> {
    let (date, time) = parts.split_once('T').unwrap_or((parts, ""));
    if date.contains('-') && !date.ends_with(|last: char| last.is_ascii_alphabetic()) {
        return alternative(date, time);
    }
    let mut units = counted(date, &[('Y', "years"), ('M', "months"), ('W', "weeks"), ('D', "days")])?;
    units.extend(counted(time, &[('H', "hours"), ('M', "minutes"), ('S', "seconds")])?);
    (!units.is_empty()).then(|| units.join(" "))
}

/// Numbers that a letter stands behind.
fn counted(mut text: &str, units: &[(char, &str)]) -> Option<Vec<String>> {
    let mut found = Vec::new();
    while !text.is_empty() {
        let end = text.find(|character: char| character.is_ascii_alphabetic())?;
        let (number, rest) = text.split_at(end);
        let letter = rest.chars().next()?;
        let (_, unit) = units.iter().find(|(known, _)| *known == letter)?;
        found.push(format!("{} {unit}", plain(number)?));
        text = &rest[letter.len_utf8()..];
    }
    Some(found)
}

fn alternative(date: &str, time: &str) -> Option<String> {
    let [year, month, day] = date.splitn(3, '-').collect::<Vec<_>>().try_into().ok()?;
    let numbers = [(year, "years"), (month, "months"), (day, "days")];
    let mut words = numbers.into_iter().map(|(number, unit)| Some(format!("{} {unit}", plain(number)?)));
    let mut words = words.by_ref().collect::<Option<Vec<_>>>()?;
    if !time.is_empty() {
        words.push(is_clock(time).then(|| time.to_owned())?);
    }
    Some(words.join(" "))
}

/// Words with spaces between them.
fn in_words(text: &str) -> Option<String> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let mut is_changed = words.first() == Some(&"@");
    if is_changed {
        words.remove(0);
    }
    let is_ago = words.last().is_some_and(|last| last.eq_ignore_ascii_case("ago"));
    if is_ago {
        is_changed = true;
        words.pop();
    }
    let mut written = Vec::with_capacity(words.len());
    for (place, word) in words.iter().enumerate() {
        let word = if is_ago { negated(word) } else { (*word).to_owned() };
        if let Some((sign, years, months)) = year_and_month(&word) {
            is_changed = true;
            written.push(format!("{sign}{years} years {sign}{months} months"));
        } else if plain(&word).is_some() && words.get(place + 1).is_some_and(|next| is_clock(next)) {
            is_changed = true;
            written.push(format!("{word} days"));
        } else {
            written.push(word);
        }
    }
    (is_changed && !written.is_empty()).then(|| written.join(" "))
}

/// `-1-2`: a year and two months ago.
fn year_and_month(word: &str) -> Option<(&str, &str, &str)> {
    let (sign, rest) = match word.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", word.strip_prefix('+').unwrap_or(word)),
    };
    let (years, months) = rest.split_once('-')?;
    [years, months].iter().all(|number| is_digits(number)).then_some((sign, years, months))
}

/// A word that begins with a number, with the other sign.
fn negated(word: &str) -> String {
    match word.strip_prefix(['-', '+']) {
        Some(rest) if word.starts_with('-') => rest.to_owned(),
        Some(rest) => format!("-{rest}"),
        None if word.starts_with(|first: char| first.is_ascii_digit() || first == '.') => format!("-{word}"),
        None => word.to_owned(),
    }
}

/// A number without a sign that says nothing.
fn plain(number: &str) -> Option<&str> {
    let number = number.strip_prefix('+').unwrap_or(number);
    let digits = number.strip_prefix('-').unwrap_or(number);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_number = (is_digits(whole) || whole.is_empty()) && is_digits(fraction);
    is_number.then_some(number)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `[-]04:05[:06.7]`.
fn is_clock(word: &str) -> bool {
    let parts: Vec<&str> = word.strip_prefix(['-', '+']).unwrap_or(word).split(':').collect();
    let is_part = |part: &&str| part.starts_with(|first: char| first.is_ascii_digit()) && plain(part).is_some();
    (2..=3).contains(&parts.len()) && parts.iter().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_get_units() {
        for (text, expected) in [
            ("P1Y2M", "1 years 2 months"),
            ("P3W4DT5H6M7.5S", "3 weeks 4 days 5 hours 6 minutes 7.5 seconds"),
            ("P-1Y+2M", "-1 years 2 months"),
            ("PT0.5S", "0.5 seconds"),
            ("P0001-02-03T04:05:06", "0001 years 02 months 03 days 04:05:06"),
            ("P1-2-3", "1 years 2 months 3 days"),
            ("1-2", "1 years 2 months"),
            ("-1-2", "-1 years -2 months"),
            ("1-2 3 4:05:06", "1 years 2 months 3 days 4:05:06"),
            ("3 04:05:06", "3 days 04:05:06"),
            ("@ 1 day 2 hours ago", "-1 day -2 hours"),
            ("1 day -04:05 ago", "-1 day 04:05"),
        ] {
            assert_eq!(interval_in_units(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_has_units_or_is_none_stays() {
        for text in [
            "1 year 2 mons 3 days 04:05:06",
            "04:05",
            "90",
            "",
            "P",
            "PT",
            "P1",
            "P1X",
            "PT1Y",
            "P1Y2",
            "1-2-3",
            "a-b",
            "@",
            "ago",
            "P1-2",
            "Pä",
        ] {
            assert_eq!(interval_in_units(text), None, "{text}");
        }
    }
}
