//! Ports. Values gather until a batch is worth a host call. What was gathered is sent before the SSDlet waits, as far as there is room;
//! room for the rest ends the wait.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;

use crate::rows::Row;
use crate::{abi, fail};

const BATCH_BYTES: usize = 64 << 10;
/// The most bytes of a batch.
const BATCH_BYTES_MAX: usize = 16 << 20;

type Shared = Rc<RefCell<OutputState>>;

thread_local! {
    /// All outputs of the SSDlet, which send what they hold before it waits.
    static OUTPUTS: RefCell<Vec<Shared>> = const { RefCell::new(Vec::new()) };
    /// Outputs that were dropped. They end when the SSDlet waits or when its run ends well, so that a run that drops them since it has
    /// failed does not end them.
    static DROPPED: RefCell<Vec<Shared>> = const { RefCell::new(Vec::new()) };
}

struct OutputState {
    port: u32,
    open: bool,
    bytes: Vec<u8>,
}

impl OutputState {
    fn flush(&mut self) -> bool {
        self.send(self.bytes.len())
    }

    /// Sends so many of the first bytes. False if nobody reads any more.
    fn send(&mut self, length: usize) -> bool {
        while !self.try_send(length) {
            // Whoever is to make room may wait for what another output holds.
            try_flush_all();
            // SAFETY: the call takes no memory.
            unsafe { abi::output_wait(self.port, length) }
        }
        self.open
    }

    /// False if there is no room now.
    fn try_send(&mut self, length: usize) -> bool {
        if !self.open || length == 0 {
            return true;
        }
        // SAFETY: the host reads the bytes only, and only during the call.
        let put = unsafe { abi::output_put(self.port, self.bytes.as_ptr(), length) };
        if put == abi::AGAIN {
            return false;
        }
        self.open = put == 1;
        self.bytes.drain(..if self.open { length } else { self.bytes.len() });
        true
    }

    fn end(&mut self) {
        self.flush();
        self.try_end();
    }

    /// Ends the stream if there is room for what was gathered. False if there is none now.
    fn try_end(&mut self) -> bool {
        if !self.try_send(self.bytes.len()) {
            return false;
        }
        if std::mem::take(&mut self.open) {
            // SAFETY: the call takes no memory.
            unsafe { abi::output_close(self.port) }
        }
        true
    }
}

/// Sends what all outputs hold, and ends those that were dropped, as far as there is room now. Returns one that has none, and its bytes.
fn try_flush_all() -> Option<(u32, usize)> {
    let mut full = None;
    let mut note = |output: &OutputState| full = Some((output.port, output.bytes.len()));
    DROPPED.with_borrow_mut(|dropped| {
        dropped.retain(|output| {
            let mut output = output.borrow_mut();
            let has_ended = output.try_end();
            if !has_ended {
                note(&output);
            }
            !has_ended
        });
    });
    OUTPUTS.with_borrow(|outputs| {
        // One that is borrowed is being sent.
        for mut output in outputs.iter().filter_map(|output| output.try_borrow_mut().ok()) {
            let length = output.bytes.len();
            if !output.try_send(length) {
                note(&output);
            }
        }
    });
    full
}

/// Sends what all outputs hold, and ends those that were dropped.
pub(crate) fn flush_all() {
    while let Some((port, length)) = try_flush_all() {
        // SAFETY: the call takes no memory.
        unsafe { abi::output_wait(port, length) }
    }
}

/// Puts out values of type `T`. Its stream ends some time after it is dropped, unless the SSDlet fails; [`Output::close`] ends it at
/// once.
pub struct Output<T> {
    state: Shared,
    of: PhantomData<T>,
}

impl<T: Row> Output<T> {
    pub(crate) fn new(port: u32) -> Self {
        let state = Rc::new(RefCell::new(OutputState { port, open: true, bytes: Vec::new() }));
        OUTPUTS.with_borrow_mut(|outputs| outputs.push(Rc::clone(&state)));
        Self { state, of: PhantomData }
    }

    /// Puts out a value, and waits while the connection is full. False once nobody reads any more: the value is dropped then.
    pub fn put(&mut self, value: &T) -> bool {
        let mut state = self.state.borrow_mut();
        if !state.open {
            return false;
        }
        let before = state.bytes.len();
        value.encode(&mut state.bytes);
        if state.bytes.len() > BATCH_BYTES_MAX {
            // A large row is a batch by itself: with those before it, it would be too large for one.
            state.send(before);
        }
        if T::IS_BATCH || state.bytes.len() >= BATCH_BYTES { state.flush() } else { state.open }
    }

    /// Sends what was put so far.
    pub fn flush(&mut self) -> bool {
        self.state.borrow_mut().flush()
    }

    /// Ends the stream.
    pub fn close(self) {
        self.state.borrow_mut().end();
    }
}

impl<T> Drop for Output<T> {
    fn drop(&mut self) {
        OUTPUTS.with_borrow_mut(|outputs| outputs.retain(|output| !Rc::ptr_eq(output, &self.state)));
        DROPPED.with_borrow_mut(|dropped| dropped.push(Rc::clone(&self.state)));
    }
}

/// Takes values of type `T` in their order.
pub struct Input<T> {
    port: u32,
    batch: Vec<u8>,
    at: usize,
    length: usize,
    of: PhantomData<T>,
}

impl<T: Row> Input<T> {
    pub(crate) fn new(port: u32) -> Self {
        Self { port, batch: Vec::new(), at: 0, length: 0, of: PhantomData }
    }

    /// Waits for the next value. None at the end of the stream.
    pub fn get(&mut self) -> Option<T> {
        if self.at == self.length && !self.take() {
            return None;
        }
        let mut rest = &self.batch[self.at..self.length];
        let value = T::decode(&mut rest);
        self.at = self.length - rest.len();
        Some(value)
    }

    fn take(&mut self) -> bool {
        if self.batch.is_empty() {
            self.batch.resize(BATCH_BYTES, 0);
        }
        loop {
            // SAFETY: the host writes into the batch only, and only during the call.
            match unsafe { abi::input_get(self.port, self.batch.as_mut_ptr(), self.batch.len()) } {
                abi::AGAIN => {
                    try_flush_all();
                    // SAFETY: the call takes no memory.
                    unsafe { abi::input_wait(self.port) }
                }
                abi::CUT => fail(&format!("the stream of in({}) was cut off before its end", self.port)),
                length if length as usize > self.batch.len() => self.batch.resize(length as usize, 0),
                length => {
                    (self.at, self.length) = (0, length as usize);
                    return length > 0;
                }
            }
        }
    }
}

impl<T: Row> Iterator for Input<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.get()
    }
}

impl<T> Drop for Input<T> {
    fn drop(&mut self) {
        // SAFETY: the call takes no memory.
        unsafe { abi::input_close(self.port) }
    }
}
