//! Text inside HTML and SVG: no character of it means anything.

use std::fmt;

use askama::filters::Escaper;

/// Escapes text and quoted attributes. Control characters, which neither may hold, become spaces.
#[derive(Clone, Copy, Debug)]
pub struct Markup;

impl Escaper for Markup {
    fn write_escaped_str<W: fmt::Write>(&self, mut out: W, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| match c {
            '&' => out.write_str("&amp;"),
            '<' => out.write_str("&lt;"),
            '>' => out.write_str("&gt;"),
            '"' => out.write_str("&quot;"),
            '\'' => out.write_str("&#39;"),
            '\n' => out.write_char('\n'),
            c if c.is_control() => out.write_char(' '),
            c => out.write_char(c),
        })
    }
}

pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // Writing to a string cannot fail.
    let _ = Markup.write_escaped_str(&mut out, text);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_could_open_a_tag_or_end_an_attribute() {
        assert_eq!(escape("<b a='1' c=\"2\">&\0\n"), "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp; \n");
    }
}
