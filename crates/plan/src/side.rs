//! [`Side`]: left or right.

/// A side of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

impl Side {
    pub(crate) fn other(self) -> Side {
        if self == Side::Left { Side::Right } else { Side::Left }
    }
}
