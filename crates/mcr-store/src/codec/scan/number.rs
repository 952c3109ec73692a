//! Numbers.

use super::cursor::Scanner;

/// Reads an integer of at most 18 digits, and its length. `None` for any other number.
pub(in crate::codec) fn parse_integer(json: &[u8]) -> Option<(i64, usize)> {
    let (negative, digits) = match json.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, json),
    };
    let mut value = 0;
    let mut len = 0;
    while let Some(digit @ b'0'..=b'9') = digits.get(len) {
        if len == 18 {
            return None;
        }
        value = value * 10 + i64::from(digit - b'0');
        len += 1;
    }
    // JSON allows no leading zeros, and serde_json reads -0 as a float.
    let zero = digits.first() == Some(&b'0') && (len > 1 || negative);
    if len == 0 || zero || matches!(digits.get(len), Some(b'.' | b'e' | b'E')) {
        return None;
    }
    Some((if negative { -value } else { value }, usize::from(negative) + len))
}

impl Scanner<'_> {
    /// Reads an integer of at most 18 digits. `None` for any other number, whose bytes stay unread.
    pub(in crate::codec) fn integer(&mut self) -> Option<i64> {
        let (value, len) = parse_integer(self.text.as_bytes().get(self.at..)?)?;
        self.at += len;
        Some(value)
    }

    /// Passes over a number.
    pub(super) fn number(&mut self) -> Option<()> {
        self.at += usize::from(self.is_at(|byte| byte == b'-'));
        // No digit may follow a leading zero.
        if self.is_at(|byte| byte == b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.is_at(|byte| byte == b'.') {
            self.at += 1;
            self.digits()?;
        }
        if self.is_at(|byte| matches!(byte, b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(self.is_at(|byte| matches!(byte, b'+' | b'-')));
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.is_at(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }
}
