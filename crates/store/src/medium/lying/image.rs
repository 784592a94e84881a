//! [`Image`]: a file's bytes, most of which may be holes, and the changes that lead from one image to the next.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use rand::Rng;
use rand::rngs::StdRng;

const PAGE: usize = 4_096;
/// The number of bytes that a device writes completely or not at all.
const SECTOR: u64 = 512;

/// The bytes of a file. Copies share their pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    pub len: u64,
    pages: BTreeMap<u64, Arc<[u8; PAGE]>>,
}

/// One change of a file.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Write { offset: u64, data: Arc<[u8]> },
    Length(u64),
    Punch(Range<u64>),
}

impl Image {
    /// Fills `out`. Bytes after the end read as zeros.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        for (page, within, span) in spans(offset, out.len()) {
            match self.pages.get(&page) {
                Some(bytes) => out[span.clone()].copy_from_slice(&bytes[within..within + span.len()]),
                None => out[span].fill(0),
            }
        }
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (page, within, span) in spans(offset, data.len()) {
            let bytes = Arc::make_mut(self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE])));
            bytes[within..within + span.len()].copy_from_slice(&data[span]);
        }
        self.len = self.len.max(offset + data.len() as u64);
    }

    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { offset, data } => self.write(*offset, data),
            Change::Length(bytes) => {
                self.clear(*bytes..self.len.max(*bytes));
                self.len = *bytes;
            }
            Change::Punch(range) => self.clear(range.start..range.end.min(self.len)),
        }
    }

    /// Like [`Image::apply`], but as a device does it whose power fails meanwhile.
    pub fn apply_torn(&mut self, change: &Change, rng: &mut StdRng) {
        let Change::Write { offset, data } = change else {
            if rng.random() {
                self.apply(change);
            }
            return;
        };
        let sectors: Vec<Range<usize>> = sectors(*offset, data.len()).collect();
        let cut = rng.random_range(0..=sectors.len());
        let style = rng.random_range(0..3);
        for (number, sector) in sectors.into_iter().enumerate() {
            let written = match style {
                0 => number < cut,
                1 => number >= cut,
                _ => rng.random(),
            };
            if written {
                self.write(offset + sector.start as u64, &data[sector]);
            }
        }
    }

    /// The bytes that take room.
    pub fn allocated(&self) -> u64 {
        (self.pages.len() * PAGE) as u64
    }

    /// The ranges of bytes that are not zero, by pages.
    pub fn written(&self) -> Vec<u64> {
        self.pages.iter().filter(|(_, page)| page.iter().any(|byte| *byte != 0)).map(|(page, _)| page * PAGE as u64).collect()
    }

    fn clear(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (first, last) = (range.start / PAGE as u64, range.end.div_ceil(PAGE as u64));
        let touched: Vec<u64> = self.pages.range(first..last).map(|(page, _)| *page).collect();
        for page in touched {
            let start = page * PAGE as u64;
            let (from, to) = (range.start.max(start) - start, range.end.min(start + PAGE as u64) - start);
            if to - from == PAGE as u64 {
                self.pages.remove(&page);
            } else if let Some(bytes) = self.pages.get_mut(&page) {
                Arc::make_mut(bytes)[from as usize..to as usize].fill(0);
            }
        }
    }
}

/// The pages that `bytes` from `offset` are in: their number, the start within the page, and the range of the bytes.
fn spans(offset: u64, bytes: usize) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % PAGE as u64) as usize;
        let span = done..(done + PAGE - within).min(bytes);
        done = span.end;
        (!span.is_empty()).then_some((at / PAGE as u64, within, span))
    })
}

/// The sectors of a write, as ranges of its bytes.
fn sectors(offset: u64, bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let to_next = (SECTOR - (offset + done as u64) % SECTOR) as usize;
        let sector = done..(done + to_next).min(bytes);
        done = sector.end;
        (!sector.is_empty()).then_some(sector)
    })
}
