use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::medium::{Call, LyingMedium, Medium, Trouble};

const CAPACITY: u64 = 1 << 30;

fn file(medium: &Arc<LyingMedium>) -> WriteBehind {
    let file = medium.open("file", true).unwrap();
    medium.flush_names("").unwrap();
    WriteBehind::new(file)
}

fn block(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK]
}

proptest! {
    #[test]
    fn it_is_a_file(steps in prop::collection::vec((0_u8..6, 0_u64..40, 1_usize..6, any::<u8>()), 1..60)) {
        let medium = LyingMedium::new(1, CAPACITY);
        let file = file(&medium);
        let mut model: Vec<u8> = Vec::new();
        for (step, at, blocks, byte) in steps {
            let (offset, bytes) = (at as usize * BLOCK, vec![byte; blocks * BLOCK]);
            let is_inside = model.len() >= offset + bytes.len();
            match step {
                0 => {
                    file.set_len(offset as u64).unwrap();
                    model.resize(offset, 0);
                }
                1 if is_inside => file.hold(|| file.write(offset as u64, &bytes)).unwrap(),
                2 if is_inside => file.write(offset as u64, &bytes).unwrap(),
                3 => file.hold(|| file.flush()).unwrap(),
                4 => file.flush().unwrap(),
                5 => file.catch_up().unwrap(),
                _ => {}
            }
            if is_inside && matches!(step, 1 | 2) {
                model[offset..offset + bytes.len()].copy_from_slice(&bytes);
            }
            prop_assert_eq!(file.len().unwrap(), model.len() as u64);
            let mut all = vec![1; model.len()];
            file.read(0, &mut all).unwrap();
            prop_assert!(all == model);
            // Parts that begin and end inside of blocks.
            let part = (model.len() / 3)..(model.len() - model.len() / 5);
            file.read(part.start as u64, &mut all[part.clone()]).unwrap();
            prop_assert!(all[part.clone()] == model[part]);
        }
        file.flush().unwrap();
        let after = medium.crash();
        let mut all = vec![1; model.len()];
        after.open("file", true).unwrap().read(0, &mut all).unwrap();
        prop_assert!(all == model);
    }
}

/// Whenever the power fails, what came after a flush is there only if all before it is.
#[test]
fn order_outlives_the_power() {
    let mut seen = BTreeSet::new();
    for (seed, after) in (0..40).flat_map(|seed| (0..16).map(move |after| (seed, after))) {
        let medium = LyingMedium::new(seed, CAPACITY);
        let file = file(&medium);
        file.set_len(4 * BLOCK as u64).unwrap();
        file.flush().unwrap();
        for byte in 1..=3 {
            let work = || {
                file.write(BLOCK as u64, &block(byte))?;
                file.write(3 * BLOCK as u64, &block(byte))?;
                file.flush()?;
                file.write(0, &block(byte))?;
                file.flush()
            };
            file.hold(work).unwrap();
        }
        medium.set_trouble(vec![Trouble::io(&[Call::Write, Call::Flush], after)]);
        let failed = file.catch_up().is_err();
        assert_eq!(file.catch_up().is_err(), failed, "a medium that failed is not asked again");
        let mut found = [0; 4 * BLOCK];
        medium.crash().open("file", false).unwrap().read(0, &mut found).unwrap();
        let named = found[0];
        // What is named is there, or what was to be named next.
        for at in [BLOCK, 3 * BLOCK] {
            assert!(found[at] >= named, "{named} is named, and {} is there", found[at]);
        }
        seen.insert(named);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3], "the power failed at one point only");
}
