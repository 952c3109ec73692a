//! The positions of scalars, which are the strings and the numbers in some JSON. Names of fields are not scalars.

use std::ops::Range;

/// The position of one scalar. The quotes of a string are not part of it.
#[derive(Clone, Copy)]
pub(super) struct Scalar {
    start: u32,
    /// The highest bit is [`ESCAPES`].
    end: u32,
}

/// Whether the string has escapes.
const ESCAPES: u32 = 1 << 31;

impl Scalar {
    /// A scalar in a text for which [`positions_fit`](Self::positions_fit) is true.
    #[inline(always)]
    pub(super) fn new(start: usize, end: usize, has_escapes: bool) -> Self {
        Self {
            start: start as u32,
            end: end as u32 | if has_escapes { ESCAPES } else { 0 },
        }
    }

    /// Whether every position in the text fits into 31 bits.
    pub(super) fn positions_fit(text: &str) -> bool {
        text.len() < ESCAPES as usize
    }

    #[inline(always)]
    pub(super) fn start(self) -> usize {
        self.start as usize
    }

    #[inline(always)]
    pub(super) fn end(self) -> usize {
        (self.end & !ESCAPES) as usize
    }

    pub(super) fn has_escapes(self) -> bool {
        self.end & ESCAPES != 0
    }

    /// The original text of the scalar, without quotes.
    pub(super) fn of(self, text: &str) -> Option<&str> {
        text.get(self.start()..self.end())
    }

    /// The escapes in the scalar and after it.
    pub(super) fn escapes_from(self, escapes: &[u32]) -> &[u32] {
        let before = escapes.partition_point(|at| *at < self.start);
        escapes.get(before..).unwrap_or_default()
    }
}

/// The scalars of some JSON in their order, with the positions of all escapes.
#[derive(Default)]
pub(super) struct Scalars {
    scalars: Vec<Scalar>,
    /// The position of each backslash that begins an escape, in a scalar or in the name of a field.
    escapes: Vec<u32>,
}

/// A position in [`Scalars`]: how many scalars and escapes are before it.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    pub(super) scalars: usize,
    pub(super) escapes: usize,
}

/// The scalars of one object.
pub(super) struct ObjectScalars<'s> {
    /// The scalars of all objects that were scanned together. A [`ScalarRange`] selects the scalars of a field.
    scalars: &'s [Scalar],
    /// The escapes of this object.
    pub(super) escapes: &'s [u32],
}

impl<'s> ObjectScalars<'s> {
    /// The scalars of a field.
    pub(super) fn of_field(&self, range: &ScalarRange) -> Option<&'s [Scalar]> {
        let Range { start, end } = range.0;
        self.scalars.get(start as usize..end as usize)
    }
}

/// The range of a field's scalars among all scalars that were scanned together.
#[derive(Clone, Default)]
pub(super) struct ScalarRange(Range<u32>);

impl ScalarRange {
    /// `None` if an end does not fit into 32 bits.
    pub(super) fn new(scalars: Range<usize>) -> Option<Self> {
        let number = |number| u32::try_from(number).ok();
        Some(Self(number(scalars.start)?..number(scalars.end)?))
    }
}

impl Scalars {
    pub(super) fn with_capacity(scalars: usize) -> Self {
        Self {
            scalars: Vec::with_capacity(scalars),
            // A text of several lines has one escape for each line.
            escapes: Vec::with_capacity(2 * scalars),
        }
    }

    /// Reserves memory for `times` as many scalars and escapes as there are.
    pub(super) fn reserve(&mut self, times: usize) {
        self.scalars.reserve_exact(self.scalars.len() * times);
        self.escapes.reserve_exact(self.escapes.len() * times);
    }

    /// The current end.
    #[inline(always)]
    pub(super) fn mark(&self) -> Mark {
        Mark {
            scalars: self.scalars.len(),
            escapes: self.escapes.len(),
        }
    }

    /// The number of scalars and escapes together.
    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.scalars.len() + self.escapes.len()
    }

    /// Removes everything after the mark.
    pub(super) fn truncate(&mut self, to: Mark) {
        self.scalars.truncate(to.scalars);
        self.escapes.truncate(to.escapes);
    }

    #[inline(always)]
    pub(super) fn push(&mut self, scalar: Scalar) {
        self.scalars.push(scalar);
    }

    /// Whether another escape fits without an allocation.
    #[inline(always)]
    pub(super) fn has_capacity_for_escape(&self) -> bool {
        self.escapes.len() < self.escapes.capacity()
    }

    #[inline(always)]
    pub(super) fn push_escape(&mut self, at: usize) {
        self.escapes.push(at as u32);
    }

    pub(super) fn from(&self, first: usize) -> &[Scalar] {
        self.scalars.get(first..).unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn escapes_from(&self, first: usize) -> &[u32] {
        self.escapes.get(first..).unwrap_or_default()
    }

    /// The scalars of an object that has these escapes.
    pub(super) fn of_object(&self, escapes: Range<usize>) -> ObjectScalars<'_> {
        ObjectScalars {
            scalars: &self.scalars,
            escapes: self.escapes.get(escapes).unwrap_or_default(),
        }
    }
}
