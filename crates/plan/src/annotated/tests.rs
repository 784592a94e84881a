use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_substrait::substrait::proto::read_rel::{NamedTable, ReadType};
use datafusion_substrait::substrait::proto::rel::RelType;
use datafusion_substrait::substrait::proto::{FilterRel, Plan, PlanRel, ReadRel, Rel, RelRoot, Version, plan_rel};
use pithead_door::SessionOptions;
use pithead_model::{Blame, DatasetId, DatasetName, LoadId};
use proptest::prelude::*;

use super::*;

/// A filter over a filter over a scan of `main.t`.
fn plan() -> Vec<u8> {
    let table = NamedTable { names: vec!["main".to_owned(), "t".to_owned()], ..NamedTable::default() };
    let read = ReadRel { read_type: Some(ReadType::NamedTable(table)), ..ReadRel::default() };
    let rel = |rel_type| Rel { rel_type: Some(rel_type) };
    let filtered = |input| rel(RelType::Filter(Box::new(FilterRel { input: Some(Box::new(input)), ..FilterRel::default() })));
    let root = RelRoot { input: Some(filtered(filtered(rel(RelType::Read(Box::new(read)))))), names: vec!["a".to_owned()] };
    let relations = vec![PlanRel { rel_type: Some(plan_rel::RelType::Root(root)) }];
    Plan { version: Some(Version { minor_number: 63, ..Version::default() }), relations, ..Plan::default() }.encode_to_vec()
}

fn span(first: u32, count: u32) -> Span {
    Span { first, count }
}

/// Seven slices in two runs, of which four are done.
fn progress() -> Progress {
    let executed = |level, slices, operators| Executed { level, slices, operators };
    Progress {
        domain: "main".to_owned(),
        dataset: "t".to_owned(),
        incarnation: 7,
        manifest_version: 3,
        partition: 1,
        runs: vec![RunOfSlices { load: 11, slices: 4 }, RunOfSlices { load: 12, slices: 3 }],
        whole_partition: false,
        executed: vec![
            executed(None, vec![span(6, 1)], vec![0, 1, 2]),
            executed(Some(0), vec![span(1, 1)], vec![]),
            executed(Some(3), vec![span(0, 1), span(2, 1)], vec![0, 1, 2]),
        ],
        left: vec![span(3, 3)],
    }
}

fn request(plan: Vec<u8>) -> OpenRequest {
    let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
    OpenRequest {
        plan: PlanBytes::Substrait(plan.into()),
        manifest_version: 3,
        parts: vec![SlicePart {
            name: "main.t".parse().unwrap(),
            dataset: DatasetId(7),
            schema: Arc::clone(&schema),
            partition: 1,
            runs: vec![(LoadId(11), 4), (LoadId(12), 3)],
            sort: vec![],
            passing: None,
        }],
        inputs: vec![],
        done: vec![],
        schema,
        whole_partition: false,
        options: SessionOptions {
            threads: 1,
            memory: 1 << 20,
            batch_rows: 8_192,
            level_max: Level::Whole,
            zone_maps: true,
            sample: None,
            time_zone: None,
            now_ns: 0,
            extensions: vec![],
            host: 0,
            adapt: Default::default(),
        },
    }
}

fn bytes(request: &OpenRequest) -> Vec<u8> {
    match &request.plan {
        PlanBytes::Substrait(bytes) => bytes.to_vec(),
        PlanBytes::Scan { .. } => panic!("it was no scan"),
    }
}

#[test]
fn an_annotation_becomes_the_slices_that_are_done() {
    let plain = plan();
    let annotated = annotate(&plain, &progress(), &Rounds::default());
    let mut request = request(annotated.clone());
    take_annotation(&mut request).unwrap();
    assert_eq!(bytes(&request), plain, "kept sub-plans are found by these bytes");
    assert_eq!(request.done, [SliceSpan { first: 0, count: 3 }, SliceSpan { first: 6, count: 1 }]);
    assert_eq!(annotation_of(&annotated).unwrap(), Some((progress(), Rounds::default())));
    assert_eq!(annotation_of(&plain).unwrap(), None);
    // Nothing more to take.
    take_annotation(&mut request).unwrap();
    assert_eq!(request.done.len(), 2);
}

#[test]
fn the_library_for_substrait_reads_it_without_us() {
    let annotated = Plan::decode(&*annotate(&plan(), &progress(), &Rounds::default())).unwrap();
    let extension = annotated.advanced_extensions.as_ref().unwrap();
    let enhancement = extension.enhancement.as_ref().unwrap();
    assert_eq!(enhancement.type_url, "type.googleapis.com/pithead.annotation.v1.Progress");
    assert_eq!(Progress::decode(&*enhancement.value).unwrap(), progress());
    assert_eq!(extension.optimization.len(), 1);
    assert_eq!(annotated.expected_type_urls.len(), 2);
    let plain = Plan { advanced_extensions: None, expected_type_urls: vec![], ..annotated };
    assert_eq!(plain, Plan::decode(&*plan()).unwrap());
}

#[test]
fn an_annotation_anywhere_among_the_fields_is_found() {
    let plain = plan();
    let whole = annotate(&plain, &progress(), &Rounds::default());
    let added = &whole[plain.len()..];
    let mut first = request([added, &plain].concat());
    take_annotation(&mut first).unwrap();
    assert_eq!((bytes(&first), first.done.len()), (plain.clone(), 2));
    // Of one that comes twice, the last counts.
    let other = Progress { executed: vec![], left: vec![span(0, 7)], ..progress() };
    let mut twice = request(annotate(&whole, &other, &Rounds::default()));
    take_annotation(&mut twice).unwrap();
    assert_eq!((bytes(&twice), twice.done), (plain, vec![]));
}

#[test]
fn what_cannot_be_true_is_refused() {
    let refused = |change: &dyn Fn(&mut Progress), part: &str| {
        let mut wrong = progress();
        change(&mut wrong);
        let mut request = request(annotate(&plan(), &wrong, &Rounds::default()));
        let fault = take_annotation(&mut request).unwrap_err();
        assert!(fault.blame == Blame::User && fault.message.contains(part), "{part:?}: {fault}");
        assert!(request.done.is_empty());
    };
    refused(&|wrong| wrong.dataset = "u".to_owned(), "dataset main.u");
    refused(&|wrong| wrong.incarnation = 8, "incarnation");
    refused(&|wrong| wrong.partition = 0, "partition 0");
    refused(&|wrong| wrong.runs.swap(0, 1), "runs");
    refused(&|wrong| wrong.runs[1].slices = 4, "runs");
    refused(&|wrong| wrong.whole_partition = true, "whole partitions");
    refused(&|wrong| wrong.left.clear(), "slice 3");
    refused(&|wrong| wrong.left[0].count = 4, "twice");
    refused(&|wrong| wrong.left[0] = span(3, 2), "slice 5");
    refused(&|wrong| wrong.left.push(span(7, 1)), "of 7");
    refused(&|wrong| wrong.left.push(span(3, 0)), "0 slices");
    refused(&|wrong| wrong.left.push(span(4, u32::MAX)), "of 7");
    refused(&|wrong| wrong.executed[1].level = Some(4), "level 4");
    refused(&|wrong| wrong.executed[1].level = Some(-1), "level -1");
}

#[test]
fn two_words_for_what_is_done_are_one_too_many() {
    let mut both = request(annotate(&plan(), &progress(), &Rounds::default()));
    both.done = vec![SliceSpan { first: 0, count: 3 }];
    assert!(take_annotation(&mut both).unwrap_err().message.contains("one of the two"));
}

#[test]
fn enhancements_of_others_are_refused_and_their_hints_are_not() {
    let any = |name: &str| Any { type_url: format!("example.org/{name}"), value: vec![1, 2, 3] };
    let extended = |extension: AdvancedExtension| {
        let added = Added { advanced_extensions: Some(extension), expected_type_urls: vec![] };
        request([plan(), added.encode_to_vec()].concat())
    };
    let enhanced = |name| AdvancedExtension { optimization: vec![], enhancement: Some(any(name)) };
    for name in ["pithead.annotation.v2.Progress", "their.Change", ""] {
        let fault = take_annotation(&mut extended(enhanced(name))).unwrap_err();
        assert!(fault.blame == Blame::Unsupported && fault.message.contains(PROGRESS), "{fault}");
    }
    let mut hinted = extended(AdvancedExtension { optimization: vec![any("their.Hint")], enhancement: None });
    take_annotation(&mut hinted).unwrap();
    assert_eq!(bytes(&hinted), plan());
    assert!(
        take_annotation(&mut extended(enhanced("pithead.annotation.v1.Progress"))).is_err(),
        "three bytes are no such message"
    );
}

#[test]
fn large_annotations_are_refused_unread() {
    let many = Progress { left: vec![span(0, 1); PROGRESS_BYTES_MAX / 4], ..progress() };
    let fault = take_annotation(&mut request(annotate(&plan(), &many, &Rounds::default()))).unwrap_err();
    assert_eq!(fault.blame, Blame::Limit, "{fault}");
}

#[test]
fn operators_are_numbered_from_the_top() {
    let name: DatasetName = "main.t".parse().unwrap();
    let numbered = Numbered::of(&plan(), &name);
    assert_eq!((numbered.all(), numbered.filtered), (vec![0, 1, 2], vec![0, 1, 2]));
    let other: DatasetName = "main.u".parse().unwrap();
    assert!(Numbered::of(&plan(), &other).filtered.is_empty());
    assert_eq!(Numbered::of(b"\xff", &name), Numbered::default());
}

/// The schema that is published has exactly the fields that are read and written here.
#[test]
fn the_schema_is_as_published() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/annotation.proto");
    let (schema, code) = (std::fs::read_to_string(path).unwrap(), include_str!("messages.rs"));
    let mut published = Vec::new();
    let mut message = String::new();
    for line in schema.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        if let Some(name) = line.strip_prefix("message ").and_then(|rest| rest.strip_suffix(" {")) {
            message = if name == "Run" { "RunOfSlices".to_owned() } else { name.to_owned() };
        } else if line.starts_with("enum ") {
            message.clear();
        } else if let Some((field, number)) = line.split_once(" = ").filter(|_| !message.is_empty() && line.ends_with(';')) {
            let name = field.rsplit(' ').next().unwrap();
            published.push(format!("{message}.{name}={}", number.trim_end_matches(';')));
        }
    }
    let mut written = Vec::new();
    let mut tag = "";
    for line in code.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("pub struct ") {
            message = name.trim_end_matches(" {").to_owned();
        } else if line.starts_with("pub(super) struct") {
            break;
        } else if let Some((_, rest)) = line.split_once("tag = \"") {
            tag = rest.split('"').next().unwrap();
        } else if let Some((name, _)) = line.strip_prefix("pub ").and_then(|rest| rest.split_once(':')) {
            written.push(format!("{message}.{name}={tag}"));
        }
    }
    assert!(published.len() > 30, "{published:?}");
    assert_eq!(published, written);
}

/// Each slice of a partition: left, done elsewhere, or at a level.
fn partitions() -> impl Strategy<Value = Vec<Option<Option<Level>>>> {
    let level = prop_oneof![Just(Level::Bytes), Just(Level::Hints), Just(Level::Filtered), Just(Level::Whole)];
    let reached = prop_oneof![Just(None), Just(Some(None)), level.prop_map(|level| Some(Some(level)))];
    proptest::collection::vec(reached, 0..60)
}

proptest! {
    #[test]
    fn what_is_done_comes_back(slices in partitions(), first_run in 0_usize..60) {
        let reached = Reached(slices.clone());
        let first_run = first_run.min(slices.len()) as u32;
        let runs = vec![(LoadId(1), first_run), (LoadId(2), slices.len() as u32 - first_run)];
        let told = Progress {
            executed: reached.executed(&Numbered::of(&plan(), &"main.t".parse().unwrap())),
            left: reached.spans(None),
            runs: runs.iter().map(|(load, slices)| RunOfSlices { load: load.0, slices: *slices }).collect(),
            ..progress()
        };
        let mut request = request(annotate(&plan(), &told, &Rounds::default()));
        request.parts[0].runs = runs;
        take_annotation(&mut request).unwrap();
        let done = (0..).zip(&slices).filter(|(_, reached)| reached.is_some()).map(|(slice, _)| slice);
        prop_assert_eq!(&request.done, &SliceSpan::cover(done.collect()));
        prop_assert_eq!(bytes(&request), plan());
    }

    /// Changed bytes are refused, or say something of each slice once: then the slices that are done are within the partition.
    #[test]
    fn changed_bytes_never_say_what_cannot_be(at in 0_usize..400, to in any::<u8>(), cut in 0_usize..400) {
        let mut changed = annotate(&plan(), &progress(), &Rounds::default());
        let length = changed.len();
        changed[at % length] = to;
        changed.truncate(length - if cut % 3 == 0 { cut % length } else { 0 });
        let mut request = request(changed);
        if take_annotation(&mut request).is_ok() {
            let mut end = 0;
            for span in &request.done {
                prop_assert!(span.count > 0 && span.first >= end && span.first + span.count <= 7);
                end = span.first + span.count;
            }
        }
    }
}
