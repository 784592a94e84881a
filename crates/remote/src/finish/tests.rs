use arrow::datatypes::Schema;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnv;
use pithead_door::{OpenRequest, PlanBytes, SessionOptions};
use pithead_fakes::FakeDoor;
use pithead_fleet::Fleet;
use pithead_functions::Registry;
use pithead_model::{DatasetId, LoadId, SliceEntry};

use super::*;
use crate::RemoteContext;
use crate::admission::tests::annotation;

/// A finisher that was bound to a run of two slices.
async fn finisher() -> Finisher {
    let fleet = Fleet::connect(vec![FakeDoor::new(1) as Arc<_>], "main", &[]).await.unwrap();
    let part = SlicePart {
        name: "t".parse().unwrap(),
        dataset: DatasetId(1),
        schema: Arc::new(Schema::empty()),
        partition: 0,
        runs: vec![(LoadId(2), 2)],
        sort: vec![],
        passing: None,
    };
    let run = part.run(LoadId(2));
    let request = OpenRequest {
        plan: PlanBytes::Substrait(b"p"[..].into()),
        manifest_version: 1,
        parts: vec![part],
        inputs: vec![],
        done: vec![],
        schema: Arc::new(Schema::empty()),
        whole_partition: false,
        options: SessionOptions {
            threads: 1,
            memory: 1,
            batch_rows: 1,
            level_max: Level::Whole,
            zone_maps: true,
            sample: None,
            time_zone: None,
            now_ns: 0,
            extensions: vec![],
            host: 0,
            adapt: Default::default(),
        },
    };
    let target = Arc::new(Target {
        context: RemoteContext::new(fleet, 1, 1 << 20),
        functions: Arc::new(Registry::new([]).unwrap()),
        runtime: Arc::new(RuntimeEnv::default()),
        slice_cache: 0,
        summaries: false,
        roll_up: None,
        copies: vec![],
        request,
        brake: None,
    });
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 20));
    let mut finisher = Finisher::new(&target, MemoryConsumer::new("test").register(&pool));
    let entry = || Arc::new(SliceEntry { rows: 1, bytes: 100, columns: vec![] });
    finisher.driving = SliceRef::of_run(&run, 0, [entry(), entry()], &None);
    finisher
}

/// A regression: what was reserved for a round that came damaged stayed so, and the next copy found no memory.
#[tokio::test]
async fn a_round_that_is_refused_gives_back_its_memory() {
    let mut finisher = finisher().await;
    finisher.store(0, 0, 100, &Bytes::from(vec![7; 100])).unwrap();
    finisher.store(1, 1, 50, &Bytes::from(vec![7; 10])).unwrap();
    assert_eq!(finisher.reservation.size(), 150);
    assert!(finisher.opened(&Annotation { level: Level::Bytes, ..annotation(0, 0, 2, 0) }).is_err());
    assert_eq!(finisher.reservation.size(), 50);
    finisher.restart();
    assert_eq!(finisher.reservation.size(), 0);
}

/// A regression: a slice that was named twice stood for another one that did not come.
#[tokio::test]
async fn a_slice_comes_once() {
    let refused = |result: Result<()>| assert!(result.unwrap_err().to_string().contains("slice 0 came twice"));
    let nothing = Bytes::new();
    let mut finisher = finisher().await;
    finisher.store(0, 0, 0, &nothing).unwrap();
    refused(finisher.store(0, 0, 0, &nothing));
    refused(finisher.store(0, 0, 3, &Bytes::from_static(b"abc")));
    finisher.store(1, 0, 3, &Bytes::from_static(b"a")).unwrap();
    refused(finisher.store(1, 0, 0, &nothing));
    finisher.store(1, 0, 3, &Bytes::from_static(b"bc")).unwrap();
}
