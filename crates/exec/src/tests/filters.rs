//! Filters of all kinds, exact wherever they are applied; and what they keep from being read.

use super::*;

const FILTERS: &[&str] = &[
    "k = 12345",
    "k <> 12345",
    "k >= 30000 AND k < 30100",
    "30100 > k AND k > 29990",
    "k BETWEEN 19990 AND 20010",
    "i < 3",
    "i IS NULL",
    "i IS NOT NULL AND i = 5",
    "i IN (1, 2, 99)",
    "i NOT IN (1, 2, 3, 4, 5)",
    "i IN (1, NULL)",
    "i NOT IN (1, NULL)",
    "i + 1 = 5",
    "i * k > 500000 AND k < 9000",
    "f > 100.5",
    "f = 'NaN'::double",
    "f < 'NaN'::double",
    "f IN (0.0, 1.5)",
    "f = 0.0 OR f = -0.0",
    "d = 12.34",
    "d > 20.00 AND d <= 24.99",
    "d IN (1.25, -3.5)",
    "t = 'north item 3'",
    "t LIKE 'north%'",
    "t LIKE '%item 1_'",
    "t NOT LIKE '%item 1%'",
    "t LIKE '%long%' AND k < 100",
    "t ILIKE 'NORTH item 3%'",
    r"t LIKE 'east\, a%'",
    "t > 'south'",
    "t ~ 'item [12]$'",
    "upper(t) = 'NORTH ITEM 3'",
    "length(t) > 20 AND i = 4",
    "b",
    "NOT b",
    "b IS NULL",
    "b IS NOT TRUE",
    "day < DATE '1970-01-05'",
    "day = DATE '1969-12-31'",
    "day BETWEEN DATE '1970-06-01' AND DATE '1970-06-03' AND t IS NOT NULL",
    "k < 10 OR t = 'south item 7'",
    "(k < 100 AND i > 90) OR (k > 59900 AND i + 1 < 10)",
    "i = 5 OR (i = 6 AND t LIKE 'n%') OR b",
    "CASE WHEN i > 50 THEN b ELSE k < 100 END",
    "k % 1000 = 7",
    "false",
    "NULL",
    "k = 1 AND k = 2",
    "abs(f) < 0.5",
];

#[tokio::test]
async fn filters_give_the_rows_that_the_engine_gives() {
    for encoding in ENCODINGS {
        let lab = lab(encoding);
        for filter in FILTERS {
            lab.same(&format!("SELECT * FROM main.t WHERE {filter}"), How::default()).await;
            lab.same(
                &format!("SELECT t, k FROM main.t WHERE {filter}"),
                How { zone_maps: false, slices_max: 9, ..How::default() },
            )
            .await;
            lab.same(&format!("SELECT count(*) FROM main.t WHERE {filter}"), How { batch_rows: 100, ..How::default() }).await;
        }
    }
}

#[tokio::test]
async fn slices_and_pages_that_bounds_rule_out_are_not_read() {
    for encoding in ENCODINGS {
        let lab = lab(encoding);
        let ran = lab.same("SELECT k, t FROM main.t WHERE k BETWEEN 30000 AND 30010", How::default()).await;
        assert_eq!(ran.opened, 1, "{encoding}");
        let skipped: u32 = ran.rounds.iter().map(|round| round.slices_skipped).sum();
        assert_eq!(skipped, 2);
        let mut slices: Vec<u32> = ran.rounds.iter().flat_map(|round| round.slices.clone()).collect();
        slices.sort_unstable();
        assert_eq!(slices, [0, 1, 2]);
        // 20,000 rows are three pages; the rows lie in the second.
        let pages: Vec<(u64, u64)> = ran.rounds.iter().map(|round| (round.pages_read, round.pages_skipped)).collect();
        assert_eq!((pages.iter().map(|p| p.0).sum::<u64>(), pages.iter().map(|p| p.1).sum::<u64>()), (1, 2), "{encoding}");
        assert_eq!(ran.rounds.iter().map(|round| round.rows_in).sum::<u64>(), 20_000);
        assert!(ran.rounds.iter().map(|round| round.medium_bytes).sum::<u64>() > 0);

        let off = How { zone_maps: false, ..How::default() };
        let ran = lab.same("SELECT k, t FROM main.t WHERE k BETWEEN 30000 AND 30010", off).await;
        assert_eq!(ran.opened, 3);
        assert!(ran.rounds.iter().all(|round| round.slices_skipped == 0 && round.pages_skipped == 0));
    }
}

#[tokio::test]
async fn below_level_3_filters_only_rule_out() {
    for encoding in ENCODINGS {
        let lab = lab(encoding);
        let how = How { level_max: Level::Hints, ..How::default() };
        let ran = lab.run("SELECT t, k FROM main.t WHERE k BETWEEN 30000 AND 30010 AND i + 1 = 3", how).await.unwrap();
        // One page of one slice, whole.
        assert_eq!((ran.opened, total_rows(&ran.rows)), (1, 8_192), "{encoding}");
        assert_eq!(ran.rows[0].schema().fields().len(), 2);

        let how = How { level_max: Level::Hints, zone_maps: false, ..How::default() };
        let ran = lab.run("SELECT t, k FROM main.t WHERE k BETWEEN 30000 AND 30010", how).await.unwrap();
        assert_eq!((ran.opened, total_rows(&ran.rows)), (3, 60_000));
    }
}

#[tokio::test]
async fn below_level_3_nothing_is_computed() {
    let lab = lab("arrow");
    for sql in ["SELECT count(*) FROM main.t", "SELECT k + 1 FROM main.t", "SELECT k FROM main.t LIMIT 3"] {
        let how = How { level_max: Level::Hints, ..How::default() };
        let fault = lab.run(sql, how).await.err().unwrap();
        assert!(fault.message.contains("below level 3"), "{fault}");
    }
}

#[tokio::test]
async fn a_condition_that_keeps_others_from_failing_comes_first() {
    for encoding in ENCODINGS {
        let lab = lab(encoding);
        lab.same("SELECT k FROM main.t WHERE k > 59990 AND 1000 / (k - 59990) > 200", How::default()).await;
    }
}

#[tokio::test]
async fn slices_that_have_no_equal_value_are_told_of_and_ruled_out() {
    for encoding in ENCODINGS {
        let lab = lab(encoding);
        let keys: Vec<SliceKey> = lab.parts[0].slices.iter().map(|slice| slice.key.clone()).collect();
        let in_vain = || std::mem::take(&mut *lab.memory.in_vain.lock().unwrap());
        // Within the bounds of every slice, and in none; column 4.
        lab.same("SELECT k FROM main.t WHERE t = 'north item 77'", How::default()).await;
        assert_eq!(in_vain(), keys.iter().map(|key| (key.clone(), vec![4])).collect::<Vec<_>>(), "{encoding}");
        for told_nothing in [
            "t = 'north item 3'",
            "t > 'north item 3' AND t < 'north item 30' AND k < 0",
            "t LIKE 'north item 77%'",
            "k = 99999",
            "t = (SELECT max(t) || 'x' FROM main.t)",
        ] {
            lab.same(&format!("SELECT k FROM main.t WHERE {told_nothing}"), How::default()).await;
            assert_eq!(in_vain(), [], "{encoding} {told_nothing}");
        }
        let pruned = How { level_max: Level::Hints, ..How::default() };
        lab.run("SELECT k FROM main.t WHERE t = 'north item 77'", pruned).await.unwrap();
        assert_eq!(in_vain(), [], "{encoding}: rows are not filtered here");
        lab.memory.ruled_out.lock().unwrap().extend([keys[0].clone(), keys[2].clone()]);
        for (condition, opened) in [
            ("t = 'north item 77'", 1),
            ("t IN ('north item 77', 'x') AND k > 0", 1),
            ("i IS NULL", 3),
            ("t > 'north item 77'", 3),
        ] {
            let ran = lab.run(&format!("SELECT k FROM main.t WHERE {condition}"), How::default()).await.unwrap();
            let skipped: u32 = ran.rounds.iter().map(|round| round.slices_skipped).sum();
            assert_eq!((ran.opened, skipped as usize), (opened, 3 - opened), "{encoding} {condition}");
        }
        let without = How { zone_maps: false, ..How::default() };
        assert_eq!(lab.same("SELECT k FROM main.t WHERE t = 'north item 3'", without).await.opened, 3, "{encoding}");
    }
}
