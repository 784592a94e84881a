//! The host programs of `sdk/examples/ssdlets` against the library, as their users build and run them.

#[path = "../../program/tests/build/mod.rs"]
mod build;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use build::{out, root};

/// The folder that holds libpithead_ssd.so: two above the executable of this test, or beside it.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let mut folders = test.ancestors().skip(1).take(2);
    let found = folders.find(|folder| folder.join("libpithead_ssd.so").exists());
    found.unwrap_or_else(|| panic!("libpithead_ssd.so is not beside {}", test.display())).to_path_buf()
}

/// Builds a host program.
fn host(name: &str) -> PathBuf {
    let made = out("cpp").join(name);
    let mut make = Command::new("make");
    make.current_dir(root().join("sdk/examples/ssdlets/cpp")).arg(format!("LIBRARY={}", library().display()));
    build::run(make.arg(format!("OUT={}", out("cpp").display())).arg(&made));
    made
}

/// A folder as a drive, with a module at the place where the host program looks for it.
fn drive(module: &str, place: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join(place);
    fs::create_dir_all(place.parent().expect("a folder")).expect("folders");
    fs::copy(build::cpp("sdk/examples/ssdlets/cpp", module), place).expect("the module is there");
    folder
}

fn run(program: &Path, folder: &Path, file: Option<&str>, input: &str) -> Output {
    let mut child = Command::new(program)
        .arg(folder)
        .args(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the host program starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

#[test]
fn the_word_count_of_the_slides() {
    let folder = drive("wordcount.wasm", "var/isc/slets/wordcount.wasm");
    fs::write(folder.path().join("text"), "to be or not\nto be\n\nthat\tis the question\n").expect("a file");
    let program = host("wordcount_host");
    let output = run(&program, folder.path(), Some("text"), "");
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}");
    let counts = "be\t2\nis\t1\nnot\t1\nor\t1\nquestion\t1\nthat\t1\nthe\t1\nto\t2\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), counts);
    let output = run(&program, folder.path(), Some("none"), "");
    assert!(!output.status.success(), "a file that is not there is an error");
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no file \"none\""), "{output:?}");
}

#[test]
fn the_key_value_server_of_the_slides() {
    let folder = drive("kvstore.wasm", "kvstore.wasm");
    let commands = "put a 1\nput b 2\nget a\nput a 3\nget a\nget b\nquit\n";
    let output = run(&host("kvstore_host"), folder.path(), None, commands);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n3\n2\n");
}
