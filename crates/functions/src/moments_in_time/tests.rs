use datafusion::prelude::SessionContext;

use crate::{EngineOptions, session_state};

/// The first column of a query in a session with a zone.
async fn column(zone: &str, sql: &str) -> Vec<String> {
    let options = EngineOptions { time_zone: Some(zone.to_owned()), ..EngineOptions::default() };
    let context = SessionContext::new_with_state(session_state(&options));
    let batches = context.sql(sql).await.unwrap().collect().await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let text = |batch: &arrow::array::RecordBatch, row| {
        arrow::util::display::array_value_to_string(batch.column(0), row).unwrap().replace('T', " ")
    };
    batches.iter().flat_map(|batch| (0..batch.num_rows()).map(|row| text(batch, row)).collect::<Vec<_>>()).collect()
}

async fn value(zone: &str, sql: &str) -> String {
    column(zone, sql).await.remove(0)
}

const NEW_YORK: &str = "America/New_York";
/// A moment, in UTC, and a wall time, of a row.
const ROW: &str = "(SELECT arrow_cast(column1, 'Timestamp(Microsecond, Some(\"+00:00\"))') AS z, column2::timestamp AS w, \
                   column3::date AS d FROM (VALUES ('2024-07-01 12:00:00', '2024-07-01 12:00:00', '2024-07-01'))) AS t";

#[tokio::test]
async fn a_cast_that_may_fail_reads_moments_as_any_other() {
    for zone in ["UTC", NEW_YORK, "Asia/Kolkata"] {
        for (of, to) in [
            ("z", "TIMESTAMP"),
            ("z - INTERVAL '10 hours'", "DATE"),
            ("z", "VARCHAR"),
            ("w", "TIMESTAMPTZ"),
            ("d", "TIMESTAMPTZ"),
            ("TIMESTAMP '2024-11-03 01:30:00'", "TIMESTAMPTZ"),
            ("TIMESTAMP '2024-03-10 02:30:00'", "TIMESTAMPTZ"),
            ("'2024-07-01 12:00:00'", "TIMESTAMPTZ"),
        ] {
            let cast = value(zone, &format!("SELECT CAST({of} AS {to})::varchar FROM {ROW}")).await;
            let tried = value(zone, &format!("SELECT TRY_CAST({of} AS {to})::varchar FROM {ROW}")).await;
            assert_eq!(tried, cast, "{of} as {to} in {zone}");
        }
    }
    assert_eq!(value(NEW_YORK, &format!("SELECT TRY_CAST(z AS TIMESTAMP) FROM {ROW}")).await, "2024-07-01 08:00:00");
    let none = "SELECT TRY_CAST(column1 AS TIMESTAMPTZ)::varchar FROM (VALUES ('x'))";
    assert_eq!(value(NEW_YORK, none).await, "");
}

#[tokio::test]
async fn what_is_taken_from_a_moment_is_one_of_the_zone() {
    for (difference, hours) in [("z - w", -4), ("w - z", 4), ("z - d", 8), ("d - z", -8), ("z - z", 0), ("w - d", 12)] {
        let sql = format!("SELECT extract(epoch FROM {difference})::bigint / 3600 FROM {ROW}");
        assert_eq!(value(NEW_YORK, &sql).await, hours.to_string(), "{difference}");
    }
    let in_utc = format!("SELECT extract(epoch FROM z - w)::bigint FROM {ROW}");
    assert_eq!(value("UTC", &in_utc).await, "0");
}

#[tokio::test]
async fn a_moment_beside_a_text_is_that_of_the_zone() {
    for zone in ["UTC", NEW_YORK, "Asia/Kolkata"] {
        for expr in ["'' || z", "concat(z, '')", "concat_ws('', z, '')"] {
            let sql = format!("SELECT {expr} = z::varchar FROM {ROW}");
            assert_eq!(value(zone, &sql).await, "true", "{expr} in {zone}");
        }
    }
    assert_eq!(value(NEW_YORK, &format!("SELECT 'at ' || z FROM {ROW}")).await, "at 2024-07-01 08:00:00-04");
}

#[tokio::test]
async fn a_moment_is_truncated_alike_beside_any_other() {
    const FAR: &str = "9999-12-31 00:00:00";
    let hours = ["2024-11-03 05:30:15", "2024-11-03 06:30:15", "2024-03-10 06:59:59", "2024-03-10 07:00:01"];
    let of = |moments: &[&str], expr: &str| {
        let rows: Vec<String> = moments.iter().enumerate().map(|(row, moment)| format!("({row}, '{moment}')")).collect();
        let moment = "arrow_cast(column2, 'Timestamp(Microsecond, Some(\"+00:00\"))')";
        let from = format!("(SELECT column1 AS i, {moment} AS z FROM (VALUES {})) AS t", rows.join(", "));
        format!("SELECT epoch_us({expr}) FROM {from} ORDER BY i")
    };
    let with_far: Vec<&str> = hours.into_iter().chain([FAR]).collect();
    for unit in ["microsecond", "second", "minute", "hour", "day", "week", "month", "year"] {
        let expr = format!("date_trunc('{unit}', z)");
        let near = column(NEW_YORK, &of(&hours, &expr)).await;
        let both = column(NEW_YORK, &of(&with_far, &expr)).await;
        assert_eq!(both[..hours.len()], near, "{unit}");
    }
    let binned = of(&with_far, "date_bin(INTERVAL '1 hour', arrow_cast(z, 'Timestamp(Microsecond, None)'))");
    assert_eq!(column("UTC", &binned).await[0], "1730610000000000");
}

/// A regression: only a comparison and BETWEEN took a wall time beside a moment for one of the zone, and these for one of UTC.
#[tokio::test]
async fn a_wall_time_is_looked_for_among_moments_as_one_of_the_zone() {
    let at = "timestamptz '2024-07-01 12:00-04'";
    let moments = format!("(SELECT {at} AS w)");
    for (condition, expected) in [
        (format!("w IN ({at})"), 1),
        (format!("w NOT IN ({at})"), 0),
        (format!("d IN (timestamptz '2024-07-01 00:00-04', {at})"), 1),
        ("z IN (timestamp '2024-07-01 08:00')".to_owned(), 1),
        (format!("array_has([{at}], w)"), 1),
        ("array_has([timestamp '2024-07-01 08:00'], z)".to_owned(), 1),
        ("array_has([timestamp '2024-07-01 12:00'], w)".to_owned(), 1),
    ] {
        let sql = format!("SELECT count(*) FROM {ROW} WHERE {condition}");
        assert_eq!(value(NEW_YORK, &sql).await, expected.to_string(), "{condition}");
    }
    for (sql, expected) in [
        (format!("SELECT count(*) FROM {ROW} JOIN {moments} AS m USING (w)"), 1),
        (format!("SELECT count(*) FROM {ROW} FULL JOIN {moments} AS m USING (w)"), 1),
        (format!("SELECT count(*) FROM (SELECT w FROM {ROW} INTERSECT SELECT w FROM {moments} AS m) AS x"), 1),
        (format!("SELECT count(*) FROM (SELECT w FROM {ROW} EXCEPT SELECT w FROM {moments} AS m) AS x"), 0),
    ] {
        assert_eq!(value(NEW_YORK, &sql).await, expected.to_string(), "{sql}");
    }
    assert_eq!(value("UTC", &format!("SELECT count(*) FROM {ROW} WHERE w IN ({at})")).await, "0");
}

/// A regression: parts of a time between moments were all of it in that unit, whole.
#[tokio::test]
async fn parts_of_a_time_between_moments_are_those_of_its_days_and_hours() {
    let row = "(SELECT timestamp '2024-01-03 12:05:06.75' AS b, timestamp '2024-01-01' AS a, \
               arrow_cast('2300-01-01', 'Timestamp(Microsecond, None)') AS far, arrow_cast(0, 'Timestamp(Microsecond, None)') AS first)";
    for (part, expected) in [
        ("extract(epoch FROM b - a)", "216306.75"),
        ("extract(epoch FROM a - b)", "-216306.75"),
        ("extract(epoch FROM far - first)", "10413792000.0"),
        ("extract(day FROM b - a)", "2"),
        ("extract(hour FROM b - a)", "12"),
        ("extract(minute FROM b - a)", "5"),
        ("extract(second FROM b - a)", "6"),
        ("date_part('milliseconds', b - a)", "6750"),
        ("extract(hour FROM a - b)", "-12"),
        ("extract(hour FROM NULL::timestamp - a)", ""),
    ] {
        assert_eq!(value("UTC", &format!("SELECT {part} FROM {row} AS t")).await, expected, "{part}");
    }
}
