//! Buffers that encoding and decoding reuse on each thread.

use std::cell::Cell;

use super::splitter::TemplateSplitter;

/// The largest buffer that a thread keeps. Few objects need a larger one, and in the end every thread would keep it.
const MAX_KEPT: usize = 64 << 10;

/// The buffers to encode or decode one object. Between two calls their content has no meaning.
pub(super) struct Scratch {
    /// For the object as a JSON document.
    pub(super) document: Vec<u8>,
    /// For a string without its escapes.
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

    /// Takes the buffers of the thread. A nested call, such as a decoding within a decoding, gets empty ones.
    pub(super) fn take() -> Self {
        SCRATCH.try_with(Cell::take).unwrap_or_default()
    }

    /// Leaves the buffers to the next call on the thread.
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
        // Fails on a thread that ends, which needs no buffers.
        let _ = SCRATCH.try_with(|scratch| scratch.set(self));
    }
}

#[cfg(test)]
mod tests;
