//! What the terminal at the other end is good for.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

/// A line on stderr. One that nobody listens to any more is no reason to fail, or to stop serving.
pub(crate) fn tell(text: impl Display) {
    // At once: stderr has no buffer, and whoever waits for a line reads all of it.
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Whether stderr may carry colour and moving pictures.
pub(crate) fn lively() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Whether stderr may carry colour: a terminal, and `NO_COLOR` not set.
pub(crate) fn colour() -> bool {
    lively() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Text that warns, on stderr.
pub(crate) fn red(text: &str) -> String {
    paint("1;31", text)
}

/// Text that stands out, on stderr.
pub(crate) fn bold(text: &str) -> String {
    paint("1", text)
}

/// How the terminal at stdin is set, to set it so again.
pub(crate) struct Modes(Option<libc::termios>);

impl Modes {
    pub(crate) fn now() -> Modes {
        let mut modes = std::mem::MaybeUninit::uninit();
        // SAFETY: the call fills in what it is given where it returns 0, and only then it is looked at.
        Modes(unsafe { (libc::tcgetattr(libc::STDIN_FILENO, modes.as_mut_ptr()) == 0).then(|| modes.assume_init()) })
    }

    pub(crate) fn restore(&self) {
        if let Some(modes) = &self.0 {
            // SAFETY: the modes are those that the system gave. A terminal that is gone needs none.
            unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, modes) };
        }
    }
}

fn paint(code: &str, text: &str) -> String {
    if colour() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Columns that a text takes on a terminal.
pub(crate) fn width(text: &str) -> usize {
    unicode_width::UnicodeWidthStr::width(text)
}

/// `1234567` as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1 row`, `2,000 rows`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number))
}

/// The same for nouns whose plural is another word.
pub(crate) fn counted_as(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

/// Seconds as people read them: `0.012 s`, `1.2 s`, `83 s`.
pub(crate) fn seconds(seconds: f64) -> String {
    let digits = match seconds {
        s if s < 0.1 => 3,
        s if s < 1.0 => 2,
        s if s < 60.0 => 1,
        _ => 0,
    };
    format!("{seconds:.digits$} s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(counted(1, "row"), "1 row");
        assert_eq!(counted(1000, "slice"), "1,000 slices");
        assert_eq!([seconds(0.0123), seconds(0.5), seconds(2.34), seconds(83.4)], ["0.012 s", "0.50 s", "2.3 s", "83 s"]);
    }
}
