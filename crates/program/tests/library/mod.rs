//! What the library of C++ promises beside its template.

use pithead_program::{Argument, Value};

use super::{Drive, block_on, build, run};

/// What an SSDlet in C++ does with views, large reads and large rows.
#[test]
fn the_library_in_cpp() {
    let module = build::cpp("crates/program/tests/guests", "library.wasm");
    block_on(async {
        let drive = Drive::new();
        let module = drive.load(&module).await;
        let file = drive.write("large", vec![b'x'; 20 << 20]);
        let word = Value::String("a word that is longer than a string holds inline".to_owned());
        let rows = run(&drive, &module, "idLibrary", &[file, Argument::Value(word.clone())]).await;
        assert_eq!(rows[..2], [vec![word], vec![Value::String(format!("{}", 20 << 20))]]);
        let [Value::String(large)] = &rows[2][..] else { panic!("a row of a text") };
        assert!(large.len() == (16 << 20) - 4 && large.bytes().all(|byte| byte == b'y') && rows.len() == 3);
    });
}
