use super::*;

const ROOM: u64 = 64 << 20;

fn read(file: &Arc<dyn MediumFile>) -> Vec<u8> {
    let mut out = vec![0; file.len().unwrap() as usize];
    file.read(0, &mut out).unwrap();
    out
}

/// A medium with one durable file `a` that holds `data`.
fn with_file(seed: u64, data: &[u8]) -> (Arc<LyingMedium>, Arc<dyn MediumFile>) {
    let medium = LyingMedium::new(seed, ROOM);
    let file = medium.open("a", true).unwrap();
    file.write(0, data).unwrap();
    file.flush().unwrap();
    medium.flush_names("").unwrap();
    (medium, file)
}

#[test]
fn it_is_a_medium_while_nothing_happens() {
    let (medium, file) = with_file(1, &[1; 10_000]);
    file.write(9_999, &[2, 3]).unwrap();
    assert_eq!(read(&file)[9_998..], [1, 2, 3]);
    file.set_len(5).unwrap();
    file.set_len(7).unwrap();
    assert_eq!(read(&file), [1, 1, 1, 1, 1, 0, 0]);
    assert!(file.read(6, &mut [0; 2]).is_err() && file.read_large(0..8).is_err());
    file.write_large(4_096, &[9; 5_000]).unwrap();
    assert_eq!(file.len().unwrap(), 3 * 4_096);
    assert!(file.punch(4_096..8_192).unwrap());
    assert_eq!(file.read_large(8_191..8_193).unwrap()[..], [0, 9]);
    assert_eq!(medium.written("a"), [0, 8_192]);
    medium.open("segments/1", true).unwrap();
    assert_eq!((medium.list("").unwrap().len(), medium.list("segments").unwrap()), (1, vec!["1".to_string()]));
    medium.rename("segments/1", "segments/2").unwrap();
    medium.remove("segments/2").unwrap();
    assert!(medium.open("segments/2", false).is_err());
    let full = file.write(0, &vec![0; ROOM as usize + 1]).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
}

#[test]
fn what_was_flushed_survives_and_the_rest_may() {
    let (mut lost, mut kept, mut torn) = (0, 0, 0);
    for seed in 0..200 {
        let (medium, file) = with_file(seed, &[1; 4_096]);
        file.write(0, &[2; 2_048]).unwrap();
        let after = medium.crash();
        assert_eq!(file.write(0, &[3]).unwrap_err().raw_os_error(), Some(libc::EIO));
        let found = read(&after.open("a", false).unwrap());
        assert!(found.len() == 4_096 && found[2_048..].iter().all(|byte| *byte == 1));
        let new = found.iter().filter(|byte| **byte == 2).count();
        assert!(found.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        match new {
            0 => lost += 1,
            2_048 => kept += 1,
            _ => torn += 1,
        }
    }
    assert!(lost > 20 && kept > 20 && torn > 20, "{lost} {kept} {torn}");
}

#[test]
fn unflushed_writes_may_come_in_any_order() {
    let later_alone = (0..200).any(|seed| {
        let (medium, file) = with_file(seed, &[0; 8_192]);
        file.write(0, &[1; 512]).unwrap();
        file.write(4_096, &[2; 512]).unwrap();
        let found = read(&medium.crash().open("a", false).unwrap());
        (found[0], found[4_096]) == (0, 2)
    });
    assert!(later_alone);
}

#[test]
fn names_last_once_their_folder_is_flushed() {
    let (mut there, mut absent) = (0, 0);
    for seed in 0..100 {
        let (medium, _file) = with_file(seed, &[1]);
        let new = medium.open("segments/1", true).unwrap();
        new.flush().unwrap();
        medium.rename("a", "b").unwrap();
        let after = medium.crash();
        match after.list("segments").unwrap().len() {
            0 => absent += 1,
            _ => there += 1,
        }
        assert_eq!(after.list("").unwrap().len(), 1, "a rename is whole or not there");
        let medium = LyingMedium::new(seed, ROOM);
        medium.open("segments/1", true).unwrap();
        medium.flush_names("segments").unwrap();
        medium.remove("segments/1").unwrap();
        medium.flush_names("").unwrap();
        medium.open("segments/2", true).unwrap();
        assert_ne!(medium.crash().list("segments").unwrap(), ["1", "2"], "changes of a folder come in order");
    }
    assert!(there > 10 && absent > 10);
}

#[test]
fn trouble_strikes_when_it_is_told_to() {
    let (medium, file) = with_file(7, &[1; 512]);
    medium.set_trouble(vec![Trouble::io(&[Call::Write], 2), Trouble::no_space(5, 2, false)]);
    let codes: Vec<Option<i32>> =
        (0..9).map(|_| file.write(0, &[2; 512]).err().and_then(|error| error.raw_os_error())).collect();
    let (io, full) = (Some(libc::EIO), Some(libc::ENOSPC));
    assert_eq!(codes, [None, None, io, None, None, full, full, None, None]);
    medium.set_trouble(vec![Trouble::no_space(0, 1, true)]);
    assert!(file.write(0, &[3; 512]).is_err());
    assert!(read(&file).iter().all(|byte| *byte == 2 || *byte == 3));
    medium.set_trouble(vec![Trouble::io(&[Call::Read, Call::Names], 0)]);
    assert!(medium.list("").is_err() && medium.list("").is_ok());
}

#[test]
fn after_a_failed_flush_the_data_may_be_gone_for_good() {
    let (mut gone, mut unseen) = (0, 0);
    for seed in 0..100 {
        let (medium, file) = with_file(seed, &[1; 512]);
        file.write(0, &[2; 512]).unwrap();
        medium.set_trouble(vec![Trouble::io(&[Call::Flush], 0)]);
        assert!(file.flush().is_err());
        unseen += u32::from(read(&file)[0] == 1);
        // This flush succeeds, and the data is still not there.
        file.flush().unwrap();
        gone += u32::from(read(&medium.crash().open("a", false).unwrap())[0] == 1);
    }
    assert!(gone > 20 && unseen > 10 && unseen < gone, "{gone} {unseen}");
}

#[test]
fn the_same_seed_does_the_same() {
    let run = |seed| {
        let (medium, file) = with_file(seed, &[1; 4_096]);
        (0..8).for_each(|at| file.write(at * 512, &[at as u8 + 2; 512]).unwrap());
        read(&medium.crash().open("a", false).unwrap())
    };
    assert!((0..20).all(|seed| run(seed) == run(seed)));
    assert!((1..20).any(|seed| run(seed) != run(0)));
}

#[test]
fn a_flipped_bit_stays_flipped() {
    let (medium, file) = with_file(1, &[1; 512]);
    medium.flip("a", 17, 4);
    assert_eq!(read(&file)[16..19], [1, 5, 1]);
    assert_eq!(read(&medium.crash().open("a", false).unwrap())[17], 5);
}
