//! [`Tally`]: what rounds did, summed up until an annotation says so.

use pithead_exec::RoundStats;
use pithead_model::ScanShare;

/// What one or several rounds did.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) slices: Vec<u32>,
    pub(crate) slices_skipped: u32,
    pub(crate) pages_read: u64,
    pub(crate) pages_skipped: u64,
    /// Pages whose stored bytes were sent.
    pub(crate) pages_sent: u64,
    pub(crate) rows_in: u64,
    pub(crate) medium_bytes: u64,
    pub(crate) scan: ScanShare,
    /// Bytes of slices that were handed back as they are stored.
    pub(crate) stored_bytes: u64,
    /// Slices that kept partials answered for.
    pub(crate) summarised: u32,
    pub(crate) cpu_ns: u64,
    pub(crate) wall_ns: u64,
}

impl Tally {
    pub(crate) fn of(stats: RoundStats, cpu_ns: u64, wall_ns: u64) -> Self {
        Self {
            slices: stats.slices,
            slices_skipped: stats.slices_skipped,
            pages_read: stats.pages_read,
            pages_skipped: stats.pages_skipped,
            pages_sent: 0,
            rows_in: stats.rows_in,
            medium_bytes: stats.medium_bytes,
            scan: stats.scan,
            stored_bytes: 0,
            summarised: 0,
            cpu_ns,
            wall_ns,
        }
    }

    /// Adds what another round did, side by side or before.
    pub(crate) fn add(&mut self, other: Tally) {
        self.slices.extend(other.slices);
        self.slices_skipped += other.slices_skipped;
        self.pages_read += other.pages_read;
        self.pages_skipped += other.pages_skipped;
        self.pages_sent += other.pages_sent;
        self.rows_in += other.rows_in;
        self.medium_bytes += other.medium_bytes;
        self.scan.add(other.scan);
        self.stored_bytes += other.stored_bytes;
        self.summarised += other.summarised;
        self.cpu_ns += other.cpu_ns;
        self.wall_ns = self.wall_ns.max(other.wall_ns);
    }
}
