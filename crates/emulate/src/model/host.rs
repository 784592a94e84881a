//! Work at the host: read commands, each for some pages, several under way at one time.
//!
//! A command's pages are read as places in the device's memory come free, go over the link one by one, and are worked on
//! by the host's threads when all of them are there. Then the next command is sent: a slow host slows the device.

use std::collections::VecDeque;

use super::Load;
use super::path::Path;
use super::servers::{Events, Servers};
use crate::profile::Parts;
use crate::work::Work;

enum Event {
    /// A command reached the device.
    Commanded(usize),
    /// The device begins with a command's pages.
    Begun(usize),
    /// A page's channel has it.
    Read(usize),
    /// A page is in the device's memory.
    Loaded(usize),
    /// A page has left the device.
    Sent,
    /// A page is at the host, which has taken in those of other devices at this time, too.
    Arrived(usize, u64),
    /// The host is done with a command's pages.
    Finished,
}

pub(super) struct Reads<'a> {
    path: Path<'a>,
    events: Events<Event>,
    /// The part of the device that takes commands.
    front: Servers,
    /// Pages of a command.
    pages_each: usize,
    depth: usize,
    /// Commands, and the next one.
    commands: usize,
    next: usize,
    wanted: VecDeque<usize>,
    /// Pages of each command that are not at the host yet.
    left: Vec<usize>,
}

impl<'a> Reads<'a> {
    pub(super) fn new(parts: &'a Parts, work: &'a Work, load: Load) -> Self {
        let each = (parts.link.read_bytes.whole() / work.page_bytes).max(1);
        let each = load.pages_in_flight.map_or(each, |most| each.min(most.max(1)));
        let depth = parts.link.queue_depth.whole();
        let depth = load.pages_in_flight.map_or(depth, |most| depth.min(most.max(1) / each));
        let pages = work.pages.len();
        let pages_each = each as usize;
        let commands = pages.div_ceil(pages_each);
        let left = (0..commands).map(|command| pages_each.min(pages - command * pages_each)).collect();
        Self {
            path: Path::new(parts, work, load),
            events: Events::new(),
            front: Servers::new(1),
            pages_each,
            depth: depth as usize,
            commands,
            next: 0,
            wanted: VecDeque::new(),
            left,
        }
    }

    pub(super) fn finish(mut self) -> Path<'a> {
        for _ in 0..self.depth.max(1) {
            self.command(0);
        }
        while let Some((now, event)) = self.events.pop() {
            self.step(now, event);
        }
        self.path
    }

    fn command(&mut self, now: u64) {
        if self.next < self.commands {
            self.path.commands += 1;
            self.events.push(now.saturating_add(self.path.latency_ps), Event::Commanded(self.next));
            self.next += 1;
        }
    }

    fn step(&mut self, now: u64, event: Event) {
        match event {
            Event::Commanded(command) => {
                let begins = self.front.book(now, self.path.command_ps);
                self.events.push(begins, Event::Begun(command));
            }
            Event::Begun(command) => {
                self.wanted.extend(self.pages(command));
                self.load(now);
            }
            Event::Read(page) => {
                let there = self.path.move_in(now);
                self.events.push(there, Event::Loaded(page));
            }
            Event::Loaded(page) => {
                let sent = self.path.send(now, self.path.work.page_bytes);
                self.events.push(sent.left, Event::Sent);
                self.events.push(sent.there, Event::Arrived(page, sent.taken));
            }
            Event::Sent => {
                self.path.places += 1;
                self.load(now);
            }
            Event::Arrived(page, taken) => self.arrived(page, taken, now),
            Event::Finished => {
                self.path.end_ps = self.path.end_ps.max(now);
                self.command(now);
            }
        }
    }

    fn pages(&self, command: usize) -> std::ops::Range<usize> {
        let start = command * self.pages_each;
        start..(start + self.pages_each).min(self.path.work.pages.len())
    }

    fn load(&mut self, now: u64) {
        while self.path.places > 0 {
            let Some(page) = self.wanted.pop_front() else { return };
            let read = self.path.read(page, now);
            self.events.push(read, Event::Read(page));
        }
    }

    fn arrived(&mut self, page: usize, taken: u64, now: u64) {
        let command = page / self.pages_each;
        self.left[command] -= 1;
        if self.left[command] > 0 {
            return;
        }
        let mut finished = now.max(taken);
        for page in self.pages(command) {
            let work = self.path.work;
            finished = finished.max(self.path.take_page(now, &work.pages[page]));
        }
        self.events.push(finished, Event::Finished);
    }
}
