//! One receive buffer for each thread, so that a waiting connection needs none.

use std::cell::Cell;

/// The most bytes of one read.
pub(crate) const SIZE: usize = 64 << 10;

thread_local! {
    static RECEIVED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Calls `read` with the first `len` bytes of this thread's buffer, at most [`SIZE`]. A nested call gets another buffer.
pub(crate) fn with<T>(len: usize, read: impl FnOnce(&mut [u8]) -> T) -> T {
    let mut buffer = RECEIVED.try_with(Cell::take).unwrap_or_default();
    buffer.resize(SIZE, 0);
    let result = read(buffer.get_mut(..len).unwrap_or_default());
    // Fails only while the thread ends, and then the buffer is not needed again.
    let _ = RECEIVED.try_with(|received| received.set(buffer));
    result
}
