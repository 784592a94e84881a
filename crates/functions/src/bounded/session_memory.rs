//! [`SessionMemory`]: the pool from which expressions reserve, and [`Holder`]: the part of it that a result holds.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{ArrayData, ArrayRef, make_array};
use arrow::buffer::Buffer;
use bytes::Bytes;
use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::{Result, config_err};
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};

/// The memory of an expression that runs outside of any session.
const ALONE_BYTES: usize = 64 << 20;

/// The memory of a session, where functions can find it.
#[derive(Clone, Debug)]
pub struct SessionMemory(pub(crate) Arc<dyn MemoryPool>);

impl SessionMemory {
    /// The one that a session's settings carry. Outside of any session it is a small one of its own.
    pub fn of(options: &ConfigOptions) -> SessionMemory {
        let known = options.extensions.get::<SessionMemory>().cloned();
        known.unwrap_or_else(|| SessionMemory(Arc::new(GreedyMemoryPool::new(ALONE_BYTES))))
    }

    /// The bytes that it may have at most.
    pub fn limit(&self) -> usize {
        match self.0.memory_limit() {
            MemoryLimit::Finite(bytes) => bytes,
            MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
        }
    }

    /// Takes from it for the result of a function.
    pub fn holder(&self, function: &str) -> Holder {
        Holder(MemoryConsumer::new(format!("the result of {function}")).register(&self.0))
    }
}

impl ConfigExtension for SessionMemory {
    const PREFIX: &'static str = "pithead_memory";
}

/// It has no settings.
impl ExtensionOptions for SessionMemory {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _value: &str) -> Result<()> {
        config_err!("there is no setting {key}")
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}

/// The memory that is reserved for a result.
#[derive(Debug)]
pub struct Holder(MemoryReservation);

/// A buffer, and the reservation for the array that it belongs to.
struct Reserved {
    buffer: Buffer,
    _reservation: Arc<MemoryReservation>,
}

impl AsRef<[u8]> for Reserved {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_slice()
    }
}

impl Holder {
    /// Takes so many bytes more.
    pub fn grow(&mut self, bytes: u64) -> Result<()> {
        self.0.try_grow(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    pub(super) fn shrink(&mut self, bytes: u64) {
        self.0.shrink(usize::try_from(bytes).unwrap_or(usize::MAX).min(self.0.size()));
    }

    /// The same array, which holds its reservation until its last buffer is freed. Some of the array may belong to its
    /// arguments, whose memory is counted elsewhere.
    pub fn hold(self, array: &ArrayRef) -> ArrayRef {
        self.0.shrink(self.0.size().saturating_sub(array.get_array_memory_size()));
        make_array(reserved(array.to_data(), &Arc::new(self.0)))
    }
}

fn reserved(data: ArrayData, reservation: &Arc<MemoryReservation>) -> ArrayData {
    let held = |buffer: &Buffer| {
        let (buffer, reservation) = (buffer.clone(), Arc::clone(reservation));
        Buffer::from(Bytes::from_owner(Reserved { buffer, _reservation: reservation }))
    };
    let buffers = data.buffers().iter().map(held).collect();
    let children = data.child_data().iter().map(|child| reserved(child.clone(), reservation)).collect();
    let builder = data.into_builder().buffers(buffers).child_data(children);
    // SAFETY: the array was sound, and its buffers have the same bytes at the same addresses.
    unsafe { builder.build_unchecked() }
}
