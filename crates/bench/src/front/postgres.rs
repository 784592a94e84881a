//! PostgreSQL itself, with a database of its own in a scratch folder.

use std::fs::{File, Permissions, set_permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pithead_model::{Blame, Fault};

use super::stop;
use crate::tables::io;

const START_LIMIT: Duration = Duration::from_secs(30);
/// Where Debian puts programs that are no commands of everybody, one folder a version.
const INSTALLED: &str = "/usr/lib/postgresql";
/// It refuses to run as root; the first of these users that there is runs it then.
const USERS: [&str; 2] = ["postgres", "nobody"];

/// The programs of PostgreSQL.
#[derive(Clone, Debug)]
pub(super) struct Programs(PathBuf);

impl Programs {
    /// In `$PITHEAD_POSTGRES`, or the newest that is installed. None: there are none.
    pub(super) fn find() -> Option<Programs> {
        let named = std::env::var_os("PITHEAD_POSTGRES").map(PathBuf::from);
        let mut installed: Vec<(u32, PathBuf)> = std::fs::read_dir(INSTALLED)
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                Some((entry.as_ref().ok()?.file_name().to_str()?.parse().ok()?, entry.ok()?.path().join("bin")))
            })
            .collect();
        installed.sort();
        let folders = named.into_iter().chain(installed.into_iter().rev().map(|(_, folder)| folder));
        folders.map(Programs).find(|programs| programs.path("postgres").is_file() && programs.path("initdb").is_file())
    }

    /// The line for people where there are none.
    pub(super) fn missing() -> &'static str {
        "PostgreSQL was not found, so nothing is measured beside it; Debian's package is postgresql, which has pgbench, too \
         (PITHEAD_POSTGRES names a folder of its programs)"
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// pgbench, which asks any server of this protocol. None: it is not there.
    pub(super) fn pgbench(&self) -> Option<PathBuf> {
        Some(self.path("pgbench")).filter(|path| path.is_file())
    }
}

/// A server on a folder of its own, with the settings that it comes with. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Postgres {
    child: Child,
    pub(super) port: u16,
    pub(super) version: String,
}

impl Postgres {
    /// Makes a database in `folder`, starts a server, and waits until it listens.
    pub(super) fn start(programs: &Programs, folder: &Path, port: u16) -> Result<Postgres, Fault> {
        std::fs::create_dir_all(folder).map_err(|error| io(folder, &error))?;
        let user = unprivileged(folder)?;
        let (database, log) = (folder.join("database"), folder.join("log"));
        let version = said(as_user(user, &programs.path("postgres")).arg("--version"))?;
        let mut initdb = as_user(user, &programs.path("initdb"));
        initdb.args(["-U", "bench", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", "-D"]).arg(&database);
        said(initdb.current_dir(folder))?;
        let told = File::create(&log).map_err(|error| io(&log, &error))?;
        let child = as_user(user, &programs.path("postgres"))
            .arg("-D")
            .arg(&database)
            .args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(told)
            .spawn()
            .map_err(|error| io(&programs.path("postgres"), &error))?;
        let mut postgres = Postgres { child, port, version };
        let started = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = postgres.child.try_wait().is_ok_and(|status| status.is_some());
            if ended || started.elapsed() > START_LIMIT {
                let told = std::fs::read_to_string(&log).unwrap_or_default();
                return Err(Fault::new(Blame::Device, format!("PostgreSQL did not start: {}", told.trim())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(postgres)
    }

    /// As a client names it.
    pub(super) fn name(&self) -> String {
        format!("host=127.0.0.1 port={} user=bench dbname=postgres", self.port)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Its fast shutdown: clients are sent away.
        stop(&mut self.child, "-INT");
    }
}

/// A user and a group, by their numbers.
type User = Option<(u32, u32)>;

/// Who runs it, and owns the folder from now on. None: whoever runs this, who is not root.
fn unprivileged(folder: &Path) -> Result<User, Fault> {
    if std::fs::metadata("/proc/self").map_or(0, |self_| self_.uid()) != 0 {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = USERS.iter().find_map(|name| numbers(&users, name));
    let user = user.ok_or_else(|| Fault::new(Blame::User, "root may not run PostgreSQL, and there is no user postgres"))?;
    chown(folder, Some(user.0), Some(user.1)).map_err(|error| io(folder, &error))?;
    // It has to get there.
    let above = folder.parent().unwrap_or(folder);
    set_permissions(above, Permissions::from_mode(0o711)).map_err(|error| io(above, &error))?;
    Ok(Some(user))
}

/// The numbers of a user and of its group in `/etc/passwd`.
fn numbers(users: &str, name: &str) -> User {
    let mut words = users.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.split(':').skip(1);
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

fn as_user(user: User, program: &Path) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = user {
        command.uid(user).gid(group);
    }
    command
}

fn said(command: &mut Command) -> Result<String, Fault> {
    let program = PathBuf::from(command.get_program());
    let output = command.stdin(Stdio::null()).output().map_err(|error| io(&program, &error))?;
    if !output.status.success() {
        let what = String::from_utf8_lossy(&output.stderr);
        let fault = Fault::new(Blame::Device, format!("{}: {}", program.display(), what.trim()));
        return Err(fault.hint("who runs PostgreSQL has to have a name, and to reach the benchmark's folder: see --directory"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_their_whole_names() {
        let users = "root:x:0:0:root:/root:/bin/bash\npostgresql:x:7:8::/:\npostgres:x:107:113:,,,:/var:/bin/bash\n";
        assert_eq!(numbers(users, "postgres"), Some((107, 113)));
        assert_eq!(numbers(users, "nobody"), None);
    }
}
