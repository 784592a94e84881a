use super::*;

const PLENTY: usize = 1_000;

fn turns(sessions: usize, host_sessions: usize) -> Turns {
    Turns::new(TurnLimits { sessions, host_sessions })
}

fn at(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

fn scarce(asked: Result<(), Refusal>) -> Option<Scarce> {
    asked.err().map(|refusal| refusal.scarce)
}

#[test]
fn who_was_refused_first_goes_before_newcomers() {
    let mut turns = turns(1, 1);
    turns.ask(1, PLENTY, at(0)).unwrap();
    assert_eq!(scarce(turns.ask(2, PLENTY, at(1))), Some(Scarce::Sessions));
    assert_eq!(scarce(turns.ask(3, PLENTY, at(2))), Some(Scarce::Sessions));
    turns.release(1, Duration::from_millis(10));
    assert_eq!(scarce(turns.ask(4, PLENTY, at(20))), Some(Scarce::Turn));
    assert_eq!(scarce(turns.ask(3, PLENTY, at(20))), Some(Scarce::Turn));
    turns.ask(2, PLENTY, at(21)).unwrap();
    turns.release(2, Duration::from_millis(10));
    turns.ask(3, PLENTY, at(30)).unwrap();
}

#[test]
fn a_host_with_fewer_sessions_goes_first() {
    let mut turns = turns(3, 3);
    for _ in 0..3 {
        turns.ask(1, PLENTY, at(0)).unwrap();
    }
    assert_eq!(scarce(turns.ask(1, PLENTY, at(1))), Some(Scarce::Host));
    assert_eq!(scarce(turns.ask(2, PLENTY, at(2))), Some(Scarce::Sessions));
    turns.release(1, Duration::from_millis(10));
    // It has two and asks again, and the other has none.
    assert_eq!(scarce(turns.ask(1, PLENTY, at(3))), Some(Scarce::Turn));
    turns.ask(2, PLENTY, at(30)).unwrap();
}

#[test]
fn who_waits_long_goes_before_those_with_fewer() {
    let mut turns = turns(2, 2);
    turns.ask(1, PLENTY, at(0)).unwrap();
    turns.ask(2, PLENTY, at(0)).unwrap();
    // Host 1 wants a second one, and newcomers without any come and go all the time.
    assert!(turns.ask(1, PLENTY, at(0)).is_err());
    turns.release(2, Duration::from_millis(10));
    let mut served = None;
    for step in 1..300 {
        let now = at(step * 10);
        let newcomer = 100 + step;
        if turns.ask(newcomer, PLENTY, now).is_ok() {
            turns.release(newcomer, Duration::from_millis(10));
            // The next newcomer is refused in between, so that its ticket stands in the way.
            let _ = turns.refuse(newcomer + 1_000, Scarce::Sessions, 1, now);
        }
        if turns.ask(1, PLENTY, now).is_ok() {
            served = Some(step * 10);
            break;
        }
    }
    let served = served.expect("it is served in the end");
    assert!((1_000..1_500).contains(&served), "served after {served} ms");
}

#[test]
fn a_place_is_kept_for_a_while_only() {
    let mut turns = turns(1, 1);
    turns.ask(1, PLENTY, at(0)).unwrap();
    let refusal = turns.ask(2, PLENTY, at(0)).unwrap_err();
    turns.release(1, Duration::from_millis(10));
    let in_time = refusal.retry_after.as_millis() as u64;
    assert_eq!(scarce(turns.ask(3, PLENTY, at(in_time))), Some(Scarce::Turn));
    turns.ask(3, PLENTY, at(in_time * 2 + 200)).unwrap();
}

#[test]
fn times_to_retry_reflect_the_queue() {
    let mut turns = turns(10, 10);
    for _ in 0..200 {
        turns.ask(1, PLENTY, at(0)).unwrap();
        turns.release(1, Duration::from_millis(400));
    }
    for host in 0..10 {
        turns.ask(host, PLENTY, at(0)).unwrap();
    }
    let told: Vec<u64> =
        (20..60).map(|host| turns.ask(host, PLENTY, at(host)).unwrap_err().retry_after.as_millis() as u64).collect();
    assert!(told.is_sorted(), "{told:?}");
    // Ten sessions of 0.4 s each: one ends every 40 ms.
    assert!((35..=45).contains(&told[0]) && (380..=440).contains(&told[9]), "{told:?}");
    assert_eq!(told[39], 1_000);
}

#[test]
fn memory_counts_as_places_do() {
    let mut turns = turns(10, 10);
    assert_eq!(scarce(turns.ask(1, 0, at(0))), Some(Scarce::Memory));
    assert_eq!(scarce(turns.ask(2, 1, at(1))), Some(Scarce::Turn));
    turns.ask(1, 1, at(10)).unwrap();
    let refusal = turns.give_back(1, at(10));
    assert_eq!((refusal.scarce, turns.total()), (Scarce::Memory, 0));
    assert_eq!(turns.hosts(at(11)), (0, 2));
}

#[test]
fn tables_are_bounded_and_forget() {
    let mut turns = turns(1, 1);
    turns.ask(0, PLENTY, at(0)).unwrap();
    for host in 1..5_000 {
        assert!(turns.ask(host, PLENTY, at(1)).is_err());
    }
    assert_eq!(turns.waiting.len(), WAITING_MAX);
    turns.release(0, Duration::from_millis(1));
    turns.ask(9_999, PLENTY, at(60_000)).unwrap();
    assert!(turns.waiting.is_empty() && turns.open.len() == 1);
}

/// Hosts of different greed share a drive: each of those that always want more gets as much as any other.
#[test]
fn greed_does_not_pay() {
    let mut turns = turns(8, 8);
    let (hosts, greed) = (16_u64, |host: u64| if host < 4 { 8 } else { 1 });
    let mut running: Vec<(u64, u64)> = Vec::new();
    let mut next: HashMap<(u64, usize), u64> = HashMap::new();
    let mut served = vec![0_u64; hosts as usize];
    for now in 0..60_000 {
        running.retain(|(host, ends)| {
            let goes_on = *ends > now;
            if !goes_on {
                turns.release(*host, Duration::from_millis(20));
            }
            goes_on
        });
        for host in 0..hosts {
            for nth in 0..greed(host) {
                let due = next.entry((host, nth)).or_insert(host);
                if *due > now {
                    continue;
                }
                match turns.ask(host, PLENTY, at(now)) {
                    Ok(()) => {
                        served[host as usize] += 1;
                        running.push((host, now + 20));
                        *due = now + 21;
                    }
                    Err(refusal) => *due = now + refusal.retry_after.as_millis() as u64,
                }
            }
        }
    }
    let (least, most) = (*served.iter().min().unwrap(), *served.iter().max().unwrap());
    assert!(most <= 2 * least, "{served:?}");
    // 8 places for 60 s, 20 ms each.
    assert!(served.iter().sum::<u64>() > 16_000, "places stood empty: {served:?}");
}

#[test]
fn threads_are_shared_by_sessions() {
    let granted: Vec<usize> = [1, 2, 3, 8, 9, 64].iter().map(|sessions| fair_threads(4, 4, *sessions)).collect();
    assert_eq!(granted, [4, 4, 3, 1, 1, 1]);
    assert_eq!((fair_threads(0, 4, 1), fair_threads(2, 4, 0)), (1, 2));
}
