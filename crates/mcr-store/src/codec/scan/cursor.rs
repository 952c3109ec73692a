//! A position in some JSON, and the bytes at it.

use super::blocks::{BLOCK, special_at};

/// A position in some JSON. After a method has returned `None`, the position is undefined and must not be used.
#[derive(Clone)]
pub(in crate::codec) struct Scanner<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    /// The special bytes of the current block.
    pub(super) special: u64,
    /// The number of the current block.
    pub(super) block: usize,
}

impl<'a> Scanner<'a> {
    pub(in crate::codec) fn new(text: &'a str) -> Self {
        Self::at(text, 0)
    }

    pub(in crate::codec) fn at(text: &'a str, at: usize) -> Self {
        let block = at / BLOCK;
        Self {
            text,
            at,
            special: special_at(text.as_bytes(), block * BLOCK).unwrap_or_default(),
            block,
        }
    }

    /// Expects the end of the text. White space may come before it.
    pub(in crate::codec) fn end(mut self) -> Option<()> {
        self.peek().is_none().then_some(())
    }

    pub(in crate::codec) fn text(&self) -> &'a str {
        self.text
    }

    pub(in crate::codec) fn position(&self) -> usize {
        self.at
    }

    /// The position of the next byte that is not white space.
    pub(in crate::codec) fn next_position(&mut self) -> Option<usize> {
        self.peek()?;
        Some(self.at)
    }

    /// The next byte that is not white space.
    #[inline(always)]
    pub(in crate::codec) fn peek(&mut self) -> Option<u8> {
        match self.byte()? {
            byte if byte > b' ' => Some(byte),
            _ => self.peek_beyond_space(),
        }
    }

    /// Cold, because API servers send no white space.
    #[cold]
    fn peek_beyond_space(&mut self) -> Option<u8> {
        while matches!(self.byte()?, b' ' | b'\n' | b'\t' | b'\r') {
            self.at += 1;
        }
        self.byte()
    }

    #[inline(always)]
    pub(super) fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Skips `byte` and white space before it. Returns false and skips nothing else if the next byte is another one.
    #[inline(always)]
    pub(in crate::codec) fn accept(&mut self, byte: u8) -> bool {
        if self.peek() == Some(byte) {
            self.at += 1;
            return true;
        }
        false
    }

    /// Skips `byte` and white space before it. `None` if the next byte is another one.
    #[inline(always)]
    pub(in crate::codec) fn expect(&mut self, byte: u8) -> Option<()> {
        self.accept(byte).then_some(())
    }

    /// Skips `literal`. `None` if other bytes are next.
    #[inline(always)]
    pub(in crate::codec) fn literal(&mut self, literal: &str) -> Option<()> {
        let rest = self.text.as_bytes().get(self.at..)?;
        rest.starts_with(literal.as_bytes()).then_some(())?;
        self.at += literal.len();
        Some(())
    }

    pub(super) fn is_at(&self, is: impl FnOnce(u8) -> bool) -> bool {
        self.byte().is_some_and(is)
    }
}
