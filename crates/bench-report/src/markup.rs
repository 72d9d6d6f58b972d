//! Text inside HTML and SVG: no character of it means anything.

/// Escapes text and quoted attributes. Control characters, which neither may hold, become spaces.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' => out.push('\n'),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
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
