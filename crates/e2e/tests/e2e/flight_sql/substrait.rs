//! Queries that come as Substrait plans.

use arrow::array::AsArray;
use arrow_flight::sql::{
    ActionCreatePreparedStatementResult, ActionCreatePreparedSubstraitPlanRequest, Any, CommandPreparedStatementQuery,
    CommandStatementSubstraitPlan, SubstraitPlan,
};
use arrow_flight::{Action, FlightData};
use futures::stream;

use super::*;

/// A plan whose root is a relation that writes: `Plan { relations: [Root { input: Write {} }] }`.
const WRITES: [u8; 9] = [26, 7, 18, 5, 10, 3, 0x9a, 1, 0];

fn command(plan: &[u8]) -> FlightDescriptor {
    let plan = Some(SubstraitPlan { plan: plan.to_vec().into(), version: String::new() });
    FlightDescriptor::new_cmd(CommandStatementSubstraitPlan { plan, transaction_id: None }.as_any().encode_to_vec())
}

#[test]
fn substrait_plans_are_queries() {
    let folder = five_rows();
    let path = folder.path();
    done(path, &["sql", "--data", "data", "-c", "CREATE TABLE hidden.h AS SELECT id FROM t"]);
    done(path, &["token", "reader", "--read", "main"]);
    done(path, &["token", "ops", "--administer", "*"]);
    let front = serve(path, &["--data", "data", "--access", "access.toml"]);
    let token = |name: &str| std::fs::read_to_string(path.join(format!("{name}.token"))).unwrap().trim().to_owned();
    block_on(async {
        let mut raw = FlightServiceClient::new(channel(&front).await);
        let (mut ops, mut reader) = (client(&front).await, client(&front).await);
        ops.set_token(token("ops"));
        reader.set_token(token("reader"));
        let asked = |body: FlightDescriptor, name: &str| {
            let mut request = tonic::Request::new(body);
            request.metadata_mut().insert("authorization", format!("Bearer {}", token(name)).parse().unwrap());
            request
        };
        // What a drive is sent of a query is a plan that anybody could send.
        let mut plan_of = async |sql: &str| {
            let explained = query(&mut ops, &format!("EXPLAIN (FORMAT SUBSTRAIT) {sql}")).await.unwrap();
            explained.column_by_name("plan").unwrap().as_binary::<i32>().value(0).to_vec()
        };
        let filter = plan_of("SELECT id, name FROM t WHERE id > 3").await;
        let info = raw.get_flight_info(asked(command(&filter), "reader")).await.unwrap().into_inner();
        let mut rows = texts(&fetched(&mut reader, info).await.unwrap());
        rows.sort();
        assert_eq!(rows, ["4|four", "5|five"]);
        let schema = raw.get_schema(asked(command(&filter), "reader")).await.unwrap().into_inner();
        assert_eq!(Schema::try_from(&schema).unwrap().field(1).data_type(), &DataType::Utf8);
        // Prepared once, and run over what there is then.
        let plan = Some(SubstraitPlan { plan: filter.into(), version: String::new() });
        let request = ActionCreatePreparedSubstraitPlanRequest { plan, transaction_id: None };
        let prepare = Action::new("CreatePreparedSubstraitPlan", request.as_any().encode_to_vec());
        let mut answer = reader.do_action(tonic::Request::new(prepare)).await.unwrap();
        let body = answer.message().await.unwrap().unwrap().body;
        let made: ActionCreatePreparedStatementResult = Any::decode(&body[..]).unwrap().unpack().unwrap().unwrap();
        let prepared = CommandPreparedStatementQuery { prepared_statement_handle: made.prepared_statement_handle };
        let prepared = FlightDescriptor::new_cmd(prepared.as_any().encode_to_vec());
        for expected in [2, 3] {
            let info = raw.get_flight_info(asked(prepared.clone(), "reader")).await.unwrap().into_inner();
            assert_eq!(fetched(&mut reader, info).await.unwrap().num_rows(), expected);
            ops.execute_update("INSERT INTO t VALUES (6, 'six', 6.5)".to_owned(), None).await.unwrap();
        }
        // Rights hold, and what is no query is refused.
        let mut plan_of = async |sql: &str| {
            let explained = query(&mut ops, &format!("EXPLAIN (FORMAT SUBSTRAIT) {sql}")).await.unwrap();
            explained.column_by_name("plan").unwrap().as_binary::<i32>().value(0).to_vec()
        };
        let hidden = plan_of("SELECT id FROM hidden.h WHERE id > 1").await;
        for (plan, code) in [
            (&hidden[..], Code::PermissionDenied),
            (&WRITES, Code::Unimplemented),
            (b"", Code::Unimplemented),
            (&[0xff; 40], Code::InvalidArgument),
        ] {
            let refused = raw.get_flight_info(asked(command(plan), "reader")).await.unwrap_err();
            assert_eq!(refused.code(), code, "{refused:?}");
        }
        let put = FlightData { flight_descriptor: Some(command(&WRITES)), ..FlightData::default() };
        let refused = ops.do_put(stream::iter([put])).await.map(drop).unwrap_err();
        assert_eq!(status(refused).code(), Code::Unimplemented);
    });
}
