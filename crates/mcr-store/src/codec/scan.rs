//! A JSON scanner. It finds fields and scalars without building values.
//!
//! The scanner accepts only JSON that serde_json accepts, and reads it the same way. It declines other text, and JSON
//! with more than 127 nested brackets. It declines with `None` and gives no reason: a caller that needs the reason
//! uses serde_json. Skipping a value takes about half of the instructions that serde_json takes to ignore it.

mod blocks;
mod brackets;
mod cursor;
mod number;
mod recorder;
mod string;
mod value;

pub(super) use cursor::Scanner;
pub(super) use number::parse_integer;
pub(super) use recorder::BoundedRecorder;
pub(super) use string::ScannedString;
pub(super) use value::FieldText;

#[cfg(test)]
pub(super) mod strategies;
#[cfg(test)]
mod tests;
