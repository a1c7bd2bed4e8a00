// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages that show the table of results: README.md, and a page of the guide that also shows the
//! plot.

use std::fs;

/// Writes the table into README.md and the page of the guide, and the plot into the directory of
/// the guide's page.
///
/// # Errors
/// If a page has no marker comments for the table, or cannot be written.
pub fn write(table: &str, plot: &str) -> Result<(), String> {
    let cannot = |path: &str, error| format!("cannot write {path}: {error}");
    fs::write(PLOT, plot).map_err(|error| cannot(PLOT, error))?;
    let guide =
        format!("![Shared memory ÷ Unix socket, for each language](languages.svg)\n\n{table}");
    for (path, content) in [("README.md", table), (GUIDE, &guide)] {
        let text = fs::read_to_string(path).map_err(|error| format!("no {path}: {error}"))?;
        let text = replaced(&text, content).ok_or_else(|| format!("{path} has no {BEGIN}"))?;
        fs::write(path, text).map_err(|error| cannot(path, error))?;
        println!("written: {path}");
    }
    Ok(())
}

/// Replaces the text between the page's two marker comments by `content`; `None` if the page has no
/// such comments.
fn replaced(text: &str, content: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{content}\n{END}{after}"))
}

const PLOT: &str = "docs/guide/src/languages.svg";
const GUIDE: &str = "docs/guide/src/measuring.md";
const BEGIN: &str = "<!-- cargo xtask bench-languages --write: begin -->";
const END: &str = "<!-- cargo xtask bench-languages --write: end -->";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_replaced_between_the_comments() {
        let page = format!("before\n{BEGIN}\n\nold\n{END}\nafter\n");
        let expected = format!("before\n{BEGIN}\n\nnew\n\n{END}\nafter\n");
        assert_eq!(replaced(&page, "new\n"), Some(expected.clone()));
        assert_eq!(replaced(&expected, "new\n"), Some(expected));
        assert_eq!(replaced("no comment", "new"), None);
    }
}
