//! The names of suites, subjects and cases, as they are written in rows and arguments.

use clap::ValueEnum;

/// The name of a value of the command line.
pub(crate) fn name(value: &impl ValueEnum) -> String {
    let named = value.to_possible_value();
    named.map_or_else(String::new, |value| value.get_name().to_owned())
}
