//! Slices that a drive took to level 1: match hints, and the parts of a slice that hold the pages which they name. The host trusts
//! none of it: parts that do not fit the slice, the hints or the annotation are an error, so that no row is missing in silence.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use pithead_door::{PartsOutline, SlicePart};
use pithead_exec::SliceRef;
use pithead_model::{Annotation, Blame, Fault};
use pithead_slice::{SliceParts, SliceReader, open_parts};

/// The hints of one slice.
#[derive(Debug)]
pub(crate) struct Hint {
    pages: Bytes,
    outline: PartsOutline,
}

/// The hints of a round that is not closed, by slice.
pub(crate) type Hints = BTreeMap<u32, Hint>;

impl Hint {
    pub(crate) fn new(pages: Bytes, outline: PartsOutline) -> Result<Hint, Fault> {
        outline.check()?;
        Ok(Hint { pages, outline })
    }

    /// Bytes that are to come of the slice.
    pub(crate) fn bytes(&self) -> u64 {
        self.outline.bytes()
    }

    /// The slice as far as it came: `value` is all of its parts, one after the other. With it, how many pages it has and how
    /// many rows.
    fn open(self, part: &SlicePart, slice: &SliceRef, mut value: Bytes) -> Result<(Arc<dyn SliceReader>, u64, u64), Fault> {
        if self.outline.rows != slice.entry.rows {
            let what = format!("match hints of {} rows, where the directory names {}", self.outline.rows, slice.entry.rows);
            return Err(broken(what));
        }
        let PartsOutline { encoding, rows, body_bytes, parts } = self.outline;
        let mut cut = Vec::with_capacity(parts.len());
        for (start, bytes) in parts {
            let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= value.len());
            let bytes = bytes.ok_or_else(|| broken("parts of a slice end early".to_owned()))?;
            cut.push((start, value.split_to(bytes)));
        }
        let parts = SliceParts { encoding, rows, body_bytes, parts: cut };
        let reader =
            open_parts(slice.stored(&part.schema), parts, &self.pages).map_err(|error| Fault::from(error).at(&slice.key))?;
        let pages = reader.may_match(&[]).map_err(|error| Fault::from(error).at(&slice.key))?;
        let rows = reader.rows_of(&pages);
        Ok((reader, pages.len().into(), rows))
    }
}

/// Opens what came of slices of a closed round, and compares it with what the annotation says.
pub(crate) fn open_hinted(
    part: &SlicePart,
    annotation: &Annotation,
    came: Vec<(SliceRef, Hint, Bytes)>,
) -> Result<Vec<SliceRef>, Fault> {
    let (mut pages, mut rows) = (0_u64, 0_u64);
    let mut slices = Vec::with_capacity(came.len());
    for (slice, hint, value) in came {
        let (reader, pages_of, rows_of) = hint.open(part, &slice, value)?;
        (pages, rows) = (pages.saturating_add(pages_of), rows.saturating_add(rows_of));
        slices.push(SliceRef { came: Some(reader), ..slice });
    }
    if pages != annotation.pages_sent || rows != annotation.rows_in {
        let (round, said, of) = (annotation.round, annotation.pages_sent, annotation.rows_in);
        return Err(broken(format!("round {round} has {pages} pages of {rows} rows, its annotation says {said} of {of}")));
    }
    Ok(slices)
}

fn broken(what: String) -> Fault {
    Fault::new(Blame::Device, format!("the drive broke the protocol: {what}"))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, RecordBatch};
    use pithead_model::{DatasetId, Level, LoadId, PageSet, SliceSpan};
    use pithead_slice::{encode_slice, encoding, encoding_names, open_slice};

    use super::*;

    /// A slice of three pages, and what is sent of two of them.
    struct Sent {
        part: SlicePart,
        slice: SliceRef,
        parts: SliceParts,
        pages: PageSet,
    }

    fn sent(encoding_name: &str) -> Sent {
        let numbers = Int64Array::from_iter_values(0..20_000);
        let batch = RecordBatch::try_from_iter([("n", Arc::new(numbers) as _)]).unwrap();
        let schema = batch.schema();
        let encoded = encode_slice(&*encoding(encoding_name).unwrap(), &schema, &[batch]).unwrap();
        let reader = open_slice(&schema, encoded.bytes).unwrap();
        let mut pages = PageSet::none(3);
        [0, 2].into_iter().for_each(|page| pages.insert(page));
        let parts = reader.parts(&[0], &pages).unwrap();
        let name: pithead_model::DatasetName = "t".parse().unwrap();
        let (dataset, load) = (DatasetId(1), LoadId(2));
        let part = SlicePart { name, dataset, schema, partition: 0, runs: vec![(load, 1)], sort: vec![], passing: None };
        let key = part.run(load).slice(0);
        let slice = SliceRef { ordinal: 0, key, entry: Arc::new(encoded.entry), fit: None, filtered: None, came: None };
        Sent { part, slice, parts, pages }
    }

    impl Sent {
        fn outline(&self) -> PartsOutline {
            let SliceParts { encoding, rows, body_bytes, parts } = self.parts.clone();
            let parts = parts.iter().map(|(start, bytes)| (*start, bytes.len() as u64)).collect();
            PartsOutline { encoding, rows, body_bytes, parts }
        }

        fn value(&self) -> Vec<u8> {
            self.parts.parts.iter().flat_map(|(_, bytes)| bytes.to_vec()).collect()
        }

        fn open(&self, outline: PartsOutline, pages: &[u8], value: Vec<u8>, told: (u64, u64)) -> Result<Vec<SliceRef>, Fault> {
            let hint = Hint::new(Bytes::copy_from_slice(pages), outline)?;
            open_hinted(&self.part, &annotation(told), vec![(self.slice.clone(), hint, value.into())])
        }
    }

    fn annotation((pages_sent, rows_in): (u64, u64)) -> Annotation {
        Annotation {
            round: 0,
            partition: 0,
            slices: vec![SliceSpan { first: 0, count: 1 }],
            level: Level::Hints,
            slices_skipped: 0,
            pages_read: 0,
            pages_skipped: 1,
            pages_sent,
            rows_in,
            rows_out: 0,
            medium_bytes: 0,
            batch_bytes: 0,
            cpu_ns: 0,
            scan: Default::default(),
            stored_bytes: 0,
            summarised: 0,
            wall_ns: 0,
            cause: None,
            queue_ms: None,
            retry_after_ms: None,
        }
    }

    /// What a drive says of a slice: the outline, the bitmap, the bytes, and the counts of its annotation.
    type SliceReply = (PartsOutline, Vec<u8>, Vec<u8>, (u64, u64));
    /// The name of a forgery, and the change that makes it.
    type Lie = (&'static str, fn(&mut SliceReply));

    #[test]
    fn pages_that_came_are_there_and_hints_that_lie_are_refused() {
        for name in encoding_names() {
            let sent = sent(name);
            let told = (2, 8_192 + 3_616);
            let honest = || (sent.outline(), sent.pages.as_bytes().to_vec(), sent.value(), told);
            let (outline, pages, value, said) = honest();
            let slices = sent.open(outline, &pages, value, said).unwrap();
            assert_eq!(slices[0].came.as_ref().map(|reader| reader.rows()), Some(20_000), "{name}");
            let lies: [Lie; 12] = [
                ("a bitmap that is too long", |it| it.1.push(0)),
                ("a bitmap that is too short", |it| it.1.clear()),
                ("a page past the last", |it| it.1[0] |= 1 << 3),
                ("a page less", |it| it.1[0] &= !1),
                ("a page more", |it| it.1[0] |= 2),
                ("fewer rows", |it| it.3.1 -= 1),
                ("more pages", |it| it.3.0 += 1),
                ("another length of the slice", |it| it.0.rows += 1),
                ("another encoding", |it| it.0.encoding = (77, 1)),
                ("a part twice", |it| it.0.parts.insert(0, it.0.parts[0])),
                ("bytes missing", |it| it.2.truncate(it.2.len() - 1)),
                ("a part elsewhere", |it| it.0.parts.last_mut().unwrap().0 -= 1),
            ];
            for (what, lie) in lies {
                let mut told = honest();
                lie(&mut told);
                let (outline, pages, value, said) = told;
                assert!(sent.open(outline, &pages, value, said).is_err(), "{name}: {what}");
            }
        }
    }
}
