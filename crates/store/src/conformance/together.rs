//! Several callers at once.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

#[test]
fn of_writers_that_race_one_wins_each_version() {
    on_each(|store| {
        store.through(vec![Write::put("n", vec![0])]).unwrap();
        let add = |durability| {
            let mut won = 0;
            while won < 10 {
                let (number, entry) = store.get(b"n").unwrap().unwrap();
                let next = vec![number[0] + 1];
                let expected = Expected::Version(entry.version);
                let put = Put { version: next.clone().into(), expected, ..Put::forced("n", next) };
                match store.write(vec![Write::Put(put)], durability) {
                    Ok(()) => won += 1,
                    lost => assert!(is_conflict(lost, "n")),
                }
            }
        };
        std::thread::scope(|scope| {
            for writer in 0..6 {
                let durability = if writer % 2 == 0 { Durability::Through } else { Durability::Back };
                scope.spawn(move || add(durability));
            }
        });
        assert_eq!(store.held("n").unwrap(), vec![60]);
    });
}

/// Of two batches in conflict, one fails as a whole (Montana et al. 2023, Skytether, section 5.1).
#[test]
fn of_batches_in_conflict_one_is_there_whole() {
    on_each(|store| {
        for round in 0..20 {
            let won = AtomicU32::new(0);
            let (a, b, tail) = (format!("{round}/a"), format!("{round}/b"), format!("{round}/tail"));
            let attempt = |seed: u8| {
                // Each takes the keys in its own order.
                let (first, second) = if seed.is_multiple_of(2) { (&a, &b) } else { (&b, &a) };
                let bytes = if seed.is_multiple_of(3) { SEGMENT_BYTES_MIN } else { 10 };
                let batch = vec![
                    put(&tail, value(seed, bytes)),
                    put_if(first, value(seed, bytes), "1", Expected::Absent),
                    put_if(second, value(seed, bytes), "1", Expected::Absent),
                ];
                match store.through(batch) {
                    Ok(()) => drop(won.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => assert!(matches!(error, StoreError::Conflict { .. }), "{error}"),
                }
            };
            let attempt = &attempt;
            std::thread::scope(|scope| (0..4).for_each(|seed| drop(scope.spawn(move || attempt(seed)))));
            assert_eq!(won.into_inner(), 1);
            assert_eq!(store.held(&a), store.held(&b));
            assert_eq!(store.held(&a), store.held(&tail));
        }
    });
}

#[test]
fn writers_of_other_keys_do_not_meet() {
    on_each(|store| {
        let fill = |writer: u8| {
            for number in 0..20u8 {
                let bytes = if number % 4 == 0 { SEGMENT_BYTES_MIN + usize::from(writer) } else { 100 };
                let durability = if number % 3 == 0 { Durability::Back } else { Durability::Through };
                let key = format!("{writer}/{number}");
                store.write(vec![put(&key, value(writer ^ number, bytes))], durability).unwrap();
                assert_eq!(store.held(&key).unwrap(), value(writer ^ number, bytes));
            }
        };
        std::thread::scope(|scope| (0..8).for_each(|writer| drop(scope.spawn(move || fill(writer)))));
        assert_eq!(store.usage().unwrap().keys, 160);
        for writer in 0..8u8 {
            for number in 0..20u8 {
                let held = store.held(&format!("{writer}/{number}")).unwrap();
                assert_eq!(held, value(writer ^ number, held.len()));
            }
        }
    });
}

#[test]
fn readers_see_whole_values_while_they_are_replaced() {
    on_each(|store| {
        store.through(vec![put("a", value(0, SEGMENT_BYTES_MIN)), put("b", value(0, 10))]).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for seed in 1..60 {
                    store.through(vec![put("a", value(seed, SEGMENT_BYTES_MIN)), put("b", value(seed, 10))]).unwrap();
                }
            });
            while !writer.is_finished() {
                let read = store.held("a").unwrap();
                assert_eq!(read, value(read[0], SEGMENT_BYTES_MIN));
                // It was read later than `a`, so it is at least as new.
                assert!(store.held("b").unwrap()[0] >= read[0]);
            }
        });
    });
}
