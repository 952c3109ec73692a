//! The arrays and objects around a position.

/// The open brackets around a position, as one bit each: 1 for an object, 0 for an array. The lowest bit is the
/// innermost bracket. One more bit, above the outermost bracket, marks how many there are.
pub(super) struct Brackets(u128);

impl Default for Brackets {
    fn default() -> Self {
        Self(1)
    }
}

impl Brackets {
    /// `None` if 127 brackets are open already.
    pub(super) fn open(&mut self, object: bool) -> Option<()> {
        (self.0.leading_zeros() > 0).then_some(())?;
        self.0 = self.0 << 1 | u128::from(object);
        Some(())
    }

    pub(super) fn close(&mut self) {
        self.0 >>= 1;
    }

    /// `None` if no bracket is open.
    pub(super) fn innermost_is_object(&self) -> Option<bool> {
        (self.0 > 1).then_some(self.0 & 1 == 1)
    }
}
