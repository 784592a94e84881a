//! What is left out of what is made, so that a difference which is known already does not hide others.

/// Parts that can be left out.
pub const PARTS: [&str; 7] = ["names", "nested", "zeros", "negative nan", "quantified", "floats as keys", "loads"];

/// Parts that are left out.
#[derive(Clone, Debug, Default)]
pub struct Without(Vec<String>);

impl Without {
    /// From a list with commas between.
    ///
    /// # Panics
    ///
    /// If one is not among [`PARTS`].
    pub fn parse(text: &str) -> Without {
        let parts: Vec<String> = text.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect();
        for part in &parts {
            assert!(PARTS.contains(&part.as_str()), "there is no part {part:?}; the parts are {PARTS:?}");
        }
        Without(parts)
    }

    /// Whether a part is made.
    pub(crate) fn makes(&self, part: &str) -> bool {
        !self.0.iter().any(|left_out| left_out == part)
    }
}
