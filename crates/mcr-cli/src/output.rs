//! Output: text that is safe for a terminal, tables, JSON and progress.

use std::io::{self, IsTerminal, Write, stderr, stdout};

use mcr_core::internal::is_format;
use serde::Serialize;

use crate::colour::{Colours, Tone};

/// Makes a text a single line without control characters, and escapes format characters. Text from a cluster may
/// contain anything, even sequences that move the cursor or change the direction of writing.
pub(crate) fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            char if is_format(char) => line.extend(char.escape_unicode()),
            char if char.is_control() => line.push(' '),
            char => line.push(char),
        }
    }
    line
}

/// Makes a name a single word, so that a name with spaces can't look like several columns. Escapes invisible
/// characters, so that two different names never look the same.
pub(crate) fn one_word(name: &str) -> String {
    let unruly = |char: char| char.is_whitespace() || char.is_control() || is_format(char);
    if name.contains(unruly) {
        format!("{name:?}")
    } else {
        name.to_owned()
    }
}

/// Aligns rows below a header. The last column may have any width; the others are padded. `tone` gets the title of the
/// column and the cell.
pub(crate) fn table(
    header: &[&str],
    rows: &[Vec<String>],
    colours: Colours,
    tone: impl Fn(&str, &str) -> Option<Tone>,
) -> String {
    let last = header.len().saturating_sub(1);
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let cells = row.iter().enumerate();
            cells.map(|(column, cell)| shown(cell, column == last)).collect()
        })
        .collect();
    let length = |cell: &str| cell.chars().count();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| length(cell)).max().unwrap_or(0);
        widest.max(header.get(column).map_or(0, |title| length(title)))
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    // Escape sequences have no width, so a cell is painted after its padding is known.
    let line = |cells: &mut dyn Iterator<Item = (&str, Option<Tone>)>| {
        let mut line = String::new();
        for (column, ((cell, tone), width)) in cells.zip(&widths).enumerate() {
            line.push_str(&colours.paint(tone, cell));
            if column < last {
                line.push_str(&" ".repeat(width.saturating_sub(length(cell)) + 2));
            }
        }
        format!("{}\n", line.trim_end())
    };
    let mut text = line(&mut header.iter().map(|title| (*title, Some(Tone::Title))));
    for row in &rows {
        let cells = row.iter().map(String::as_str).zip(header);
        text.push_str(&line(&mut cells.map(|(cell, title)| (cell, tone(title, cell)))));
    }
    text
}

fn shown(cell: &str, sentence: bool) -> String {
    match cell.trim() {
        "" => "-".to_owned(),
        cell if sentence => printable(cell),
        cell => one_word(cell),
    }
}

/// Writes to stdout. A closed pipe (`| head -1`) is not an error.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Writes a line to stdout. Returns false if the pipe is closed.
pub(crate) fn print_line(text: &str) -> io::Result<bool> {
    let mut out = stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
        Ok(()) => Ok(true),
    }
}

pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(format!("{}\n", escaped(&serde_json::to_string_pretty(value)?)))
}

/// Escapes format characters in a JSON document, without a change of its meaning. Control characters are escaped
/// already.
pub(crate) fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for char in json.chars() {
        if !is_format(char) {
            text.push(char);
            continue;
        }
        for unit in char.encode_utf16(&mut [0; 2]) {
            text.push_str(&format!("\\u{unit:04x}"));
        }
    }
    text
}

/// A line of progress on stderr that overwrites itself. Only shown if stderr is a terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    on: bool,
    shown: String,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            on: stderr().is_terminal(),
            shown: String::new(),
        }
    }

    pub(crate) fn show(&mut self, text: &str) {
        // A longer line would wrap, and could not be overwritten.
        let text: String = printable(text).chars().take(78).collect();
        if self.on && text != self.shown {
            let _ = write!(stderr(), "\r\x1b[2K{text}");
            let _ = stderr().flush();
            self.shown = text;
        }
    }

    pub(crate) fn clear(&mut self) {
        if !self.shown.is_empty() {
            let _ = write!(stderr(), "\r\x1b[2K");
            let _ = stderr().flush();
            self.shown.clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_in_its_cell() {
        let rows = vec![
            vec![
                "a\x1b[2J\nb\u{202e}".to_owned(),
                "Ready".to_owned(),
                "x".to_owned(),
            ],
            vec!["eu".to_owned(), String::new(), "fine\r\nreally".to_owned()],
        ];
        assert_eq!(
            table(&["NAME", "STATE", "REASON"], &rows, Colours::Off, |_, _| None),
            "NAME                     STATE  REASON\n\
             \"a\\u{1b}[2J\\nb\\u{202e}\"  Ready  x\n\
             eu                       -      fine  really\n"
        );
    }

    #[test]
    fn colours_do_not_move_columns() {
        let rows = vec![
            vec!["eu".to_owned(), "Ready".to_owned(), String::new()],
            vec!["us".to_owned(), "Unreachable".to_owned(), "refused".to_owned()],
        ];
        let table = |colours| {
            table(&["NAME", "STATE", "REASON"], &rows, colours, |title, cell| {
                Tone::of_state(cell).filter(|_| title == "STATE")
            })
        };
        let coloured = table(Colours::On);
        assert!(
            coloured.contains("eu    \x1b[32mReady\x1b[0m        -\n"),
            "{coloured:?}"
        );
        let plain: String = coloured
            .split('\x1b')
            .enumerate()
            .map(|(number, part)| match number {
                0 => part,
                _ => part.split_once('m').unwrap().1,
            })
            .collect();
        assert_eq!(plain, table(Colours::Off));
    }

    #[test]
    fn no_format_character_reaches_a_terminal() {
        let text = "prod\u{202e}\u{61c}\u{2060}\u{feff}\u{e0041}";
        assert_eq!(printable(text), r"prod\u{202e}\u{61c}\u{2060}\u{feff}\u{e0041}");
        assert_eq!(one_word("prod\u{200b}"), r#""prod\u{200b}""#);
        assert_eq!(one_word("zürich\\x"), "zürich\\x");
        let document = json(&[text, "zürich"]).unwrap();
        assert!(
            document.contains("zürich") && !document.contains(is_format),
            "{document}"
        );
        assert_eq!(
            serde_json::from_str::<Vec<String>>(&document).unwrap(),
            [text, "zürich"]
        );
    }
}
