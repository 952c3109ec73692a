//! Colours for terminals.

use std::{
    env,
    ffi::OsString,
    io::{IsTerminal, stdout},
};

use anstyle::{AnsiColor, Style};

/// The meaning of a coloured text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Title,
    Good,
    Warning,
    Bad,
}

impl Tone {
    fn style(self) -> Style {
        match self {
            Self::Title => Style::new().bold(),
            Self::Good => AnsiColor::Green.on_default(),
            Self::Warning => AnsiColor::Yellow.on_default(),
            Self::Bad => AnsiColor::Red.on_default().bold(),
        }
    }

    /// The tone of the state of a cluster.
    pub(crate) fn of_state(state: &str) -> Option<Self> {
        match state {
            "Ready" => Some(Self::Good),
            "Unreachable" | "Broken" => Some(Self::Bad),
            _ => Some(Self::Warning),
        }
    }
}

/// Whether an output has colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colours {
    On,
    Off,
}

impl Colours {
    /// Colours if stdout is a terminal. `NO_COLOR` disables them, and `CLICOLOR_FORCE` enables them for other outputs.
    pub(crate) fn of_stdout() -> Self {
        Self::chosen(|name| env::var_os(name), stdout().is_terminal())
    }

    fn chosen(variable: impl Fn(&str) -> Option<OsString>, terminal: bool) -> Self {
        let set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
        let forced = set("CLICOLOR_FORCE") && variable("CLICOLOR_FORCE").is_some_and(|value| value != "0");
        let dumb = variable("TERM").is_some_and(|value| value == "dumb");
        if !set("NO_COLOR") && (forced || terminal && !dumb) {
            Self::On
        } else {
            Self::Off
        }
    }

    /// The text in the colour of its tone.
    pub(crate) fn paint(self, tone: Option<Tone>, text: &str) -> String {
        match (self, tone) {
            (Self::On, Some(tone)) => {
                let style = tone.style();
                format!("{style}{text}{style:#}")
            }
            _ => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_unless_a_variable_reports_otherwise() {
        let chosen = |set: &[(&str, &str)], terminal| {
            let variable = |name: &str| {
                let found = set.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            };
            Colours::chosen(variable, terminal)
        };
        for (set, terminal, colours) in [
            (&[][..], true, Colours::On),
            (&[("NO_COLOR", "1")], true, Colours::Off),
            (&[("NO_COLOR", "")], true, Colours::On),
            (&[("TERM", "dumb")], true, Colours::Off),
            (&[("CLICOLOR_FORCE", "1")], false, Colours::On),
            (&[("CLICOLOR_FORCE", "0")], false, Colours::Off),
            (&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], true, Colours::Off),
        ] {
            assert_eq!(chosen(set, terminal), colours, "{set:?}");
        }
    }

    #[test]
    fn a_painted_text_ends_its_colour() {
        assert_eq!(Colours::On.paint(Some(Tone::Good), "ok"), "\x1b[32mok\x1b[0m");
        assert_eq!(Colours::On.paint(None, "ok"), "ok");
        assert_eq!(Colours::Off.paint(Some(Tone::Good), "ok"), "ok");
    }
}
