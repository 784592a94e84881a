//! What the machine's own meters say that its processor packages took: RAPL, as Linux shows it.

use std::fs;
use std::path::{Path, PathBuf};

/// Where Linux has the meters.
const FOLDER: &str = "/sys/class/powercap";
/// The folders of meters; those of the parts of a meter have one more colon.
const PREFIX: &str = "intel-rapl:";
/// What the meters of packages are named. Beside them there may be one of the whole platform, `psys`, which counts them, too.
const PACKAGE: &str = "package";

/// The meters of all packages, since a moment.
#[derive(Debug)]
pub struct PackageMeter(Vec<Meter>);

#[derive(Debug)]
struct Meter {
    folder: PathBuf,
    start_uj: u64,
    /// The meter begins again from 0 after this.
    range_uj: u64,
}

impl PackageMeter {
    /// From now on. A machine without meters, and one that shows them to its administrator only, has none.
    pub fn start() -> PackageMeter {
        PackageMeter::start_at(Path::new(FOLDER))
    }

    fn start_at(folder: &Path) -> PackageMeter {
        let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
        let packages = entries.filter(|entry| {
            let name = entry.file_name();
            let is_whole = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).is_some_and(|rest| !rest.contains(':'));
            is_whole && is_package(&entry.path())
        });
        PackageMeter(packages.filter_map(|package| Meter::start(package.path())).collect())
    }

    /// Joules of all packages since the start, whatever ran on them; none: there is no meter. A meter may go round once meanwhile.
    pub fn joules(&self) -> Option<f64> {
        let sum = self.0.iter().map(Meter::microjoules).sum::<Option<u64>>()?;
        (!self.0.is_empty()).then_some(sum as f64 / 1e6)
    }
}

impl Meter {
    fn start(folder: PathBuf) -> Option<Meter> {
        let (start_uj, range_uj) = (number(&folder.join("energy_uj"))?, number(&folder.join("max_energy_range_uj"))?);
        Some(Meter { folder, start_uj, range_uj })
    }

    fn microjoules(&self) -> Option<u64> {
        let now = number(&self.folder.join("energy_uj"))?;
        now.checked_sub(self.start_uj).or_else(|| self.range_uj.checked_sub(self.start_uj)?.checked_add(now))
    }
}

fn is_package(folder: &Path) -> bool {
    fs::read_to_string(folder.join("name")).is_ok_and(|name| name.starts_with(PACKAGE))
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(folder: &Path, (meter, name): (&str, &str), now: &str) {
        let folder = folder.join(meter);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("name"), format!("{name}\n")).unwrap();
        fs::write(folder.join("energy_uj"), now).unwrap();
        fs::write(folder.join("max_energy_range_uj"), "10000000\n").unwrap();
    }

    const FIRST: (&str, &str) = ("intel-rapl:0", "package-0");
    const CORES: (&str, &str) = ("intel-rapl:0:0", "core");
    const SECOND: (&str, &str) = ("intel-rapl:1", "package-1");
    const PLATFORM: (&str, &str) = ("intel-rapl:2", "psys");

    #[test]
    fn packages_are_added_up_and_may_go_round() {
        let folder = tempfile::tempdir().unwrap();
        let set = |meter, now| set(folder.path(), meter, now);
        set(FIRST, "1000000\n");
        set(CORES, "500000\n");
        set(SECOND, "9000000\n");
        set(PLATFORM, "0\n");
        let meter = PackageMeter::start_at(folder.path());
        set(FIRST, "3500000\n");
        set(CORES, "9900000\n");
        set(SECOND, "1000000\n");
        // It has counted both packages, and all that is beside them.
        set(PLATFORM, "7000000\n");
        assert_eq!(meter.joules(), Some(2.5 + 2.0));
    }

    #[test]
    fn without_meters_nothing_is_said() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(PackageMeter::start_at(folder.path()).joules(), None);
        set(folder.path(), FIRST, "not a number");
        assert_eq!(PackageMeter::start_at(folder.path()).joules(), None);
        assert_eq!(PackageMeter::start_at(&folder.path().join("gone")).joules(), None);
    }
}
