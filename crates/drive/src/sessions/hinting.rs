//! Level 1 of a session: the carrier finds the pages of a slice that may have rows which are needed, and hands back what is
//! stored of them.

use bytes::{Bytes, BytesMut};
use pithead_door::{Event, PIECE_BYTES_MAX, PartsOutline};
use pithead_exec::{Hinted, SliceRef};
use pithead_model::{Fault, Level};

use crate::sessions::running::Running;
use crate::sessions::steer::Step;
use crate::sessions::tally::Tally;

/// Whether looking into pages pays: whether the search and the link that is then spared some of the bytes, which work side by
/// side, get through a slice sooner than the link alone gets through all pages that bounds leave.
#[derive(Debug)]
pub(crate) struct Searching {
    always: bool,
    search_ns: f64,
    found_ns: f64,
    bounded_ns: f64,
}

impl Searching {
    /// `always`: whatever it costs.
    pub(crate) fn new(always: bool) -> Searching {
        Searching { always, search_ns: 0.0, found_ns: 0.0, bounded_ns: 0.0 }
    }

    /// The first slice is searched to find out.
    pub(crate) fn pays(&self) -> bool {
        self.always || self.search_ns == 0.0 || self.search_ns.max(self.found_ns) < self.bounded_ns
    }

    /// A slice took the drive so long, and its link this long for a byte.
    pub(crate) fn took(&mut self, hinted: &Hinted, drive_ns: f64, ns_per_byte: f64) {
        if hinted.pages_searched > 0 {
            let found = if hinted.pages.is_empty() { 0 } else { hinted.parts.bytes() };
            self.search_ns += drive_ns.max(1.0);
            self.found_ns += found as f64 * ns_per_byte;
            self.bounded_ns += hinted.bounded_bytes as f64 * ns_per_byte;
        }
    }
}

impl Running {
    /// One slice to level 1. Of one without a page that may match, nothing travels.
    pub(crate) async fn hint(&self, slice: &SliceRef, step: &Step) -> Result<(), Fault> {
        let mut meter = self.meter();
        let round = self.begin_round(Level::Hints).after((step.queue_ms > 0).then_some(step.queue_ms));
        let hinted = meter.run(self.work.bound.hint(slice, self.work.steer.searches())).await?;
        let Hinted { parts, pages, .. } = &hinted;
        let sent = if pages.is_empty() { 0 } else { parts.bytes() };
        let mut tally = Tally {
            slices: vec![slice.ordinal],
            slices_skipped: u32::from(pages.is_empty()),
            pages_skipped: u64::from(pages.pages() - pages.len()),
            pages_sent: pages.len().into(),
            rows_in: hinted.rows,
            medium_bytes: hinted.bytes_read.saturating_add(sent),
            scan: hinted.scan,
            stored_bytes: sent,
            ..Tally::default()
        };
        self.reads(tally.medium_bytes).await;
        meter.charge().await;
        if !pages.is_empty() {
            let outline = PartsOutline {
                encoding: parts.encoding,
                rows: parts.rows,
                body_bytes: parts.body_bytes,
                parts: parts.parts.iter().map(|(start, bytes)| (*start, bytes.len() as u64)).collect(),
            };
            let bitmap = Bytes::copy_from_slice(pages.as_bytes());
            self.send_hints(round.number(), slice.ordinal, bitmap, outline).await?;
            for piece in Pieces::new(parts.parts.iter().map(|(_, bytes)| bytes.clone()).collect()) {
                self.send_stored(round.number(), slice.ordinal, sent, piece).await?;
                meter.give_way().await;
            }
        }
        meter.charge().await;
        (tally.cpu_ns, tally.wall_ns) = (meter.cpu_ns(), meter.wall_ns());
        self.work.steer.hinted(&hinted, sent, tally.cpu_ns);
        self.close_round(round.of_bytes(sent), tally).await
    }

    /// Before the first slice is carried: what level 1 would send of one, by its bounds. A slice that cannot be read is found out
    /// by whoever takes it.
    pub(crate) async fn look_at_bounds(&self) {
        let Some(slice) = self.work.bound.next_carried().filter(|_| self.work.steer.wants_to_know_hints()) else { return };
        let mut meter = self.meter();
        if let Ok(hinted) = meter.run(self.work.bound.hint(&slice, false)).await {
            self.work.steer.expect_hints(if hinted.pages.is_empty() { 0 } else { hinted.parts.bytes() });
        }
        meter.charge().await;
    }

    async fn send_hints(&self, round: u32, slice: u32, pages: Bytes, parts: PartsOutline) -> Result<(), Fault> {
        self.send(Event::Hints { round, slice, pages, parts, link_bytes: 0 }, 0).await
    }

    async fn send_stored(&self, round: u32, slice: u32, total: u64, bytes: Bytes) -> Result<(), Fault> {
        let length = bytes.len() as u64;
        self.send(Event::Stored { round, slice, total, bytes, link_bytes: 0 }, length).await
    }
}

/// Parts of a slice one after the other, in pieces as large as may travel: small parts share one.
struct Pieces {
    parts: std::vec::IntoIter<Bytes>,
    next: Bytes,
}

impl Pieces {
    fn new(parts: Vec<Bytes>) -> Pieces {
        Pieces { parts: parts.into_iter(), next: Bytes::new() }
    }
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut piece = BytesMut::new();
        loop {
            if self.next.is_empty() {
                match self.parts.next() {
                    Some(part) => self.next = part,
                    None => return (!piece.is_empty()).then(|| piece.freeze()),
                }
            }
            let length = self.next.len().min(PIECE_BYTES_MAX - piece.len());
            let bytes = self.next.split_to(length);
            if piece.is_empty() && length == PIECE_BYTES_MAX {
                return Some(bytes);
            }
            piece.extend_from_slice(&bytes);
            if piece.len() == PIECE_BYTES_MAX {
                return Some(piece.freeze());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pithead_model::{PageSet, ScanShare};
    use pithead_slice::SliceParts;

    use super::*;

    fn hinted(bytes: usize, bounded_bytes: u64, pages_searched: u32) -> Hinted {
        let mut pages = PageSet::none(4);
        pages.insert(1);
        let parts = vec![(0, Bytes::from(vec![0; bytes]))];
        let parts = SliceParts { encoding: (1, 1), rows: 1, body_bytes: bounded_bytes, parts };
        Hinted { parts, pages, rows: 1, bounded_bytes, pages_searched, bytes_read: 0, scan: ScanShare::default() }
    }

    #[test]
    fn a_search_that_takes_longer_than_the_link_would_ends() {
        let mut searching = Searching::new(false);
        assert!(searching.pays(), "it is tried");
        searching.took(&hinted(1_000, 100_000, 4), 50e3, 1.0);
        assert!(searching.pays(), "50 µs of search spare 99 µs of link");
        searching.took(&hinted(1_000, 100_000, 4), 500e3, 1.0);
        assert!(!searching.pays(), "550 µs of search for 200 µs of link");
        let mut idle = Searching::new(false);
        idle.took(&hinted(90_000, 100_000, 4), 50e3, 1.0);
        assert!(idle.pays(), "it hides behind the link, which has less to send");
        idle.took(&hinted(100_000, 90_000, 4), 50e3, 1.0);
        assert!(!idle.pays());
        let mut forced = Searching::new(true);
        forced.took(&hinted(100, 100, 4), 1e9, 0.0);
        assert!(forced.pays());
    }

    #[test]
    fn pieces_hold_all_bytes_in_order_and_keep_their_bound() {
        let lengths = [3, PIECE_BYTES_MAX, 0, 5, 2 * PIECE_BYTES_MAX + 1, 1];
        let parts: Vec<Bytes> = lengths.iter().enumerate().map(|(at, length)| Bytes::from(vec![at as u8; *length])).collect();
        let pieces: Vec<Bytes> = Pieces::new(parts.clone()).collect();
        assert!(pieces.iter().all(|piece| (1..=PIECE_BYTES_MAX).contains(&piece.len())));
        assert!(pieces.len() <= 4, "{}", pieces.len());
        assert!(pieces.concat() == parts.concat());
        assert_eq!(Pieces::new(vec![]).count(), 0);
    }
}
