//! Tasks that write: clients, commits and rounds; see [`Writes`](super::Writes).

use super::core::Task;
use super::event::SimEvent;
use super::run::Run;

/// Bytes that a round writes at once.
const PART_BYTES: f64 = 1_048_576.0;

/// A thread's work, off the loops of the cores.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// A client sends its task.
    Send(Task),
    /// The commit in hand.
    Commit,
    /// The answer to a task, on its core, and what its core does after it.
    Answer(Task),
    After(Task),
    /// A client takes the answer.
    Receive(Task),
    /// What the round in hand does while no commit is made.
    Prepare,
    /// What it does for so many bytes before they go to the medium.
    Write(f64),
}

impl Work {
    /// Whether it stays on the core where it began.
    pub fn is_pinned(self) -> bool {
        matches!(self, Work::Commit | Work::Answer(_) | Work::After(_))
    }
}

/// What is written and not durable yet.
#[derive(Default)]
pub(super) struct Writing {
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
    /// The core of the next commit.
    pub(super) turn: usize,
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

impl Run<'_> {
    /// A host thread sends a task.
    pub fn send(&mut self, task: Task) {
        let seconds = self.scenario.writes.map_or(0.0, |writes| writes.client_seconds / 2.0);
        self.begin_work(Work::Send(task), seconds);
    }

    /// A task's core is done with it.
    pub fn wait_for_commit(&mut self, task: Task) {
        self.writing.waiting.push(task);
        self.begin_commit();
    }

    pub fn work_done(&mut self, work: Work) {
        match work {
            Work::Send(task) => self.queue_task(task),
            Work::Commit => self.committed(),
            Work::Answer(task) => self.answer(task),
            Work::After(_) => {}
            Work::Receive(task) => self.answered(task),
            Work::Prepare => self.prepared(),
            Work::Write(bytes) => {
                let at = self.device.write(self.now, bytes);
                self.add(at - self.now, SimEvent::Written);
            }
        }
    }

    fn answer(&mut self, task: Task) {
        let Some(writes) = self.scenario.writes else { return };
        self.begin_work(Work::Receive(task), writes.client_seconds / 2.0);
        self.begin_work(Work::After(task), writes.after_seconds);
    }

    fn begin_commit(&mut self) {
        let Some(writes) = self.scenario.writes else { return };
        let writing = &mut self.writing;
        let is_behind = writing.fresh + writing.taken > writes.behind_bytes_max;
        if writing.is_locked || writing.waiting.is_empty() || is_behind {
            return;
        }
        writing.is_locked = true;
        writing.making = std::mem::take(&mut writing.waiting);
        let seconds = writes.commit_seconds + writes.commit_task_seconds * writing.making.len() as f64;
        self.outcome.commits += 1;
        self.begin_work(Work::Commit, seconds);
    }

    fn committed(&mut self) {
        let Some(writes) = self.scenario.writes else { return };
        let writing = &mut self.writing;
        let made = std::mem::take(&mut writing.making);
        writing.is_locked = false;
        writing.fresh += writes.task_bytes * made.len() as f64;
        writing.log += writes.log_bytes * made.len() as f64;
        for task in made {
            self.begin_work(Work::Answer(task), writes.answer_seconds);
        }
        match self.writing.round {
            Round::Waits => self.prepare(),
            Round::WaitsToFlush => self.flush_rest(),
            _ => self.begin_round(),
        }
        self.begin_commit();
    }

    /// A round begins when there is enough for it, and not too soon after the last one.
    pub fn begin_round(&mut self) {
        let Some(writes) = self.scenario.writes else { return };
        let (now, writing) = (self.now, &mut self.writing);
        if writing.round != Round::None || writing.fresh <= 0.0 || writing.fresh < writes.round_bytes {
            return;
        }
        if now < writing.next_at {
            let left = writing.next_at - now;
            if !std::mem::replace(&mut writing.looks, true) {
                self.add(left, SimEvent::RoundDue);
            }
            return;
        }
        writing.next_at = now + writes.round_pause;
        writing.round = Round::Waits;
        if !writing.is_locked {
            self.prepare();
        }
    }

    pub fn round_due(&mut self) {
        self.writing.looks = false;
        // The sum of two numbers may have been rounded down.
        self.writing.next_at = self.now;
        self.begin_round();
    }

    fn prepare(&mut self) {
        let Some(writes) = self.scenario.writes else { return };
        let writing = &mut self.writing;
        writing.is_locked = true;
        writing.round = Round::Prepares;
        writing.taken = std::mem::take(&mut writing.fresh);
        let seconds = writing.taken * writes.prepare_seconds;
        self.begin_work(Work::Prepare, seconds);
    }

    fn prepared(&mut self) {
        let amplification = self.scenario.writes.map_or(0.0, |writes| writes.amplification);
        let writing = &mut self.writing;
        writing.is_locked = false;
        writing.round = Round::Writes;
        writing.unwritten = writing.taken * amplification;
        self.write_part();
        self.begin_commit();
    }

    fn write_part(&mut self) {
        let part = self.writing.unwritten.min(PART_BYTES);
        self.writing.unwritten -= part;
        let is_flush = self.writing.round != Round::Writes;
        let seconds = self.scenario.writes.filter(|_| !is_flush).map_or(0.0, |writes| part * writes.write_seconds);
        self.begin_work(Work::Write(part), seconds);
    }

    /// The medium has a part of the round.
    pub fn written(&mut self) {
        if self.writing.unwritten > 0.0 {
            return self.write_part();
        }
        match self.writing.round {
            Round::Writes => self.flush_log(),
            Round::Flushes if self.writing.is_locked => self.writing.round = Round::WaitsToFlush,
            Round::Flushes => self.flush_rest(),
            _ => {
                self.writing.is_locked = false;
                self.writing.flushed_at = self.now;
                self.end_round();
            }
        }
    }

    /// What the round has taken is durable. The log is flushed as well, if that is due.
    fn flush_log(&mut self) {
        let pause = self.scenario.writes.map_or(f64::INFINITY, |writes| writes.log_pause);
        self.writing.taken = 0.0;
        if self.now - self.writing.flushed_at < pause {
            return self.end_round();
        }
        self.writing.round = Round::Flushes;
        self.writing.unwritten = std::mem::take(&mut self.writing.log);
        self.write_part();
        self.begin_commit();
    }

    /// Flushes what came to the log while it was flushed. No commit is made meanwhile.
    fn flush_rest(&mut self) {
        self.writing.is_locked = true;
        self.writing.round = Round::FlushesRest;
        self.writing.unwritten = std::mem::take(&mut self.writing.log);
        self.write_part();
    }

    fn end_round(&mut self) {
        self.writing.round = Round::None;
        self.begin_round();
        self.begin_commit();
    }
}
