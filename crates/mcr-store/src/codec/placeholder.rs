//! The placeholder that stands for a string or a number in a template.

/// Stands for one string or one number. In JSON this byte can only occur inside of strings.
pub(super) const PLACEHOLDER: u8 = b'\x7f';
/// [`PLACEHOLDER`] as text.
pub(super) const PLACEHOLDER_STR: &str = "\x7f";
/// The placeholder of a string. The quotes are part of the template.
pub(super) const QUOTED_PLACEHOLDER: &str = "\"\x7f\"";
