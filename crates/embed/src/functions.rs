//! [`functions`]: what can be called in this release beyond the engine's own functions.

use std::sync::{Arc, LazyLock};

use pithead_functions::Registry;
use pithead_matrix_sql::matrix_functions;
use pithead_model::RUNS_USER_FUNCTIONS;

/// The functions that this release's hosts, arrays and drives are started with: every engine's, and those over expression matrices.
/// All of them run functions of users, too.
///
/// # Panics
///
/// If two of the release's own functions have one name, which a test rules out.
pub fn functions() -> Arc<Registry> {
    static ALL: LazyLock<Arc<Registry>> = LazyLock::new(|| {
        let own = Registry::new(matrix_functions()).expect("names of the release's own functions");
        Arc::new(own.announcing(RUNS_USER_FUNCTIONS))
    });
    Arc::clone(&ALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_has_a_name_of_its_own() {
        let all = functions();
        assert_eq!(all.announced().len(), 62);
        assert!(all.announced().iter().any(|announced| announced == RUNS_USER_FUNCTIONS));
        assert_eq!(all.merging("gram"), Some("combine"));
        assert_eq!(all.merging("accumulate"), None);
    }
}
