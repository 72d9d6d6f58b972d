//! Headers that are stored with an object but not returned as they are: the sizes and checksums of its parts, and
//! its tags. Their names cannot be set by any request. Pure.

use std::ops::Range;

use crate::metadata_store::Headers;

/// The sizes of the parts, run-length encoded: `5242880x3,100`.
const PARTS: &str = "x-forebay-parts";
/// The checksums of the parts in order, in base64, with commas.
const PART_SUMS: &str = "x-forebay-part-sums";
/// The tags in the form of `x-amz-tagging`.
const TAGS: &str = "x-forebay-tags";
/// The longest text; a longer one is not stored.
const BYTES_MAX: usize = 60_000;

/// Whether this header must not appear in an answer.
pub fn is_internal(name: &str) -> bool {
    name.starts_with("x-forebay-")
}

fn get<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

pub fn put_parts(headers: &mut Headers, sizes: &[u64], sums: Option<Vec<String>>) {
    let mut runs: Vec<(u64, usize)> = Vec::new();
    for size in sizes {
        match runs.last_mut() {
            Some((known, count)) if known == size => *count += 1,
            _ => runs.push((*size, 1)),
        }
    }
    let texts = runs.iter().map(|(size, count)| match count {
        1 => size.to_string(),
        _ => format!("{size}x{count}"),
    });
    let texts =
        [(PARTS, Some(texts.collect::<Vec<_>>().join(","))), (PART_SUMS, sums.map(|sums| sums.join(",")))];
    for (name, text) in texts {
        if let Some(text) = text.filter(|text| text.len() <= BYTES_MAX) {
            headers.push((name.to_owned(), text));
        }
    }
}

/// The sizes of the parts in order. `None`: the object is not known to have parts.
pub fn parts(headers: &Headers) -> Option<Vec<u64>> {
    let mut sizes = Vec::new();
    for run in get(headers, PARTS)?.split(',') {
        let (size, count) = run.split_once('x').unwrap_or((run, "1"));
        let (size, count) = (size.parse().ok()?, count.parse::<usize>().ok()?);
        if sizes.len() + count > crate::ops::NUMBER_MAX as usize {
            return None;
        }
        sizes.resize(sizes.len() + count, size);
    }
    Some(sizes)
}

pub fn part_sums(headers: &Headers) -> Vec<String> {
    get(headers, PART_SUMS).map_or(Vec::new(), |text| text.split(',').map(str::to_owned).collect())
}

/// The byte range of part `number` (from 1 on), and the number of parts. An object that is not known to have parts
/// is one part. `None`: there is no such part.
pub fn part(headers: &Headers, size: u64, number: i32) -> Option<(Range<u64>, usize)> {
    let sizes =
        parts(headers).filter(|sizes| sizes.iter().sum::<u64>() == size).unwrap_or_else(|| vec![size]);
    let at = usize::try_from(number).ok()?.checked_sub(1)?;
    let length = *sizes.get(at)?;
    let start: u64 = sizes[..at].iter().sum();
    Some((start..start + length, sizes.len()))
}

pub fn tags(headers: &Headers) -> Option<&str> {
    get(headers, TAGS)
}

pub fn set_tags(headers: &mut Headers, tags: Option<String>) {
    headers.retain(|(name, _)| name != TAGS);
    headers.extend(tags.filter(|tags| !tags.is_empty()).map(|tags| (TAGS.to_owned(), tags)));
}

/// The headers that hold for a copy, which has one part: all but those of parts.
pub fn for_copy(headers: &Headers) -> Headers {
    let is_of_parts = |name: &str, value: &str| {
        name == PARTS
            || name == PART_SUMS
            || name == "x-amz-checksum-type"
            || name.starts_with("x-amz-checksum-") && value.contains('-')
    };
    headers.iter().filter(|(name, value)| !is_of_parts(name, value)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_back_and_each_has_its_bytes() {
        let mut headers = Headers::new();
        put_parts(&mut headers, &[5, 5, 5, 2], Some(vec!["a".into(), "b".into(), "c".into(), "d".into()]));
        assert_eq!(headers[0].1, "5x3,2");
        assert_eq!(parts(&headers), Some(vec![5, 5, 5, 2]));
        assert_eq!(part_sums(&headers), ["a", "b", "c", "d"]);
        assert_eq!(part(&headers, 17, 4), Some((15..17, 4)));
        assert_eq!(part(&headers, 17, 5), None);
        assert_eq!(part(&headers, 17, 0), None);
        assert_eq!(part(&headers, 99, 1), Some((0..99, 1)), "of another state of the object");
        assert_eq!(part(&Headers::new(), 3, 1), Some((0..3, 1)));
        assert_eq!(part(&Headers::new(), 3, 2), None);
        let huge = vec![(PARTS.to_owned(), "1x18446744073709551615".to_owned())];
        assert_eq!(parts(&huge), None);
    }

    #[test]
    fn a_copy_keeps_what_is_true_of_it() {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut headers = vec![
            header("content-type", "a/b"),
            header("x-amz-checksum-crc32", "AAAAAA==-2"),
            header("x-amz-checksum-crc64nvme", "AAAAAAAAAAA="),
            header("x-amz-checksum-type", "COMPOSITE"),
        ];
        put_parts(&mut headers, &[1, 2], None);
        set_tags(&mut headers, Some("a=b".into()));
        let names: Vec<_> = for_copy(&headers).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["content-type", "x-amz-checksum-crc64nvme", TAGS]);
        assert_eq!(tags(&headers), Some("a=b"));
    }
}
