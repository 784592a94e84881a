//! [`format()`]: the function of that name, and names and texts as SQL writes them.

use crate::reserved::is_reserved;

/// What is done with a format's argument.
struct Directive {
    /// The argument, the first one being 1; none: the next one.
    position: Option<usize>,
    /// `-`: what is short is filled up behind it, and not before it.
    is_left: bool,
    width: Width,
    kind: char,
}

/// The least number of characters.
#[derive(Clone, Copy)]
enum Width {
    Of(usize),
    /// An argument says it: the one at this place, or the next one.
    Argument(Option<usize>),
}

/// Widest that an argument is made: Rust's own formatting takes no more.
const WIDTH_MAX: usize = u16::MAX as usize;
/// Most bytes of a text that is made: a short format may ask for one argument many times.
const MADE_BYTES_MAX: usize = 64 << 20;

/// `format(text, …)`: `%s` is an argument as text, `%I` as a name and `%L` as a literal, `%%` a sign. `argument` gives those that there
/// are, the first one at 1, with none for NULL.
pub(crate) fn format<'a>(text: &str, argument: impl Fn(usize) -> Option<Option<&'a str>>) -> Result<String, String> {
    let (mut out, mut rest, mut next) = (String::with_capacity(text.len()), text, 1);
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let directive = directive(&mut rest)?;
        let mut take = |position: Option<usize>| {
            let place = position.unwrap_or(next);
            next = place + 1;
            argument(place).ok_or_else(|| "too few arguments for format()".to_owned())
        };
        let (width, is_left) = match directive.width {
            Width::Of(width) => (width, directive.is_left),
            Width::Argument(position) => {
                let width: i64 = take(position)?.unwrap_or("0").parse().map_err(|_| "a width is no number".to_owned())?;
                (usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX), directive.is_left || width < 0)
            }
        };
        let made = converted(directive.kind, take(directive.position)?)?;
        if width > WIDTH_MAX {
            return Err(format!("a width of {width} characters; at most {WIDTH_MAX} are allowed"));
        }
        out.push_str(&match is_left {
            true => format!("{made:<width$}"),
            false => format!("{made:>width$}"),
        });
        if out.len() > MADE_BYTES_MAX {
            return Err(format!("a text of over {MADE_BYTES_MAX} bytes, which is the bound"));
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// `[position$][-][width]type`, after the sign.
fn directive(rest: &mut &str) -> Result<Directive, String> {
    let number = |rest: &mut &str| {
        let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        number.parse::<usize>().ok().inspect(|_| *rest = after)
    };
    let positioned = |rest: &mut &str| {
        let mut ahead = *rest;
        let position = number(&mut ahead)?;
        *rest = ahead.strip_prefix('$')?;
        Some(position)
    };
    let is_from_1 = |position: Option<usize>| position != Some(0);
    let position = positioned(rest);
    let is_left = rest.starts_with('-');
    *rest = rest.trim_start_matches('-');
    let width = match rest.strip_prefix('*') {
        Some(after) => {
            *rest = after;
            Width::Argument(positioned(rest))
        }
        None => Width::Of(number(rest).unwrap_or(0)),
    };
    let asked = if let Width::Argument(asked) = width { asked } else { None };
    if !is_from_1(position) || !is_from_1(asked) {
        return Err("format specifies argument 0, but arguments are numbered from 1".to_owned());
    }
    let kind = rest.chars().next().ok_or("unterminated format() type specifier")?;
    *rest = &rest[kind.len_utf8()..];
    Ok(Directive { position, is_left, width, kind })
}

fn converted(kind: char, value: Option<&str>) -> Result<String, String> {
    match (kind, value) {
        ('s', value) => Ok(value.unwrap_or_default().to_owned()),
        ('I', Some(value)) => Ok(quoted(value)),
        ('I', None) => Err("null values cannot be formatted as an SQL identifier".to_owned()),
        ('L', value) => Ok(value.map_or_else(|| "NULL".to_owned(), quoted_literal)),
        (other, _) => Err(format!("unrecognized format() type specifier {other:?}; there are %s, %I, %L and %%")),
    }
}

/// A name as SQL writes it: in quotes where it needs them, as words do that mean something else without.
pub fn quoted(name: &str) -> String {
    let plain = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || character == '_';
    let is_plain = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_') && name.chars().all(plain);
    match is_plain && !is_reserved(name) {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// A text as SQL writes it.
pub(crate) fn quoted_literal(text: &str) -> String {
    let inner = text.replace('\'', "''");
    match inner.contains('\\') {
        true => format!("E'{}'", inner.replace('\\', "\\\\")),
        false => format!("'{inner}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_where_they_have_to_be() {
        assert_eq!([quoted("a_1"), quoted("A"), quoted("1a"), quoted("a\"b")], ["a_1", "\"A\"", "\"1a\"", "\"a\"\"b\""]);
        assert_eq!(["order", "user", "name", "trips"].map(quoted), ["\"order\"", "\"user\"", "name", "trips"]);
        assert_eq!([quoted_literal("it's"), quoted_literal("a\\b")], ["'it''s'", "E'a\\\\b'"]);
    }

    #[test]
    fn directives_are_those_of_postgresql() {
        let all = [Some("one"), Some("Two"), None];
        let of = |text: &str| format(text, |place: usize| all.get(place.checked_sub(1)?).copied());
        for (text, expected) in [
            ("no sign, 100%%", "no sign, 100%"),
            ("%s and %I", "one and \"Two\""),
            ("%2$I %1$s %s", "\"Two\" one Two"),
            ("%L, %3$L, <%3$s>", "'one', NULL, <>"),
            ("[%5s] [%-5s]", "[  one] [Two  ]"),
        ] {
            assert_eq!(of(text).as_deref(), Ok(expected), "{text}");
        }
        for wrong in ["%x", "%", "%s %s %s %s", "%3$I", "%0$s", "%s %*s", "%99999999s"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn words_that_mean_something_else_are_quoted_as_names() {
        let of = |name: &str| format("SELECT count(*) FROM %I", |_| Some(Some(name)));
        assert_eq!(of("order").as_deref(), Ok("SELECT count(*) FROM \"order\""));
        assert_eq!(of("trips").as_deref(), Ok("SELECT count(*) FROM trips"));
    }

    #[test]
    fn arguments_say_widths() {
        let all = [Some("-4"), Some("é")];
        assert_eq!(format("%*s|", |place: usize| all.get(place - 1).copied()).as_deref(), Ok("é   |"));
    }

    #[test]
    fn what_is_made_is_bounded() {
        let one = |_: usize| Some(Some("x"));
        assert_eq!(format("%1$65535s", one).map(|made| made.len()), Ok(65_535));
        assert!(format("%1$65536s", one).unwrap_err().contains("65535"));
        let often = "%1$65535s".repeat(1_100);
        assert!(format(&often, one).unwrap_err().contains("bound"));
        assert_eq!(format(&often[..9 * 1_000], one).map(|made| made.len()), Ok(65_535_000));
    }
}
