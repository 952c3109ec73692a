//! Characters that hide in a text or change how it is shown: a name must not have them, and a reason has them escaped.

/// The format characters of Unicode 17.0 (general category Cf: bidirectional controls, zero-width characters, tags, …),
/// and its line and paragraph separators (Zl, Zp).
const FORMAT: [(char, char); 21] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{2064}'),
    ('\u{2066}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0001}', '\u{e0001}'),
    ('\u{e0020}', '\u{e007f}'),
];

/// Returns whether a character is a format character, or a separator of lines or paragraphs.
pub fn is_format(character: char) -> bool {
    FORMAT
        .iter()
        .any(|&(first, last)| (first..=last).contains(&character))
}

/// Returns whether a character is a control or format character. `Debug` of a string escapes all of them.
pub(crate) fn is_unprintable(character: char) -> bool {
    character.is_control() || is_format(character)
}

/// The most characters of a [`reason`].
const LONGEST_REASON: usize = 300;

/// Makes a reason of a text that others have written: the message of a condition, or of a server's error.
///
/// One line of at most 300 characters, which may end with `…`. Control characters and the format characters of Unicode, such as
/// those that change the direction of writing, are escaped.
///
/// ```
/// assert_eq!(mcr_access::reason(" no quota\nINFO all is well "), r"no quota\nINFO all is well");
/// ```
pub fn reason(text: &str) -> String {
    let mut line = String::new();
    let mut characters = 0;
    for character in text.trim().chars() {
        let before = line.len();
        if is_unprintable(character) {
            line.extend(character.escape_default())
        } else {
            line.push(character)
        }
        characters += line[before..].chars().count();
        if characters > LONGEST_REASON {
            return line.chars().take(LONGEST_REASON - 1).chain(['…']).collect();
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_reason_is_one_bounded_line_of_visible_characters(
            text in "([a\u{e4}\n\r\t\u{0}\u{1b}\u{85}\u{202e}\u{2028}\u{2066}\u{e0041}]|.){0,400}",
        ) {
            let shown = reason(&text);
            prop_assert!(shown.chars().count() <= LONGEST_REASON);
            prop_assert!(!shown.contains(is_unprintable), "{shown:?}");
            let plain = text.trim();
            let is_plain = plain.chars().count() <= LONGEST_REASON && !plain.contains(is_unprintable);
            prop_assert_eq!(is_plain, shown == plain);
        }
    }

    #[test]
    fn what_hides_or_turns_text_is_unprintable() {
        for character in "\0\u{1b}\n\u{7f}\u{9b}\u{ad}\u{61c}\u{200b}\u{200d}\u{200e}\u{2028}\u{2029}\u{202a}\u{202e}\u{2060}\u{2066}\
                          \u{2069}\u{206a}\u{feff}\u{fff9}\u{e0001}\u{e0041}"
            .chars()
        {
            assert!(is_unprintable(character), "{character:?}");
        }
        for character in " aZ09~-+/#:ü中é\u{301}\u{a0}\u{2010}\u{202f}\u{2065}\u{3000}🚢".chars() {
            assert!(!is_unprintable(character), "{character:?}");
        }
    }

    #[test]
    fn debug_escapes_all_that_is_unprintable() {
        assert!(FORMAT.is_sorted_by(|before, next| before.0 <= before.1 && before.1 < next.0));
        for character in ('\0'..=char::MAX).filter(|&character| is_unprintable(character)) {
            let text = format!("{:?}", format!("a{character}"));
            assert!(
                text.starts_with("\"a\\"),
                "U+{:04X}: {text}",
                u32::from(character)
            );
        }
    }
}
