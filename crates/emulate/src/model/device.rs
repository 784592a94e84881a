//! Work at the device: a session with OPEN, GET and CLOSE (Do et al. 2013, section 3).
//!
//! Pages are loaded over all channels at one time, as many as there are places for in the device's memory. A page stays
//! pinned there until a core is done with it. Cores take pages in the order in which they come, or each those of its own slices, as
//! many slices as there are cores being read side by side. They are not preempted: a
//! core whose answer finds no room in the output buffer waits with it. GET takes what the buffer holds. Where the host
//! polls, it asks in an interval, fixed or adaptive; otherwise the device answers an earlier GET when there is as much as a read
//! command brings, or half of the buffer is full. A session that holds more than fits the device's memory reads its pages again.

use std::collections::VecDeque;

use super::path::{HostRows, Path};
use super::servers::Events;
use super::{Load, picoseconds};
use crate::polling::PollInterval;
use crate::profile::Parts;
use crate::work::{PageWork, Work};

enum Event {
    /// OPEN reached the device.
    Opened,
    /// A page's channel has it.
    Read(usize),
    /// A page is in memory.
    Loaded(usize),
    /// A core is done with a page.
    Worked(usize),
    /// A GET that was sent at a time reached the device.
    Asked(u64),
    /// Bytes of an answer have left.
    Sent(u64),
    /// An answer reached the host.
    Answered(Answer),
}

struct Answer {
    asked_at: u64,
    rows: HostRows,
    /// When the host has taken in the bytes, and those of other devices.
    taken: u64,
    /// Whether GET found half of the output buffer full, or a core that waits for room.
    was_half_full: bool,
    last: bool,
}

pub(super) struct Session<'a> {
    path: Path<'a>,
    events: Events<Event>,
    /// How often all pages are read, and the next read.
    passes: usize,
    next: usize,
    /// Reads that nobody has to do anything for any more.
    done: usize,
    /// The pages in the order in which they are read; empty: as they are.
    order: Vec<usize>,
    /// Pages that wait for a core, and idle cores: of all cores, or of each one.
    ready: Vec<VecDeque<usize>>,
    idle_cores: Vec<u64>,
    /// Pages whose answers found no room, and since when.
    blocked: VecDeque<(usize, u64)>,
    room: u64,
    /// Bytes for which the device answers by itself.
    due_bytes: u64,
    /// Bytes in the output buffer, those on their way among them.
    held: u64,
    /// Bytes and rows that no GET has taken.
    waiting_bytes: u64,
    waiting_rows: HostRows,
    /// A GET that waits for something to answer.
    open_get: Option<u64>,
    interval: PollInterval,
    /// The last interval.
    poll_ps: u64,
    /// When the host learnt that the session is open.
    opened_ps: u64,
    initiated: bool,
}

impl<'a> Session<'a> {
    pub(super) fn new(parts: &'a Parts, work: &'a Work, load: Load, passes: u64) -> Self {
        let cores = parts.cpu.as_ref().map_or(u64::MAX, |cpu| cpu.cores.whole());
        let queues = if work.slice_pages > 0 && load.computes { cores as usize } else { 1 };
        let [least, most] = [&parts.link.poll_least_s, &parts.link.poll_s].map(|interval| picoseconds(interval.value));
        Self {
            path: Path::new(parts, work, load),
            events: Events::new(),
            passes: passes as usize,
            next: 0,
            done: 0,
            order: if queues > 1 { side_by_side(work, queues) } else { Vec::new() },
            ready: vec![VecDeque::new(); queues],
            idle_cores: vec![if queues > 1 { 1 } else { cores }; queues],
            blocked: VecDeque::new(),
            room: parts.memory.output_buffer_bytes.whole(),
            due_bytes: (parts.memory.output_buffer_bytes.whole() / 2).min(parts.link.read_bytes.whole()),
            held: 0,
            waiting_bytes: 0,
            waiting_rows: HostRows::default(),
            open_get: None,
            interval: PollInterval { least, most },
            poll_ps: 0,
            opened_ps: 0,
            initiated: most == 0,
        }
    }

    pub(super) fn finish(mut self) -> Path<'a> {
        self.path.waits = true;
        self.path.commands = 1;
        let reached = self.path.latency_ps + self.path.command_ps;
        self.events.push(reached, Event::Opened);
        self.opened_ps = reached + self.path.latency_ps;
        self.get(self.opened_ps);
        while let Some((now, event)) = self.events.pop() {
            self.step(now, event);
        }
        self.path
    }

    fn step(&mut self, now: u64, event: Event) {
        match event {
            Event::Opened => {
                self.load(now);
                self.complete(now);
            }
            Event::Read(page) if self.rules_out(page) => {
                self.unpin();
                self.load(now);
                self.complete(now);
            }
            Event::Read(page) => {
                let there = self.path.move_in(now);
                self.events.push(there, Event::Loaded(page));
            }
            Event::Loaded(page) => {
                let queue = self.queue(page);
                self.ready[queue].push_back(page);
                self.dispatch(queue, now);
            }
            Event::Worked(page) => self.worked(page, now),
            Event::Asked(asked_at) => self.asked(asked_at, now),
            Event::Sent(bytes) => {
                self.held -= bytes;
                self.unblock(now);
            }
            Event::Answered(answer) => self.answered(&answer, now),
        }
    }

    /// The page of a read.
    fn page(&self, read: usize) -> &'a PageWork {
        &self.path.work.pages[self.number(read)]
    }

    /// The number of a read's page.
    fn number(&self, read: usize) -> usize {
        let place = read % self.path.work.pages.len();
        self.order.get(place).copied().unwrap_or(place)
    }

    /// Whose page it is, where each core has its own.
    fn queue(&self, read: usize) -> usize {
        match self.ready.len() {
            1 => 0,
            queues => self.number(read) / self.path.work.slice_pages as usize % queues,
        }
    }

    /// Whether the page's answer is of this pass. Each pass has an even part of all answers.
    fn answers(&self, read: usize) -> bool {
        let pages = self.path.work.pages.len();
        self.path.load.computes && read / pages == (read % pages) % self.passes
    }

    fn reads(&self) -> usize {
        self.path.work.pages.len() * self.passes
    }

    fn rules_out(&self, read: usize) -> bool {
        self.path.load.matcher && self.page(read).ruled_out
    }

    /// Reads pages while there are places for them.
    fn load(&mut self, now: u64) {
        while self.path.places > 0 && self.next < self.reads() {
            let read = self.path.read(self.next % self.path.work.pages.len(), now);
            self.events.push(read, Event::Read(self.next));
            self.next += 1;
        }
    }

    fn unpin(&mut self) {
        self.path.places += 1;
        self.done += 1;
    }

    fn dispatch(&mut self, queue: usize, now: u64) {
        while self.idle_cores[queue] > 0 {
            let Some(page) = self.ready[queue].pop_front() else { return };
            let takes = self.path.core_ps(self.page(page));
            self.path.cores_ps = self.path.cores_ps.saturating_add(takes);
            self.idle_cores[queue] -= 1;
            self.events.push(now.saturating_add(takes), Event::Worked(page));
        }
    }

    fn worked(&mut self, page: usize, now: u64) {
        // Who waits already comes first.
        if self.blocked.is_empty() && self.fits(page) {
            self.hand_over(page, now);
        } else {
            self.blocked.push_back((page, now));
            self.answer_if_due(now);
        }
    }

    fn out_bytes(&self, page: usize) -> u64 {
        if self.answers(page) { self.page(page).out_bytes } else { 0 }
    }

    fn fits(&self, page: usize) -> bool {
        // An answer that is larger than the buffer passes through it alone.
        self.held == 0 || self.held + self.out_bytes(page) <= self.room
    }

    /// Puts a page's answer into the buffer, and frees its core and its place.
    fn hand_over(&mut self, page: usize, now: u64) {
        let bytes = self.out_bytes(page);
        self.held += bytes;
        self.waiting_bytes += bytes;
        self.hand_over_rows(page);
        let queue = self.queue(page);
        self.idle_cores[queue] += 1;
        self.unpin();
        self.dispatch(queue, now);
        self.load(now);
        self.complete(now);
    }

    fn hand_over_rows(&mut self, page: usize) {
        if !self.answers(page) {
            return;
        }
        let page = self.page(page);
        if page.stored {
            self.waiting_rows.stored += page.rows;
            self.waiting_rows.page_cycles += self.path.page_cycles(page);
        } else {
            self.waiting_rows.computed += page.out_rows;
        }
    }

    fn unblock(&mut self, now: u64) {
        while let Some((page, since)) = self.blocked.front().copied() {
            if !self.fits(page) {
                return;
            }
            self.blocked.pop_front();
            self.path.blocked_ps = self.path.blocked_ps.saturating_add(now - since);
            self.hand_over(page, now);
        }
    }

    fn is_complete(&self) -> bool {
        self.done == self.reads()
    }

    /// When the last page is done, what exists only then joins the answer.
    fn complete(&mut self, now: u64) {
        if self.is_complete() && self.path.load.computes {
            self.held += self.path.work.last_bytes;
            self.waiting_bytes += self.path.work.last_bytes;
            self.waiting_rows.computed += self.path.work.last_rows;
        }
        self.answer_if_due(now);
    }

    /// Sends GET, after those that would find nothing: nothing happens at the device until the next event, however often it is asked.
    fn get(&mut self, now: u64) {
        let there_ps = self.path.latency_ps + self.path.command_ps;
        let (mut asked_at, mut gets) = (now, 1_u64);
        let finds_nothing = !self.initiated && self.waiting_bytes == 0 && !self.is_complete();
        if let Some(next) = self.events.next_at().filter(|_| finds_nothing) {
            let finds_from = next.saturating_sub(there_ps);
            while asked_at < finds_from {
                let answered_at = asked_at.saturating_add(there_ps + self.path.latency_ps);
                self.wait_after(answered_at, false);
                let period = self.poll_ps.max(answered_at - asked_at).max(1);
                // The longest interval stays the longest while nothing is found.
                let is_steady = self.poll_ps == self.interval.most;
                let times = if is_steady { (finds_from - asked_at).div_ceil(period) } else { 1 };
                gets = gets.saturating_add(times);
                asked_at = asked_at.saturating_add(times.saturating_mul(period));
            }
        }
        self.path.commands = self.path.commands.saturating_add(gets);
        self.path.polls = self.path.polls.saturating_add(gets);
        self.events.push(asked_at.saturating_add(there_ps), Event::Asked(asked_at));
    }

    /// The interval after an answer that is at the host now.
    fn wait_after(&mut self, now: u64, was_half_full: bool) {
        self.poll_ps = self.interval.after(self.poll_ps, now.saturating_sub(self.opened_ps), was_half_full);
    }

    fn asked(&mut self, asked_at: u64, now: u64) {
        if self.initiated {
            self.open_get = Some(asked_at);
            self.answer_if_due(now);
        } else {
            self.answer(asked_at, now);
        }
    }

    /// Answers a GET that waits, where there is a reason to.
    fn answer_if_due(&mut self, now: u64) {
        let enough = self.waiting_bytes >= self.due_bytes;
        let stuck = !self.blocked.is_empty() && self.waiting_bytes > 0;
        if (enough || stuck || self.is_complete())
            && let Some(asked_at) = self.open_get.take()
        {
            self.answer(asked_at, now);
        }
    }

    fn answer(&mut self, asked_at: u64, now: u64) {
        let (bytes, rows) = (std::mem::take(&mut self.waiting_bytes), std::mem::take(&mut self.waiting_rows));
        let sent = self.path.send(now, bytes);
        let was_half_full = !self.blocked.is_empty() || (bytes > 0 && bytes >= self.room / 2);
        let answer = Answer { asked_at, rows, taken: sent.taken, was_half_full, last: self.is_complete() };
        if bytes > 0 {
            self.events.push(sent.left, Event::Sent(bytes));
        }
        self.events.push(sent.there, Event::Answered(answer));
    }

    fn answered(&mut self, answer: &Answer, now: u64) {
        let done = self.path.take_rows(now, answer.rows);
        self.path.end_ps = self.path.end_ps.max(done);
        let now = now.max(answer.taken);
        if answer.last {
            self.path.commands += 1;
            let closed = now.saturating_add(2 * self.path.latency_ps + self.path.command_ps);
            self.path.end_ps = self.path.end_ps.max(closed);
        } else {
            self.wait_after(now, answer.was_half_full);
            self.get(now.max(answer.asked_at.saturating_add(self.poll_ps)));
        }
    }
}

/// The pages in the order in which they are read where each of so many cores has slices of its own: a page of each in turn.
fn side_by_side(work: &Work, cores: usize) -> Vec<usize> {
    let mut of_core = vec![VecDeque::new(); cores];
    for page in 0..work.pages.len() {
        of_core[page / work.slice_pages as usize % cores].push_back(page);
    }
    let mut order = Vec::with_capacity(work.pages.len());
    while order.len() < work.pages.len() {
        order.extend(of_core.iter_mut().filter_map(VecDeque::pop_front));
    }
    order
}
