//! Work at the device: a session with OPEN, GET and CLOSE (Do et al. 2013, section 3).
//!
//! Pages are loaded over all channels at one time, as many as there are places for in the device's memory. A page stays
//! pinned there until a core is done with it. Cores take pages in the order in which they come, and are not preempted: a
//! core whose answer finds no room in the output buffer waits with it. GET takes what the buffer holds. Where the host
//! polls, it asks in an interval; otherwise the device answers an earlier GET when there is as much as a read command brings,
//! or half of the buffer is full.

use std::collections::VecDeque;

use super::path::{HostRows, Path};
use super::servers::Events;
use super::{Load, picoseconds};
use crate::profile::Parts;
use crate::work::Work;

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
    last: bool,
}

pub(super) struct Session<'a> {
    path: Path<'a>,
    events: Events<Event>,
    /// The next page to read.
    next: usize,
    /// Pages that nobody has to do anything for any more.
    done: usize,
    ready: VecDeque<usize>,
    idle_cores: u64,
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
    poll_ps: u64,
    initiated: bool,
}

impl<'a> Session<'a> {
    pub(super) fn new(parts: &'a Parts, work: &'a Work, load: Load) -> Self {
        let poll_ps = picoseconds(parts.link.poll_s.value);
        Self {
            path: Path::new(parts, work, load),
            events: Events::new(),
            next: 0,
            done: 0,
            ready: VecDeque::new(),
            idle_cores: parts.cpu.as_ref().map_or(u64::MAX, |cpu| cpu.cores.whole()),
            blocked: VecDeque::new(),
            room: parts.memory.output_buffer_bytes.whole(),
            due_bytes: (parts.memory.output_buffer_bytes.whole() / 2).min(parts.link.read_bytes.whole()),
            held: 0,
            waiting_bytes: 0,
            waiting_rows: HostRows::default(),
            open_get: None,
            poll_ps,
            initiated: poll_ps == 0,
        }
    }

    pub(super) fn finish(mut self) -> Path<'a> {
        self.path.waits = true;
        self.path.commands = 1;
        let reached = self.path.latency_ps + self.path.command_ps;
        self.events.push(reached, Event::Opened);
        self.get(reached + self.path.latency_ps);
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
                self.ready.push_back(page);
                self.dispatch(now);
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

    fn rules_out(&self, page: usize) -> bool {
        self.path.load.matcher && self.path.work.pages[page].ruled_out
    }

    /// Reads pages while there are places for them.
    fn load(&mut self, now: u64) {
        while self.path.places > 0 && self.next < self.path.work.pages.len() {
            let read = self.path.read(self.next, now);
            self.events.push(read, Event::Read(self.next));
            self.next += 1;
        }
    }

    fn unpin(&mut self) {
        self.path.places += 1;
        self.done += 1;
    }

    fn dispatch(&mut self, now: u64) {
        while self.idle_cores > 0 {
            let Some(page) = self.ready.pop_front() else { return };
            let takes = self.path.core_ps(&self.path.work.pages[page]);
            self.path.cores_ps = self.path.cores_ps.saturating_add(takes);
            self.idle_cores -= 1;
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
        if self.path.load.computes { self.path.work.pages[page].out_bytes } else { 0 }
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
        self.idle_cores += 1;
        self.unpin();
        self.dispatch(now);
        self.load(now);
        self.complete(now);
    }

    fn hand_over_rows(&mut self, page: usize) {
        if !self.path.load.computes {
            return;
        }
        let page = &self.path.work.pages[page];
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
        self.done == self.path.work.pages.len()
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

    /// Sends GET, after those that would find nothing.
    fn get(&mut self, now: u64) {
        let there_ps = self.path.latency_ps + self.path.command_ps;
        let period = self.poll_ps.max(there_ps + self.path.latency_ps);
        // Nothing happens at the device until the next event, however often it is asked.
        let empty = match self.events.next_at() {
            Some(next) if !self.initiated && self.waiting_bytes == 0 && !self.is_complete() => {
                next.saturating_sub(now.saturating_add(there_ps)).div_ceil(period.max(1))
            }
            _ => 0,
        };
        self.path.commands = self.path.commands.saturating_add(empty).saturating_add(1);
        self.path.polls = self.path.polls.saturating_add(empty).saturating_add(1);
        let asked_at = now.saturating_add(empty.saturating_mul(period));
        self.events.push(asked_at.saturating_add(there_ps), Event::Asked(asked_at));
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
        let answer = Answer { asked_at, rows, taken: sent.taken, last: self.is_complete() };
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
            self.get(now.max(answer.asked_at.saturating_add(self.poll_ps)));
        }
    }
}
