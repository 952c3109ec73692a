//! Values: objects, arrays, and the fields of objects.

use std::borrow::Cow;

use super::{
    brackets::Brackets,
    cursor::Scanner,
    recorder::{BoundedRecorder, PlaceholderCounter, Recorder},
};
use crate::codec::{
    placeholder::PLACEHOLDER,
    scalar::{Scalar, Scalars},
};

/// The value of a field.
pub(in crate::codec) struct FieldText<'a> {
    /// The value as it is written.
    pub(in crate::codec) value: &'a str,
    /// The position of the quote before the field's name. `None` if the name has escapes, if white space is between
    /// name and value, or if the value has more scalars and escapes than are recorded.
    pub(in crate::codec) start: Option<usize>,
}

impl<'a> Scanner<'a> {
    /// The bytes of a field's name beyond its text: two quotes and the colon.
    pub(in crate::codec) const NAME_OVERHEAD: usize = 3;

    /// Reads an object. `field` reads the value of each field.
    pub(in crate::codec) fn object(
        &mut self,
        mut field: impl FnMut(&mut Self, Cow<'a, str>) -> Option<()>,
    ) -> Option<()> {
        self.expect(b'{')?;
        if self.accept(b'}') {
            return Some(());
        }
        loop {
            let name = self.name()?;
            field(self, name)?;
            if !self.accept(b',') {
                return self.expect(b'}');
            }
        }
    }

    /// Skips a value, and returns its JSON text.
    pub(in crate::codec) fn value(&mut self) -> Option<&'a str> {
        self.peek()?;
        let mut end = self.clone();
        end.skip::<false>(&mut ())?;
        let value = self.text.get(self.at..end.at);
        *self = end;
        value
    }

    /// Skips the value of a field whose name was just read, and records its scalars.
    #[inline(never)]
    pub(in crate::codec) fn field(
        &mut self,
        name: &Cow<'a, str>,
        scalars: &mut Scalars,
    ) -> Option<FieldText<'a>> {
        let start = self.at.checked_sub(name.len() + Self::NAME_OVERHEAD)?;
        let behind_colon = self.at;
        self.peek()?;
        let mut end = self.clone();
        let mark = scalars.mark();
        let mut recorder = BoundedRecorder::new(scalars);
        end.skip::<false>(&mut recorder)?;
        let is_complete = recorder.is_complete();
        if !is_complete {
            scalars.truncate(mark);
        }
        let value = self.text.get(self.at..end.at)?;
        let is_contiguous = is_complete
            && self.at == behind_colon
            && matches!(name, Cow::Borrowed(_))
            && self.text.as_bytes().get(behind_colon - 2) == Some(&b'"');
        *self = end;
        Some(FieldText {
            value,
            start: is_contiguous.then_some(start),
        })
    }

    /// Skips a value of a template. Returns how many placeholders it has.
    pub(in crate::codec) fn placeholders(&mut self) -> Option<usize> {
        let mut placeholders = PlaceholderCounter {
            text: self.text,
            count: 0,
        };
        self.skip::<true>(&mut placeholders)?;
        Some(placeholders.count)
    }

    /// The scalars of a value. `None` if there are more than the recorder accepts.
    pub(in crate::codec) fn scalars(mut self) -> Option<Scalars> {
        let mut scalars = Scalars::default();
        let mut recorder = BoundedRecorder::new(&mut scalars);
        self.skip::<false>(&mut recorder)?;
        recorder.is_complete().then_some(scalars)
    }

    /// Skips the text `before`, which includes the first quote of a string, and the scalar after it. If the result is
    /// `None`, the position is unchanged.
    #[inline(always)]
    pub(in crate::codec) fn scalar_after(
        &mut self,
        before: &str,
        quoted: bool,
        recorder: &mut BoundedRecorder<'_>,
    ) -> Option<()> {
        let at = self.at;
        let passed = self.literal(before).and_then(|()| self.scalar(quoted, recorder));
        if passed.is_none() {
            self.at = at;
        }
        passed
    }

    #[inline(always)]
    fn scalar(&mut self, quoted: bool, recorder: &mut BoundedRecorder<'_>) -> Option<()> {
        let start = self.at;
        let mark = recorder.scalars.mark();
        let has_escapes = if quoted {
            let Some(has_escapes) = self.skip_string(recorder) else {
                recorder.scalars.truncate(mark);
                return None;
            };
            has_escapes
        } else {
            self.number()?;
            false
        };
        let end = self.at - usize::from(quoted);
        recorder.scalar(Scalar::new(start, end, has_escapes));
        Some(())
    }

    /// Skips a value and records its scalars. With `PLACEHOLDERS`, a placeholder may stand for a number.
    ///
    /// Not recursive, because the sender of the JSON decides how deep a value is. Declines more than 127 nested
    /// brackets.
    #[inline(always)]
    fn skip<const PLACEHOLDERS: bool>(&mut self, recorder: &mut impl Recorder) -> Option<()> {
        let mut brackets = Brackets::default();
        let mut name_is_next = false;
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    let start = self.at;
                    let has_escapes = self.skip_string(recorder)?;
                    if name_is_next {
                        self.expect(b':')?;
                        name_is_next = false;
                        continue;
                    }
                    recorder.scalar(Scalar::new(start, self.at - 1, has_escapes));
                }
                _ if name_is_next => return None,
                b'{' => {
                    self.at += 1;
                    if !self.accept(b'}') {
                        brackets.open(true)?;
                        name_is_next = true;
                        continue;
                    }
                }
                b'[' => {
                    self.at += 1;
                    if !self.accept(b']') {
                        brackets.open(false)?;
                        continue;
                    }
                }
                b'n' => self.literal("null")?,
                b't' => self.literal("true")?,
                b'f' => self.literal("false")?,
                PLACEHOLDER if PLACEHOLDERS => {
                    recorder.scalar(Scalar::new(self.at, self.at + 1, false));
                    self.at += 1;
                }
                _ => {
                    let start = self.at;
                    self.number()?;
                    recorder.scalar(Scalar::new(start, self.at, false));
                }
            }
            loop {
                let Some(is_object) = brackets.innermost_is_object() else {
                    return Some(());
                };
                match (self.peek()?, is_object) {
                    (b',', _) => {
                        self.at += 1;
                        name_is_next = is_object;
                        break;
                    }
                    (b'}', true) | (b']', false) => {
                        self.at += 1;
                        brackets.close();
                    }
                    _ => return None,
                }
            }
        }
    }
}
