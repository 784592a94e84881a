//! nginx as a process of this benchmark: the Parquet files over HTTP, from the drives' side.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use pithead_model::{Blame, Fault};

use super::namespaces::DRIVES_ADDRESS;
use crate::drives::through;
use crate::tables::io;

const PORT: u16 = 8080;
const START_LIMIT: Duration = Duration::from_secs(10);

/// One that serves. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Nginx(Child);

impl Nginx {
    /// Starts it over the directory `files` in `home`, and waits until it listens. What it writes is kept in `home`.
    pub(super) async fn start(program: &Path, prefix: &[String], home: &Path) -> Result<Self, Fault> {
        let home = std::path::absolute(home).map_err(|error| io(home, &error))?;
        let configuration = home.join("nginx.conf");
        std::fs::write(&configuration, CONFIGURATION).map_err(|error| io(&configuration, &error))?;
        let child = through(prefix, program)
            .arg("-p")
            .arg(&home)
            .args(["-c", "nginx.conf", "-e", "error.log"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| io(program, &error))?;
        let mut nginx = Self(child);
        nginx.listening(&home).await?;
        Ok(nginx)
    }

    /// The address of the files' directory.
    pub(super) fn url() -> String {
        format!("http://{DRIVES_ADDRESS}:{PORT}")
    }

    /// It writes its process number once its sockets are open.
    async fn listening(&mut self, home: &Path) -> Result<(), Fault> {
        let (id, log): (PathBuf, PathBuf) = (home.join("nginx.pid"), home.join("error.log"));
        let started = Instant::now();
        while !id.exists() {
            let ended = !matches!(self.0.try_wait(), Ok(None));
            if ended || started.elapsed() > START_LIMIT {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                return Err(Fault::new(Blame::Device, format!("nginx did not start: {}", said.trim())));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It may be gone already; nothing is left to do about it either way.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One process, which ends when it is killed. Paths are relative to its home.
const CONFIGURATION: &str = "\
daemon off;
master_process off;
pid nginx.pid;
events { worker_connections 512; }
http {
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_timeout 300;
    keepalive_requests 1000000;
    default_type application/octet-stream;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {
        listen 10.77.0.2:8080;
        root files;
    }
}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_listens_where_the_host_looks() {
        let address = Nginx::url();
        assert!(CONFIGURATION.contains(&format!("listen {};", address.trim_start_matches("http://"))));
    }
}
