//! The engine: which WebAssembly guests may use, how it is compiled, and the slices of time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use parking_lot::{Condvar, Mutex};
use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig};

use crate::limits::{SLICE, STACK_BYTES, TABLE_ELEMENTS_MAX};
use crate::{ProgramError, RuntimeOptions};

/// An engine for at most `options.instances_max` guests at once.
pub(crate) fn engine(options: &RuntimeOptions) -> Result<Engine, ProgramError> {
    let mut config = Config::new();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(options)));
    config.epoch_interruption(true);
    config.max_wasm_stack(STACK_BYTES);
    config.async_stack_size(STACK_BYTES + (1 << 20));
    config.cranelift_opt_level(OptLevel::Speed);
    // The same answer on every kind of processor.
    config.cranelift_nan_canonicalization(true);
    config.wasm_relaxed_simd(false);
    config.wasm_multi_memory(false);
    config.wasm_memory64(false);
    config.wasm_backtrace_max_frames(None);
    Engine::new(&config).map_err(ProgramError::engine)
}

fn pool(options: &RuntimeOptions) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_core_instances(options.instances_max);
    pool.total_memories(options.instances_max);
    pool.total_tables(options.instances_max);
    pool.total_stacks(options.instances_max);
    pool.max_memories_per_module(1);
    pool.max_tables_per_module(1);
    pool.table_elements(TABLE_ELEMENTS_MAX);
    pool.max_memory_size(options.instance_memory_bytes_max);
    if PoolingAllocationConfig::is_pagemap_scan_available() {
        // The kernel tells which pages a guest has written: these are set back where they are, and the next guest faults on none.
        pool.pagemap_scan(Enabled::Yes);
        pool.linear_memory_keep_resident(RESIDENT_BYTES);
        pool.table_keep_resident(TABLE_RESIDENT_BYTES);
        pool.max_unused_warm_slots(WARM_SLOTS);
    }
    pool
}

/// Bytes of a guest's memory, and of its table of functions, that the next guest in its place finds there, set back; and places
/// that have such memory, at most. No application's limit counts what an idle place keeps.
const RESIDENT_BYTES: usize = 512 << 10;
const TABLE_RESIDENT_BYTES: usize = 16 << 10;
const WARM_SLOTS: u32 = 32;
/// Slices without a guest after which no more are counted.
const SLICES_IDLE: u32 = 50;

/// Interrupts guests: while any of them is there, the engine's epoch moves on with each slice of time.
#[derive(Debug)]
pub(crate) struct Ticker {
    shared: Arc<Ticks>,
}

#[derive(Debug)]
struct Ticks {
    guests: AtomicUsize,
    /// Whether the thread waits for a guest.
    idle: AtomicBool,
    stopped: Mutex<bool>,
    woken: Condvar,
}

impl Ticker {
    pub fn start(engine: Engine) -> Result<Self, ProgramError> {
        let (guests, idle) = (AtomicUsize::new(0), AtomicBool::new(false));
        let shared = Arc::new(Ticks { guests, idle, stopped: Mutex::new(false), woken: Condvar::new() });
        let ticks = Arc::clone(&shared);
        let run = move || ticks.run(&engine);
        thread::Builder::new().name("program-ticks".to_owned()).spawn(run).map_err(ProgramError::engine)?;
        Ok(Self { shared })
    }

    /// Slices of time pass as long as this guard is there.
    pub fn enter(&self) -> Ticking {
        // One of both sees what the other has written: this call that the thread is idle, or the thread that there is a guest.
        self.shared.guests.fetch_add(1, Ordering::SeqCst);
        if self.shared.idle.load(Ordering::SeqCst) {
            // Under the lock, so that the thread is either before its look at the number or waits already.
            let _stopped = self.shared.stopped.lock();
            self.shared.woken.notify_one();
        }
        Ticking(Arc::clone(&self.shared))
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        *self.shared.stopped.lock() = true;
        self.shared.woken.notify_one();
    }
}

impl Ticks {
    fn run(&self, engine: &Engine) {
        let mut stopped = self.stopped.lock();
        let mut without_guests = 0;
        while !*stopped {
            without_guests = if self.guests.load(Ordering::SeqCst) == 0 { without_guests + 1 } else { 0 };
            // Guests come and go, one for each batch of rows: to wake a thread for each would cost more than they do.
            if without_guests > SLICES_IDLE {
                self.idle.store(true, Ordering::SeqCst);
                if self.guests.load(Ordering::SeqCst) == 0 {
                    self.woken.wait(&mut stopped);
                }
                self.idle.store(false, Ordering::SeqCst);
                without_guests = 0;
            } else {
                self.woken.wait_for(&mut stopped, SLICE);
                engine.increment_epoch();
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Ticking(Arc<Ticks>);

impl Drop for Ticking {
    fn drop(&mut self) {
        self.0.guests.fetch_sub(1, Ordering::SeqCst);
    }
}
