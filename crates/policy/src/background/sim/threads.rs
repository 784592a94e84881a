//! Threads beside the loops of the cores: clients, commits and rounds, and what these want of cores and medium.

use super::core::Waiting;
use super::event::SimEvent;
use super::run::Run;
use super::task::{Task, Work};
use super::writing::{Next, Writing};

impl Run<'_> {
    /// A host thread sends a task.
    pub fn send(&mut self, task: Task) {
        let seconds = self.scenario.writes.map_or(0.0, |writes| writes.client_seconds / 2.0);
        self.begin_work(Work::Send(task), seconds);
    }

    /// Tells the writing of tasks what happened, and does what follows from that.
    pub fn write_on(&mut self, happened: impl FnOnce(&mut Writing, f64)) {
        let now = self.now;
        let Some(writing) = &mut self.writing else { return };
        happened(writing, now);
        while let Some(next) = self.writing.as_mut().and_then(Writing::next) {
            match next {
                Next::Work(work, seconds) => self.begin_work(work, seconds),
                Next::Write(bytes) => {
                    let at = self.device.write(now, bytes);
                    self.add(at - now, SimEvent::Written);
                }
                Next::Round(after) => self.add(after, SimEvent::RoundDue),
            }
        }
    }

    pub fn work_done(&mut self, work: Work) {
        match work {
            Work::Send(task) => self.queue_task(task),
            Work::Commit => self.write_on(Writing::committed),
            Work::Answer(task) => self.answer(task),
            Work::After(_) => {}
            Work::Receive(task) => self.answered(task),
            Work::Prepare => self.write_on(|writing, _| writing.prepared()),
            Work::Write(bytes) => self.write_on(|writing, _| writing.write(bytes)),
        }
    }

    fn answer(&mut self, task: Task) {
        let Some(writes) = self.scenario.writes else { return };
        self.begin_work(Work::Receive(task), writes.client_seconds / 2.0);
        self.begin_work(Work::After(task), writes.after_seconds);
    }

    /// A thread has work that takes so long.
    fn begin_work(&mut self, work: Work, seconds: f64) {
        if seconds <= 0.0 {
            return self.work_done(work);
        }
        let core = match work {
            Work::Answer(task) | Work::After(task) => self.core_of(task.thread),
            Work::Commit => {
                self.turn += 1;
                self.turn % self.cores.len()
            }
            _ => self.freest(),
        };
        self.queue_thread(core, work, seconds);
    }

    pub fn queue_thread(&mut self, core: usize, work: Work, seconds: f64) {
        self.cores[core].queue.push_back(Waiting::Thread(work, seconds));
        self.go_on(core);
    }

    /// The core that has the least to do.
    pub fn freest(&self) -> usize {
        (0..self.cores.len()).min_by_key(|core| self.cores[*core].load()).unwrap_or(0)
    }
}
