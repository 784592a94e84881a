//! [`Choice`]: which of a partition's copies is asked next. Pure but for the clock of suspects.

use std::collections::{BTreeMap, BTreeSet};

use pithead_fleet::{ConnectedDrive, Suspects};
use pithead_model::{DriveId, Fault};

/// Times that one copy is tried for one answer.
const TRIES_MAX: u32 = 2;
/// Faults of one partition after which its answer is given up, however many copies there are.
const FAULTS_MAX: usize = 8;

/// The copies of a partition, and how they did so far.
#[derive(Debug)]
pub(crate) struct Choice {
    copies: Vec<ConnectedDrive>,
    suspects: Suspects,
    at: DriveId,
    tries: BTreeMap<DriveId, u32>,
    busy: BTreeSet<DriveId>,
    /// Who failed, and why, oldest first.
    failed: Vec<(String, Fault)>,
}

impl Choice {
    /// None without a copy.
    pub(crate) fn new(copies: Vec<ConnectedDrive>, suspects: Suspects) -> Option<Self> {
        let at = copies.first()?.id();
        let (tries, busy, failed) = Default::default();
        let mut choice = Self { copies, suspects, at, tries, busy, failed };
        choice.at = choice.best(|_| true)?;
        Some(choice)
    }

    /// The copy to ask.
    pub(crate) fn drive(&self) -> Option<&ConnectedDrive> {
        self.copies.iter().find(|drive| drive.id() == self.at)
    }

    /// The copy to ask is busy. Whether there is another one that did not say so.
    pub(crate) fn try_less_busy(&mut self) -> bool {
        self.busy.insert(self.at);
        match self.best(|id| !self.busy.contains(&id)) {
            Some(next) => self.at = next,
            None => return false,
        }
        true
    }

    /// Whether there is another copy that may well answer: one that was not tried yet, and whose drive has not failed a moment ago.
    pub(crate) fn has_other(&self) -> bool {
        let is_fresh = |id: DriveId| id != self.at && !self.tries.contains_key(&id) && !self.suspects.has(id);
        self.copies.iter().any(|drive| is_fresh(drive.id()))
    }

    /// All are busy, and were waited for.
    pub(crate) fn ask_all_again(&mut self) {
        self.busy.clear();
        self.at = self.best(|_| true).unwrap_or(self.at);
    }

    /// The copy to ask has failed. Whether there is another one to go on at; if not, [`Self::verdict`] says why.
    pub(crate) fn fail(&mut self, fault: Fault) -> bool {
        let label = self.drive().map(|drive| drive.label().to_owned()).unwrap_or_default();
        *self.tries.entry(self.at).or_insert(0) += 1;
        self.failed.push((label, fault));
        self.go_on()
    }

    /// The partition is on these drives by now. Whether one of them can be asked.
    pub(crate) fn moved(&mut self, copies: Vec<ConnectedDrive>) -> bool {
        self.copies = copies;
        self.go_on()
    }

    /// Every fault so far, the last one first.
    pub(crate) fn verdict(&self) -> Option<Fault> {
        let ((_, last), before) = self.failed.split_last()?;
        let mut fault = last.clone();
        if !before.is_empty() {
            let before: Vec<&str> = before.iter().map(|(_, fault)| fault.message.as_str()).collect();
            fault.message = format!("{} (before that: {})", fault.message, before.join("; "));
        }
        Some(fault)
    }

    /// Copies that there are.
    pub(crate) fn width(&self) -> usize {
        self.copies.len()
    }

    /// Faults so far.
    pub(crate) fn faults(&self) -> usize {
        self.failed.len()
    }

    fn go_on(&mut self) -> bool {
        // What a drive failed at alone, it is not asked again: there is nothing to fail over to.
        let alone = self.copies.len() < 2;
        let next = self.best(|id| {
            let tries = self.tries.get(&id).copied().unwrap_or(0);
            tries == 0 || (!alone && tries < TRIES_MAX)
        });
        match next.filter(|_| self.failed.len() < FAULTS_MAX) {
            Some(next) => self.at = next,
            None => return false,
        }
        true
    }

    /// The one that failed least, and not a moment ago; of equals the first.
    fn best(&self, may: impl Fn(DriveId) -> bool) -> Option<DriveId> {
        let ids = self.copies.iter().map(ConnectedDrive::id).filter(|id| may(*id));
        ids.min_by_key(|id| (self.tries.get(id).copied().unwrap_or(0), self.suspects.has(*id)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pithead_door::Welcome;
    use pithead_fakes::FakeDoor;
    use pithead_model::{Blame, PROTOCOL_VERSION};

    use super::*;

    fn drive(id: u64) -> ConnectedDrive {
        let welcome = Welcome {
            protocol: PROTOCOL_VERSION,
            release: String::new(),
            drive: DriveId(id),
            extensions: vec![],
            encodings: vec![],
            threads: 1,
            link_bits_per_second: None,
            profile: None,
            cpu_share: 1.0,
            merges: true,
            attaches: false,
            beneath: vec![],
        };
        ConnectedDrive { door: FakeDoor::new(id) as Arc<_>, welcome }
    }

    fn at(choice: &Choice) -> u64 {
        choice.drive().unwrap().id().0
    }

    fn fault(text: &str) -> Fault {
        Fault::new(Blame::Device, text)
    }

    #[test]
    fn each_copy_is_tried_twice_in_turn() {
        let mut choice = Choice::new(vec![drive(1), drive(2)], Suspects::default()).unwrap();
        let mut asked = vec![at(&choice)];
        while choice.fail(fault(&format!("{} died", at(&choice)))) {
            asked.push(at(&choice));
        }
        assert_eq!(asked, [1, 2, 1, 2]);
        assert_eq!(choice.verdict().unwrap().message, "2 died (before that: 1 died; 2 died; 1 died)");
    }

    #[test]
    fn an_only_copy_is_tried_once_and_its_successor_too() {
        let mut choice = Choice::new(vec![drive(1)], Suspects::default()).unwrap();
        assert!(!choice.fail(fault("gone")));
        assert_eq!(choice.verdict().unwrap().message, "gone");
        assert!(choice.moved(vec![drive(3)]));
        assert_eq!(at(&choice), 3);
        assert!(!choice.fail(fault("gone, too")));
    }

    #[test]
    fn suspects_and_busy_ones_come_last() {
        let suspects = Suspects::default();
        suspects.add(DriveId(1));
        let mut choice = Choice::new(vec![drive(1), drive(2), drive(3)], suspects).unwrap();
        assert_eq!(at(&choice), 2);
        assert!(choice.try_less_busy());
        assert_eq!(at(&choice), 3);
        assert!(choice.try_less_busy());
        assert_eq!(at(&choice), 1);
        assert!(!choice.try_less_busy());
        choice.ask_all_again();
        assert_eq!(at(&choice), 2);
    }

    #[test]
    fn faults_have_a_bound_however_many_copies() {
        let mut choice = Choice::new((1..40).map(drive).collect(), Suspects::default()).unwrap();
        while choice.fail(fault("x")) {}
        assert_eq!(choice.faults(), FAULTS_MAX);
    }
}
