//! The `fields` of a request: what of an answer is wanted. `a,b(c,d)`.

use serde_json::{Map, Value};

/// Only what is asked for; of a list, of each of what is in it.
pub fn only(value: Value, fields: &str) -> Value {
    match value {
        Value::Object(map) => {
            let kept = split(fields).into_iter().filter_map(|field| {
                let (name, below) = match field.split_once('(') {
                    Some((name, below)) => (name, below.strip_suffix(')')),
                    None => (field, None),
                };
                let value = map.get(name)?.clone();
                let value = below.map_or(value.clone(), |below| only(value, below));
                Some((name.to_owned(), value))
            });
            Value::Object(kept.collect::<Map<_, _>>())
        }
        Value::Array(all) => Value::Array(all.into_iter().map(|one| only(one, fields)).collect()),
        other => other,
    }
}

/// At the commas that are in no brackets.
fn split(fields: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, character) in fields.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&fields[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&fields[begin..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_asked_for_is_left_out() {
        let whole = serde_json::json!({"a": 1, "b": [{"c": 2, "d": 3}], "e": {"f": 4, "g": 5}});
        let wanted = serde_json::json!({"a": 1, "b": [{"c": 2}], "e": {"g": 5}});
        assert_eq!(only(whole, "a,b(c),e(g,h),i"), wanted);
    }
}
