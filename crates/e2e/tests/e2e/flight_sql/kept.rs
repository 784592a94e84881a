//! What the server keeps for clients between their calls, and what it does where there is no room for it.

use super::*;

/// Takes all the places for answers that an identity has.
async fn fill(client: &mut Client) {
    for _ in 0..1_100 {
        if let Err(error) = client.execute("SELECT 1".to_owned(), None).await {
            assert_eq!(status(error).code(), Code::ResourceExhausted);
            return;
        }
    }
    panic!("tickets that nobody fetches are bounded");
}

#[test]
fn a_statement_whose_rows_have_no_place_changes_nothing() {
    let folder = five_rows();
    let front = serve(folder.path(), &["--data", "data"]);
    block_on(async {
        let mut client = client(&front).await;
        let info = client.execute("INSERT INTO t VALUES (6, 'six', 6.5) RETURNING id".to_owned(), None).await.unwrap();
        assert_eq!(texts(&fetched(&mut client, info).await.unwrap()), ["6"]);
        let mut prepared = client.prepare("INSERT INTO t VALUES ($1, 'more', 1) RETURNING id".to_owned(), None).await.unwrap();
        prepared.set_parameters(ids(vec![7, 8])).unwrap();
        let info = prepared.execute().await.unwrap();
        assert_eq!(texts(&fetched(&mut client, info).await.unwrap()), ["7", "8"]);
        fill(&mut client).await;
        let refused = client.execute("INSERT INTO t VALUES (9, 'nine', 9.5) RETURNING id".to_owned(), None).await;
        assert_eq!(status(refused.unwrap_err()).code(), Code::ResourceExhausted);
        assert_eq!(status(prepared.execute().await.unwrap_err()).code(), Code::ResourceExhausted);
        // Which needs no place, and tells how many there were.
        assert_eq!(client.execute_update("DELETE FROM t WHERE id > 5".to_owned(), None).await.unwrap(), 3);
    });
}

#[test]
fn rows_of_returning_are_bounded_before_more_is_changed() {
    let folder = five_rows();
    let front = serve(folder.path(), &["--data", "data"]);
    block_on(async {
        let mut client = client(&front).await;
        client.execute_update("CREATE TABLE w (a BIGINT)".to_owned(), None).await.unwrap();
        // 70 MB of each row of values; 128 MiB are kept for one identity.
        let sql = "INSERT INTO w SELECT value + $1 FROM range(100000) RETURNING repeat('x', 700) AS x";
        let mut prepared = client.prepare(sql.to_owned(), None).await.unwrap();
        prepared.set_parameters(ids(vec![1, 2, 3])).unwrap();
        let refused = status(prepared.execute().await.unwrap_err());
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(refused.message().contains("the first 2 of 3 rows of values"), "{refused:?}");
        assert_eq!(client.execute_update("DELETE FROM w".to_owned(), None).await.unwrap(), 200_000);
        // Where all of it is written the rows are there, too.
        prepared.set_parameters(ids(vec![1, 2])).unwrap();
        let info = prepared.execute().await.unwrap();
        assert_eq!(status(client.execute("SELECT 1".to_owned(), None).await.unwrap_err()).code(), Code::ResourceExhausted);
        assert_eq!(fetched(&mut client, info).await.unwrap().num_rows(), 200_000);
        assert_eq!(rows(&mut client, "SELECT count(*) FROM w").await, ["200000"]);
    });
}
