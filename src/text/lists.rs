//! Marks of list items and headings, which are layout and not part of what a line says.
//!
//! In: a line. Out: the same line without its marks.

/// `line` without the marks of a list item or heading: bullets, `1.`, `(2)`, `b)`, `#`, `>`, `Step 3:`.
pub fn strip_list_marker(line: &str) -> &str {
    let mut rest = line.trim();
    loop {
        let shorter = strip_one_marker(rest).trim_start();
        if shorter.len() == rest.len() || shorter.is_empty() {
            return rest;
        }
        rest = shorter;
    }
}

fn strip_one_marker(line: &str) -> &str {
    let bullet = line.trim_start_matches(['-', '*', '•', '‣', '◦', '–', '—', '#', '>', '+']);
    if bullet.len() < line.len() && bullet.starts_with(char::is_whitespace) {
        return bullet;
    }
    let (step, is_step) = match line.get(..5) {
        Some(head) if head.eq_ignore_ascii_case("step ") => (&line[5..], true),
        _ => (line, false),
    };
    let inner = step.strip_prefix('(').unwrap_or(step);
    let label_end = inner.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(inner.len());
    let (label, tail) = inner.split_at(label_end);
    let number = !label.is_empty() && label.len() <= 2 && label.bytes().all(|b| b.is_ascii_digit());
    let letter = label.len() == 1 && label.bytes().all(|b| b.is_ascii_lowercase());
    let Some(mark) = tail.chars().next() else { return line };
    let marked = match mark {
        '.' => number,
        ')' => number || letter,
        ':' => number && is_step,
        _ => false,
    };
    let after = &tail[mark.len_utf8()..];
    if marked && after.starts_with(char::is_whitespace) { after } else { line }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn list_markers_are_stripped() {
        for (line, bare) in [
            ("1. Open it", "Open it"),
            (" - * Open it", "Open it"),
            ("(2) Open it", "Open it"),
            ("b) Open it", "Open it"),
            ("## Heading", "Heading"),
            ("Step 3: Open it", "Open it"),
            ("Step by step", "Step by step"),
            ("1989. Then", "1989. Then"),
            ("3.14 is pi", "3.14 is pi"),
            ("-5 degrees", "-5 degrees"),
            ("A) x", "A) x"),
            ("•", "•"),
            ("", ""),
        ] {
            assert_eq!(strip_list_marker(line), bare, "{line:?}");
        }
    }
}
