use super::*;
use std::collections::HashSet;
use std::future::{pending, poll_fn};
use std::sync::atomic::AtomicBool;
use std::task::Poll;

use futures::executor::block_on;

use crate::TaskLost;

const LONG: Duration = Duration::from_secs(60);

fn pool(reactors: usize) -> Pool {
    Pool::new(PoolOptions { name: "test".into(), cores: None, reactors, blocking_threads_max: 2 }).unwrap()
}

/// Sets its flag when it is dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn tasks_end_on_any_runtime() {
    let pool = Arc::new(pool(2));
    assert_eq!(block_on(pool.spawn(Class::Foreground, async { 7 })).unwrap(), 7);
    let inner = Arc::clone(&pool);
    let outer = pool.spawn_on(0, Class::Foreground, async move {
        let timer = inner.spawn_on(1, Class::Foreground, async { tokio::time::sleep(Duration::from_millis(1)).await });
        timer.await?;
        inner.spawn_blocking(|| 8).await
    });
    assert_eq!(block_on(outer).unwrap().unwrap(), 8);
    assert!(pool.shutdown(LONG));
}

#[test]
fn a_reactor_is_one_thread() {
    let pool = pool(2);
    let name = || async { thread::current().name().unwrap().to_string() };
    let names: HashSet<String> =
        (0..4).map(|index| block_on(pool.spawn_on(index, Class::Foreground, name())).unwrap()).collect();
    assert_eq!(names, HashSet::from(["test-0".to_string(), "test-1".to_string()]));
}

#[test]
fn tasks_go_where_fewest_are() {
    let pool = pool(3);
    let tasks: Vec<_> = (0..9).map(|_| pool.spawn(Class::Background, pending::<()>())).collect();
    assert!(pool.reactors.iter().all(|reactor| reactor.load.live(Class::Background) == 3));
    assert_eq!((pool.live(Class::Background), pool.live(Class::Foreground)), (9, 0));
    let task = pool.spawn_on(1, Class::Foreground, pending::<()>());
    assert_eq!(pool.live(Class::Foreground), 1);
    task.abort();
    assert_eq!(block_on(task), Err(TaskLost::Stopped));
    for task in tasks {
        task.abort();
        let _ = block_on(task);
    }
    assert_eq!(pool.live(Class::Background), 0);
}

#[test]
fn a_panic_is_told_and_harms_no_other() {
    let pool = pool(1);
    let lost = block_on(pool.spawn(Class::Foreground, async { panic!("went {}", "wrong") }));
    assert_eq!(lost, Err::<(), _>(TaskLost::Panicked("went wrong".into())));
    let lost = block_on(pool.spawn_blocking(|| panic!("blocked")));
    assert_eq!(lost, Err::<(), _>(TaskLost::Panicked("blocked".into())));
    assert_eq!(block_on(pool.spawn(Class::Foreground, async { 1 })).unwrap(), 1);
    assert_eq!(pool.live(Class::Foreground), 0);
}

#[test]
fn a_dropped_task_runs_on_unless_it_is_guarded() {
    let pool = pool(1);
    let (done, ended) = mpsc::channel();
    pool.spawn(Class::Foreground, async move {
        tokio::task::yield_now().await;
        done.send(()).unwrap();
    })
    .detach();
    ended.recv_timeout(LONG).unwrap();
    let (held, released) = mpsc::channel::<()>();
    let guarded = pool.spawn(Class::Foreground, async move {
        let _held = held;
        pending::<()>().await
    });
    drop(guarded.abort_on_drop());
    assert_eq!(released.recv_timeout(LONG), Err(mpsc::RecvTimeoutError::Disconnected));
}

#[test]
fn blocking_threads_are_bounded() {
    let pool = pool(4);
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            pool.spawn_blocking(move || {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(1));
                running.fetch_sub(1, Ordering::SeqCst);
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| block_on(task).unwrap());
    assert!(most.load(Ordering::SeqCst) <= 2);
}

#[test]
fn background_tasks_let_foreground_tasks_go_first() {
    let pool = pool(1);
    let order = Arc::<Mutex<Vec<Class>>>::default();
    let (release, held) = mpsc::channel::<()>();
    let holds = pool.spawn_on(0, Class::Foreground, async move {
        let _ = held.recv();
    });
    let note = |class| {
        let order = Arc::clone(&order);
        pool.spawn_on(0, class, async move { order.lock().push(class) })
    };
    let tasks = [holds, note(Class::Background), note(Class::Foreground)];
    drop(release);
    tasks.into_iter().for_each(|task| block_on(task).unwrap());
    assert_eq!(*order.lock(), [Class::Foreground, Class::Background]);
}

#[test]
fn a_background_task_goes_on_beside_foreground_tasks_that_have_no_end() {
    let pool = pool(1);
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    // It could run whenever another task is looked at.
    let endless = pool.spawn(
        Class::Foreground,
        poll_fn(move |context| {
            context.waker().wake_by_ref();
            if over.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        }),
    );
    block_on(pool.spawn(Class::Background, async { tokio::task::yield_now().await })).unwrap();
    is_over.store(true, Ordering::SeqCst);
    block_on(endless).unwrap();
}

/// Compilations that take long kept calls waiting that do not.
#[test]
fn two_lengthy_calls_run_at_a_time_and_keep_no_thread_from_others() {
    let pool = pool(1);
    let (release, released) = mpsc::channel::<()>();
    let first = pool.spawn_lengthy(move || released.recv_timeout(LONG));
    let beside = pool.spawn_lengthy(thread::current);
    assert_eq!(block_on(beside).unwrap().name(), Some("test-l"), "another kind of work does not wait");
    let (release_second, released) = mpsc::channel::<()>();
    let second = pool.spawn_lengthy(move || released.recv_timeout(LONG));
    let waiting: Vec<_> = (0..8).map(|_| pool.spawn_lengthy(thread::current)).collect();
    let ran = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ran);
    drop(pool.spawn_lengthy(move || flag.store(true, Ordering::SeqCst)).abort_on_drop());
    assert_eq!(block_on(pool.spawn_blocking(|| 7)).unwrap(), 7);
    assert!(waiting.iter().all(|task| !task.is_finished()), "two run at a time");
    for (release, held) in [(release, first), (release_second, second)] {
        release.send(()).unwrap();
        block_on(held).unwrap().unwrap();
    }
    waiting.into_iter().for_each(|task| assert_eq!(block_on(task).unwrap().name(), Some("test-l")));
    assert!(pool.shutdown(LONG));
    assert!(!ran.load(Ordering::SeqCst), "what nobody waits for any more does not begin");
}

#[test]
fn shutdown_drops_tasks_and_refuses_more() {
    let pool = pool(2);
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = Flag(Arc::clone(&dropped));
    let task = pool.spawn(Class::Foreground, async move {
        let _flag = flag;
        pending::<()>().await
    });
    assert!(pool.shutdown(LONG));
    assert!(dropped.load(Ordering::SeqCst));
    assert_eq!(block_on(task), Err(TaskLost::Stopped));
    assert_eq!(block_on(pool.spawn(Class::Foreground, async {})), Err(TaskLost::Stopped));
    assert_eq!(block_on(pool.spawn_blocking(|| ())), Err(TaskLost::Stopped));
    assert_eq!(pool.live(Class::Foreground), 0);
    assert!(pool.shutdown(LONG), "a second time does no harm");
}

#[test]
fn a_pool_may_be_shut_down_from_another_runtime() {
    let (outer, inner) = (pool(1), pool(1));
    assert!(block_on(outer.spawn(Class::Foreground, async move { inner.shutdown(LONG) })).unwrap());
}

#[test]
fn shutdown_waits_no_longer_than_it_may() {
    let pool = pool(1);
    let (release, blocked) = mpsc::channel::<()>();
    let (started, running) = mpsc::channel();
    let task = pool.spawn(Class::Foreground, async move {
        started.send(()).unwrap();
        let _ = blocked.recv();
    });
    running.recv_timeout(LONG).unwrap();
    assert!(!pool.shutdown(Duration::from_millis(10)));
    drop(release);
    block_on(task).unwrap();
}

#[test]
fn the_last_hold_may_be_dropped_on_a_reactor() {
    let pool = Arc::new(pool(1));
    let (done, ended) = mpsc::channel();
    let held = Arc::clone(&pool);
    let (go, gone) = oneshot::channel::<()>();
    pool.spawn(Class::Foreground, async move {
        gone.await.unwrap();
        drop(held);
        done.send(()).unwrap();
    })
    .detach();
    drop(pool);
    go.send(()).unwrap();
    ended.recv_timeout(LONG).unwrap();
}

#[test]
fn pinned_threads_stay_on_their_core() {
    let core = core_affinity::get_core_ids().unwrap()[0].id;
    let options = PoolOptions { name: "pinned".into(), cores: Some(vec![core]), reactors: 0, blocking_threads_max: 1 };
    let pool = Pool::new(options.clone()).unwrap();
    assert_eq!(pool.reactors(), 1);
    let cores = || core_affinity::get_core_ids().unwrap().iter().map(|core| core.id).collect::<Vec<_>>();
    assert_eq!(block_on(pool.spawn(Class::Foreground, async move { cores() })).unwrap(), [core]);
    assert_eq!(block_on(pool.spawn_blocking(cores)).unwrap(), [core]);
    assert!(Pool::new(PoolOptions { cores: Some(vec![8_000]), ..options }).is_err());
}

#[test]
fn busy_time_is_counted() {
    let pool = pool(1);
    let work = async { (0..20).for_each(|_| thread::sleep(Duration::from_millis(1))) };
    block_on(pool.spawn(Class::Foreground, work)).unwrap();
    block_on(pool.spawn(Class::Foreground, async { tokio::time::sleep(Duration::from_millis(1)).await })).unwrap();
    assert!(pool.busy_ns(0) > 0);
}
