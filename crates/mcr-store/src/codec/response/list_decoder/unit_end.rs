//! Finds the end of a value or of a field's name in bytes that arrive in parts.

/// The state of a search for the end of a unit. A unit is a value, or the name of a field with its colon.
///
/// It only decides whether the unit is complete, and reads each byte once. It does not check that the bytes are JSON.
#[derive(Default)]
pub(super) struct UnitEnd {
    /// How many bytes of the unit were read.
    at: usize,
    in_string: bool,
    depth: usize,
}

impl UnitEnd {
    /// Whether a search has begun and has not found the end yet.
    pub(super) fn is_pending(&self) -> bool {
        self.at > 0
    }

    /// Continues the search in `unit`, which begins with the bytes of the previous calls. Returns whether the whole
    /// unit is there.
    ///
    /// A string, a number or a literal is complete only when the byte after it is there, because a number could
    /// continue.
    pub(super) fn find(&mut self, unit: &[u8]) -> bool {
        while let Some(rest) = unit.get(self.at..) {
            if self.in_string {
                let Some(special) = memchr::memchr2(b'"', b'\\', rest) else {
                    self.at = unit.len();
                    return false;
                };
                let is_quote = rest.get(special) == Some(&b'"');
                self.in_string = !is_quote;
                // The byte after a backslash is not a closing quote. It may be in the next part.
                self.at += special + if is_quote { 1 } else { 2 };
                continue;
            }
            let Some(byte) = rest.first() else { return false };
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                // The position does not move, so that a repeated search finds the unit complete again.
                b'}' | b']' if self.depth <= 1 => return true,
                b'}' | b']' => self.depth -= 1,
                b',' | b':' if self.depth == 0 => return true,
                _ => {}
            }
            self.at += 1;
        }
        false
    }
}
