//! Tasks that write: clients, commits and rounds; see [`Writes`].

use std::collections::VecDeque;

use super::scenario::Writes;
use super::task::{Task, Work};

/// Bytes that a round writes at once.
const PART_BYTES: f64 = 1_048_576.0;

/// What is written and not durable yet.
pub(super) struct Writing {
    writes: Writes,
    /// What is to be done next, in order.
    next: VecDeque<Next>,
    /// Commits that were begun.
    pub(super) commits: u64,
    /// Tasks that wait for a commit, and those of the commit in hand.
    waiting: Vec<Task>,
    making: Vec<Task>,
    /// A commit is being made, or a round prepared.
    is_locked: bool,
    round: Round,
    /// Bytes that wait for a round, and those of the round in hand.
    fresh: f64,
    taken: f64,
    /// Bytes of the log that are not flushed.
    log: f64,
    /// When the log was flushed.
    flushed_at: f64,
    /// Bytes that the round has not sent to the medium yet.
    unwritten: f64,
    /// When the next round may begin.
    next_at: f64,
    /// It is looked at then.
    looks: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Round {
    #[default]
    None,
    /// It waits for the commit in hand.
    Waits,
    Prepares,
    Writes,
    /// It flushes what the log has had when it began to.
    Flushes,
    /// It waits for the commit in hand, and then flushes the rest.
    WaitsToFlush,
    FlushesRest,
}

/// What the writing of tasks asks of the cores and the medium.
pub(super) enum Next {
    /// A thread has work that takes so many seconds.
    Work(Work, f64),
    /// The medium gets so many bytes, and [`Writing::written`] is told when it has them.
    Write(f64),
    /// [`Writing::round_due`] is told after so many seconds.
    Round(f64),
}

impl Writing {
    pub fn new(writes: Writes) -> Writing {
        Writing {
            writes,
            next: VecDeque::new(),
            commits: 0,
            waiting: Vec::new(),
            making: Vec::new(),
            is_locked: false,
            round: Round::None,
            fresh: 0.0,
            taken: 0.0,
            log: 0.0,
            flushed_at: 0.0,
            unwritten: 0.0,
            next_at: 0.0,
            looks: false,
        }
    }

    /// What is to be done next.
    pub fn next(&mut self) -> Option<Next> {
        self.next.pop_front()
    }

    fn work(&mut self, work: Work, seconds: f64) {
        self.next.push_back(Next::Work(work, seconds));
    }

    /// A task's core is done with it.
    pub fn wait_for_commit(&mut self, task: Task) {
        self.waiting.push(task);
        self.begin_commit();
    }

    fn begin_commit(&mut self) {
        let is_behind = self.fresh + self.taken > self.writes.behind_bytes_max;
        if self.is_locked || self.waiting.is_empty() || is_behind {
            return;
        }
        self.is_locked = true;
        self.making = std::mem::take(&mut self.waiting);
        self.commits += 1;
        self.work(Work::Commit, self.writes.commit_seconds + self.writes.commit_task_seconds * self.making.len() as f64);
    }

    /// The commit in hand is made.
    pub fn committed(&mut self, now: f64) {
        let made = std::mem::take(&mut self.making);
        self.is_locked = false;
        self.fresh += self.writes.task_bytes * made.len() as f64;
        self.log += self.writes.log_bytes * made.len() as f64;
        for task in made {
            self.work(Work::Answer(task), self.writes.answer_seconds);
        }
        match self.round {
            Round::Waits => self.prepare(),
            Round::WaitsToFlush => self.flush_rest(),
            _ => self.begin_round(now),
        }
        self.begin_commit();
    }

    /// A round begins when there is enough for it, and not too soon after the last one.
    fn begin_round(&mut self, now: f64) {
        if self.round != Round::None || self.fresh <= 0.0 || self.fresh < self.writes.round_bytes {
            return;
        }
        if now < self.next_at {
            if !std::mem::replace(&mut self.looks, true) {
                self.next.push_back(Next::Round(self.next_at - now));
            }
            return;
        }
        self.next_at = now + self.writes.round_pause;
        self.round = Round::Waits;
        if !self.is_locked {
            self.prepare();
        }
    }

    pub fn round_due(&mut self, now: f64) {
        self.looks = false;
        // The sum of two numbers may have been rounded down.
        self.next_at = now;
        self.begin_round(now);
    }

    fn prepare(&mut self) {
        self.is_locked = true;
        self.round = Round::Prepares;
        self.taken = std::mem::take(&mut self.fresh);
        self.work(Work::Prepare, self.taken * self.writes.prepare_seconds);
    }

    /// The round's bytes can be written.
    pub fn prepared(&mut self) {
        self.is_locked = false;
        self.round = Round::Writes;
        self.unwritten = self.taken * self.writes.amplification;
        self.write_part();
        self.begin_commit();
    }

    fn write_part(&mut self) {
        let part = self.unwritten.min(PART_BYTES);
        self.unwritten -= part;
        let is_flush = self.round != Round::Writes;
        self.work(Work::Write(part), if is_flush { 0.0 } else { part * self.writes.write_seconds });
    }

    /// A part of the round goes to the medium.
    pub fn write(&mut self, bytes: f64) {
        self.next.push_back(Next::Write(bytes));
    }

    /// The medium has a part of the round.
    pub fn written(&mut self, now: f64) {
        if self.unwritten > 0.0 {
            return self.write_part();
        }
        match self.round {
            Round::Writes => self.flush_log(now),
            Round::Flushes if self.is_locked => self.round = Round::WaitsToFlush,
            Round::Flushes => self.flush_rest(),
            _ => {
                self.is_locked = false;
                self.flushed_at = now;
                self.end_round(now);
            }
        }
    }

    /// What the round has taken is durable. The log is flushed as well, if that is due.
    fn flush_log(&mut self, now: f64) {
        self.taken = 0.0;
        if now - self.flushed_at < self.writes.log_pause {
            return self.end_round(now);
        }
        self.round = Round::Flushes;
        self.unwritten = std::mem::take(&mut self.log);
        self.write_part();
        self.begin_commit();
    }

    /// Flushes what came to the log while it was flushed. No commit is made meanwhile.
    fn flush_rest(&mut self) {
        self.is_locked = true;
        self.round = Round::FlushesRest;
        self.unwritten = std::mem::take(&mut self.log);
        self.write_part();
    }

    fn end_round(&mut self, now: f64) {
        self.round = Round::None;
        self.begin_round(now);
        self.begin_commit();
    }
}
