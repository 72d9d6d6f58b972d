//! Text inside HTML and SVG: no character of it means anything.

use std::fmt::{Result, Write};

use askama::filters::Escaper;

/// Escapes text and quoted attributes. Control characters, which neither may hold, become spaces.
#[derive(Clone, Copy)]
pub struct MarkupText;

impl Escaper for MarkupText {
    fn write_escaped_str<W: Write>(&self, mut out: W, text: &str) -> Result {
        text.chars().try_for_each(|c| match c {
            '&' => out.write_str("&amp;"),
            '<' => out.write_str("&lt;"),
            '>' => out.write_str("&gt;"),
            '"' => out.write_str("&quot;"),
            '\'' => out.write_str("&#39;"),
            c if c.is_control() && c != '\n' => out.write_char(' '),
            c => out.write_char(c),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_could_open_a_tag_or_end_an_attribute() {
        let mut out = String::new();
        MarkupText.write_escaped_str(&mut out, "<b a='1' c=\"2\">&\0\n").unwrap();
        assert_eq!(out, "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp; \n");
    }
}
