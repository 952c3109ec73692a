//! Records scalars while a scanner skips values.

use crate::codec::{
    placeholder::PLACEHOLDER,
    scalar::{Scalar, Scalars},
};

/// The most scalars and escapes, taken together, that are recorded for one field. Beyond this number, their positions
/// would take more memory than templates save. Then the field is stored as it is, and the object makes no list
/// template.
pub(super) const MAX_RECORDED: usize = 1 << 14;

/// Receives the scalars and the escapes that a scanner skips.
pub(super) trait Recorder {
    fn scalar(&mut self, scalar: Scalar);

    /// Receives an escape. It belongs to the next scalar, or to the name of a field.
    fn escape(&mut self, at: usize);
}

/// Records nothing.
impl Recorder for () {
    fn scalar(&mut self, _: Scalar) {}

    fn escape(&mut self, _: usize) {}
}

/// Records at most [`MAX_RECORDED`] scalars and escapes. Records further escapes only if they need no allocation.
pub(in crate::codec) struct BoundedRecorder<'s> {
    pub(super) scalars: &'s mut Scalars,
    /// The count of scalars and escapes at which recording stops.
    limit: usize,
}

impl<'s> BoundedRecorder<'s> {
    pub(in crate::codec) fn new(scalars: &'s mut Scalars) -> Self {
        Self {
            limit: scalars.count() + MAX_RECORDED,
            scalars,
        }
    }

    /// Whether everything was recorded.
    #[inline(always)]
    pub(in crate::codec) fn is_complete(&self) -> bool {
        self.scalars.count() < self.limit
    }
}

impl Recorder for BoundedRecorder<'_> {
    #[inline(always)]
    fn scalar(&mut self, scalar: Scalar) {
        if self.is_complete() {
            self.scalars.push(scalar);
        }
    }

    #[inline(always)]
    fn escape(&mut self, at: usize) {
        // Escapes are frequent. The first condition is cheaper and mostly true.
        if self.scalars.has_capacity_for_escape() || self.is_complete() {
            self.scalars.push_escape(at);
        }
    }
}

/// Counts the placeholders of a template. Other strings of the template are not placeholders.
pub(super) struct PlaceholderCounter<'a> {
    pub(super) text: &'a str,
    pub(super) count: usize,
}

impl Recorder for PlaceholderCounter<'_> {
    fn scalar(&mut self, scalar: Scalar) {
        let is_placeholder = self.text.as_bytes().get(scalar.start()) == Some(&PLACEHOLDER);
        self.count += usize::from(is_placeholder);
    }

    fn escape(&mut self, _: usize) {}
}
