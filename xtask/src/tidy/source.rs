// SPDX-License-Identifier: MIT OR Apache-2.0
//! A Rust file, line by line, with code and comments separated.
//!
//! ```text
//! let a = "x{"; // y      code    `let a = "~~";     `
//!                         comment `// y`
//! ```
//! The inside of strings and character literals is replaced by `~`, so braces and words in literals
//! do not count. The scanner knows line and nested block comments, plain, byte, C and raw strings,
//! and tells lifetimes from character literals. It does not expand macros.

/// A line of a scanned file, split into code, comments and literals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The code of the line, in which `~` replaces each character inside a literal.
    pub code: String,
    /// The comments of the line, with their markers.
    pub comment: String,
    /// The text inside the line's literals, with a blank before each literal and in place of each
    /// escape.
    pub literal: String,
}

impl Line {
    /// Whether the line has code, not only blanks and comments.
    pub fn is_code(&self) -> bool {
        !self.code.trim().is_empty()
    }
}

/// A file, split into code, strings and comments.
pub struct Source {
    /// All lines of the file, in order.
    pub lines: Vec<Line>,
    /// Index of the line where the test modules at the end of the file begin; without such modules,
    /// the number of lines.
    pub tests_from: usize,
}

/// One function of a file: its name, and the lines where it begins and ends. Only functions with a
/// body are listed. Line numbers count from 0.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// The name of the function that was found.
    pub name: String,
    /// Index of the line with the keyword `fn`.
    pub first: usize,
    /// Index of the line with the function's closing brace.
    pub last: usize,
}

impl Source {
    /// Splits the text of a file into code, comments and literals.
    pub fn scan(text: &str) -> Self {
        let lines = Scanner::new(text).scan();
        let tests_from =
            (0..lines.len()).find(|&index| is_test_tail(&lines, index)).unwrap_or(lines.len());
        Source { lines, tests_from }
    }

    /// Returns the lines before the test modules at the end of the file, with their indices.
    pub fn shipped(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.lines.iter().enumerate().take(self.tests_from)
    }

    /// Every function of the file that has a body, including nested functions.
    pub fn functions(&self) -> Vec<Function> {
        let code = flat(&self.lines, 0);
        let mut found = Vec::new();
        for at in 0..code.len() {
            if !word_at(&code, at, "fn") {
                continue;
            }
            let name_from =
                at + 2 + code[at + 2..].iter().take_while(|c| c.0.is_whitespace()).count();
            let name: String = code[name_from..]
                .iter()
                .map(|c| c.0)
                .take_while(|&c| in_word(c) || c == '$')
                .collect();
            if name.is_empty() {
                continue; // `fn` begins the type of a function pointer
            }
            if let Some(last) = body_end(&code, name_from) {
                found.push(Function { name, first: code[at].1, last });
            }
        }
        found
    }
}

/// Whether `code` contains `word` as a whole word.
pub fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(in_word) && !after.is_some_and(in_word)
    })
}

fn in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn flat(lines: &[Line], from: usize) -> Vec<(char, usize)> {
    let line = |(index, line): (usize, &Line)| {
        let end = std::iter::once(('\n', index));
        line.code.chars().map(move |c| (c, index)).chain(end).collect::<Vec<_>>()
    };
    lines.iter().enumerate().skip(from).flat_map(line).collect()
}

fn word_at(code: &[(char, usize)], at: usize, word: &str) -> bool {
    let end = at + word.chars().count();
    let before = at.checked_sub(1).map(|index| code[index].0);
    let after = code.get(end).map(|c| c.0);
    end <= code.len()
        && code[at..end].iter().map(|c| c.0).eq(word.chars())
        && !before.is_some_and(in_word)
        && !after.is_some_and(in_word)
}

/// Index of the line of the brace that closes the first body (in braces) after `from`; `None` if a
/// `;` comes before any body.
fn body_end(code: &[(char, usize)], from: usize) -> Option<usize> {
    let mut brackets = 0_usize;
    let mut braces = 0_usize;
    for &(c, line) in &code[from..] {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.saturating_sub(1),
            ';' if braces == 0 && brackets == 0 => return None,
            '{' if braces > 0 || brackets == 0 => braces += 1,
            '}' if braces == 1 => return Some(line),
            '}' => braces = braces.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// Whether a `#[cfg(test)] mod … { … }` begins at line `index`, and only such modules follow up to
/// the end of the file.
fn is_test_tail(lines: &[Line], index: usize) -> bool {
    let attribute = lines[index].code.trim();
    if !attribute.starts_with("#[cfg(") || !has_word(attribute, "test") {
        return false;
    }
    let is_item = |&at: &usize| lines[at].is_code() && !lines[at].code.trim().starts_with("#[");
    let Some(item) = (index + 1..lines.len()).find(is_item) else { return false };
    if !has_word(&lines[item].code, "mod") {
        return false;
    }
    let Some(end) = body_end(&flat(lines, item), 0) else { return false };
    match (end + 1..lines.len()).find(|&at| lines[at].is_code()) {
        Some(next) => is_test_tail(lines, next),
        None => true,
    }
}

struct Scanner {
    chars: Vec<char>,
    at: usize,
    lines: Vec<Line>,
    line: Line,
}

impl Scanner {
    fn new(text: &str) -> Self {
        let chars = text.chars().collect();
        Scanner { chars, at: 0, lines: Vec::new(), line: Line::default() }
    }

    fn scan(mut self) -> Vec<Line> {
        while let Some(c) = self.peek(0) {
            match (c, self.peek(1)) {
                ('/', Some('/')) => self.line_comment(),
                ('/', Some('*')) => self.block_comment(),
                ('"', _) => self.string(),
                ('\'', _) => self.quote(),
                ('r' | 'b' | 'c', _) if self.raw_string_ahead().is_some() => self.raw_string(),
                _ => self.code(),
            }
        }
        if self.line != Line::default() {
            self.lines.push(self.line);
        }
        self.lines
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    /// Ends the line if the next character is a line break. Returns whether that character was a
    /// line break.
    fn newline(&mut self) -> bool {
        if self.peek(0) != Some('\n') {
            return false;
        }
        self.lines.push(std::mem::take(&mut self.line));
        self.at += 1;
        true
    }

    fn code(&mut self) {
        if !self.newline() {
            self.line.code.extend(self.peek(0));
            self.at += 1;
        }
    }

    /// Reads one character inside a literal, and writes `~` for it to the line's code.
    fn masked(&mut self) {
        if !self.newline() {
            let blank = self.peek(0).is_some_and(char::is_whitespace);
            self.line.code.push(if blank { ' ' } else { '~' });
            self.line.literal.extend(self.peek(0));
            self.at += 1;
        }
    }

    /// Reads a backslash and the character that it escapes, inside a literal.
    fn escape(&mut self) {
        for _ in 0..2 {
            if !self.newline() && self.peek(0).is_some() {
                self.line.code.push('~');
                self.line.literal.push(' ');
                self.at += 1;
            }
        }
    }

    fn commented(&mut self) {
        if !self.newline() {
            self.line.comment.extend(self.peek(0));
            self.at += 1;
        }
    }

    fn line_comment(&mut self) {
        while self.peek(0).is_some_and(|c| c != '\n') {
            self.commented();
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => depth += 1,
                (Some('*'), Some('/')) => depth -= 1,
                (None, _) => return,
                _ => {
                    self.commented();
                    continue;
                }
            }
            self.commented();
            self.commented();
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        self.code();
        self.line.literal.push(' ');
        while let Some(c) = self.peek(0) {
            match c {
                '"' => return self.code(),
                '\\' => self.escape(),
                _ => self.masked(),
            }
        }
    }

    /// Reads a character literal, or the quote that begins a lifetime.
    fn quote(&mut self) {
        let escaped = self.peek(1) == Some('\\');
        if !escaped && self.peek(2) != Some('\'') {
            return self.code();
        }
        self.code();
        self.masked();
        if escaped {
            self.masked();
        }
        while self.peek(0).is_some_and(|c| c != '\'' && c != '\n') {
            self.masked();
        }
        self.code();
    }

    /// The length of the opening of a raw string (5 for `br##"`) and the number of its `#`. `None`
    /// if no raw string comes next.
    fn raw_string_ahead(&self) -> Option<(usize, usize)> {
        if self.line.code.chars().next_back().is_some_and(in_word) {
            return None;
        }
        let prefix = usize::from(matches!(self.peek(0), Some('b' | 'c')));
        if self.peek(prefix) != Some('r') {
            return None;
        }
        let hashes = self.chars[self.at + prefix + 1..].iter().take_while(|&&c| c == '#').count();
        let length = prefix + 1 + hashes + 1;
        (self.peek(length - 1) == Some('"')).then_some((length, hashes))
    }

    fn raw_string(&mut self) {
        let Some((length, hashes)) = self.raw_string_ahead() else { return };
        for _ in 0..length {
            self.code();
        }
        self.line.literal.push(' ');
        let closing = |scanner: &Scanner| {
            scanner.peek(0) == Some('"')
                && (1..=hashes).all(|ahead| scanner.peek(ahead) == Some('#'))
        };
        while self.peek(0).is_some() && !closing(self) {
            self.masked();
        }
        for _ in 0..=hashes {
            self.code();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Vec<String> {
        Source::scan(text).lines.into_iter().map(|line| line.code).collect()
    }

    #[test]
    fn comments_and_strings_are_not_code() {
        assert_eq!(code("a /* { /* } */ */ b"), ["a  b"]);
        assert_eq!(code("a; // {"), ["a; "]);
        assert_eq!(code(r#"f("a\"{", b"}")"#), [r#"f("~~~~", b"~")"#]);
        assert_eq!(code("r#\"a\"}\n{\"# + 1"), ["r#\"~~~", "~\"# + 1"]);
        assert_eq!(code(r"('{', '\'', '\u{7d}', b'}')"), ["('~', '~~', '~~~~~~', b'~')"]);
    }

    #[test]
    fn lifetimes_and_raw_names_are_code() {
        assert_eq!(code("fn f<'a>(r#type: &'a str) {"), ["fn f<'a>(r#type: &'a str) {"]);
    }

    #[test]
    fn functions_end_at_their_own_brace() {
        let text = "fn a(x: [u8; 2]) -> fn() {\n  if x { \"}\"; }\n}\ntrait T { fn b(); }\n";
        let functions = Source::scan(text).functions();
        assert_eq!(functions, [Function { name: "a".into(), first: 0, last: 2 }]);
    }

    #[test]
    fn nested_functions_count_on_their_own() {
        let functions = Source::scan("fn a() {\n fn b() {\n }\n}\n").functions();
        let spans: Vec<_> = functions.iter().map(|f| (f.first, f.last)).collect();
        assert_eq!(spans, [(0, 3), (1, 2)]);
    }

    #[test]
    fn only_test_modules_at_the_end_are_a_tail() {
        let tail =
            "fn a() {}\n\n#[cfg(test)]\nmod tests {\n}\n#[cfg(all(test, loom))]\nmod models {\n}\n";
        assert_eq!(Source::scan(tail).tests_from, 2);
        let middle = "#[cfg(test)]\nmod tests {\n}\nfn a() {}\n";
        assert_eq!(Source::scan(middle).tests_from, 4);
        assert_eq!(Source::scan("#[cfg(test)]\nuse a::b;\n").tests_from, 2);
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("unsafe { x }", "unsafe"));
        assert!(!has_word("#![deny(unsafe_code)]", "unsafe"));
    }
}
