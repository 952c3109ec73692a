//! Where the strings and the numbers of some JSON are.

use std::ops::Range;

/// From where to where a string reaches in some JSON, without its quotes, or a number.
#[derive(Clone, Copy)]
pub(super) struct Scalar {
    start: u32,
    /// The highest bit is that of [`ESCAPES`].
    end: u32,
}

/// Whether there are escapes in a string.
const ESCAPES: u32 = 1 << 31;

impl Scalar {
    /// In a text that [has places](Self::has_places) for it.
    #[inline(always)]
    pub(super) fn new(start: usize, end: usize, escapes: bool) -> Self {
        Self {
            start: start as u32,
            end: end as u32 | if escapes { ESCAPES } else { 0 },
        }
    }

    /// Whether a text is no larger than places are counted.
    pub(super) fn has_places(text: &str) -> bool {
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

    pub(super) fn escapes(self) -> bool {
        self.end & ESCAPES != 0
    }

    pub(super) fn of(self, text: &str) -> Option<&str> {
        text.get(self.start()..self.end())
    }

    /// Those of these escapes that are in it or behind it.
    pub(super) fn escapes_from(self, escapes: &[u32]) -> &[u32] {
        let before = escapes.partition_point(|at| *at < self.start);
        escapes.get(before..).unwrap_or_default()
    }
}

/// Those that were noted, in the order in which they are written.
#[derive(Default)]
pub(super) struct Scalars {
    all: Vec<Scalar>,
    /// Where the backslash of each escape is, be it in one of them or in a name.
    escapes: Vec<u32>,
}

/// How much was noted up to a place.
#[derive(Clone, Copy)]
pub(super) struct Noted {
    pub(super) scalars: usize,
    pub(super) escapes: usize,
}

/// What was noted of an object.
pub(super) struct NotedOf<'s> {
    /// Of others too.
    scalars: &'s [Scalar],
    pub(super) escapes: &'s [u32],
}

impl<'s> NotedOf<'s> {
    /// Those of a field.
    pub(super) fn own(&self, own: &Own) -> Option<&'s [Scalar]> {
        let Range { start, end } = own.0;
        self.scalars.get(start as usize..end as usize)
    }
}

/// Which of them are those of a field.
#[derive(Clone, Default)]
pub(super) struct Own(Range<u32>);

impl Own {
    /// None if there are too many.
    pub(super) fn new(scalars: Range<usize>) -> Option<Self> {
        let number = |number| u32::try_from(number).ok();
        Some(Self(number(scalars.start)?..number(scalars.end)?))
    }
}

impl Scalars {
    pub(super) fn with_capacity(scalars: usize) -> Self {
        Self {
            all: Vec::with_capacity(scalars),
            // A text of some lines has more of them than there are strings.
            escapes: Vec::with_capacity(2 * scalars),
        }
    }

    /// Makes room for so many times as much as there is.
    pub(super) fn reserve(&mut self, times: usize) {
        self.all.reserve_exact(self.all.len() * times);
        self.escapes.reserve_exact(self.escapes.len() * times);
    }

    #[inline(always)]
    pub(super) fn noted(&self) -> Noted {
        Noted {
            scalars: self.all.len(),
            escapes: self.escapes.len(),
        }
    }

    /// How many scalars and escapes there are.
    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.all.len() + self.escapes.len()
    }

    /// Forgets all that was noted since.
    pub(super) fn truncate(&mut self, to: Noted) {
        self.all.truncate(to.scalars);
        self.escapes.truncate(to.escapes);
    }

    #[inline(always)]
    pub(super) fn push(&mut self, scalar: Scalar) {
        self.all.push(scalar);
    }

    /// Whether one more escape takes no more memory.
    #[inline(always)]
    pub(super) fn has_room_for_escape(&self) -> bool {
        self.escapes.len() < self.escapes.capacity()
    }

    #[inline(always)]
    pub(super) fn push_escape(&mut self, at: usize) {
        self.escapes.push(at as u32);
    }

    pub(super) fn from(&self, first: usize) -> &[Scalar] {
        self.all.get(first..).unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn escapes_from(&self, first: usize) -> &[u32] {
        self.escapes.get(first..).unwrap_or_default()
    }

    /// What was noted of an object, with these escapes.
    pub(super) fn of(&self, escapes: Range<usize>) -> NotedOf<'_> {
        NotedOf {
            scalars: &self.all,
            escapes: self.escapes.get(escapes).unwrap_or_default(),
        }
    }
}
