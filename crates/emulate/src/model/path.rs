//! The way of pages from the medium into the device's memory, which both places of work share.

use super::servers::Servers;
use super::{Bytes, Load, picoseconds};
use crate::profile::Parts;
use crate::work::{PageWork, Work};

/// Rows that come to the host.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HostRows {
    /// Those that the device computed.
    pub(super) computed: u64,
    /// Those in pages that come as they are stored.
    pub(super) stored: u64,
    /// Cycles of these pages.
    pub(super) page_cycles: f64,
}

/// Rows that one of the host's threads works on at one time.
const BATCH_ROWS: u64 = 8_192;

/// When bytes that were sent have left the device, when they are at the host, and when it has taken in those of all devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) left: u64,
    pub(super) there: u64,
    pub(super) taken: u64,
}

/// The parts that pages pass, and what was counted.
pub(super) struct Path<'a> {
    parts: &'a Parts,
    pub(super) work: &'a Work,
    pub(super) load: Load,
    pub(super) channels: Servers,
    pub(super) bus: Servers,
    pub(super) link: Servers,
    /// What the host takes in, from all devices.
    pub(super) host_input: Servers,
    pub(super) host: Servers,
    /// Free places for pages in the device's memory.
    pub(super) places: u64,
    /// Of the values that are added, those that go to the device's slow memory.
    slow_share: f64,
    pub(super) bytes: Bytes,
    pub(super) pages: u64,
    pub(super) rows: u64,
    pub(super) commands: u64,
    pub(super) polls: u64,
    pub(super) cores_ps: u64,
    pub(super) blocked_ps: u64,
    /// Whether the host waits busily while the run lasts.
    pub(super) waits: bool,
    pub(super) end_ps: u64,
    pub(super) latency_ps: u64,
    pub(super) command_ps: u64,
    read_latency_ps: u64,
    channel_ps: u64,
    bus_ps: u64,
}

impl<'a> Path<'a> {
    pub(super) fn new(parts: &'a Parts, work: &'a Work, load: Load) -> Self {
        let page = work.page_bytes as f64;
        let channel_rate = match &parts.matcher {
            Some(matcher) if load.matcher => matcher.bytes_per_s.value.min(parts.medium.channel_bytes_per_s.value),
            _ => parts.medium.channel_bytes_per_s.value,
        };
        let cores = parts.cpu.as_ref().map_or(1.0, |cpu| cpu.cores.value);
        let places = (parts.memory.page_buffer_bytes.whole() / work.page_bytes).max(1);
        Self {
            parts,
            work,
            load,
            channels: Servers::new(parts.medium.channels.whole()),
            bus: Servers::new(1),
            link: Servers::new(1),
            host_input: Servers::new(1),
            host: Servers::new(parts.host.threads.whole()),
            places: load.pages_in_flight.map_or(places, |most| places.min(most.max(1))),
            slow_share: parts.memory.slow_share(cores, work.held_bytes),
            bytes: Bytes::default(),
            pages: 0,
            rows: 0,
            commands: 0,
            polls: 0,
            cores_ps: 0,
            blocked_ps: 0,
            waits: false,
            end_ps: 0,
            latency_ps: picoseconds(parts.link.latency_s.value),
            command_ps: picoseconds(parts.link.command_s.value),
            read_latency_ps: picoseconds(parts.medium.read_latency_s.value),
            channel_ps: picoseconds(page / channel_rate),
            bus_ps: picoseconds(page / parts.medium.bus_bytes_per_s.value),
        }
    }

    /// Begins to read a page, which takes a place in memory. Says when its channel has it.
    pub(super) fn read(&mut self, page: usize, now: u64) -> u64 {
        self.places -= 1;
        self.pages += 1;
        self.bytes.medium += self.work.page_bytes;
        self.channels.book_unit(page, now, self.channel_ps).saturating_add(self.read_latency_ps)
    }

    /// Brings a page from its channel into memory. Says when it is there.
    pub(super) fn move_in(&mut self, now: u64) -> u64 {
        self.bytes.bus += self.work.page_bytes;
        self.bus.book(now, self.bus_ps)
    }

    /// Puts bytes onto the link. The host takes them in while they come, with those of the other devices, and works on what is
    /// there already meanwhile.
    pub(super) fn send(&mut self, now: u64, bytes: u64) -> Sent {
        self.bytes.link += bytes;
        let link_ps = picoseconds(bytes as f64 / self.parts.link.bytes_per_s.value);
        let left = self.link.book(now, link_ps);
        let all_bytes = bytes as f64 * self.load.host_bytes_times;
        let input_ps = picoseconds(all_bytes / self.parts.host.bytes_per_s.value);
        let taken = self.host_input.book(left.saturating_sub(link_ps), input_ps).max(left);
        let after = |time: u64| time.saturating_add(self.latency_ps);
        Sent { left, there: after(left), taken: after(taken) }
    }

    /// What the device's core takes for a page.
    pub(super) fn core_ps(&self, page: &PageWork) -> u64 {
        let Some(cpu) = self.parts.cpu.as_ref().filter(|_| self.load.computes) else { return 0 };
        picoseconds(cpu.seconds(page, self.slow_share))
    }

    /// Has the host work on rows that the device computed, and on whole pages with the rows in them. Says when it is done.
    pub(super) fn take_rows(&mut self, now: u64, rows: HostRows) -> u64 {
        let all = rows.computed + rows.stored;
        self.rows += all;
        let cycles = rows.computed as f64 * self.parts.host.result_cycles.value + rows.page_cycles;
        self.host_works(now, cycles, all.div_ceil(BATCH_ROWS))
    }

    /// Has the host work on a page. Says when it is done.
    pub(super) fn take_page(&mut self, now: u64, page: &PageWork) -> u64 {
        self.rows += page.rows;
        self.host_works(now, self.page_cycles(page), 1)
    }

    /// What a page that comes as it is stored costs the host.
    pub(super) fn page_cycles(&self, page: &PageWork) -> f64 {
        let host = &self.parts.host;
        host.page_cycles.value + page.rows as f64 * host.row_cycles.value + page.out_rows as f64 * host.result_cycles.value
    }

    /// Has the host's threads work on so many pieces of this device's, and as many of each other one's. Says when all are done.
    fn host_works(&mut self, now: u64, cycles: f64, pieces: u64) -> u64 {
        let times = self.load.host_times;
        let cycles = if self.load.computes { cycles * times } else { 0.0 };
        let pieces = (pieces.max(1) as f64 * times).ceil() as u64;
        self.host.book_pieces(now, picoseconds(cycles / self.parts.host.clock_hz.value), pieces)
    }
}
