"""The services that are shipped: systemd reads them, and what they and the container run starts, serves and stops."""

import configparser
import json
import pathlib
import re
import shutil
import signal
import subprocess

import pytest
from programs import free_port, program

TOOLS = pathlib.Path(__file__).parents[2] / "tools"
UNITS = TOOLS / "systemd"
CONTAINER = TOOLS / "container"


def unit(name: str) -> configparser.ConfigParser:
    read = configparser.ConfigParser(interpolation=None, strict=False)
    read.optionxform = str
    read.read(UNITS / name)
    return read


def command(name: str, **values: str) -> list[str]:
    words = unit(name)["Service"]["ExecStart"].split()
    assert words[0] == "/usr/local/bin/pithead"
    line = " ".join([str(program()), *words[1:]])
    for old, new in values.items():
        line = line.replace({"data": "/srv/pithead/%i", "options": "$PITHEAD_OPTIONS"}[old], new)
    assert "%" not in line and "$" not in line
    return line.split()


@pytest.mark.parametrize("name", ["pithead-drive@.service", "pithead-serve.service"])
def test_systemd_reads_them(name, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    text = (UNITS / name).read_text()
    # What this machine need not have.
    text = text.replace("/usr/local/bin/pithead", "/bin/true").replace("User=pithead\nGroup=pithead\n", "")
    (tmp_path / name).write_text(text)
    instance = tmp_path / name.replace("@.", "@disk1.")
    if instance.name != name:
        instance.write_text(text)
    told = subprocess.run(["systemd-analyze", "verify", "--man=no", str(instance)], capture_output=True, text=True)
    about = [line for line in told.stderr.splitlines() if "pithead" in line]
    assert not about, about


def test_what_they_run_serves_and_stops(tmp_path):
    data = tmp_path / "disk1"
    data.mkdir()
    drive = subprocess.Popen(
        command("pithead-drive@.service", data=str(data), options="--listen 127.0.0.1:0"),
        stderr=subprocess.PIPE,
        text=True,
    )
    host = None
    try:
        address = re.search(r"listening on (\S+)", drive.stderr.readline())
        assert address
        host = subprocess.Popen(
            command("pithead-serve.service", options=f"--drives {address[1]} --listen 127.0.0.1:0"),
            stderr=subprocess.PIPE,
            text=True,
        )
        assert "host listening on" in host.stderr.readline()
    finally:
        for process in filter(None, (host, drive)):
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(timeout=60) for process in (host, drive) if process]
        for process in filter(None, (host, drive)):
            process.stderr.close()
    assert codes == [0, 0]


def words(instruction: str) -> list[str]:
    """The words of the container's last instruction of this kind."""
    lines = (CONTAINER / "Containerfile").read_text().splitlines()
    return json.loads([line for line in lines if line.startswith(instruction + " ")][-1].removeprefix(instruction))


def test_the_container_serves_a_drive_and_knows_whether_it_is_well(tmp_path):
    assert words("ENTRYPOINT") == ["pithead"]
    data, port = tmp_path / "data", str(free_port())
    data.mkdir()
    replaced = {"/srv/pithead": str(data), "9433": port}
    command = [replaced.get(word, word) for word in words("CMD")] + ["--listen", "127.0.0.1:0"]
    assert str(data) in command and port in command
    well = [str(CONTAINER / "healthy"), port]
    drive = subprocess.Popen([str(program()), *command], stderr=subprocess.PIPE, text=True)
    try:
        while "metrics at" not in (line := drive.stderr.readline()):
            assert line, "it ended early"
        assert subprocess.run(well, timeout=10).returncode == 0
    finally:
        drive.send_signal(signal.SIGTERM)
        code = drive.wait(timeout=60)
        drive.stderr.close()
    assert code == 0
    assert subprocess.run(well, timeout=10, capture_output=True).returncode != 0
