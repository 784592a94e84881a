//! [`Style`]: whether a format is one of `format` or of `printf`.

/// How places for values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Style {
    /// `{}`.
    Braces,
    /// `%d`.
    Percent,
}

impl Style {
    pub(super) fn name(self) -> &'static str {
        match self {
            Style::Braces => "format",
            Style::Percent => "printf",
        }
    }
}
