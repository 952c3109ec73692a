//! Buffers that encoding and decoding reuse on each thread.

use std::cell::Cell;

use super::splitter::TemplateSplitter;

/// The largest buffer that a thread keeps. Few objects need a larger one, but in the long run every thread would keep
/// one.
const MAX_KEPT: usize = 64 << 10;

/// The buffers to encode or decode one object. Their content has no meaning between two calls.
pub(super) struct Scratch {
    /// For the object as a JSON document.
    pub(super) document: Vec<u8>,
    /// For a string whose escapes are resolved.
    pub(super) text: String,
    pub(super) splitter: TemplateSplitter,
}

thread_local! {
    static SCRATCH: Cell<Scratch> = const { Cell::new(Scratch::new()) };
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Scratch {
    const fn new() -> Self {
        Self {
            document: Vec::new(),
            text: String::new(),
            splitter: TemplateSplitter::new(),
        }
    }

    /// Takes the buffers of the thread. A nested call, such as a decoding within a decoding, gets new ones.
    pub(super) fn take() -> Self {
        SCRATCH.try_with(Cell::take).unwrap_or_default()
    }

    /// Returns the buffers to the thread, for its next call.
    pub(super) fn give_back(mut self) {
        if self.document.capacity() > MAX_KEPT {
            self.document = Vec::new();
        }
        if self.text.capacity() > MAX_KEPT {
            self.text = String::new();
        }
        if self.splitter.capacity() > MAX_KEPT {
            self.splitter = TemplateSplitter::new();
        }
        // This fails on a thread that is ending, which needs no buffers.
        let _ = SCRATCH.try_with(|scratch| scratch.set(self));
    }
}

#[cfg(test)]
mod tests;
